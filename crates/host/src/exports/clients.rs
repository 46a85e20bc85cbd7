//! Client specifications of exports files: `*`, addresses, networks and host names.

use remora_server::Clients;

use super::types::Resolve;

/// A client specification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Named {
    /// Clients by their address.
    Clients(Clients),
    /// A host by its name, with all its addresses.
    Host(String),
}

impl Named {
    /// The clients that the specification matches. Blocks while `resolve` does.
    pub(super) fn clients(&self, resolve: Resolve<'_>) -> Result<Vec<Clients>, String> {
        let host = match self {
            Named::Clients(clients) => return Ok(vec![*clients]),
            Named::Host(host) => host,
        };
        let all = resolve(host).and_then(|all| if all.is_empty() { Err("there is none".into()) } else { Ok(all) });
        let mut all = all.map_err(|why| format!("'{host}': cannot find its address: {why}"))?;
        all.iter_mut().for_each(|ip| *ip = ip.to_canonical());
        all.sort_unstable();
        all.dedup();
        Ok(all.into_iter().map(Clients::Host).collect())
    }
}

/// Parses a specification.
pub(super) fn read(text: &str) -> Result<Named, String> {
    let not_a_network = match text.parse() {
        Ok(clients) => return Ok(Named::Clients(clients)),
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
    Ok(Named::Host(text.to_owned()))
}

/// Whether `text` can be a host name (RFC 1123, section 2.1). A name that ends in a number cannot: the resolver would
/// take `10.0.1` for 10.0.0.1.
fn is_host_name(text: &str) -> bool {
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let number = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
    !number && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: &str) -> Result<Vec<std::net::IpAddr>, String> {
        Err("not known".into())
    }

    fn clients(text: &str) -> Result<Vec<String>, String> {
        Ok(read(text)?.clients(&nobody)?.iter().map(Clients::to_string).collect())
    }

    #[test]
    fn addresses_and_networks_are_read() {
        for (text, want) in [
            ("*", "*"),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(clients(text).unwrap(), [want], "{text}");
        }
    }

    #[test]
    fn host_name_yields_each_address_once() {
        let resolve = |_: &str| Ok(["10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1"].map(|ip| ip.parse().unwrap()).to_vec());
        let found = read("nas.example.org").unwrap().clients(&resolve).unwrap();
        assert_eq!(found.iter().map(Clients::to_string).collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.2"]);
        assert!(read("nas").unwrap().clients(&|_| Ok(Vec::new())).is_err(), "an export for nobody");
    }

    #[test]
    fn invalid_client_is_refused_with_reason() {
        for (text, why) in [
            ("@trusted", "'@trusted': there are no netgroups here: list addresses or networks"),
            ("gss/krb5", "'gss/krb5': there is no Kerberos here: only sec=sys"),
            ("*.example.org", "'*.example.org': names with wildcards are not supported: list addresses or networks"),
            ("pc[0-9]", "'pc[0-9]': names with wildcards are not supported: list addresses or networks"),
            ("no-such-host.invalid", "'no-such-host.invalid': cannot find its address: not known"),
            ("10.0.1", "'10.0.1' is not a network: expected an address"),
            ("0x7f000001", "'0x7f000001' is not a network"),
            ("10.0.0.0/33", "'10.0.0.0/33' is not a network"),
            ("", "'' is not a network"),
        ] {
            let said = clients(text).unwrap_err();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
