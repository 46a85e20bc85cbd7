//! Where a peer is: `HOST:PORT` on the command line or in a file.

use std::net::{SocketAddr, SocketAddrV6, ToSocketAddrs};

use remora_host::client::ClientError;
use remora_host::zone;

use crate::exit::{Error, Result};

/// The first address of `peer`; blocks while names are looked up. `wrong` says what to write where it is
/// none.
pub(crate) fn resolve(peer: &str, wrong: impl FnOnce() -> String) -> Result<SocketAddr> {
    resolve_all(peer, wrong).map(|(first, _)| first)
}

/// The same: the first one, and all.
pub(crate) fn resolve_all(peer: &str, wrong: impl FnOnce() -> String) -> Result<(SocketAddr, Vec<SocketAddr>)> {
    let none = |source| Error::remote(peer)(ClientError::Resolve { host: peer.to_owned(), source });
    let numbered = numbered(peer)?;
    let found: Vec<_> = match numbered.as_deref().unwrap_or(peer).to_socket_addrs() {
        Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => return Err(Error::Usage(wrong())),
        found => found.map_err(none)?.collect(),
    };
    let first = *found.first().ok_or_else(|| none(std::io::ErrorKind::NotFound.into()))?;
    Ok((first, found))
}

/// `[fe80::1%eth0]:51900` with the number of the interface, as the standard library reads it; `None` for others.
fn numbered(peer: &str) -> Result<Option<String>> {
    let Some((address, (name, port))) = peer.split_once('%').and_then(|(a, rest)| Some((a, rest.split_once(']')?)))
    else {
        return Ok(None);
    };
    if peer.parse::<SocketAddrV6>().is_ok() || format!("{address}]{port}").parse::<SocketAddrV6>().is_err() {
        return Ok(None);
    }
    match zone::index(name) {
        Ok(index) => Ok(Some(format!("{address}%{index}]{port}"))),
        Err(e) => Err(Error::refused(peer, e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_may_be_named() {
        let is = |peer| numbered(peer).unwrap();
        assert_eq!(is("[fe80::1%lo]:7"), Some("[fe80::1%1]:7".into()));
        for other in ["[fe80::1%1]:7", "[fe80::1]:7", "10.0.0.1:7", "a%b:7", "[a%lo]:7", "[fe80::1%lo]", "nas:7"] {
            assert_eq!(is(other), None, "{other}");
        }
        let said = numbered("[fe80::1%nowhere0]:7").unwrap_err().to_string();
        assert!(said.contains("no network interface here is called nowhere0"), "{said}");
    }
}
