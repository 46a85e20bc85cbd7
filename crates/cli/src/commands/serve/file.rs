//! Exports files: from a path to what it says.

use std::io::Read;
use std::path::Path;

use remora_server::Access;

use super::{exports5, tables};
use crate::args::ExportsFormat;
use crate::exit::{Error, Result};

/// Nobody has a longer one. Reading ends there, whatever the path leads to.
const BYTES_MAX: u64 = 1 << 20;

/// An export as a file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Where, from 1.
    pub(super) line: usize,
    /// The directory.
    pub(super) path: String,
    /// The paths to mount it by; `None` for the usual ones.
    pub(super) names: Option<Vec<String>>,
    pub(super) access: Access,
}

/// What a file says.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) entries: Vec<Entry>,
    /// Lines, and what their author may like to know about them.
    pub(super) notes: Vec<(usize, String)>,
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Where, from 1.
    pub(super) line: usize,
    pub(super) why: String,
}

impl Wrong {
    pub(super) fn at(line: usize, why: String) -> Wrong {
        Wrong { line, why }
    }
}

/// Reads the file at `path`. Blocks, also while it asks for the addresses of hosts.
pub(super) fn read(path: &Path, format: Option<ExportsFormat>) -> Result<Parsed> {
    let failed = || Error::local(path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed())?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Error::Usage(format!("{}: is too large for an exports file", path.display())));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Error::Usage(format!("{}: is not UTF-8 text", path.display())))?;
    let is_toml = path.extension().is_some_and(|e| e == "toml");
    let parsed = match format {
        Some(ExportsFormat::Toml) => tables::parse(&text),
        Some(ExportsFormat::Exports) => exports5::parse(&text),
        None if is_toml => tables::parse(&text),
        None => exports5::parse(&text),
    };
    parsed.map_err(|Wrong { line, why }| Error::Usage(at(path, line, why)))
}

/// Something about a line of a file.
pub(super) fn at(path: &Path, line: usize, what: impl std::fmt::Display) -> String {
    format!("{}:{line}: {what}", path.display())
}
