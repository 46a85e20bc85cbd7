//! A shared directory: its names, and who may use it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use remora_server::{Access, plain_path};

use crate::commands::serve::exports_file;
use crate::output::escape;
use crate::output::exit::Error;

/// A directory, the paths it is mounted by, and who may use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) dir: PathBuf,
    /// The first one names it for good; the last one is told to clients that ask what there is.
    pub(crate) names: Vec<String>,
    /// Further names, to be had if no other share has a claim to them; `/` if there is no other.
    pub(crate) aliases: Vec<String>,
    /// Such names that clients are not told: a name that somebody chose is the one to tell.
    pub(crate) unlisted: Vec<String>,
    pub(crate) access: Access,
    /// The file it is from, and the line; `None` for the command line.
    pub(crate) place: Option<(PathBuf, usize)>,
}

impl Share {
    /// Something is wrong with it.
    pub(crate) fn wrong(&self, why: String) -> Error {
        Error::Usage(match &self.place {
            Some((path, line)) => exports_file::at(path, *line, why),
            None => why,
        })
    }

    /// Whether an exports file names it.
    pub(crate) fn is_from_file(&self) -> bool {
        self.place.is_some()
    }

    /// All the paths it is mounted by.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(&self.unlisted)
    }
}

/// A name in the spelling that stands for all others.
pub(crate) fn plain(name: &str) -> Vec<u8> {
    plain_path(name.as_bytes())
}

/// A path for the terminal.
pub(crate) fn shown(path: &Path) -> String {
    escape::printable(path.as_os_str().as_bytes())
}

/// `a, b, c`.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}
