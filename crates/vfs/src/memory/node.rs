//! The objects of the memory file system: files, directories and the rest.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, FileType, NfsTime, SpecData, Status};

use crate::memory::content::{BLOCK, Content};
use crate::types::Result;

pub(crate) struct Node {
    /// Distinguishes the object from earlier ones with its inode number.
    pub(crate) generation: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) atime: NfsTime,
    pub(crate) mtime: NfsTime,
    pub(crate) ctime: NfsTime,
    /// The (mtime, ctime) that a crash restores while writes are volatile.
    pub(crate) durable_times: Option<(NfsTime, NfsTime)>,
    pub(crate) body: Body,
}

/// The type and content of an object.
pub(crate) enum Body {
    File(Content),
    Dir(Dir),
    Link(Bytes),
    Device(FileType, SpecData),
    /// A socket or a pipe.
    Special(FileType),
}

impl Node {
    pub(crate) fn kind(&self) -> FileType {
        match &self.body {
            Body::File(_) => FileType::Regular,
            Body::Dir(_) => FileType::Directory,
            Body::Link(_) => FileType::SymLink,
            Body::Device(kind, _) | Body::Special(kind) => *kind,
        }
    }

    /// The content of a regular file, or the error of READ and WRITE on another object.
    pub(crate) fn content(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Dir(_) => Err(Status::IsDir),
            _ => Err(Status::Inval),
        }
    }

    pub(crate) fn dir(&self) -> Result<&Dir> {
        match &self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Status::NotDir),
        }
    }

    pub(crate) fn dir_mut(&mut self) -> Result<&mut Dir> {
        match &mut self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Status::NotDir),
        }
    }

    pub(crate) fn attr(&self, fsid: u64, fileid: u64) -> Attr {
        let (size, used) = match &self.body {
            Body::File(content) => (content.size(), content.allocated() * BLOCK),
            Body::Dir(_) => (BLOCK, BLOCK),
            Body::Link(target) => (target.len() as u64, 0),
            Body::Device(..) | Body::Special(_) => (0, 0),
        };
        let rdev = match self.body {
            Body::Device(_, spec) => spec,
            _ => SpecData { major: 0, minor: 0 },
        };
        let Node { mode, uid, gid, nlink, atime, mtime, ctime, .. } = *self;
        Attr { kind: self.kind(), mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
    }

    /// The data changed at `now`, durably or not.
    pub(crate) fn touch_data(&mut self, now: NfsTime, durable: bool) {
        let before = (self.mtime, self.ctime);
        (self.mtime, self.ctime) = (now, now);
        if durable {
            self.durable_times = None;
        } else {
            self.durable_times.get_or_insert(before);
        }
    }

    /// The attributes changed at `now`, durably.
    pub(crate) fn touch_attr(&mut self, now: NfsTime) {
        self.ctime = now;
        self.durable_times = None;
    }
}

/// A directory: names and their listing order. A cookie is never reused, so a listing neither skips nor repeats an
/// entry that stays.
pub(crate) struct Dir {
    /// The parent; the root is its own.
    pub(crate) parent: u64,
    entries: BTreeMap<Bytes, (u64, u64)>,
    order: BTreeMap<u64, Bytes>,
    next_cookie: u64,
}

/// The cookie of `.`.
pub(crate) const COOKIE_SELF: u64 = 1;
/// The cookie of `..`.
pub(crate) const COOKIE_PARENT: u64 = 2;

impl Dir {
    pub(crate) fn new(parent: u64) -> Dir {
        Dir { parent, entries: BTreeMap::new(), order: BTreeMap::new(), next_cookie: COOKIE_PARENT + 1 }
    }

    /// The inode number of `name`.
    pub(crate) fn get(&self, name: &[u8]) -> Option<u64> {
        self.entries.get(name).map(|(node, _)| *node)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a name. Replaces an existing entry.
    pub(crate) fn insert(&mut self, name: &[u8], node: u64) {
        self.remove(name);
        let name = Bytes::copy_from_slice(name);
        self.order.insert(self.next_cookie, name.clone());
        self.entries.insert(name, (node, self.next_cookie));
        self.next_cookie += 1;
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.entries.remove(name) {
            self.order.remove(&cookie);
        }
    }

    /// The entries after `cookie` in listing order: (cookie, name, inode number).
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Bytes, u64)> {
        let from = cookie.max(COOKIE_PARENT).saturating_add(1);
        self.order.range(from..).filter_map(|(c, name)| Some((*c, name, self.get(name)?)))
    }

    /// Names and inode numbers, sorted by name.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&Bytes, u64)> {
        self.entries.iter().map(|(name, (node, _))| (name, *node))
    }
}
