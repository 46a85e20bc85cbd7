//! Whose an address is, where something is shared out among those who come.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// What counts as one host: an address, or of IPv6 a network of 64 bits, all of whose addresses may be one
/// machine's.
pub fn host_of(addr: SocketAddr) -> IpAddr {
    match addr.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_network_of_64_bits() {
        let host = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(host("10.0.0.1:1"), host("[::ffff:10.0.0.1]:2"));
        assert_ne!(host("10.0.0.1:1"), host("10.0.0.2:1"));
        assert_eq!(host("[2001:db8::1]:1"), host("[2001:db8:0:0:9::2]:1"));
        assert_ne!(host("[2001:db8::1]:1"), host("[2001:db8:0:1::1]:1"));
    }
}
