//! Files of text that a user names: reading them; values that are written as text in those in TOML,
//! and errors with their lines.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
pub(crate) use remora_host::exports::line_at;
use serde::{Deserialize, Deserializer, de};

use crate::config::{address, units};
use crate::output::exit;
use crate::output::exit::Error;

/// The longest recording of a link that can be read, in bytes: some ten million lines.
#[cfg(feature = "lab")]
pub(crate) const TRACE_MAX: u64 = 128 << 20;

/// Reads the text file at `path`, at most `max` bytes, even if the path leads to a device. `a_what` says in errors what
/// the file should be, as a noun with its article.
pub(crate) fn read(path: &Path, max: u64, a_what: &str) -> exit::Result<String> {
    let file = File::open(path).map_err(Error::local(path.display()))?;
    read_from(file, path, max, a_what)
}

/// The same for an open file.
pub(crate) fn read_from(file: File, path: &Path, max: u64, a_what: &str) -> exit::Result<String> {
    let failed = || Error::local(path.display());
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(failed())?;
    let wrong = |why: String| Error::Usage(format!("{}: {why}", path.display()));
    if bytes.len() as u64 > max {
        return Err(wrong(format!("is too large for {a_what}")));
    }
    String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text".to_owned()))
}

/// A value that is written as text.
#[derive(Clone, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

/// A length of time, as flags have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Duration);

/// Bytes, as flags have them.
#[cfg(feature = "lab")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

/// A network or an address, as flags have them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network(pub(crate) IpNet);

/// An address and the length of its network's, as flags have them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressInNetwork(pub(crate) IpNet);

/// Where an end of a link listens, as `--listen` has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        address::listen_everywhere(text).map(ListenAddress)
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        units::duration(text).map(Time)
    }
}

#[cfg(feature = "lab")]
impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        units::bytes(text).map(Bytes)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        units::network(text).map(Network)
    }
}

impl FromStr for AddressInNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressInNetwork, String> {
        units::address_in_network(text).map(AddressInNetwork)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(|e| de::Error::custom(format!("'{text}': {e}")))
    }
}

/// Where `key` is set in the table whose header is at byte `header`; the header if it is not.
pub(crate) fn key_at(text: &str, header: usize, key: &str) -> usize {
    let mut at = header;
    for (i, line) in text.get(header..).unwrap_or_default().split_inclusive('\n').enumerate() {
        let next_table = i > 0 && line.trim_start().starts_with('[');
        if next_table {
            break;
        }
        let rest = line.trim_start().strip_prefix(key);
        if rest.is_some_and(|r| r.trim_start().starts_with('=')) {
            return at;
        }
        at += line.len();
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_their_table() {
        let text = "[a]\nrate = 1\n[b]\nrates = 3\n  rate=2\n";
        for (header, key, line) in [(0, "rate", 2), (13, "rate", 5), (13, "size", 3), (0, "rates", 1)] {
            assert_eq!(line_at(text, key_at(text, header, key)).0, line, "{header} {key}");
        }
        assert_eq!(line_at(text, 4), (2, "rate = 1"));
        assert_eq!(key_at(text, 500, "rate"), 500);
    }
}
