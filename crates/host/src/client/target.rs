//! `nfs://` URLs, as libnfs has them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::str::Utf8Error;

use percent_encoding::percent_decode_str;
use remora_atp::session::PublicKey;
use remora_client::Transport;
use remora_wire::nfs3;
use url::Url;

/// A URL `nfs://host[:port]/path?proto=auto|udp|tcp|atp&mountport=..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Name or address; IPv6 without brackets, with its zone: `fe80::1%eth0`.
    pub host: String,
    /// Port of NFS; `None`: 2049, or what the portmapper says.
    pub port: Option<u16>,
    /// Port of MOUNT; `None`: see [`mount`](super::mount()).
    pub mount_port: Option<u16>,
    /// The transport; `None`: chosen by mounting.
    pub transport: Option<Transport>,
    /// Keys of both endpoints, required over [`Transport::Atp`].
    pub keys: Option<Keys>,
    /// Path on the server, decoded, beginning with `/`.
    pub path: String,
}

/// Keys of an ATP connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    /// The server's public key.
    pub server: PublicKey,
    /// Path of the client's own key; `None`: the default path, or a new key for this run.
    pub own: Option<PathBuf>,
}

/// Errors in a URL.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{url}' is not a URL of a file on a server: {why}; expected nfs://host[:port]/path[?proto=auto|udp|tcp|atp&mountport=N&key=KEY&identity=FILE]"
)]
pub struct TargetError {
    url: String,
    why: String,
}

impl Target {
    /// Whether `text` has the scheme of such a URL.
    pub fn is_url(text: &str) -> bool {
        text.to_ascii_lowercase().starts_with("nfs:")
    }

    /// The URL that the user probably means by `HOST:/PATH`, the form of mount(8).
    pub fn guess(text: &str) -> Option<String> {
        let (host, path) = text.split_once(":/")?;
        let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@']) && !Target::is_url(text);
        let is_path = !path.starts_with('/');
        (is_host && is_path).then(|| format!("nfs://{host}/{path}"))
    }

    /// Whether it sets different ports for MOUNT and NFS.
    pub(crate) fn mount_is_elsewhere(&self) -> bool {
        let nfs = self.port.unwrap_or(nfs3::PORT);
        self.keys.is_none() && self.mount_port.is_some_and(|mount| mount != nfs)
    }

