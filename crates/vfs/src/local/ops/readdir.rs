//! READDIR and READDIRPLUS.
//!
//! Cookies are the kernel's own (`d_off`). ext4, XFS, btrfs and tmpfs (since Linux 6.6) derive them from the name's
//! hash or from a number that stays with the entry. Entries that come and go between pages move no other entry, so a
//! listing continues across changes without a verifier. On other file systems a listing continues on [the descriptor on
//! which it began](crate::local::listing::open_listings).

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use remora_wire::nfs3::{Attr, Status};

use crate::local::disk::LocalDisk;
use crate::local::handles::file_id::PathHint;
use crate::local::handles::tree::OpenObject;
use crate::local::inode::stat;
use crate::local::listing::getdents::scan;
use crate::local::listing::open_listings::NO_VERIFIER;
use crate::types::{Cred, DirEnd, DirEntry, DirQuery, FileId, Result};

/// The inode number that libfuse reports if its file system reports none.
const UNKNOWN_INO: u64 = 0xffff_ffff;

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
        let tree = &self.disk.tree;
        let object = tree.resolve_dir(dir)?;
        let dir = object.as_dir();
        let (listed, may_search) = {
            let _as_caller = self.disk.creds.assume(cred)?;
            // Attributes are read as the server. Whether the caller may have them is checked once, here.
            (dir.reopen()?, stat::at(&dir.fd, b".").is_ok())
        };
        let objects = query.objects && may_search;
        let hint = tree.hint_in(&dir);
        // The permission to open is checked for each page, also if another descriptor is read.
        let listings = self.disk.listings.as_ref();
        let kept = listings.filter(|_| query.cookie != 0).and_then(|listings| listings.find(query.verf, dir.key, cred));
        let (shared, known_as) = match kept {
            Some((shared, verf)) => (shared, Some(verf)),
            None => (Arc::new(Mutex::new(listed)), None),
        };
        let eof = scan(&*shared.lock().unwrap_or_else(PoisonError::into_inner), query.cookie, |entry| {
            let name = entry.file_name().to_bytes();
            let parent = if name == b".." { tree.parent(&object).ok() } else { None };
            let found = if objects { self.entry_object(&object, hint, name, parent.as_ref()) } else { None };
            // The name may lead elsewhere by now. The parent of the root is not exported.
            let fileid = match (&found, &parent) {
                (Some((_, attr)), _) => attr.fileid,
                (None, Some(parent)) => parent.key.ino,
                (None, None) if entry.ino() == UNKNOWN_INO => {
                    stat::at(&dir.fd, name).map_or(UNKNOWN_INO, |stat| stat.key.ino)
                }
                (None, None) => entry.ino(),
            };
            let cookie = entry.next_entry_cookie();
            Ok(take(DirEntry { fileid, name: Bytes::copy_from_slice(name), cookie, object: found }))
        })?;
        let verf = match (known_as, listings) {
            (Some(verf), _) => verf,
            (None, Some(listings)) if !eof => listings.keep(dir.key, cred, shared),
            (None, _) => NO_VERIFIER,
        };
        Ok(DirEnd { verf, eof })
    }

    /// The id and attributes of an entry, if it still exists and is on this file system. `hint` is that of objects in
    /// `dir`.
    fn entry_object(
        &self,
        dir: &OpenObject,
        hint: PathHint,
        name: &[u8],
        parent: Option<&OpenObject>,
    ) -> Option<(FileId, Attr)> {
        let tree = &self.disk.tree;
        match name {
            b"." => Some((tree.id_of(dir).ok()?, dir.attr.clone())),
            b".." => parent.and_then(|parent| Some((tree.id_of(parent).ok()?, parent.attr.clone()))),
            name => {
                let stat = tree.localize_exported(stat::at(&dir.fd, name).ok()?).ok()?;
                Some((tree.register_with_hint(dir.key, hint, name, stat.key).ok()?, stat.attr))
            }
        }
    }
}
