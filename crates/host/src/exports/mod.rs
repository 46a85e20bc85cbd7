//! Exports files: directories, their names, and the clients that may use them.
//!
//! The formats are TOML ([`Format::Toml`]) and exports(5) of Linux's nfs-utils. The parsers open no files, and the caller
//! resolves host names ([`Resolve`]).

mod clients;
mod exports5;
mod tables;
mod types;

pub use types::{Entry, Format, Parsed, Resolve, Wrong, line_at};

/// Parses a file. Blocks while `resolve` does.
pub fn parse(text: &str, format: Format, resolve: Resolve<'_>) -> Result<Parsed, Wrong> {
    match format {
        Format::Toml => tables::parse(text, resolve),
        Format::Exports5 => exports5::parse(text, resolve),
    }
}