    pub fn parse(text: &str) -> Result<Target, TargetError> {
        let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        let bad = |why: String| TargetError { url: text.chars().map(escape).collect(), why };
        plain(text).map_err(|why| bad(why.into()))?;
        if let Some(meant) = Target::guess(text) {
            return Err(bad(format!("perhaps {meant} is meant")));
        }
        let (without_zone, zone) = take_zone(text).map_err(bad)?;
        let url = Url::parse(&without_zone).map_err(|e| bad(e.to_string()))?;
        if url.fragment().is_some() {
            return Err(bad("it has a '#', which in a name is written %23".into()));
        }
        if url.scheme() != "nfs" {
            return Err(bad(format!("its scheme is {}", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("it has a user name, which NFS has no use for".into()));
        }
        let host = url.host_str().filter(|h| !h.is_empty()).ok_or_else(|| bad("it has no host".into()))?;
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        let mut target = Target {
            host: zone.map_or(ip.to_owned(), |zone| format!("{ip}%{zone}")),
            port: url.port(),
            mount_port: None,
            transport: None,
            keys: None,
            path: decode(url.path()).map_err(|_| bad("its path is not UTF-8".into()))?,
        };
        let (mut server, mut own) = (None, None);
        let mut told = HashMap::new();
        if let Some(port) = target.port {
            told.insert("port".to_owned(), nonzero(port).map_err(bad)?.to_string());
        }
        // In a query `+` means a blank; a blank is written `%20` here.
        let query = url.query().unwrap_or_default().replace('+', "%2B");
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let name = if key == "nfsport" { "port" } else { &*key };
            if let Some(former) = told.insert(name.to_owned(), value.to_string()).filter(|former| *former != value) {
                return Err(bad(format!("it says {name} twice, {former} and {value}")));
            }
            match &*key {
                "key" => server = Some(value.parse().map_err(|e| bad(format!("key: {e}")))?),
                "identity" => own = Some(PathBuf::from(&*value)),
                _ => target.set(&key, &value).map_err(bad)?,
            }
        }
        target.keys = match (target.transport, server) {
            (Some(Transport::Atp), Some(server)) => Some(Keys { server, own }),
            (Some(Transport::Atp), None) => return Err(bad(NO_KEY.into())),
            (_, None) if own.is_none() => None,
            _ => return Err(bad("only proto=atp has keys".into())),
        };
        if target.keys.is_some() && target.port.is_none() {
            return Err(bad("over ATP it needs the port that remora serve --atp was given".into()));
        }
        if target.path.contains('\0') {
            return Err(bad("it has a %00, which is in no name".into()));
        }
        if target.path.is_empty() {
            target.path.push('/');
        }
        Ok(target)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let port = || value.parse::<u16>().ok().filter(|p| *p > 0).ok_or(format!("{key}={value} is not a port"));
        match key {
            "proto" => {
                self.transport = match value {
                    "udp" => Some(Transport::Udp),
                    "tcp" => Some(Transport::Tcp),
                    "atp" => Some(Transport::Atp),
                    "auto" => None,
                    _ => return Err(format!("proto={value} is neither udp, tcp, atp nor auto")),
                }
            }
            "mountport" => self.mount_port = Some(port()?),
            "nfsport" | "port" => self.port = Some(port()?),
            "version" if value == "3" => {}
            _ => return Err(format!("it does not understand {key}={value}")),
        }
        Ok(())
    }
}

/// Removes the zone from a URL such as `nfs://[fe80::1%25eth0]/` (RFC 6874), which the general syntax of URLs lacks. A
/// bare `%eth0` is accepted, too.
fn take_zone(text: &str) -> Result<(Cow<'_, str>, Option<String>), String> {
    let found = text.split_once("://[").and_then(|(scheme, rest)| {
        let (address, path) = rest.split_once(']')?;
        let (ip, zone) = address.split_once('%')?;
        (!scheme.contains('/')).then_some((scheme, ip, zone, path))
    });
    let Some((scheme, ip, zone, path)) = found else { return Ok((text.into(), None)) };
    // `%25` alone is the interface with that number.
    let encoded = zone.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(zone);
    let zone = decode(encoded).map_err(|_| "its zone is not UTF-8".to_owned())?;
    if zone.is_empty() || zone.contains(|c: char| c.is_control() || c.is_whitespace() || "%/[]".contains(c)) {
        return Err("its zone is no name of a network interface, as in [fe80::1%25eth0]".into());
    }
    Ok((format!("{scheme}://[{ip}]{path}").into(), Some(zone)))
}

/// Port 0 is invalid.
fn nonzero(port: u16) -> Result<u16, String> {
    if port == 0 { Err("0 is not a port".into()) } else { Ok(port) }
}

/// Refuses what a URL parser drops or resolves silently, for it would lead to another file.
fn plain(text: &str) -> Result<(), &'static str> {
    if text.contains(|c: char| c.is_ascii_control()) || text.starts_with(' ') || text.ends_with(' ') {
        return Err(
            "it has a blank at an end, a connection break or the like, which in a name are written %20, %0A and so on",
        );
    }
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match last.to_ascii_lowercase().replace("%2e", ".").as_str() {
        "." | ".." => Err("its path ends in '.' or '..', which is no name; write that of the directory meant"),
        _ => Ok(()),
    }
}

/// Requires the server's key.
const NO_KEY: &str = "over ATP it needs the server's key: &key=KEY, as remora serve --atp prints it";

