//! The content of exports files, and their errors.

use std::net::IpAddr;

use remora_server::Access;

/// The format of an exports file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// TOML with `[[export]]` tables.
    Toml,
    /// exports(5), the format of /etc/exports.
    Exports5,
}

/// Resolves a host name to its present addresses. The error says why there are none.
pub type Resolve<'a> = &'a dyn Fn(&str) -> Result<Vec<IpAddr>, String>;

/// An export in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The line, from 1.
    pub line: usize,
    pub path: String,
    /// The paths that clients mount; `None` for the default.
    pub names: Option<Vec<String>>,
    /// The clients that may use it, and their terms.
    pub access: Access,
}

/// The content of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The exports in the order of the file.
    pub entries: Vec<Entry>,
    /// Remarks for the author, with their lines.
    pub notes: Vec<(usize, String)>,
}

/// An error in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The line, from 1.
    pub line: usize,
    /// The cause, for the author.
    pub why: String,
}

impl Wrong {
    pub(super) fn at(line: usize, why: String) -> Wrong {
        Wrong { line, why }
    }
}

/// The number (from 1) and the text of the line that contains byte `at`.
pub fn line_at(text: &str, at: usize) -> (usize, &str) {
    let before = text.get(..at).unwrap_or(text);
    let number = 1 + before.matches('\n').count();
    (number, text.lines().nth(number - 1).unwrap_or_default().trim())
}
