//! A shared directory: its names, and who may use it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use remora_server::{Access, plain_path};

use crate::commands::serve::exports::exports_file;
use crate::output::escape;
use crate::output::exit::Error;

/// A shared directory, its names and its access rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) dir: PathBuf,
    /// Export names. The first is the permanent identity; the last is listed to clients.
    pub(crate) names: Vec<String>,
    /// Further names, used if no other share claims them; `/` only if there is one share.
    pub(crate) aliases: Vec<String>,
    /// Aliases that are not listed to clients, because the operator chose another name.
    pub(crate) unlisted: Vec<String>,
    pub(crate) access: Access,
    /// The exports file and line; `None` for the command line.
    pub(crate) place: Option<(PathBuf, usize)>,
}

impl Share {
    /// A usage error about this share, with file and line.
    pub(crate) fn wrong(&self, why: String) -> Error {
        Error::Usage(match &self.place {
            Some((path, line)) => exports_file::at(path, *line, why),
            None => why,
        })
    }

    /// Whether the share comes from an exports file.
    pub(crate) fn is_from_file(&self) -> bool {
        self.place.is_some()
    }

    /// All mountable names.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(&self.unlisted)
    }
}

/// The canonical spelling of a name.
pub(crate) fn plain(name: &str) -> Vec<u8> {
    plain_path(name.as_bytes())
}

/// A path, escaped for the terminal.
pub(crate) fn shown(path: &Path) -> String {
    escape::printable(path.as_os_str().as_bytes())
}

/// `a, b, c`.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}
