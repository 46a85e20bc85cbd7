//! The directories under DIR. They are opened and made one name at a time, each from the one above it, and no
//! symbolic link is followed: a link that somebody plants there leads nowhere else.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use remora_atp::session::PublicKey;
use rustix::fs::{Mode, OFlags, fchmod, fstat, fsync, futimens, mkdirat, open, openat};
use rustix::io::Errno;

use crate::commands::transfer::recv::refusal::{Refusal, refusal};
use crate::commands::transfer::recv::storage::quota::{Census, Holder, Limits};
use crate::commands::transfer::transfer_protocol::Kept;
use crate::cp::resume::temp_name::{is_part, is_plain};
use crate::output::escape;

/// The longest name that most file systems take, in bytes.
const NAME_MAX: usize = 255;
/// Directories above a file, below DIR.
const DEPTH_MAX: usize = 32;
/// Most directories that one run creates. The owner of each may set its mode and time.
const MADE: Limits = Limits { of_key: 1 << 14, of_host: 1 << 14, all: 1 << 16 };
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// DIR and the directories that this run has made in it.
#[derive(Debug)]
pub(crate) struct Tree {
    dir: PathBuf,
    umask: u32,
    /// By device and inode number.
    made: BTreeMap<(u64, u64), CreatedDir>,
    census: Census,
}

/// A directory that this run has made.
#[derive(Debug)]
struct CreatedDir {
    /// The sender whose files it was made for.
    key: PublicKey,
    /// Its name, with those of the directories above it.
    name: String,
}

/// Where a file goes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its directory. One below DIR is meant by its descriptor.
    pub(crate) dir: PathBuf,
    pub(crate) path: PathBuf,
    /// Keeps `dir` good.
    _open: Option<Arc<OwnedFd>>,
}

/// The mode and time that a file or directory gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileAttributes {
    kept: Kept,
    umask: u32,
}

impl Tree {
    pub(crate) fn new(dir: PathBuf, umask: u32) -> Tree {
        Tree { dir, umask, made: BTreeMap::new(), census: Census::default() }
    }

    /// Where the file of this name is, unless its directory is missing.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Target>, Refusal> {
        let (folders, leaf) = split(name);
        let Some(folders) = folders else { return Ok(Some(self.in_dir(leaf))) };
        let mut at = self.open()?;
        for folder in folders.split('/') {
            at = match openat(&at, folder, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                opened => opened.map_err(|e| no_folder(folder, e))?,
            };
        }
        Ok(Some(Target::below(at, leaf)))
    }

    /// Where the file of this name goes. Makes its directories, for their owner alone.
    pub(crate) fn make(&mut self, from: Holder, name: &str) -> Result<Target, Refusal> {
        match split(name) {
            (None, leaf) => Ok(self.in_dir(leaf)),
            (Some(folders), leaf) => Ok(Target::below(self.make_folders(from, folders)?, leaf)),
        }
    }

    /// Makes a directory if it is missing, and gives it its mode and time if it is new and the same sender's.
    pub(crate) fn make_dir(&mut self, from: Holder, name: &str, kept: Kept) -> Result<(), Refusal> {
        let folder = self.make_folders(from, name)?;
        let found = fstat(&folder).map_err(|e| refusal(&e.into()))?;
        if self.made.get(&(found.st_dev, found.st_ino)).is_some_and(|made| made.key == from.key) {
            self.dress(kept).put_on(&folder);
            fsync(&folder).map_err(|e| refusal(&e.into()))?;
        }
        Ok(())
    }

    pub(crate) fn dress(&self, kept: Kept) -> FileAttributes {
        FileAttributes { kept, umask: self.umask }
    }

    /// Room for files in bytes, unless the file system does not say: one that knows no figures has 0 blocks in all.
    pub(crate) fn free(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.dir).ok()?;
        room(stat.f_blocks, stat.f_bavail, stat.f_frsize)
    }

    fn in_dir(&self, leaf: &str) -> Target {
        Target { dir: self.dir.clone(), path: self.dir.join(leaf), _open: None }
    }

    fn open(&self) -> Result<OwnedFd, Refusal> {
        open(&self.dir, FOLDER, Mode::empty()).map_err(|e| refusal(&e.into()))
    }

    fn make_folders(&mut self, from: Holder, folders: &str) -> Result<OwnedFd, Refusal> {
        let mut at = self.open()?;
        let ends = folders.match_indices('/').map(|(end, _)| end).chain([folders.len()]);
        for name in ends.map(|end| &folders[..end]) {
            let (_, folder) = split(name);
            at = match openat(&at, folder, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOENT) => self.make_folder(from, &at, name)?,
                opened => opened.map_err(|e| no_folder(folder, e))?,
            };
            self.check_made(&at, name)?;
        }
        Ok(at)
    }

    /// Fails if this run made the directory under another name that still leads to it: the file system folds names.
    fn check_made(&self, folder: &OwnedFd, name: &str) -> Result<(), Refusal> {
        let found = fstat(folder).map_err(|e| refusal(&e.into()))?;
        let number = (found.st_dev, found.st_ino);
        let Some(made) = self.made.get(&number).filter(|made| made.name != name) else { return Ok(()) };
        let now = self.find(&made.name).ok().flatten().and_then(|target| fs::metadata(target.path).ok());
        if now.is_none_or(|now| (now.dev(), now.ino()) != number) {
            return Ok(()); // it was renamed since
        }
        let [name, first] = [name, &made.name].map(|name| escape::printable(name.as_bytes()));
        Err(format!(
            "the directory '{name}' is here the same as '{first}', which was received before: rename one of them"
        ))
    }

    fn make_folder(&mut self, from: Holder, at: &OwnedFd, name: &str) -> Result<OwnedFd, Refusal> {
        let (_, folder) = split(name);
        if self.census.shortage(MADE, from).is_some() {
            return Err("too many directories at the receiver".into());
        }
        let made = mkdirat(at, folder, Mode::RWXU);
        if !matches!(made, Ok(()) | Err(Errno::EXIST)) {
            return Err(refusal(&made.err().unwrap_or(Errno::IO).into()));
        }
        fsync(at).map_err(|e| refusal(&e.into()))?;
        let new = openat(at, folder, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|e| no_folder(folder, e))?;
        if made.is_ok()
            && let Ok(found) = fstat(&new)
        {
            self.census.add(from);
            let made = CreatedDir { key: from.key, name: name.to_owned() };
            self.made.insert((found.st_dev, found.st_ino), made);
        }
        Ok(new)
    }
}

