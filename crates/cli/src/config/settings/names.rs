//! Names that a configuration gives to servers (`[hosts.NAME]`) and public keys (`[keys]`), and what they stand for on the
//! command line.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use remora_atp::session::PublicKey;
use remora_host::client::Target;
use toml::de::{DeTable, DeValue};

use crate::config::settings::config_file::{ConfigFile, Problem, unknown};

/// The tables of names, beside those of commands.
pub(crate) const HOSTS: &str = "hosts";
pub(crate) const KEYS: &str = "keys";
/// What a host's table may have.
const HOST_KEYS: [&str; 6] = ["address", "export", "transport", "key", "identity", "mount-port"];
/// What means something else in the path of a URL.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'?').add(b'%');
/// And in its query.
const IN_QUERY: &AsciiSet = &IN_PATH.add(b'&').add(b'+');

/// The names of this process's configuration: the parsers of clap take no argument for them.
static NAMES: RwLock<Names> = RwLock::new(Names { hosts: BTreeMap::new(), keys: BTreeMap::new() });

/// What the names stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    hosts: BTreeMap<String, Host>,
    keys: BTreeMap<String, String>,
}

/// A server and an export of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Host {
    /// `HOST[:PORT]` as in a URL.
    address: String,
    /// Without a slash at its end.
    export: String,
    /// With its question mark, if there is one.
    query: String,
}

impl Host {
    /// The URL of a path: below the export, or from the server's root if it begins with a slash.
    fn url(&self, path: &str) -> String {
        let above = if path.starts_with('/') { "" } else { &self.export };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = utf8_percent_encode(path, IN_PATH);
        format!("nfs://{}{above}{slash}{path}{}", self.address, self.query)
    }
}

impl Names {
    /// Adds those of a file, which go before those known.
    pub(crate) fn add(&mut self, file: &ConfigFile, table: &DeTable<'_>) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(keys) = subtable(file, table, KEYS, &mut problems) {
            for (name, key) in keys {
                let known = key.get_ref().as_str().ok_or_else(|| "expected a public key in quotes".to_owned());
                // A link's key has the same form.
                let checked = known.and_then(|text| text.parse::<PublicKey>().map(|_| text).map_err(|e| e.to_string()));
                match checked.and_then(|text| named(name.get_ref()).map(|()| text)) {
                    Ok(text) => drop(self.keys.insert(name.get_ref().to_string(), text.to_owned())),
                    Err(why) => problems.push(file.problem(key.span(), format!("{KEYS}: {}: {why}", name.get_ref()))),
                }
            }
        }
        if let Some(hosts) = subtable(file, table, HOSTS, &mut problems) {
            for (name, host) in hosts {
                let name_text = name.get_ref();
                let read = named(name_text).map_err(|why| file.problem(name.span(), why));
                match read.and_then(|()| self.host(file, name_text, host)) {
                    Ok(host) => drop(self.hosts.insert(name_text.to_string(), host)),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        problems
    }

    fn host(&self, file: &ConfigFile, name: &str, table: &toml::Spanned<DeValue<'_>>) -> Result<Host, Problem> {
        let whole = table.span();
        let wrong = |at, why: String| file.problem(at, format!("{HOSTS}.{name}: {why}"));
        let table = table.get_ref().as_table().ok_or_else(|| wrong(whole.clone(), "expected a table".into()))?;
        let mut host = Host::default();
        for (key, value) in table {
            let of = |why: String| wrong(value.span(), format!("{}: {why}", key.get_ref()));
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(n) => n.as_str().to_owned(),
                _ => return Err(of("expected a text in quotes".into())),
            };
            let mut say = |name: &str, value: &str| {
                let first = if host.query.is_empty() { '?' } else { '&' };
                host.query += &format!("{first}{name}={}", utf8_percent_encode(value, IN_QUERY));
            };
            match key.get_ref().as_ref() {
                "address" => host.address = in_brackets(&text),
                "export" if text.starts_with('/') => {
                    host.export = utf8_percent_encode(text.trim_end_matches('/'), IN_PATH).to_string();
                }
                "export" => return Err(of("expected a path that begins with /".into())),
                "transport" => say("proto", &text),
                "key" => say("key", self.keys.get(&text).unwrap_or(&text)),
                "identity" => say("identity", &file.path_of(&text).to_string_lossy()),
                "mount-port" => say("mountport", &text),
                other => return Err(wrong(key.span(), unknown("key", other, HOST_KEYS.into_iter()))),
            }
        }
        if host.address.is_empty() {
            return Err(wrong(whole, "its address is missing: address = \"HOST\" or \"HOST:PORT\"".into()));
        }
        Target::parse(&host.url("")).map(|_| host).map_err(|e| wrong(whole, e.to_string()))
    }

    /// Makes these the names of this process.
    pub(crate) fn set(self) {
        *NAMES.write().unwrap_or_else(PoisonError::into_inner) = self;
    }

    /// The URL that `NAME:PATH` stands for, if NAME is a host's.
    fn url(&self, text: &str) -> Option<String> {
        let (name, path) = text.split_once(':')?;
        self.hosts.get(name).map(|host| host.url(path))
    }
}

/// A table of names that a file may have.
fn subtable<'a, 't>(
    file: &ConfigFile,
    table: &'a DeTable<'t>,
    name: &str,
    problems: &mut Vec<Problem>,
) -> Option<&'a DeTable<'t>> {
    let value = table.get(name)?;
    let found = value.get_ref().as_table();
    if found.is_none() {
        problems.push(file.problem(value.span(), format!("{name}: expected a table")));
    }
    found
}

/// Names are plain, so that they are like nothing else on a command line.
fn named(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && !name.starts_with(['-', '.']) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!("'{name}' is not a name: expected letters, digits, '-', '_' and '.'")),
    }
}

