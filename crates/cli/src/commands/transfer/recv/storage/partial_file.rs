//! A partially received file under a temporary name, until it is complete and renamed.

use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, io};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use tokio::time::Instant;

use crate::commands::transfer::recv::refusal::{Refusal, TAKEN, refusal};
use crate::commands::transfer::recv::storage::hash_cache::{Stamp, hash_at, hash_of};
use crate::commands::transfer::recv::storage::quota::{Holder, Session};
use crate::commands::transfer::recv::storage::received_names::GivenNames;
use crate::commands::transfer::recv::storage::target_tree::{FileAttributes, Target};
use crate::commands::transfer::transfer_protocol::{Announcement, RANGES_MAX};
use crate::cp::resume::byte_ranges::ByteRanges;
use crate::cp::resume::lock_file::is_at;
use crate::cp::resume::temp_file;
use crate::cp::resume::temp_name::part_name;

/// Some of a file, which goes with this.
#[derive(Debug)]
pub(crate) struct PartialFile {
    hidden: Arc<TempFile>,
    /// Whose it is.
    pub(crate) from: Holder,
    /// The session that its last message came in.
    pub(crate) session: Arc<dyn Session>,
    pub(crate) size: u64,
    pub(crate) hash: blake3::Hash,
    pub(crate) done: ByteRanges,
    pub(crate) touched: Instant,
}

/// A file by its hidden name.
#[derive(Debug)]
pub(crate) struct TempFile {
    file: File,
    path: PathBuf,
    /// The place that it gets in the end.
    target: Target,
}

/// How a whole file gets its name.
#[derive(Debug)]
pub(crate) struct Finish {
    pub(crate) dress: FileAttributes,
    /// Replaces what has the name.
    pub(crate) overwrite: bool,
    pub(crate) given: GivenNames,
}

impl TempFile {
    /// Gone already if it was given its name, and what has the hidden one then is another's. Best effort, with
    /// nobody to tell.
    pub(crate) fn remove(&self) {
        if is_at(&self.path, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl PartialFile {
    pub(crate) fn create(
        target: Target,
        from: Holder,
        session: Arc<dyn Session>,
        said: &Announcement,
    ) -> io::Result<PartialFile> {
        let path = hidden_path(from, &target);
        // Of what one left that was killed, or somebody put there, nothing is used.
        let (file, _) = temp_file::open(&path, |_| Ok(None::<()>))?;
        let (size, hash) = (said.size, said.hash);
        let hidden = Arc::new(TempFile { file, path, target });
        Ok(PartialFile { hidden, from, session, size, hash, done: ByteRanges::default(), touched: Instant::now() })
    }

    /// Whether a file of this sender, for `target`, would grow under the same hidden name, to the file system.
    pub(crate) fn is_in_the_way(&self, from: Holder, target: &Target) -> bool {
        self.from.key == from.key && is_at(&hidden_path(from, target), &self.hidden.file)
    }

    /// What to remove if there is no time to wait for this to be dropped.
    pub(crate) fn hidden(&self) -> Arc<TempFile> {
        self.hidden.clone()
    }

    pub(crate) fn write(&mut self, place: Range<u64>, data: &[u8]) -> Result<(), Refusal> {
        self.hidden.file.write_all_at(data, place.start).map_err(|e| refusal(&e))?;
        self.done.insert(place);
        if self.done.missing(self.size).len() > RANGES_MAX {
            return Err("it arrives in too many pieces".into());
        }
        Ok(())
    }

    /// All of it is here: makes it safe and gives it its name. What has the name then, if the system says.
    pub(crate) fn finish(self, name: &str, how: &Finish, stop: &AtomicBool) -> Result<Option<Metadata>, Refusal> {
        let hash = hash_of(&self.hidden.file, stop).map_err(|e| refusal(&e))?;
        if hash != self.hash {
            return Err("its data differs from its announced hash; it may have changed while it was sent".into());
        }
        how.dress.put_on(&self.hidden.file);
        match self.place(name, how) {
            Ok(()) => {}
            // Its sender may not have asked whether it is there.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let dest = &self.hidden.target.path;
                how.given.check(dest, name)?;
                return self.found_at(dest, stop).map(Some).ok_or(TAKEN.into());
            }
            Err(e) => return Err(refusal(&e)),
        }
        let hidden = self.hidden();
        // Where it has its hidden name, too, that goes now, and a link less is a change.
        drop(self);
        Ok(hidden.file.metadata().ok())
    }

    /// This very file, if it has its name already.
    fn found_at(&self, dest: &Path, stop: &AtomicBool) -> Option<Metadata> {
        let meta = fs::symlink_metadata(dest).ok().filter(|meta| meta.is_file() && meta.len() == self.size)?;
        let (stamp, hash) = hash_at(dest, stop).ok()?;
        (hash == self.hash && stamp == Stamp::of(&meta)).then_some(meta)
    }

    fn place(&self, name: &str, how: &Finish) -> io::Result<()> {
        let TempFile { file, path, target } = &*self.hidden;
        let dest = &target.path;
        file.sync_all()?;
        if !is_at(path, file) {
            return Err(io::Error::other("the unfinished file was removed or replaced"));
        }
        let rename = || if how.overwrite { fs::rename(path, dest) } else { rename_new(path, dest) };
        how.given.give(dest, name, &file.metadata()?, rename)?;
        target.sync_dir()
    }
}

/// Where a file of this sender grows that goes to `target`.
fn hidden_path(from: Holder, target: &Target) -> PathBuf {
    let tag = blake3::hash(from.key.as_bytes()).to_hex();
    let tag = format!("-{}", tag.get(..8).unwrap_or_default());
    let name = target.path.file_name().unwrap_or_default();
    target.dir.join(std::ffi::OsStr::from_bytes(&part_name(name.as_bytes(), &tag)))
}

/// Renames, unless the new name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can; with a link it takes two steps. The first name goes in `drop`.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::hard_link(from, to),
        result => Ok(result?),
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        self.hidden.remove();
    }
}
