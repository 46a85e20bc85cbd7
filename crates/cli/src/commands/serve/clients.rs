//! Clients as exports files name them: `*`, addresses, networks, and hosts by name.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use remora_server::Clients;

use crate::exit::io_text;

/// The clients that `text` stands for: more than one if it is a host's name, for then it is all
/// of the host's addresses as they are now. Blocks while that is asked for.
pub(super) fn read(text: &str) -> Result<Vec<Clients>, String> {
    let not_a_network = match text.parse() {
        Ok(clients) => return Ok(vec![clients]),
        Err(why) => why,
    };
    if text.starts_with('@') {
        return Err(format!("'{text}': there are no netgroups here: list addresses or networks"));
    }
    if text.starts_with("gss/") {
        return Err(format!("'{text}': there is no Kerberos here: only sec=sys"));
    }
    if text.contains(['*', '?', '[']) {
        return Err(format!("'{text}': names with wildcards are not supported: list addresses or networks"));
    }
    if !is_host_name(text) {
        return Err(not_a_network);
    }
    addresses(text).map_err(|e| format!("'{text}': cannot find its address: {}", io_text(&e)))
}

fn addresses(host: &str) -> io::Result<Vec<Clients>> {
    let mut all: Vec<IpAddr> = (host, 0).to_socket_addrs()?.map(|a| a.ip().to_canonical()).collect();
    all.sort_unstable();
    all.dedup();
    match all.is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(all.into_iter().map(Clients::Host).collect()),
    }
}

/// Whether `text` can be a host's name (RFC 1123, section 2.1). What ends in a number cannot:
/// the resolver would take `10.0.1` for 10.0.0.1, and an operator's slip for a client.
fn is_host_name(text: &str) -> bool {
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let number = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
    !number && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_networks_and_names_are_read() {
        for (text, want) in [
            ("*", "*"),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(read(text).unwrap().iter().map(Clients::to_string).collect::<Vec<_>>(), [want], "{text}");
        }
        let localhost = read("localhost").unwrap();
        let is_loopback = |c: &Clients| matches!(c, Clients::Host(ip) if ip.is_loopback());
        assert!(!localhost.is_empty() && localhost.iter().all(is_loopback), "{localhost:?}");
    }

    #[test]
    fn what_cannot_be_a_client_is_refused_with_the_reason() {
        for (text, why) in [
            ("@trusted", "'@trusted': there are no netgroups here: list addresses or networks"),
            ("gss/krb5", "'gss/krb5': there is no Kerberos here: only sec=sys"),
            ("*.example.org", "'*.example.org': names with wildcards are not supported: list addresses or networks"),
            ("pc[0-9]", "'pc[0-9]': names with wildcards are not supported: list addresses or networks"),
            ("no-such-host.invalid", "'no-such-host.invalid': cannot find its address: "),
            ("10.0.1", "'10.0.1' is not a network: expected an address"),
            ("0x7f000001", "'0x7f000001' is not a network"),
            ("10.0.0.0/33", "'10.0.0.0/33' is not a network"),
            ("", "'' is not a network"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
