//! Exports files: from a path to what it says.

use std::fs::{File, OpenOptions};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use remora_host::exports;
use remora_host::exports::{Format, Parsed, Wrong};
use rustix::fs::OFlags;

use crate::commands::serve::flags::ExportsFormat;
use crate::config::text_file;
use crate::output::exit::{Error, Result, io_text};

/// Nobody has a longer one. Reading ends there, whatever the path leads to.
const BYTES_MAX: u64 = 1 << 20;

/// What becomes of files that are none, such as pipes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pipes {
    /// Read once; a signal can interrupt the wait.
    Read,
    /// They would be read to their end already, or keep who reads them waiting for ever.
    Refused,
}

/// Reads the file at `path`. Blocks, also while it asks for the addresses of hosts.
pub(crate) fn read(path: &Path, format: Option<ExportsFormat>, pipes: Pipes) -> Result<Parsed> {
    let text = text_file::read_from(open(path, pipes)?, path, BYTES_MAX, "an exports file")?;
    let is_toml = path.extension().is_some_and(|e| e == "toml");
    let format = match format {
        Some(ExportsFormat::Toml) => Format::Toml,
        Some(ExportsFormat::Exports) => Format::Exports5,
        None if is_toml => Format::Toml,
        None => Format::Exports5,
    };
    exports::parse(&text, format, &addresses).map_err(|Wrong { line, why }| Error::Usage(at(path, line, why)))
}

fn open(path: &Path, pipes: Pipes) -> Result<File> {
    let failed = || Error::local(path.display());
    if pipes == Pipes::Read {
        return File::open(path).map_err(failed());
    }
    // Without waiting for somebody to write into it.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed())?;
    if !file.metadata().map_err(failed())?.is_file() {
        let why = "is not a regular file, so it cannot be reloaded";
        return Err(Error::Usage(format!("{}: {why}", path.display())));
    }
    Ok(file)
}

/// The addresses of a host, as the system knows them.
fn addresses(host: &str) -> std::result::Result<Vec<IpAddr>, String> {
    (host, 0).to_socket_addrs().map(|all| all.map(|a| a.ip()).collect()).map_err(|e| io_text(&e))
}

/// Something about a line of a file.
pub(crate) fn at(path: &Path, line: usize, what: impl std::fmt::Display) -> String {
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
