//! NFS client core: call table, retry policies, block size, window.
