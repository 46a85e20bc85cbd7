//! Target of a connection: host name or address, and port.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Maximum length of a host name (RFC 1035, section 2.3.4, as text).
const HOST_MAX: usize = 253;

/// A host and a TCP port. Compared as text, without case; names are not resolved.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Target {
    host: String,
    port: u16,
}

/// Why a text is not a target.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// No port, or an invalid one.
    #[error("expected HOST:PORT, as in nas.example.net:80 or [2001:db8::7]:80")]
    Port,
    /// Neither a host name nor an address.
    #[error("'{0}' is neither a host's name nor an address")]
    Host(String),
}

impl Target {
    /// Creates a target of a host name or address (IPv6 without brackets) and a port other than 0.
    pub fn new(host: &str, port: u16) -> Result<Target, TargetError> {
        let is_name = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        if host.is_empty() || host.len() > HOST_MAX || !(is_name || host.parse::<Ipv6Addr>().is_ok()) {
            return Err(TargetError::Host(host.chars().take(HOST_MAX).collect()));
        }
        if port == 0 {
            return Err(TargetError::Port);
        }
        let host = match host.parse::<Ipv6Addr>() {
            Ok(addr) => addr.to_string(),
            Err(_) => host.to_ascii_lowercase(),
        };
        Ok(Target { host, port })
    }

    /// The name or address in lower case, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Reads `HOST:PORT`, with IPv6 addresses in brackets.
impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Port)?;
        let port = port.parse().map_err(|_| TargetError::Port)?;
        let is_bare = host.contains(':') && !host.starts_with('[');
        if is_bare {
            return Err(TargetError::Port);
        }
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).filter(|h| h.contains(':'));
        Target::new(inner.unwrap_or(host), port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_and_print() {
        for (text, shown) in [
            ("nas.example.net:80", "nas.example.net:80"),
            ("NAS:65535", "nas:65535"),
            ("10.0.0.7:1", "10.0.0.7:1"),
            ("[2001:DB8::7]:22", "[2001:db8::7]:22"),
            ("[0:0::1]:22", "[::1]:22"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse(), Ok(target));
        }
    }

    #[test]
    fn what_is_none_is_told() {
        let long = format!("{}:80", "a".repeat(254));
        for bad in ["", "nas", "nas:", "nas:0", "nas:65536", ":80", "::1:80", "[nas]:80", "a b:80", "a\n:80", &long] {
            assert!(bad.parse::<Target>().is_err(), "{bad:?}");
        }
    }
}
