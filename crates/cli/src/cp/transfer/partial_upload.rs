//! The file on the server that an upload grows in, before it gets its name.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use remora_host::client::ClientError;
use remora_wire::nfs3::{FileType, SetAttr, Status};

use crate::cp::resume::byte_ranges::ByteRanges;
use crate::cp::resume::journal::{Journal, JournalFile, with_suffix};
use crate::cp::resume::lock_file::LockFile;
use crate::cp::resume::resume_index::{self, handle_hash};
use crate::cp::resume::source_state::SourceIdentity;
use crate::cp::resume::temp_name::part_name;
use crate::cp::transfer::upload::UploadDestination;
use crate::cp::ui::job::Job;
use crate::exit::{self, Error};
use crate::interrupt::Kept;
use crate::remote::{Node, Remote};
use crate::state;

/// How often a hidden file or link is made before what is in its way is taken to be somebody's.
pub(crate) const CREATE_TRIES: usize = 8;

/// A file under its hidden name. Dropped unfinished it stays on the server; what of it was
/// committed is in a journal here, for `--resume`.
#[derive(Debug)]
pub(crate) struct PartialUpload {
    pub(crate) remote: Remote,
    node: Node,
    /// The same file under its final name, where that gave it another handle.
    renamed: OnceLock<Node>,
    dest: UploadDestination,
    name: Vec<u8>,
    journal: Mutex<Journal>,
    /// Bytes that the journal on the disk knows of.
    saved: AtomicU64,
    /// `None` where there is no place for it: then nothing can be resumed.
    journal_file: Option<JournalFile>,
    /// Handle hash of what had the final name when the copy began.
    old: Option<String>,
    _lock: Option<LockFile>,
    finished: bool,
    kept: Kept,
}

/// A file under its hidden name that was made before anything was known of its directory.
#[derive(Clone, Debug)]
pub(crate) struct EarlyTempFile {
    node: Node,
    name: Vec<u8>,
    /// A copy grows in it, and decides what becomes of it.
    is_taken: Arc<AtomicBool>,
}

impl EarlyTempFile {
    /// Makes it in the mounted directory. What stands in the way stays, and then there is none.
    pub(crate) async fn make(remote: &Remote, source: &Path, name: &[u8]) -> Option<EarlyTempFile> {
        let name = hidden_name(source, name);
        let node = remote.create(remote.session().root(), &name).await.ok()?;
        Some(EarlyTempFile { node, name, is_taken: Arc::default() })
    }

    fn take(&self) -> Node {
        self.is_taken.store(true, Ordering::Relaxed);
        self.node.clone()
    }

    /// It was not to be, if no copy has taken it.
    pub(crate) async fn discard(&self, remote: &Remote) {
        let dir = remote.session().root();
        if self.is_taken.load(Ordering::Relaxed) {
            return;
        }
        // Another copy may have put its own in its place. Best effort: there is nobody to tell.
        if remote.lookup(dir, &self.name).await.is_ok_and(|found| found.fh == self.node.fh) {
            let _ = remote.remove(dir, &self.name).await;
        }
    }
}

impl PartialUpload {
    /// Removes the journal of an earlier upload, for a complete copy has the name.
    pub(crate) fn forget_begun(source: &Path, dest: &UploadDestination) {
        let Some(path) = resume_index::upload_journal(source, dest).filter(|path| path.exists()) else { return };
        // An upload that is under way removes its own.
        if let Ok(_lock) = LockFile::acquire(&with_suffix(&path, ".lock")) {
            JournalFile::at(path).remove();
        }
    }

