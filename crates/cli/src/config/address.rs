//! Addresses on the command line or in a file: `HOST:PORT` of a peer, `[HOST:]PORT` to listen on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use remora_atp::stream::Target;
use remora_host::client::ClientError;
use remora_host::zone;

use crate::output::exit::{Error, Result, io_text};

/// Reads `[HOST:]PORT`, to listen on; a port alone is one of loopback. Blocks while names are looked up.
pub(crate) fn listen(text: &str) -> std::result::Result<SocketAddr, String> {
    listen_on(Ipv4Addr::LOCALHOST, text)
}

/// As [`listen`], but a port alone is one of all addresses.
pub(crate) fn listen_everywhere(text: &str) -> std::result::Result<SocketAddr, String> {
    listen_on(Ipv4Addr::UNSPECIFIED, text)
}

/// Of a name's addresses the first IPv4 one is taken: clients try those first.
fn listen_on(default: Ipv4Addr, text: &str) -> std::result::Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(default.into(), port));
    }
    let wrong = || "expected a port, or HOST:PORT as in 127.0.0.1:2049 or localhost:2049".to_owned();
    let numbered = numbered(text).map_err(|e| e.to_string())?;
    let found: Vec<SocketAddr> = match numbered.as_deref().unwrap_or(text).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Err(wrong()),
        Err(e) => return Err(format!("cannot find the address: {}", io_text(&e))),
    };
    found.iter().find(|a| a.is_ipv4()).or(found.first()).copied().ok_or_else(wrong)
}

/// Reads `[HOST:]PORT` of a target, whose name is looked up later; a port alone is one of loopback there.
pub(crate) fn target(text: &str) -> std::result::Result<Target, String> {
    match text.parse::<u16>() {
        Ok(port) => Target::new(&Ipv4Addr::LOCALHOST.to_string(), port),
        Err(_) => text.parse(),
    }
    .map_err(|e| e.to_string())
}

/// The first address of `peer`, a port alone being one of loopback; blocks while names are looked up. `wrong` says what to write where it is
/// none.
pub(crate) fn resolve(peer: &str, wrong: impl FnOnce() -> String) -> Result<SocketAddr> {
    resolve_all(peer, wrong).map(|(first, _)| first)
}

/// The same: the first one, and all.
pub(crate) fn resolve_all(peer: &str, wrong: impl FnOnce() -> String) -> Result<(SocketAddr, Vec<SocketAddr>)> {
    if let Ok(port) = peer.parse() {
        let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        return Ok((here, vec![here]));
    }
    let none = |source| Error::remote(peer)(ClientError::Resolve { host: peer.to_owned(), source });
    let numbered = numbered(peer)?;
    let found: Vec<_> = match numbered.as_deref().unwrap_or(peer).to_socket_addrs() {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Err(Error::Usage(wrong())),
        found => found.map_err(none)?.collect(),
    };
    let first = *found.first().ok_or_else(|| none(io::ErrorKind::NotFound.into()))?;
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
    fn listen_takes_ports_addresses_and_names() {
        for (text, addr) in [
            ("8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:0", "[::1]:0"),
            ("localhost:2049", "127.0.0.1:2049"),
        ] {
            assert_eq!(listen(text).unwrap().to_string(), addr, "{text}");
        }
        assert_eq!(listen_everywhere("51900").unwrap().to_string(), "0.0.0.0:51900");
        for text in ["", "65536", "-1", "localhost", "localhost:", "localhost:65536", "127.0.0.1"] {
            let why = listen(text).unwrap_err();
            assert!(why.contains("expected a port, or HOST:PORT"), "{text}: {why}");
        }
    }

    #[test]
    fn port_alone_is_a_target_on_loopback() {
        for (text, at) in [("5001", "127.0.0.1:5001"), ("nas:80", "nas:80"), ("[::1]:80", "[::1]:80")] {
            assert_eq!(target(text).unwrap().to_string(), at);
        }
        assert!(target("0").is_err() && target("nas").is_err() && target("65536").is_err());
        let (first, all) = resolve_all("5001", String::new).unwrap();
        assert_eq!((first.to_string(), all.len()), ("127.0.0.1:5001".into(), 1));
    }

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
