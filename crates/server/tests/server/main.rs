//! The server as a client sees it: bytes in, bytes out.

mod access;
mod acls;
mod caching;
mod directories;
mod durability;
mod files;
mod hostile;
mod lost_write;
mod mount_lists;
mod mounting;
mod names;
mod odd;
mod reflection;
mod v2;
mod wide;
mod world;
