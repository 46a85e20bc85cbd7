//! The types of [`Vfs`](crate::Vfs) calls.

use std::fmt;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, NfsTime, Status, Wcc};
use remora_wire::nfsacl::Entry;

/// The result of an operation. Errors are NFSv3 statuses.
pub type Result<T> = std::result::Result<T, Status>;

/// The largest offset in a file: most systems keep offsets as signed numbers.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// The caller's credential, after squashing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cred {
    /// The effective user number.
    pub uid: u32,
    /// The effective group number.
    pub gid: u32,
    /// Supplementary groups: 16 of a call at most, or any number that the server has looked up.
    pub gids: Vec<u32>,
}

/// Names an object of a [`Vfs`](crate::Vfs) in file handles: up to 40 bytes, opaque to everything else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    len: u8,
    bytes: [u8; FileId::MAX],
}

impl FileId {
    /// The leading bytes that name the object. The rest is a hint: an id without it names the same object, but a search
    /// may take longer.
    pub const NAME: usize = 16;

    /// The maximum length. An NFSv3 handle has 64 bytes, and version, export and signature need room.
    pub const MAX: usize = 40;

    /// The id made of `bytes`; `None` if there are more than [`FileId::MAX`].
    pub fn new(bytes: &[u8]) -> Option<FileId> {
        let mut id = FileId { len: u8::try_from(bytes.len()).ok()?, bytes: [0; FileId::MAX] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// The bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId(")?;
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, ")")
    }
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameIn<'a> {
    /// The directory of the name.
    pub dir: &'a FileId,
    /// The name within it.
    pub name: &'a [u8],
}

impl<'a> NameIn<'a> {
    /// `name` in `dir`.
    pub fn new(dir: &'a FileId, name: &'a [u8]) -> NameIn<'a> {
        NameIn { dir, name }
    }
}

/// The POSIX ACLs of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acls {
    /// Who may use the object; its mode has no more than a part of that.
    pub access: Option<Vec<Entry>>,
    /// The access ACL of new objects in a directory, before their modes narrow it.
    pub default: Option<Vec<Entry>>,
}

/// A created object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// The id of the object.
    pub id: FileId,
    /// Its attributes after the operation.
    pub attr: Attr,
    /// The directory's attributes before and after.
    pub dir: Wcc,
}

/// An entry of a directory listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Inode number of the object.
    pub fileid: u64,
    /// Name of the entry.
    pub name: Bytes,
    /// Position after this entry; never 0.
    pub cookie: u64,
    /// Id and attributes, if requested and the object still exists.
    pub object: Option<(FileId, Attr)>,
}

/// A request for a page of a directory listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirQuery {
    /// The cookie of the last entry received; 0 for the start.
    pub cookie: u64,
    /// The verifier that came with the cookie; zeros at the start.
    pub verf: [u8; 8],
    /// Whether to fill in [`DirEntry::object`].
    pub objects: bool,
}

/// The end of a page of a directory listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEnd {
    /// The verifier for the next page.
    pub verf: [u8; 8],
    /// Whether the page ends with the directory's last entry.
    pub eof: bool,
}

/// What a file system supports (FSINFO: RFC 1813, section 3.3.19).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// The accuracy of times that a client sets.
    pub time_delta: NfsTime,
    /// Whether it has hard links.
    pub links: bool,
    /// Whether it has symbolic links.
    pub symlinks: bool,
    /// [`Vfs::pathconf`](crate::Vfs::pathconf) is the same for all objects.
    pub homogeneous: bool,
}

impl Features {
    /// All features, and times accurate to the nanosecond.
    pub const ALL: Features =
        Features { time_delta: NfsTime { secs: 0, nanos: 1 }, links: true, symlinks: true, homogeneous: true };
}
