//! The temporary file of an upload on the server.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use remora_host::client::ClientError;
use remora_wire::nfs3::{FileType, SetAttr, Status};

use crate::config::state_dir;
use crate::cp::resume::byte_ranges::ByteRanges;
use crate::cp::resume::journal::{Journal, JournalFile};
use crate::cp::resume::lock_file::LockFile;
use crate::cp::resume::resume_index::{self, handle_hash};
use crate::cp::resume::source_state::SourceIdentity;
use crate::cp::resume::temp_name::with_suffix;
use crate::cp::transfer::upload_destination::UploadDestination;
use crate::cp::ui::job::Job;
use crate::interrupt::Kept;
use crate::output::exit::{self, Error};
use crate::remote::filesystem::{NameIn, Remote};
use crate::remote::listing::Node;

/// Attempts to create a temporary file or link over an existing one.
pub(crate) const CREATE_TRIES: usize = 8;

/// A temporary file on the server. If dropped unfinished, the file stays, and a journal lists its committed bytes.
#[derive(Debug)]
pub(crate) struct PartialUpload {
    pub(crate) remote: Remote,
    node: Node,
    /// The file under its final name, on a server that changes handles in a rename.
    renamed: OnceLock<Node>,
    dest: UploadDestination,
    name: Vec<u8>,
    journal: Mutex<Journal>,
    /// Bytes in the journal on disk.
    saved: AtomicU64,
    /// `None` without a state directory: then the upload cannot be resumed.
    journal_file: Option<JournalFile>,
    /// Handle hash of the object under the final name when the copy began.
    old: Option<String>,
    _lock: Option<LockFile>,
    finished: bool,
    kept: Kept,
}

impl PartialUpload {
    /// Removes the journal of an earlier upload, for a complete copy has the name.
    pub(crate) fn forget_begun(source: &Path, dest: &UploadDestination) {
        let Some(path) = resume_index::upload_journal(source, &dest.dir.fh, &dest.name).filter(|path| path.exists())
        else {
            return;
        };
        // A running upload removes its own.
        if let Ok(_lock) = LockFile::acquire(&with_suffix(&path, ".lock")) {
            JournalFile::at(path).remove();
        }
    }