impl Target {
    /// A name in an open directory, which its path leads to whatever becomes of the directory's own name.
    fn below(folder: OwnedFd, leaf: &str) -> Target {
        let dir = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
        Target { path: dir.join(leaf), dir, _open: Some(Arc::new(folder)) }
    }

    /// Makes the directory's entries safe on the disk.
    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

impl FileAttributes {
    /// Best effort: not every file system keeps these. No set-id bit is ever set, and none is taken away.
    pub(crate) fn put_on(&self, file: impl AsFd) {
        use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
        let Kept { mode, mtime } = self.kept;
        if let (Some(mode), Ok(found)) = (mode, fstat(&file)) {
            let special = found.st_mode & 0o7000;
            let _ = fchmod(&file, Mode::from_raw_mode((mode & 0o777 & !self.umask) | special));
        }
        if let Some((secs, nanos)) = mtime.filter(|(_, nanos)| *nanos < 1_000_000_000) {
            let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
            let times = Timestamps { last_access: at(0, UTIME_OMIT), last_modification: at(secs, nanos.into()) };
            let _ = futimens(&file, &times);
        }
    }
}

/// The directories above a file, and the file's own name.
fn split(name: &str) -> (Option<&str>, &str) {
    name.rsplit_once('/').map_or((None, name), |(folders, leaf)| (Some(folders), leaf))
}

/// Available bytes of a file system with `blocks` blocks; `None` if it reports no figures.
fn room(blocks: u64, available: u64, block_size: u64) -> Option<u64> {
    (blocks > 0).then(|| available.saturating_mul(block_size))
}

fn no_folder(name: &str, e: Errno) -> Refusal {
    match e {
        Errno::NOTDIR | Errno::LOOP => format!("{} is not a directory there", escape::printable(name.as_bytes())),
        e => refusal(&e.into()),
    }
}

/// A name from the network: in DIR or not too far below it, visible there, and harmless on a terminal.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let why = match name {
        "" | "." | ".." => Some("it names a directory"),
        _ if name.split('/').count() > DEPTH_MAX + 1 => Some("it is in too many nested directories"),
        _ => name.split('/').find_map(wrong_with),
    };
    let why = why.or_else(|| name.starts_with('.').then_some("it is hidden"));
    why.map_or(Ok(()), |why| Err(format!("the name is not allowed: {why}")))
}

/// What is wrong with one name of a path.
fn wrong_with(name: &str) -> Option<&'static str> {
    let bytes = name.as_bytes();
    match name {
        _ if !is_plain(bytes) => Some("it leads outside the directory"),
        _ if bytes.len() > NAME_MAX => Some("it is too long"),
        _ if is_part(bytes) => Some("it is the name of a temporary file"),
        _ if name.chars().any(char::is_control) => Some("it contains control characters"),
        _ if name.chars().any(escape::rearranges) => Some("it contains characters that change the text direction"),
        _ => None,
    }
}

#[cfg(test)]
#[path = "target_tree_tests.rs"]
mod tests;
