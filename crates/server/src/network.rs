//! Networks in access rules.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Bits before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

/// A range of addresses: `192.168.0.0/24`, `192.168.0.0/255.255.255.0`, `fd00::/8`, or a single address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network(IpNet);

impl Network {
    /// Whether `ip` is inside. IPv4-mapped IPv6 addresses count as IPv4 addresses.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip.to_canonical())
    }
}

/// The IPv4 network of an IPv4-mapped one. Clears the host bits.
fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_BITS)),
        IpNet::V4(_) => None,
    };
    let v4 = mapped.and_then(|(addr, len)| Ipv4Net::new(addr, len).ok());
    v4.map_or(net, IpNet::V4).trunc()
}

/// Parses `ADDRESS/MASK` with a mask in dotted decimals.
fn with_mask(s: &str) -> Option<IpNet> {
    let (addr, mask) = s.split_once('/')?;
    Ipv4Net::with_netmask(addr.parse().ok()?, mask.parse().ok()?).ok().map(IpNet::V4)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(s: &str) -> Result<Network, String> {
        let net = s.parse::<IpNet>().ok().or_else(|| s.parse::<IpAddr>().map(IpNet::from).ok());
        net.or_else(|| with_mask(s)).map(|net| Network(canonical(net))).ok_or_else(|| {
            format!("'{s}' is not a network: expected an address, or one with a prefix as in 10.0.0.0/8")
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_its_addresses() {
        for (net, ip, inside) in [
            ("10.0.0.0/8", "10.200.3.4", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/255.0.0.0", "10.200.3.4", true),
            ("10.0.0.0/255.255.0.0", "10.200.3.4", false),
            ("::ffff:10.0.0.0/104", "10.200.3.4", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("::ffff:192.0.2.7", "192.0.2.7", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "10.0.0.1", false),
        ] {
            assert_eq!(net.parse::<Network>().unwrap().contains(ip.parse().unwrap()), inside, "{ip} in {net}");
        }
        for bad in ["", "10.0.0.0/33", "home", "10.0.0", "10.0.0.0/", "10.0.0.0/255.0.255.0", "fd00::/255.0.0.0", "/8"]
        {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn is_shown_without_host_bits() {
        for (text, shown) in
            [("10.1.2.3/8", "10.0.0.0/8"), ("10.1.2.3/255.255.0.0", "10.1.0.0/16"), ("fd00::1/8", "fd00::/8")]
        {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), shown);
        }
    }
}