fn decode(path: &str) -> Result<String, Utf8Error> {
    Ok(percent_decode_str(path).decode_utf8()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_libnfs_is_parsed() {
        let t = Target::parse("nfs://127.0.0.1:20490/a%20b/%C3%A9+=&?proto=udp&mountport=20048").unwrap();
        assert_eq!((t.host.as_str(), t.port, t.mount_port), ("127.0.0.1", Some(20490), Some(20048)));
        assert_eq!((t.transport, t.path.as_str()), (Some(Transport::Udp), "/a b/é+=&"));
        let t = Target::parse("nfs://[::1]/x?nfsport=2050").unwrap();
        assert_eq!((t.host.as_str(), t.port, t.path.as_str()), ("::1", Some(2050), "/x"));
        assert_eq!(Target::parse("nfs://nas").unwrap().path, "/");
        let t = Target::parse("nfs://nas:2050/x?proto=udp&nfsport=2050&proto=udp").unwrap();
        assert_eq!((t.port, t.transport), (Some(2050), Some(Transport::Udp)));
        assert_eq!(Target::parse("nfs://nas/a/./../b").unwrap().path, "/b");
        assert_eq!(Target::parse("nfs://nas/a%232/...%20").unwrap().path, "/a#2/... ");
        assert_eq!(Target::parse("nfs://nas/caf%EF%BF%BD").unwrap().path, "/caf\u{fffd}", "that is a character, too");
        for (query, transport) in [("", None), ("?proto=auto", None), ("?proto=tcp", Some(Transport::Tcp))] {
            assert_eq!(Target::parse(&format!("nfs://nas/{query}")).unwrap().transport, transport);
        }
    }

    #[test]
    fn zone_of_a_link_local_address_is_part_of_the_host() {
        for (url, host, port, path) in [
            ("nfs://[fe80::1%25eth0]/x", "fe80::1%eth0", None, "/x"),
            ("nfs://[fe80::1%eth0]:2050/x?proto=udp", "fe80::1%eth0", Some(2050), "/x"),
            ("nfs://[FE80:0::1%25wlan%2D0]", "fe80::1%wlan-0", None, "/"),
            ("nfs://[fe80::1%252]/", "fe80::1%2", None, "/"),
            ("nfs://[fe80::1%25]/", "fe80::1%25", None, "/"),
            ("nfs://[fe80::1%7]/a%25b", "fe80::1%7", None, "/a%b"),
        ] {
            let t = Target::parse(url).unwrap();
            assert_eq!((t.host.as_str(), t.port, t.path.as_str()), (host, port, path), "{url}");
        }
        for url in ["nfs://[fe80::1%]/x", "nfs://[fe80::1%25a%20b]/x", "nfs://[fe80::1%25a%2Fb]/x"] {
            let text = Target::parse(url).unwrap_err().to_string();
            assert!(text.contains("zone"), "{url}: {text}");
        }
        assert!(Target::parse("nfs://[10.0.0.1%25eth0]/x").is_err());
    }

    #[test]
    fn atp_url_requires_the_server_key() {
        let key = "+/+/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let t = Target::parse(&format!("nfs://nas:4049/x?proto=atp&key={key}&identity=/k")).unwrap();
        let keys = t.keys.unwrap();
        assert_eq!((keys.server.to_string().as_str(), keys.own), (key, Some(PathBuf::from("/k"))));
        assert_eq!(t.transport, Some(Transport::Atp));
        for (url, word) in [
            ("nfs://nas:4049/x?proto=atp".to_owned(), "key=KEY"),
            ("nfs://nas:4049/x?proto=atp&key=short".to_owned(), "not a key"),
            (format!("nfs://nas/x?proto=atp&key={key}"), "port"),
            (format!("nfs://nas:4049/x?proto=tcp&key={key}"), "only proto=atp"),
            ("nfs://nas:4049/x?identity=/k".to_owned(), "only proto=atp"),
        ] {
            let text = Target::parse(&url).unwrap_err().to_string();
            assert!(text.contains(word), "{url}: {text}");
        }
    }

    #[test]
    fn invalid_url_names_the_fault() {
        for (url, word) in [
            ("http://nas/x", "scheme"),
            ("nfs:///x", "host"),
            ("nfs://nas/x?proto=sctp", "sctp"),
            ("nfs://nas/x?mountport=0", "port"),
            ("nfs://nas:99999/x", "port"),
            ("nfs://nas/x?colour=red", "colour"),
            ("nfs://nas:0/x", "0 is not a port"),
            ("nfs://nas/x?proto=udp&proto=tcp", "proto twice, udp and tcp"),
            ("nfs://nas/x?mountport=1&proto=udp&mountport=2", "mountport twice"),
            ("nfs://nas/x?nfsport=1&port=2", "port twice"),
            ("nfs://nas:2049/x?nfsport=2050", "port twice"),
            ("nfs://me@nas/x", "user"),
            ("nonsense", "URL"),
            ("nas:/files/a", "perhaps nfs://nas/files/a is meant"),
            ("[::1]:/files", "perhaps nfs://[::1]/files is meant"),
            ("http://nas:/x", "scheme"),
            ("nfs:/nas/x", "host"),
            ("nfs://nas/report#2", "%23"),
            ("nfs://nas/x#", "%23"),
            ("nfs://nas/trail ", "%20"),
            (" nfs://nas/x", "blank"),
            ("nfs://nas/new\nline", "%0A"),
            ("nfs://nas/a\tb", "connection break"),
            ("nfs://nas/a%00b", "%00"),
            ("nfs://nas/a/..", "'..'"),
            ("nfs://nas/a/../", "'..'"),
            ("nfs://nas/a/%2E%2e?proto=udp", "'..'"),
            ("nfs://nas/a/.", "'.'"),
        ] {
            let text = Target::parse(url).unwrap_err().to_string();
            assert!(text.contains(word), "{url}: {text}");
        }
    }
}
