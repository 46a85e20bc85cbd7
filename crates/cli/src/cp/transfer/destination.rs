//! Local paths from the command line. A symbolic link that the user named is followed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::output::exit::{Error, Result};

/// Limit of symbolic links, as in Linux.
const LINKS_MAX: usize = 40;
/// Type of /proc in statfs(2).
const PROC_MAGIC: u64 = 0x9fa0;
/// Why nothing is copied into what is no directory.
pub(crate) fn no_directory(is_something: bool) -> &'static str {
    if is_something { "is not a directory" } else { "no such directory" }
}
/// Why nothing is copied to a dangling link.
pub(crate) const LEADS_NOWHERE: &str = "is a dangling symbolic link; cp does not replace it";
const CAT: &str = "remora cat writes files to standard output";

/// The source: with `-r` a link itself, else what it leads to.
pub(crate) fn source(path: &Path, recursive: bool) -> io::Result<Metadata> {
    if recursive { fs::symlink_metadata(path) } else { fs::metadata(path) }
}

/// Destination of a download.
#[derive(Debug)]
pub(crate) struct LocalDestination {
    pub(crate) path: PathBuf,
    pub(crate) by: By,
}

/// Who chose the last component of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// The user: links are followed.
    User,
    /// The source, in a directory that the user named. A link with its name may have been copied from the server, and
    /// is not followed.
    Source,
}

impl LocalDestination {
    pub(crate) fn new(dest: &Path, name: Option<&str>) -> LocalDestination {
        match name {
            Some(name) => LocalDestination { path: dest.join(name), by: By::Source },
            None => LocalDestination { path: dest.to_owned(), by: By::User },
        }
    }

    /// The file to write. Only the user's links are followed.
    pub(crate) fn file(&self) -> Result<PathBuf> {
        match self.by {
            By::User => destination(&self.path),
            By::Source => Ok(self.path.clone()),
        }
    }
}

/// The file at `dest`, which the user named.
fn destination(dest: &Path) -> Result<PathBuf> {
    let failed = |e| Error::local(dest.display())(e);
    // As open(2) resolves it: the text of a link to a pipe is no path.
    match fs::metadata(dest) {
        Ok(meta) if meta.is_dir() => Err(Error::refused(dest.display(), "is a directory")),
        Ok(meta) if !meta.is_file() => Err(not_replaced(dest)),
        Ok(_) => follow(dest).map_err(failed)?.ok_or_else(|| {
            Error::refused(dest.display(), "is a link to an open file; cp does not replace it").with_hint(CAT)
        }),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
        Err(_) if is_link(dest) => Err(Error::refused(dest.display(), LEADS_NOWHERE)),
        Err(_) if dest.as_os_str().as_bytes().ends_with(b"/") => {
            Err(Error::refused(dest.display(), no_directory(false)))
        }
        Err(_) => Ok(dest.to_owned()),
    }
}

/// The regular file that a path leads to; `None` through a link of /proc to an open file, whose readers would not see a
/// replacement.
fn follow(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let name = at.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = fs::canonicalize(at.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        at = dir.join(name);
        if !is_link(&at) {
            return Ok(Some(at));
        }
        if rustix::fs::statfs(&dir)?.f_type as u64 == PROC_MAGIC {
            return Ok(None);
        }
        at = dir.join(fs::read_link(&at)?);
    }
    Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()))
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink())
}

/// The error for a source that is no file.
pub(crate) fn not_copied(source: &Path) -> Error {
    Error::refused(source.display(), "is not a regular file; cp cannot copy it")
        .with_hint("write the pipe's data to a file first, then copy that file")
}

/// The error for a destination that is no regular file.
pub(crate) fn not_replaced(dest: &Path) -> Error {
    Error::refused(dest.display(), "is not a regular file; cp does not replace it").with_hint(CAT)
}