/// A bare IPv6 address in brackets; others as they are.
fn in_brackets(address: &str) -> String {
    let (ip, _zone) = address.split_once('%').unwrap_or((address, ""));
    if ip.parse::<Ipv6Addr>().is_ok() { format!("[{address}]") } else { address.to_owned() }
}

/// Reads a URL or `NAME:PATH`, for clap. Other texts stay as they are.
pub(crate) fn url(text: &str) -> Result<String, String> {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    Ok(names.url(text).unwrap_or_else(|| text.to_owned()))
}

/// Reads a server: as [`url`], or the NAME alone.
pub(crate) fn server(text: &str) -> Result<String, String> {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    let alone = names.hosts.get(text).map(|host| host.url(""));
    Ok(alone.or_else(|| names.url(text)).unwrap_or_else(|| text.to_owned()))
}

/// Reads a local path or, as [`url`], one on a server. `./NAME:PATH` is a local one.
pub(crate) fn path(path: PathBuf) -> Result<PathBuf, String> {
    match path.to_str() {
        Some(text) => url(text).map(PathBuf::from),
        None => Ok(path),
    }
}

/// Reads a public key or the name of one, for clap.
pub(crate) fn key<K: FromStr<Err: Display>>(text: &str) -> Result<K, String> {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    let meant = names.keys.get(text).map_or(text, String::as_str);
    meant.parse().map_err(|e: K::Err| match named(text) {
        Ok(()) if meant == text => format!("{e}, nor a name in [keys] of the configuration"),
        _ => e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "+/+/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn read(text: &str) -> (Names, Vec<Problem>) {
        let file = ConfigFile::from_text("/etc/remora/config.toml", text);
        let mut names = Names::default();
        let problems = names.add(&file, &file.table().unwrap());
        (names, problems)
    }

    #[test]
    fn alias_stands_for_a_url() {
        let text = format!(
            "[keys]\nours = \"{KEY}\"\n[hosts]\nplain = {{ address = \"nas\" }}\nv6 = {{ address = \"fe80::1%eth0\" }}\n\
             [hosts.nas]\naddress = \"192.0.2.7:2050\"\nexport = \"/srv/my files/\"\ntransport = \"udp\"\nmount-port = 2051\n\
             [hosts.far]\naddress = \"far:4049\"\ntransport = \"atp\"\nkey = \"ours\"\nidentity = \"me.key\"\n"
        );
        let (names, problems) = read(&text);
        assert_eq!(problems, []);
        let encoded = KEY.replace('+', "%2B");
        for (word, url) in [
            ("plain:", "nfs://nas/"),
            ("plain:a/b", "nfs://nas/a/b"),
            ("v6:/x", "nfs://[fe80::1%eth0]/x"),
            ("nas:", "nfs://192.0.2.7:2050/srv/my%20files/?mountport=2051&proto=udp"),
            ("nas:50%?", "nfs://192.0.2.7:2050/srv/my%20files/50%25%3F?mountport=2051&proto=udp"),
            ("nas:/other", "nfs://192.0.2.7:2050/other?mountport=2051&proto=udp"),
            ("far:x", &format!("nfs://far:4049/x?identity=/etc/remora/me.key&key={encoded}&proto=atp")),
        ] {
            assert_eq!(names.url(word).as_deref(), Some(url), "{word}");
            Target::parse(url).unwrap();
        }
        for other in ["nas", "other:x", "./nas:x", "nfs://nas/x", ":", ""] {
            assert_eq!(names.url(other), None, "{other}");
        }
    }

    #[test]
    fn wrong_name_is_a_problem_of_its_line() {
        for (text, line, words) in [
            ("[keys]\n\nours = \"short\"", 3, &["keys: ours", "not a key"][..]),
            ("[keys]\nours = 3", 2, &["ours", "in quotes"]),
            ("keys = 3", 1, &["keys: expected a table"]),
            ("[hosts]\nnas = 3", 2, &["hosts.nas", "expected a table"]),
            ("[hosts.nas]\naddres = \"nas\"", 2, &["'addres'", "did you mean 'address'"]),
            ("[hosts.nas]\nexport = \"/srv\"", 1, &["address is missing"]),
            ("[hosts.nas]\naddress = \"nas\"\nexport = \"srv\"", 3, &["export", "begins with /"]),
            ("[hosts.nas]\naddress = \"nas\"\ntransport = \"sctp\"", 1, &["hosts.nas", "proto=sctp"]),
            ("[hosts.nas]\naddress = \"nas:1\"\ntransport = \"atp\"", 1, &["server's key"]),
            ("[hosts.nas]\naddress = true", 2, &["address", "in quotes"]),
            ("[hosts.\"a:b\"]\naddress = \"nas\"", 1, &["'a:b' is not a name"]),
        ] {
            let (_, problems) = read(text);
            let [Problem { line: found, why }] = &problems[..] else { panic!("{text}: {problems:?}") };
            assert!(*found == line && words.iter().all(|word| why.contains(word)), "{text}: {found}: {why}");
        }
    }
}
