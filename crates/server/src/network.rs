//! Networks that may use an export.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// A range of addresses: `192.168.0.0/24`, `fd00::/8`, or a single address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(IpNet);

impl Network {
    /// Whether `ip` is in it. An IPv4 address counts as itself in its IPv6 form, too.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(s: &str) -> Result<Network, String> {
        s.parse::<IpNet>()
            .or_else(|_| s.parse::<IpAddr>().map(|ip| IpNet::from(ip.to_canonical())))
            .map(Network)
            .map_err(|_| format!("'{s}' is not a network: expected an address, or one with a prefix as in 10.0.0.0/8"))
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
    fn contains_what_it_says() {
        for (net, ip, inside) in [
            ("10.0.0.0/8", "10.200.3.4", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("::ffff:192.0.2.7", "192.0.2.7", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "10.0.0.1", false),
        ] {
            assert_eq!(net.parse::<Network>().unwrap().contains(ip.parse().unwrap()), inside, "{ip} in {net}");
        }
        for bad in ["", "10.0.0.0/33", "home", "10.0.0"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
