//! Resolves a file id to an open object: by its cached paths, or else by a search.

use std::time::Instant;

use remora_wire::nfs3::{Attr, FileType, Status};
use rustix::io::Errno;

use crate::local::creds::thread_creds;
use crate::local::fd_cache::open_dirs::VerifiedDir;
use crate::local::handles::file_id::{self, PathHint};
use crate::local::handles::path_cache::NAMES_MAX;
use crate::local::handles::search;
use crate::local::handles::tree::{ExportTree, OpenDir, OpenObject};
use crate::local::inode::stat::{self, InodeKey};
use crate::local::sys::errors;
use crate::types::{FileId, Result};

impl ExportTree {
    /// Opens the object `id`.
    pub(crate) fn resolve(&self, id: &FileId) -> Result<OpenObject> {
        let (key, hint) = file_id::decode(id).ok_or(Status::BadHandle)?;
        if let Some(dir) = self.cached_dir(key) {
            let hint = if key == self.root_key { PathHint::default() } else { hint };
            return self.verify_still(dir.fd, key, hint);
        }
        for _ in 0..NAMES_MAX {
            let Some((parent, name)) = self.paths().name_of(key) else { break };
            match self.open_in(parent, &name) {
                Ok(VerifiedDir { fd, verified_at }) => match self.verify_still(fd, key, hint) {
                    Ok(object) => return self.cache_dir(object, verified_at),
                    Err(Status::Stale) => {}
                    // The object may still be there: the name stays cached.
                    Err(status) => return Err(status),
                },
                // Another program renamed or removed a name on the path.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::STALE) => {}
                Err(e) => return Err(errors::status(e)),
            }
            self.paths().forget_name(key, parent, &name);
        }
        let began = Instant::now();
        self.cache_dir(search::search(self, key, hint)?, began)
    }

    /// Caches the object if it is a directory. Fails if it is too deep for anything in it to be reached.
    fn cache_dir(&self, object: OpenObject, verified_at: Instant) -> Result<OpenObject> {
        if object.attr.kind == FileType::Directory {
            if self.paths().depth(object.key) == Err(Errno::NAMETOOLONG) {
                return Err(Status::NameTooLong);
            }
            self.dirs.put(object.key, VerifiedDir { fd: object.fd.clone(), verified_at });
        }
        Ok(object)
    }

    /// The attributes of the object `id`: one system call if its cached path is valid.
    pub(crate) fn attr_of(&self, id: &FileId) -> Result<Attr> {
        let (key, _) = file_id::decode(id).ok_or(Status::BadHandle)?;
        let name = if self.cached_dir(key).is_none() { self.paths().name_of(key) } else { None };
        let found = name.and_then(|(parent, name)| stat::at(&self.open_dir(parent).ok()?.fd, &name).ok());
        match found.map(|stat| self.localize(stat)).filter(|stat| self.is_still(stat, key) && !stat.is_mount) {
            Some(stat) => Ok(stat.attr),
            None => Ok(self.resolve(id)?.attr),
        }
    }

    /// Opens the directory `id` and verifies that it exists.
    pub(crate) fn resolve_dir(&self, id: &FileId) -> Result<OpenObject> {
        let object = self.resolve(id)?;
        self.protected.check(object.key)?;
        if object.attr.kind == FileType::Directory { Ok(object) } else { Err(Status::NotDir) }
    }

    /// Opens the directory `id`. A cached one may have been removed.
    pub(crate) fn dir(&self, id: &FileId) -> Result<OpenDir> {
        let (key, hint) = file_id::decode(id).ok_or(Status::BadHandle)?;
        self.protected.check(key)?;
        match self.cached_dir(key) {
            Some(_) if key == self.root_key => Ok(self.root_dir()),
            Some(dir) => Ok(OpenDir { fd: dir.fd, key, hint }),
            None => Ok(self.resolve_dir(id)?.as_dir()),
        }
    }

    /// The directory in which `object` was last seen, or itself if it is one. The root if unknown.
    pub(crate) fn dir_of(&self, object: OpenObject) -> OpenDir {
        if object.attr.kind == FileType::Directory {
            return object.as_dir();
        }
        let parent = self.paths().name_of(object.key).and_then(|(key, _)| {
            let fd = self.open_dir(key).ok()?.fd;
            Some(OpenDir { fd, key, hint: object.hint })
        });
        parent.unwrap_or_else(|| self.root_dir())
    }

    /// The parent of `dir`. The parent of the root is the root.
    pub(crate) fn parent(&self, dir: &OpenObject) -> Result<OpenObject> {
        thread_creds::restore();
        if dir.key == self.root_key {
            return self.resolve(&self.root_id);
        }
        let cached = self.paths().parent(dir.key);
        if cached.is_none_or(|(parent, _)| is_elsewhere(dir, parent)) {
            self.dirs.close(dir.key);
            search::search(self, dir.key, dir.hint)?;
        }
        let (parent, hint) = self.paths().parent(dir.key).ok_or(Status::Stale)?;
        self.resolve(&file_id::encode(parent, &hint).ok_or(Status::ServerFault)?)
    }
}

/// Whether another program has moved `dir` out of `parent`.
fn is_elsewhere(dir: &OpenObject, parent: InodeKey) -> bool {
    match stat::at(&dir.fd, b"..") {
        Ok(up) => up.key.ino != parent.ino,
        // Outside of its mount a directory has no parent.
        Err(e) => e == Errno::NOENT,
    }
}