    /// Resumes the temporary file of an earlier upload, if `--resume` was given and the journal describes this source
    /// and that file; else creates a temporary file. `old` is the object that now has the final name.
    pub(crate) async fn open(
        job: &Job,
        source: &Path,
        identity: &SourceIdentity,
        dest: &UploadDestination,
        old: Option<&Node>,
    ) -> Result<PartialUpload, ClientError> {
        let name = resume_index::upload_temp_name(source, &dest.name);
        let path = resume_index::upload_journal(source, &dest.dir.fh, &dest.name);
        let lock = match path.as_ref().map(|path| LockFile::acquire(&with_suffix(path, ".lock"))) {
            Some(Err(e)) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e.into()),
            // Without a lock concurrent copies may fail, and replace nothing wrongly.
            lock => lock.and_then(Result::ok),
        };
        let mut journal_file = path.map(JournalFile::at);
        let left = journal_file.as_ref().filter(|_| job.resume).and_then(JournalFile::load);
        let resumed = match left {
            Some(left) => {
                let found = dest.remote.find(&dest.dir.fh, &name).await?;
                let node = found.filter(|node| is_about(&left, identity, node));
                if node.is_none() {
                    job.note(&format!("{}: {}", dest.url, left.why_afresh(identity)));
                }
                node.map(|node| (node, left))
            }
            None => None,
        };
        let (node, journal) = match resumed {
            Some(resumed) => resumed,
            None => {
                // Cleared first, so that the journal is never about another file than the temporary one.
                journal_file = journal_file.filter(JournalFile::clear);
                let node = match &dest.early {
                    Some(early) => early.take(),
                    None => create(dest, &name).await?,
                };
                let journal = Journal::new(identity.clone(), handle_hash(&node.fh));
                (node, journal)
            }
        };
        Ok(PartialUpload {
            remote: dest.remote.clone(),
            node,
            renamed: OnceLock::new(),
            dest: dest.clone(),
            name,
            saved: AtomicU64::new(journal.done.bytes()),
            journal: Mutex::new(journal),
            journal_file,
            old: old.map(|old| handle_hash(&old.fh)),
            _lock: lock,
            finished: false,
            kept: job.kept.clone(),
        })
    }

    /// The file on the server.
    pub(crate) fn node(&self) -> &Node {
        self.renamed.get().unwrap_or(&self.node)
    }

    /// The file under its final name, on a server that changes handles in a rename; `None` on any other.
    async fn find_renamed(&self) -> Result<Option<&Node>, ClientError> {
        let size = self.journal().size();
        let found = self.remote.find(&self.dest.dir.fh, &self.dest.name).await?;
        let is_new = |n: &Node| n.fh != self.node.fh && self.old.as_deref() != Some(&*handle_hash(&n.fh));
        let is_it = |n: &Node| is_new(n) && n.attr.kind == FileType::Regular && n.attr.size <= size;
        let Some(node) = found.filter(is_it) else { return Ok(None) };
        self.remote.note_handles_follow_names();
        Ok(Some(self.renamed.get_or_init(|| node)))
    }

    /// The URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.dest.url
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.journal().done.bytes()
    }

    /// Ranges of `size` bytes that are missing.
    pub(crate) fn missing(&self, size: u64) -> Vec<Range<u64>> {
        self.journal().done.missing(size)
    }

    /// As [`missing`](PartialUpload::missing), without these holes.
    pub(crate) fn missing_beside(&self, holes: &ByteRanges, size: u64) -> Vec<Range<u64>> {
        self.journal().done.with(holes).missing(size)
    }

    /// Extends the file to `size`, so that gaps read as zeros. Returns false where the server does not.
    pub(crate) async fn stretch(&self, size: u64) -> Result<bool, ClientError> {
        if self.node.attr.size >= size {
            return Ok(true);
        }
        let attr = SetAttr { size: Some(size), ..SetAttr::NONE };
        match self.remote.setattr(&self.node().fh, attr).await {
            Err(e) if exit::is_lost(&e) => Err(e),
            set => Ok(set.is_ok_and(|attr| attr.size == size)),
        }
    }

    /// The journal file. An error if the next run would use another temporary name.
    fn noted_in(&self) -> io::Result<Option<&JournalFile>> {
        match &state_dir::own_id().unkept {
            Some(why) => Err(io::Error::other(why.as_str())),
            None => Ok(self.journal_file.as_ref()),
        }
    }

    /// These ranges are on stable storage. Fails if that cannot be recorded. A copy that is committed at once is not
    /// recorded, for it is usually renamed next: see [`Self::note_all`].
    pub(crate) fn committed(&self, ranges: Vec<Range<u64>>) -> io::Result<()> {
        let mut journal = self.journal();
        ranges.into_iter().for_each(|range| journal.done.insert(range));
        let saved = self.saved.load(Ordering::Relaxed);
        if saved == 0 && journal.is_complete() {
            return Ok(());
        }
        self.note(&journal)
    }

    fn note(&self, journal: &Journal) -> io::Result<()> {
        let Some(file) = self.noted_in()? else { return Ok(()) };
        file.store(journal)?;
        self.saved.store(journal.done.bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Records what is committed, for the copy ends unfinished.
    fn note_all(&self) {
        let journal = self.journal();
        if journal.done.bytes() > self.saved.load(Ordering::Relaxed) {
            // It cannot be resumed then, and the message does not promise that.
            let _ = self.note(&journal);
        }
    }

    async fn rename(&self) -> Result<(), ClientError> {
        let dir = &self.dest.dir.fh;
        let (from, to) = (NameIn { dir, name: &self.name }, NameIn { dir, name: &self.dest.name });
        match self.remote.rename(&self.node, from, to).await {
            // The server may have renamed the file, changed its handle, and its reply been lost.
            Err(e) if e.status() == Some(Status::NoEnt) => match self.find_renamed().await? {
                Some(_) => Ok(()),
                None => Err(e),
            },
            renamed => renamed,
        }
    }

    /// Renames the complete file, and sets attributes concurrently. Returns the error of a server that sets none: the
    /// copy is kept.
    pub(crate) async fn finish(&mut self, attr: Option<SetAttr>) -> Result<Option<ClientError>, ClientError> {
        let dress = async {
            match attr.clone() {
                Some(attr) => self.remote.setattr(&self.node().fh, attr).await.map(|_| ()),
                None => Ok(()),
            }
        };
        let (mut dressed, renamed) = tokio::join!(dress, self.rename());
        renamed?;
        self.forget();
        if let (Err(e), Some(attr)) = (&dressed, attr)
            && has_lost_handle(e)
            && let Some(node) = self.find_renamed().await?
        {
            dressed = self.remote.setattr(&node.fh, attr).await.map(|_| ());
        }
        match dressed {
            Err(e) if exit::is_lost(&e) => Err(e),
            dressed => Ok(dressed.err()),
        }
    }

    /// Ends the copy: keeps committed bytes where `--resume` can use them, and removes the file otherwise.
    pub(crate) async fn give_up(mut self, why: &Error) {
        if self.finished || why.is_lost() {
            return;
        }
        let dir = &self.dest.dir.fh;
        if why.may_pass() {
            self.note_all();
        }
        if why.may_pass() && self.saved.load(Ordering::Relaxed) > 0 {
            return;
        }
        // Best effort: the caller reports `why`.
        match self.remote.remove(dir, &self.name).await {
            Err(e) if e.status() != Some(Status::NoEnt) => {}
            _ => self.forget(),
        }
    }

    fn forget(&mut self) {
        self.finished = true;
        if let Some(file) = &self.journal_file {
            file.remove();
        }
    }
}

impl Drop for PartialUpload {
    fn drop(&mut self) {
        if !self.finished {
            self.note_all();
            self.kept.add(self.saved.load(Ordering::Relaxed));
        }
    }
}

/// Whether a rename may have changed the file's handle.
fn has_lost_handle(e: &ClientError) -> bool {
    matches!(e.status(), Some(Status::Stale | Status::NoEnt | Status::BadHandle))
}

/// Whether the journal is about `node`, as a copy of this source.
fn is_about(journal: &Journal, source: &SourceIdentity, node: &Node) -> bool {
    node.attr.kind == FileType::Regular && journal.is_about(source, handle_hash(&node.fh), node.attr.size)
}

/// Creates an empty file in place of an earlier temporary one. That may be our own: a server may have executed CREATE
/// and lost its reply.
async fn create(dest: &UploadDestination, name: &[u8]) -> Result<Node, ClientError> {
    let dir = &dest.dir.fh;
    for _ in 1..CREATE_TRIES {
        match dest.remote.create(dir, name).await {
            Err(e) if e.status() == Some(Status::Exist) => {}
            made => return made,
        }
        match dest.remote.remove(dir, name).await {
            Err(e) if e.status() != Some(Status::NoEnt) => return Err(e),
            _ => {}
        }
    }
    dest.remote.create(dir, name).await
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{Attr, Fh, NfsTime, SpecData};

    use super::*;

    /// The file with this handle on a server that gives all files one number.
    fn node(fh: &'static [u8]) -> Node {
        let time = NfsTime { secs: 7, nanos: 0 };
        let (kind, rdev) = (FileType::Regular, SpecData { major: 0, minor: 0 });
        let (mode, nlink, uid, gid, size, used, fsid, fileid) = (0o600, 1, 0, 0, 8, 8, 1, 0);
        let (atime, mtime, ctime) = (time, time, time);
        let attr = Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime };
        Node { fh: Fh(Bytes::from_static(fh)), attr }
    }

    #[test]
    fn journal_is_about_the_file_with_its_handle() {
        let (ours, other) = (node(b"ours"), node(b"next"));
        let source = SourceIdentity::of_remote(&ours.attr);
        let mut journal = Journal::new(source.clone(), handle_hash(&ours.fh));
        journal.done.insert(0..4);
        assert!(is_about(&journal, &source, &ours) && !is_about(&journal, &source, &other));
    }
}
