//! Bytes on the wire, one file a protocol.
//!
//! Each type knows how to [`encode`](Xdr::encode) and [`decode`](Xdr::decode) itself.
//! Decoding borrows: opaque data and names are reference-counted slices of the message they
//! came in, and nothing is allocated beyond what the bytes received call for. Hostile input
//! becomes a typed [`Error`], never a panic.

#[macro_use]
mod xdr;

pub mod link;
pub mod mount;
pub mod nfs2;
pub mod nfs3;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod rpcbind;
pub mod urgency;

pub use xdr::{Error, Reader, Xdr};
