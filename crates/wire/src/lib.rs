//! Codecs of the wire protocols, one module a protocol.
//!
//! Each type has [`encode`](Xdr::encode) and [`decode`](Xdr::decode). Decoding does not copy:
//! opaque data and names are reference-counted slices of the message, and memory is bounded by the
//! bytes received. Hostile input becomes a typed [`Error`], never a panic.
//!
//! Read `xdr` first, then `rpc` and `record`, then the programs: `portmap`, `rpcbind`, `mount`,
//! `nfs2`, `nfs3`, `nfsacl`; `link` has the frames of the link protocol, `urgency` the priorities of calls,
//! `fuse` the kernel's protocol of file systems in user space.

#[macro_use]
mod xdr;

#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod fuse;
pub mod link;
#[allow(missing_docs, reason = "the names are the RFC's")]
pub mod mount;
#[allow(missing_docs, reason = "the names are the RFC's")]
pub mod nfs2;
#[allow(missing_docs, reason = "the names are the RFC's")]
pub mod nfs3;
#[allow(missing_docs, reason = "the names are the protocol's")]
pub mod nfsacl;
#[allow(missing_docs, reason = "the names are the RFC's")]
pub mod portmap;
pub mod record;
#[allow(missing_docs, reason = "the names are the RFC's")]
pub mod rpc;
#[allow(missing_docs, reason = "the names are the RFC's")]
pub mod rpcbind;
pub mod urgency;

pub use xdr::{Error, Reader, Xdr};
