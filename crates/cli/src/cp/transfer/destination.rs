//! What the paths on the command line lead to: a link that somebody named is theirs, and what is
//! behind it is meant.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::exit::{Error, Result};

/// More links in a row lead nowhere, as for the system.
const LINKS_MAX: usize = 40;
/// What the file system is called that /proc is, see statfs(2).
const PROC_MAGIC: u64 = 0x9fa0;
/// Why nothing is put where a directory is meant, and none is.
pub(crate) fn no_directory(is_something: bool) -> &'static str {
    if is_something { "is not a directory" } else { "no such directory" }
}
/// Why nothing is copied to such a link.
pub(crate) const LEADS_NOWHERE: &str = "is a symbolic link that leads nowhere, and is not replaced";
/// What to do instead.
const CAT: &str = "remora cat writes files to standard output";

/// What is to be copied: with -r a link itself, without it what it leads to.
pub(crate) fn source(path: &Path, recursive: bool) -> io::Result<Metadata> {
    if recursive { fs::symlink_metadata(path) } else { fs::metadata(path) }
}

/// Where a copy goes to.
#[derive(Debug)]
pub(crate) struct LocalDestination {
    pub(crate) path: PathBuf,
    pub(crate) by: By,
}

/// Whose word a destination is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// It is on the command line: what a link there leads to is meant.
    User,
    /// The last name is the source's own, in a directory that was named. A link of that name may be one that
    /// the server had copied there, and nothing is put where that leads.
    Source,
}

impl LocalDestination {
    /// `dest`, or what is called `name` in it.
    pub(crate) fn new(dest: &Path, name: Option<&str>) -> LocalDestination {
        match name {
            Some(name) => LocalDestination { path: dest.join(name), by: By::Source },
            None => LocalDestination { path: dest.to_owned(), by: By::User },
        }
    }

    /// The file that is to be written: where the user's link leads. Links of others are replaced.
    pub(crate) fn file(&self) -> Result<PathBuf> {
        match self.by {
            By::User => destination(&self.path),
            By::Source => Ok(self.path.clone()),
        }
    }
}

/// Where a copy to `dest` goes, which the user named.
fn destination(dest: &Path) -> Result<PathBuf> {
    let failed = |e| Error::local(dest.display())(e);
    // What opening it would find: what is written in a link to a pipe, say, is no path to that.
    match fs::metadata(dest) {
        Ok(meta) if meta.is_dir() => Err(Error::refused(dest.display(), "is a directory")),
        Ok(meta) if !meta.is_file() => Err(not_replaced(dest)),
        Ok(_) => follow(dest).map_err(failed)?.ok_or_else(|| {
            Error::refused(dest.display(), "stands for a file that is open, and is not replaced").with_hint(CAT)
        }),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
        Err(_) if is_link(dest) => Err(Error::refused(dest.display(), LEADS_NOWHERE)),
        Err(_) if dest.as_os_str().as_bytes().ends_with(b"/") => {
            Err(Error::refused(dest.display(), no_directory(false)))
        }
        Err(_) => Ok(dest.to_owned()),
    }
}

/// The regular file that a path leads to; none where it goes through one of the links in /proc that
/// stand for a process's open files. Who has a file open would not see another that takes its name.
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

/// What was named is no file, and nothing is skipped that was named.
pub(crate) fn not_copied(source: &Path) -> Error {
    Error::refused(source.display(), "is not a regular file, and cannot be copied")
        .with_hint("what a pipe brings is written to a file first, and that is copied")
}

/// A copy would take the place of something that is more than its bytes.
pub(crate) fn not_replaced(dest: &Path) -> Error {
    Error::refused(dest.display(), "is not a regular file, and is not replaced by one").with_hint(CAT)
}
