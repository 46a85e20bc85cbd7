//! Where a peer is: `HOST:PORT` on the command line or in a file.

use std::net::{SocketAddr, ToSocketAddrs};

use remora_host::client::ClientError;

use crate::exit::{Error, Result};

/// The first address of `peer`; blocks while names are looked up. `wrong` says what to write where it is
/// none.
pub(crate) fn resolve(peer: &str, wrong: impl FnOnce() -> String) -> Result<SocketAddr> {
    resolve_all(peer, wrong).map(|(first, _)| first)
}

/// The same: the first one, and all.
pub(crate) fn resolve_all(peer: &str, wrong: impl FnOnce() -> String) -> Result<(SocketAddr, Vec<SocketAddr>)> {
    let none = |source| Error::remote(peer)(ClientError::Resolve { host: peer.to_owned(), source });
    let found: Vec<_> = match peer.to_socket_addrs() {
        Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => return Err(Error::Usage(wrong())),
        found => found.map_err(none)?.collect(),
    };
    let first = *found.first().ok_or_else(|| none(std::io::ErrorKind::NotFound.into()))?;
    Ok((first, found))
}
