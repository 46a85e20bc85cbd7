//! What an exports file says: which directories, under which names, for whom, on which terms.
//!
//! In TOML ([`Format::Toml`]), or as exports(5) of Linux's nfs-utils has it. A text comes in and
//! exports for the server core come out: no file is opened here, and the addresses of hosts that are
//! named are the caller's to find ([`Resolve`]).

mod clients;
mod exports5;
mod tables;

use std::net::IpAddr;

use remora_server::Access;

/// What a file is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// TOML: tables named export.
    Toml,
    /// The lines of /etc/exports.
    Exports5,
}

/// The addresses of a host by its name, as they are now; or why there are none.
pub type Resolve<'a> = &'a dyn Fn(&str) -> Result<Vec<IpAddr>, String>;

/// An export as a file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where, from 1.
    pub line: usize,
    /// The directory.
    pub path: String,
    /// The paths to mount it by; `None` for the usual ones.
    pub names: Option<Vec<String>>,
    /// Who may use it.
    pub access: Access,
}

/// What a file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The exports, in the file's order.
    pub entries: Vec<Entry>,
    /// Lines, and what their author may like to know about them.
    pub notes: Vec<(usize, String)>,
}

/// Why a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// Where, from 1.
    pub line: usize,
    /// What, for its author.
    pub why: String,
}

impl Wrong {
    fn at(line: usize, why: String) -> Wrong {
        Wrong { line, why }
    }
}

/// Reads a whole file. Blocks while `resolve` does.
pub fn parse(text: &str, format: Format, resolve: Resolve<'_>) -> Result<Parsed, Wrong> {
    match format {
        Format::Toml => tables::parse(text, resolve),
        Format::Exports5 => exports5::parse(text, resolve),
    }
}

/// The number, from 1, and the text of the line of byte `at`.
pub fn line_at(text: &str, at: usize) -> (usize, &str) {
    let before = text.get(..at).unwrap_or(text);
    let number = 1 + before.matches('\n').count();
    (number, text.lines().nth(number - 1).unwrap_or_default().trim())
}