    /// Takes up the file that the journal of an earlier upload is about, if `--resume` was given and it is still that
    /// file; else creates one. `old` has the final name now.
    pub(crate) async fn open(
        job: &Job,
        source: &Path,
        identity: &SourceIdentity,
        dest: &UploadDestination,
        old: Option<&Node>,
    ) -> Result<PartialUpload, ClientError> {
        let name = hidden_name(source, &dest.name);
        let path = resume_index::upload_journal(source, dest);
        let lock = match path.as_ref().map(|path| LockFile::acquire(&with_suffix(path, ".lock"))) {
            Some(Err(e)) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e.into()),
            // Without a lock copies get in each other's way at worst.
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
                // First, so that the journal is never about another file than the one with the temporary name.
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

    /// The file as the server knows it now.
    pub(crate) fn node(&self) -> &Node {
        self.renamed.get().unwrap_or(&self.node)
    }

    /// The file under its final name, on a server that gave it another handle with that. `None` on any other.
    async fn find_renamed(&self) -> Result<Option<&Node>, ClientError> {
        let size = self.journal().size();
        let found = self.remote.find(&self.dest.dir.fh, &self.dest.name).await?;
        let is_new = |n: &Node| n.fh != self.node.fh && self.old.as_deref() != Some(&*handle_hash(&n.fh));
        let is_it = |n: &Node| is_new(n) && n.attr.kind == FileType::Regular && n.attr.size <= size;
        let Some(node) = found.filter(is_it) else { return Ok(None) };
        self.remote.note_handles_follow_names();
        Ok(Some(self.renamed.get_or_init(|| node)))
    }

    /// What it is a copy to, for people.
    pub(crate) fn url(&self) -> &str {
        &self.dest.url
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are there.
    pub(crate) fn bytes(&self) -> u64 {
        self.journal().done.bytes()
    }

    /// What is still to be sent of `size` bytes.
    pub(crate) fn missing(&self, size: u64) -> Vec<Range<u64>> {
        self.journal().done.missing(size)
    }

    /// The same without these, which the file has as holes.
    pub(crate) fn missing_beside(&self, holes: &ByteRanges, size: u64) -> Vec<Range<u64>> {
        self.journal().done.with(holes).missing(size)
    }

    /// Makes the file as long as it is to be, so that it reads as zeros where nothing is written. Where the server
    /// will not, or does not do it, that is `false`.
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

    /// Where what has arrived is noted. Where the next run would have another hidden name that is an error.
    fn noted_in(&self) -> io::Result<Option<&JournalFile>> {
        match &state::own_id().unkept {
            Some(why) => Err(io::Error::other(why.as_str())),
            None => Ok(self.journal_file.as_ref()),
        }
    }

    /// These bytes are on the server's disk. Fails if that could not be noted for `--resume`. What goes in one piece
    /// is not noted, for as a rule it has its name a moment later: see [`Self::note_all`].
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

    /// It ends unfinished: what is committed and not noted is noted now.
    fn note_all(&self) {
        let journal = self.journal();
        if journal.done.bytes() > self.saved.load(Ordering::Relaxed) {
            // It cannot be resumed then, and nobody is promised that it can.
            let _ = self.note(&journal);
        }
    }

    async fn rename(&self) -> Result<(), ClientError> {
        let (dir, to) = (&self.dest.dir.fh, &self.dest.name[..]);
        match self.remote.rename(&self.node, (dir, &self.name), (dir, to)).await {
            // The server may have done it, and given the file another handle, and its reply have been lost.
            Err(e) if e.status() == Some(Status::NoEnt) => match self.find_renamed().await? {
                Some(_) => Ok(()),
                None => Err(e),
            },
            renamed => renamed,
        }
    }

    /// All of it is there: gives it its name, and side by side with that the attributes that it has not got yet. A server may take no attributes from us, which is no reason to
    /// have no copy: what it said then.
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

    /// It cannot go on. What was committed stays for `--resume` where that may help; nothing else stays.
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

/// Whether a file may have lost its handle with its hidden name.
fn has_lost_handle(e: &ClientError) -> bool {
    matches!(e.status(), Some(Status::Stale | Status::NoEnt | Status::BadHandle))
}

/// The temporary name of an upload, the same for each run. Names of other users, clients and sources differ: RENAME
/// gives the final name to whatever has the temporary one.
fn hidden_name(source: &Path, name: &[u8]) -> Vec<u8> {
    part_name(name, &format!("-{}", resume_index::upload_tag(source, name)))
}

/// Whether the journal is about `node`, as a copy of this source.
fn is_about(journal: &Journal, source: &SourceIdentity, node: &Node) -> bool {
    node.attr.kind == FileType::Regular && journal.is_about(source, handle_hash(&node.fh), node.attr.size)
}

/// A new, empty file. What an earlier copy left goes; nothing is ever written through a link. What
/// is in the way may be our own, made by a server that died before it could say so.
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

    /// The file with this handle on a server that gives all files the same number.
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
