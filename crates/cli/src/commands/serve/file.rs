//! Exports files: from a path to what it says.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use remora_host::exports::{self, Format, Parsed, Wrong};

use crate::args::ExportsFormat;
use crate::exit::{Error, Result, io_text};
use crate::text;

/// Nobody has a longer one. Reading ends there, whatever the path leads to.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the file at `path`. Blocks, also while it asks for the addresses of hosts.
pub(super) fn read(path: &Path, format: Option<ExportsFormat>) -> Result<Parsed> {
    let text = text::read(path, BYTES_MAX, "an exports file")?;
    let is_toml = path.extension().is_some_and(|e| e == "toml");
    let format = match format {
        Some(ExportsFormat::Toml) => Format::Toml,
        Some(ExportsFormat::Exports) => Format::Exports5,
        None if is_toml => Format::Toml,
        None => Format::Exports5,
    };
    exports::parse(&text, format, &addresses).map_err(|Wrong { line, why }| Error::Usage(at(path, line, why)))
}

/// The addresses of a host, as the system knows them.
fn addresses(host: &str) -> std::result::Result<Vec<IpAddr>, String> {
    (host, 0).to_socket_addrs().map(|all| all.map(|a| a.ip()).collect()).map_err(|e| io_text(&e))
}

/// Something about a line of a file.
pub(super) fn at(path: &Path, line: usize, what: impl std::fmt::Display) -> String {
    format!("{}:{line}: {what}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_by_name() {
        let localhost = addresses("localhost").unwrap();
        assert!(!localhost.is_empty() && localhost.iter().all(IpAddr::is_loopback), "{localhost:?}");
        assert!(addresses("no-such-host.invalid").is_err());
    }
}
