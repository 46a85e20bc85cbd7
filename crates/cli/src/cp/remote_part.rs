//! The file on the server that an upload grows in, before it gets its name.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remora_host::client::ClientError;
use remora_wire::nfs3::{FileType, SetAttr, Status};

use super::job::Job;
use super::journal::{Identity, Journal, JournalFile, with_suffix};
use super::lock::LockFile;
use super::names::part_name;
use super::upload::Destination;
use crate::interrupt::Kept;
use crate::remote::{Node, Remote};
use crate::state;

/// A file under its hidden name. Dropped unfinished it stays on the server; what of it was
/// committed is in a journal here, for `--resume`.
#[derive(Debug)]
pub(crate) struct RemotePart {
    pub(crate) remote: Remote,
    pub(crate) node: Node,
    dest: Destination,
    name: Vec<u8>,
    journal: Mutex<Journal>,
    /// Bytes that the journal on the disk knows of.
    saved: AtomicU64,
    /// `None` where there is no place for it: then nothing can be resumed.
    journal_file: Option<JournalFile>,
    _lock: Option<LockFile>,
    finished: bool,
    kept: Kept,
}

/// A file under its hidden name that was made before anything was known of its directory.
#[derive(Clone, Debug)]
pub(crate) struct Early {
    node: Node,
    name: Vec<u8>,
}

impl Early {
    /// Makes it in the mounted directory. What stands in the way stays, and then there is none.
    pub(crate) async fn make(remote: &Remote, source: &Path, name: &[u8]) -> Option<Early> {
        let name = hidden_name(remote, source, name);
        let node = remote.create(remote.session().root(), &name).await.ok()?;
        Some(Early { node, name })
    }

    /// It was not to be.
    pub(crate) async fn discard(&self, remote: &Remote) {
        // Best effort: there is nobody to tell.
        let _ = remote.remove(remote.session().root(), &self.name).await;
    }
}

impl RemotePart {
    /// Makes one for `dest`, or when resuming takes up the one that is there if it is of the
    /// same source.
    pub(crate) async fn open(
        job: &Job,
        source: &Path,
        identity: &Identity,
        dest: &Destination,
    ) -> Result<RemotePart, ClientError> {
        let name = hidden_name(&dest.remote, source, &dest.name);
        let journal_path = journal_path(&key(source, dest));
        let lock = match journal_path.as_ref().map(|p| LockFile::acquire(&with_suffix(p, ".lock"))) {
            Some(Err(e)) if e.kind() == io::ErrorKind::ResourceBusy => return Err(e.into()),
            // Where nothing can be written, copies get in each other's way at worst.
            lock => lock.and_then(Result::ok),
        };
        let journal_file = journal_path.map(JournalFile::at);
        let old = journal_file.as_ref().filter(|_| job.resume).and_then(JournalFile::load);
        let (node, journal) = match reopen(old, identity, dest, &name).await? {
            Some(found) => found,
            None => {
                let node = match &dest.early {
                    Some(early) => early.node.clone(),
                    None => create(dest, &name).await?,
                };
                let journal = Journal::new(identity.clone(), node.attr.fileid);
                (node, journal)
            }
        };
        Ok(RemotePart {
            remote: dest.remote.clone(),
            node,
            dest: dest.clone(),
            name,
            saved: AtomicU64::new(journal.done.bytes()),
            journal: Mutex::new(journal),
            journal_file,
            _lock: lock,
            finished: false,
            kept: job.kept.clone(),
        })
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

    /// These bytes are on the server's disk.
    pub(crate) fn committed(&self, range: Range<u64>) -> io::Result<()> {
        let mut journal = self.journal();
        journal.done.insert(range);
        let saved = self.saved.load(Ordering::Relaxed);
        match &self.journal_file {
            // What went in one piece is copied again as fast as a journal is read.
            Some(_) if saved == 0 && journal.is_complete() => Ok(()),
            Some(file) => {
                file.store(&journal)?;
                self.saved.store(journal.done.bytes(), Ordering::Relaxed);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// All of it is there: gives it its name, and side by side with that the attributes that
    /// it has not got yet.
    pub(crate) async fn finish(mut self, attr: Option<SetAttr>) -> Result<(), ClientError> {
        let (dir, to) = (&self.dest.dir.fh, &self.dest.name[..]);
        let dress = async {
            match attr {
                Some(attr) => self.remote.setattr(&self.node.fh, attr).await.map(|_| ()),
                None => Ok(()),
            }
        };
        let (dressed, renamed) = tokio::join!(dress, self.remote.rename(&self.node, (dir, &self.name), (dir, to)));
        renamed?;
        self.forget();
        dressed
    }

    /// Nothing can come of it any more.
    pub(crate) async fn discard(mut self) {
        self.forget();
        // Best effort: there is nobody to tell.
        let _ = self.remote.remove(&self.dest.dir.fh, &self.name).await;
    }

    fn forget(&mut self) {
        self.finished = true;
        if let Some(file) = &self.journal_file {
            file.remove();
        }
    }
}

impl Drop for RemotePart {
    fn drop(&mut self) {
        if !self.finished {
            self.kept.add(self.saved.load(Ordering::Relaxed));
        }
    }
}

/// The hidden name for a copy. Those of other sources, or by other people, have other ones.
fn hidden_name(remote: &Remote, source: &Path, name: &[u8]) -> Vec<u8> {
    part_name(name, &format!("-{}", &hash(remote, source, name, "")[..8]))
}

/// Names a copy by who copies what to where, however the URL puts it.
fn key(source: &Path, dest: &Destination) -> String {
    let dir = &dest.dir.attr;
    hash(&dest.remote, source, &dest.name, &format!("{} {}", dir.fsid, dir.fileid))
}

fn hash(remote: &Remote, source: &Path, name: &[u8], dir: &str) -> String {
    let source = std::path::absolute(source).unwrap_or_else(|_| source.to_owned());
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let server = remote.session().server();
    let server = server.rsplit_once(':').map_or(server, |(ip, _port)| ip);
    let who_where = format!("{} {dir}", rustix::process::geteuid().as_raw());
    let parts: [&[u8]; 5] =
        [&host, who_where.as_bytes(), server.as_bytes(), name, source.as_os_str().as_encoded_bytes()];
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

fn journal_path(key: &str) -> Option<PathBuf> {
    let dir = state::user_dir()?;
    state::make_private(&dir).ok()?;
    Some(dir.join(format!("upload-{key}.json")))
}

async fn reopen(
    journal: Option<Journal>,
    identity: &Identity,
    dest: &Destination,
    name: &[u8],
) -> Result<Option<(Node, Journal)>, ClientError> {
    let Some(journal) = journal else { return Ok(None) };
    let Some(node) = dest.remote.find(&dest.dir.fh, name).await? else { return Ok(None) };
    let fits = node.attr.kind == FileType::Regular && journal.is_about(identity, node.attr.fileid, node.attr.size);
    Ok(fits.then_some((node, journal)))
}

/// A new, empty file. What an earlier copy left goes; nothing is ever written through a link.
async fn create(dest: &Destination, name: &[u8]) -> Result<Node, ClientError> {
    let dir = &dest.dir.fh;
    match dest.remote.create(dir, name).await {
        Err(e) if e.status() == Some(Status::Exist) => {}
        made => return made,
    }
    match dest.remote.remove(dir, name).await {
        Err(e) if e.status() != Some(Status::NoEnt) => return Err(e),
        _ => {}
    }
    dest.remote.create(dir, name).await
}
