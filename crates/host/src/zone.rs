//! Zones of link-local IPv6 addresses (RFC 4007), such as the interface in `fe80::1%eth0`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use rustix::net::netdevice::{index_to_name, name_to_index};

/// The index of the interface that `zone` names or numbers.
pub fn index(zone: &str) -> io::Result<u32> {
    if let Ok(index) = zone.parse() {
        return Ok(index);
    }
    let none = |_| io::Error::new(io::ErrorKind::NotFound, format!("no network interface here is called {zone}"));
    name_to_index(&socket()?, zone).map_err(none)
}

/// The name of the interface of an address with a zone; its index if it has no name.
fn name(addr: &SocketAddr) -> Option<String> {
    let SocketAddr::V6(v6) = addr else { return None };
    let index = Some(v6.scope_id()).filter(|index| *index != 0)?;
    let named = socket().ok().and_then(|socket| index_to_name(&socket, index).ok());
    Some(named.unwrap_or_else(|| index.to_string()))
}

/// Any socket can query interfaces.
fn socket() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
}

/// An address and port for people: `[fe80::1%eth0]:2049`.
pub fn shown(addr: &SocketAddr) -> String {
    with_zone(addr, "%")
}

/// An address and port for a URL: `[fe80::1%25eth0]:2049` (RFC 6874).
pub fn in_url(addr: &SocketAddr) -> String {
    with_zone(addr, "%25")
}

fn with_zone(addr: &SocketAddr, mark: &str) -> String {
    match name(addr) {
        Some(zone) => format!("[{}{mark}{zone}]:{}", addr.ip(), addr.port()),
        None => addr.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_found_by_name_and_number() {
        let loopback = index("lo").unwrap();
        assert_eq!(index("17").unwrap(), 17);
        let unknown = index("nowhere0").unwrap_err().to_string();
        assert!(unknown.contains("no network interface here is called nowhere0"), "{unknown}");
        let addr: SocketAddr = format!("[fe80::1%{loopback}]:7").parse().unwrap();
        assert_eq!((shown(&addr), in_url(&addr)), ("[fe80::1%lo]:7".into(), "[fe80::1%25lo]:7".into()));
        for plain in ["[::1]:7", "10.0.0.1:7"] {
            assert_eq!(in_url(&plain.parse().unwrap()), plain);
        }
    }
}
