//! The directory of an export's unsent data: its name, its lock, and the mount that holds it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use siphasher::sip::SipHasher13;

use super::records::{KeptCounts, Records};
use crate::client::Target;
use crate::mount::runtime_dir::MountNote;

/// Longest note in bytes.
const NOTE_MAX: u64 = 64 << 10;
/// Times that the lock's file may go away while it is being locked.
const LOCK_TRIES: u32 = 16;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("its unsent data is in use by the mount at {} (process {})", .0.dir.display(), .0.pid)]
    InUse(MountNote),
    #[error("the store {} lies in the directory to be mounted", .0.display())]
    InsideMount(PathBuf),
    #[error("the store {} is damaged: {why}", .dir.display())]
    Damaged { dir: PathBuf, why: String },
    #[error(
        "the store {} was written by a newer version of remora (tables of version {version}, this one knows {known})",
        .dir.display()
    )]
    Newer { dir: PathBuf, version: i64, known: i64 },
    #[error("{}: {source}", .dir.display())]
    Io { dir: PathBuf, source: io::Error },
}

/// Identifies an export: the server, its port, and the path there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreKey(String);

impl StoreKey {
    pub fn of(target: &Target) -> StoreKey {
        let host = target.host.to_ascii_lowercase();
        let mut hasher = SipHasher13::new();
        hasher.write(host.as_bytes());
        hasher.write_u16(target.port.unwrap_or(remora_wire::nfs3::PORT));
        hasher.write(target.path.trim_end_matches('/').as_bytes());
        let name: String =
            host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.' || *c == '-').take(64).collect();
        StoreKey(format!("{}-{:016x}", name.trim_start_matches('.'), hasher.finish()))
    }

    /// The name of files and directories of the export.
    pub(in crate::mount) fn name(&self) -> &str {
        &self.0
    }
}

/// Whether there is a store of `key` in `parent`.
pub fn has_store(parent: &Path, key: &StoreKey) -> bool {
    parent.join(&key.0).is_dir()
}

/// The directory of an export, locked.
#[derive(Debug)]
pub(super) struct StoreDir {
    path: PathBuf,
    _lock: File,
}

impl StoreDir {
    /// Locks the directory of `key` in `parent` for the mount of `note`, and creates it if it is missing.
    pub(super) fn lock(parent: &Path, key: &StoreKey, note: &MountNote) -> Result<StoreDir, StoreError> {
        let path = parent.join(&key.0);
        let failed = |source| StoreError::Io { dir: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        let canonical = fs::canonicalize(parent).map_err(failed)?;
        if canonical.starts_with(&note.dir) {
            return Err(StoreError::InsideMount(path));
        }
        for _ in 0..LOCK_TRIES {
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
            let lock_path = path.join("lock");
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut lock = match options.open(&lock_path) {
                // The mount that had it removed it meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(failed)?,
            };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(StoreError::InUse(read_note(&mut lock)));
            }
            let is_current = fs::metadata(&lock_path)
                .is_ok_and(|now| lock.metadata().is_ok_and(|ours| (now.dev(), now.ino()) == (ours.dev(), ours.ino())));
            if is_current {
                write_note(&mut lock, note).map_err(failed)?;
                return Ok(StoreDir { path, _lock: lock });
            }
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory, which has nothing unsent.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

fn read_note(lock: &mut File) -> MountNote {
    let mut text = String::new();
    let read = lock.take(NOTE_MAX).read_to_string(&mut text);
    let note = read.ok().and_then(|_| serde_json::from_str(&text).ok());
    note.unwrap_or(MountNote { url: String::new(), dir: PathBuf::from("?"), pid: 0 })
}

fn write_note(lock: &mut File, note: &MountNote) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(serde_json::to_string(note)?.as_bytes())
}

/// What the server lacks and no mount has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptExport {
    /// The mount that left it.
    pub note: MountNote,
    pub dir: PathBuf,
    /// `None` if the store cannot be read.
    pub counts: Option<KeptCounts>,
}

/// Stores in `parent` that no process has locked, and that have something.
pub fn kept_exports(parent: &Path) -> io::Result<Vec<KeptExport>> {
    let entries = match fs::read_dir(parent) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let dir = entry?.path();
        let Ok(mut lock) = File::open(dir.join("lock")) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let counts = Records::open(&dir).ok().and_then(|records| records.counts().ok());
        if counts.is_none_or(|counts| !counts.is_empty()) {
            found.push(KeptExport { note: read_note(&mut lock), dir, counts });
        }
    }
    found.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(found)
}
