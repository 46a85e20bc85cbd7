//! READDIR and READDIRPLUS over getdents64(2).
//!
//! Cookies are the kernel's own (`d_off`). ext4, XFS, btrfs and tmpfs (since Linux 6.6) make
//! them from the name's hash or a number that stays with the entry, so entries that come and
//! go between pages move no other entry. That is why there is nothing to verify: a listing
//! goes on across changes of the directory. Where they do not stay with the entry, it goes on with the
//! [listing](crate::local::listing::open_listings) that was begun.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use remora_wire::nfs3::{Attr, Status};
use rustix::fs::{CWD, Mode, OFlags, RawDir, RawDirEntry, SeekFrom, openat, seek};
use rustix::io::Errno;

use crate::local::LocalDisk;
use crate::local::creds::thread_creds;
use crate::local::handles::file_id;
use crate::local::handles::file_id::{InodeKey, PathHint};
use crate::local::handles::resolve::{OpenDir, OpenObject};
use crate::local::inode::stat;
use crate::local::listing::open_listings::NO_VERIFIER;
use crate::local::sys::errno::OrStatus;
use crate::{Cred, DirEnd, DirEntry, DirQuery, FileId, Result};

/// Bytes of entries asked of the kernel at once; some 300 entries.
const BATCH: usize = 16 * 1024;
/// The number that libfuse tells for one that its file system does not tell with a name.
const UNKNOWN: u64 = 0xffff_ffff;

/// Hands the entries behind `cookie` to `each` until it says stop; whether the end was reached.
pub(crate) fn scan(
    dir: impl AsFd,
    cookie: u64,
    mut each: impl FnMut(&RawDirEntry<'_>) -> Result<bool>,
) -> Result<bool> {
    seek(&dir, SeekFrom::Start(cookie)).map_err(|_| Status::BadCookie)?;
    let mut batch = vec![MaybeUninit::uninit(); BATCH];
    let mut entries = RawDir::new(dir, &mut batch);
    while let Some(entry) = entries.next() {
        match entry {
            // A cookie that was none of ours.
            Err(Errno::INVAL) if cookie != 0 => return Err(Status::BadCookie),
            entry => {
                if !each(&entry.nfs()?)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

impl OpenDir {
    /// Opens it to list or sync it. Not by its name `.`, which only those find who may search it.
    pub(crate) fn open_dir(&self) -> Result<OwnedFd> {
        self.open_with(OFlags::empty()).nfs()
    }

    /// Opens it to list it on nobody's behalf: its time of access stays, if it is the server's to say so.
    pub(crate) fn open_unnoticed(&self) -> Result<OwnedFd> {
        match self.open_with(OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_dir(),
            done => done.nfs(),
        }
    }

    fn open_with(&self, more: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
        openat(CWD, self.proc_path(), flags, Mode::empty())
    }
}

impl LocalDisk {
    pub(crate) fn do_readdir(
        &self,
        cred: &Cred,
        dir: &FileId,
        query: DirQuery,
        take: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<DirEnd> {
        if i64::try_from(query.cookie).is_err() {
            return Err(Status::BadCookie);
        }
        let dir = self.resolve_dir(dir)?;
        let open_dir_of = dir.open_dir_of();
        let (listed, searchable) = {
            let _as_caller = self.disk.creds.assume(cred)?;
            // Entries' attributes are fetched as the server; whether the caller may have
            // them is asked once, here.
            (open_dir_of.open_dir()?, stat::at(&dir.fd, b".").is_ok())
        };
        let objects = query.objects && searchable;
        let below = self.hint_in(&open_dir_of);
        // That it may be opened is asked for each page, whatever it is then read with.
        let kept = self.disk.listings.as_ref().filter(|_| query.cookie != 0);
        let kept = kept.and_then(|listings| listings.find(query.verf, dir.key, cred));
        let (open, known_as) = match kept {
            Some((open, verf)) => (open, Some(verf)),
            None => (Arc::new(Mutex::new(listed)), None),
        };
        let eof = scan(&*open.lock().unwrap_or_else(PoisonError::into_inner), query.cookie, |entry| {
            let name = entry.file_name().to_bytes();
            let up = if name == b".." { self.above(&dir).ok() } else { None };
            let object = if objects { self.listed(&dir, below, name, &up) } else { None };
            // The name may lead elsewhere by now; and what the root is in is nobody's business.
            let fileid = match (&object, &up) {
                (Some((_, attr)), _) => attr.fileid,
                (None, Some(up)) => up.key.ino,
                (None, None) if entry.ino() == UNKNOWN => stat::at(&dir.fd, name).map_or(UNKNOWN, |it| it.key.ino),
                (None, None) => entry.ino(),
            };
            let cookie = entry.next_entry_cookie();
            Ok(take(DirEntry { fileid, name: Bytes::copy_from_slice(name), cookie, object }))
        })?;
        let verf = match (known_as, &self.disk.listings) {
            (Some(verf), _) => verf,
            (None, Some(listings)) if !eof => listings.keep(dir.key, cred, open),
            (None, _) => NO_VERIFIER,
        };
        Ok(DirEnd { verf, eof })
    }

    /// What an entry is, if it is still there and on this file system.
    fn listed(
        &self,
        dir: &OpenObject,
        below: PathHint,
        name: &[u8],
        up: &Option<OpenObject>,
    ) -> Option<(FileId, Attr)> {
        match name {
            b"." => Some((self.id_of(dir)?, dir.attr.clone())),
            b".." => up.as_ref().and_then(|up| Some((self.id_of(up)?, up.attr.clone()))),
            name => {
                let stat = self.ours(stat::at(&dir.fd, name).ok()?).ok()?;
                Some((self.register_below(dir.key, below, name, stat.key).ok()?, stat.attr))
            }
        }
    }

    /// The directory above `dir`; above the root, the root.
    pub(crate) fn above(&self, dir: &OpenObject) -> Result<OpenObject> {
        thread_creds::restore();
        if dir.key == self.disk.root_key {
            return self.resolve(&self.disk.root_id);
        }
        let known = self.paths().parent(dir.key);
        if known.is_none_or(|(parent, _)| is_elsewhere(dir, parent)) {
            self.disk.dirs.close(dir.key);
            self.search(dir.key, dir.hint)?;
        }
        let (parent, hint) = self.paths().parent(dir.key).ok_or(Status::Stale)?;
        self.resolve(&file_id::encode(parent, &hint).ok_or(Status::ServerFault)?)
    }

    pub(crate) fn id_of(&self, object: &OpenObject) -> Option<FileId> {
        let hint = if object.key == self.disk.root_key { file_id::PathHint::default() } else { object.hint };
        file_id::encode(object.key, &hint)
    }
}

/// Whether somebody else has moved `dir`, which was trusted to be in `parent`.
fn is_elsewhere(dir: &OpenObject, parent: InodeKey) -> bool {
    match stat::at(&dir.fd, b"..") {
        Ok(up) => up.key.ino != parent.ino,
        // Out of the mount that it was opened in, there is nothing above it.
        Err(e) => e == Errno::NOENT,
    }
}
