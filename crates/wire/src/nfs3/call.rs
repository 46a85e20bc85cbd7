//! The arguments of NFSv3's procedures (RFC 1813, section 3.3).

use bytes::Bytes;

use super::types::Proc;
use super::types::{Fh, FileType, Name, NfsTime, SetAttr, SpecData, Stable};
use crate::{Error, Reader, Xdr};

/// ACCESS: read data or list a directory.
pub const ACCESS_READ: u32 = 0x01;
/// ACCESS: look up a name.
pub const ACCESS_LOOKUP: u32 = 0x02;
/// ACCESS: change data.
pub const ACCESS_MODIFY: u32 = 0x04;
/// ACCESS: add data or names.
pub const ACCESS_EXTEND: u32 = 0x08;
/// ACCESS: delete a name.
pub const ACCESS_DELETE: u32 = 0x10;
pub const ACCESS_EXECUTE: u32 = 0x20;

xdr_struct! {
    /// A name in a directory (`diropargs3`).
    pub struct DirOp {
        pub dir: Fh,
        pub name: Name,
    }

    pub struct SetAttrArgs {
        pub fh: Fh,
        pub attr: SetAttr,
        /// Applied only if the object's ctime equals this.
        pub guard: Option<NfsTime>,
    }

    pub struct AccessArgs {
        pub fh: Fh,
        /// `ACCESS_*` bits to test.
        pub access: u32,
    }

    pub struct ReadArgs {
        pub fh: Fh,
        /// Offset in bytes.
        pub offset: u64,
        /// Length in bytes.
        pub count: u32,
    }

    pub struct WriteArgs {
        pub fh: Fh,
        /// Offset in bytes.
        pub offset: u64,
        /// Length in bytes; a correct call has the length of `data`.
        pub count: u32,
        /// Required stability of the data before the reply.
        pub stable: Stable,
        pub data: Bytes,
    }

    pub struct CreateArgs {
        /// Directory and name of the new file.
        pub at: DirOp,
        /// Mode of creation.
        pub how: CreateHow,
    }

    pub struct MkDirArgs {
        /// Directory and name of the new directory.
        pub at: DirOp,
        pub attr: SetAttr,
    }

    pub struct SymLinkArgs {
        /// Directory and name of the link.
        pub at: DirOp,
        pub attr: SetAttr,
        pub target: Bytes,
    }

    pub struct MkNodArgs {
        /// Directory and name of the new object.
        pub at: DirOp,
        /// Type and attributes.
        pub what: NodeKind,
    }

    pub struct RenameArgs {
        pub from: DirOp,
        /// The new name.
        pub to: DirOp,
    }

    pub struct LinkArgs {
        pub fh: Fh,
        pub at: DirOp,
    }

    pub struct ReadDirArgs {
        pub dir: Fh,
        /// Position: the cookie of the previous entry; 0 at the start.
        pub cookie: u64,
        /// Verifier of the cookie; zeros at the start.
        pub verf: [u8; 8],
        /// Maximum size of the results in bytes.
        pub count: u32,
    }

    pub struct ReadDirPlusArgs {
        pub dir: Fh,
        /// Position: the cookie of the previous entry; 0 at the start.
        pub cookie: u64,
        /// Verifier of the cookie; zeros at the start.
        pub verf: [u8; 8],
        /// Maximum size of names, file identifiers and cookies in bytes.
        pub dir_count: u32,
        /// Maximum size of the results in bytes.
        pub max_count: u32,
    }

    pub struct CommitArgs {
        pub fh: Fh,
        /// Offset in bytes.
        pub offset: u64,
        /// Length in bytes; 0 means to the end of the file.
        pub count: u32,
    }
}

/// Mode of file creation (`createhow3`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// Opens an existing file.
    Unchecked(SetAttr),
    /// Fails if the name exists.
    Guarded(SetAttr),
    /// Fails if the name exists, unless it was created with this verifier.
    Exclusive([u8; 8]),
}

impl Xdr for CreateHow {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CreateHow::Unchecked(attr) => {
                0u32.encode(out);
                attr.encode(out);
            }
            CreateHow::Guarded(attr) => {
                1u32.encode(out);
                attr.encode(out);
            }
            CreateHow::Exclusive(verf) => {
                2u32.encode(out);
                verf.encode(out);
            }
        }
    }
    fn decode(r: &mut Reader) -> Result<CreateHow, Error> {
        Ok(match u32::decode(r)? {
            0 => CreateHow::Unchecked(SetAttr::decode(r)?),
            1 => CreateHow::Guarded(SetAttr::decode(r)?),
            2 => CreateHow::Exclusive(<[u8; 8]>::decode(r)?),
            value => return Err(Error::BadDiscriminant { what: "createmode3", value }),
        })
    }
}

/// Object to create by MKNOD (`mknoddata3`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A character device.
    Char(SetAttr, SpecData),
    /// A block device.
    Block(SetAttr, SpecData),
    Socket(SetAttr),
    /// A named pipe.
    Fifo(SetAttr),
    /// A type that MKNOD cannot create, or an unknown one; the server answers
    /// [`super::types::Status::BadType`].
    Other(u32),
}

impl Xdr for NodeKind {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, attr, spec) = match self {
            NodeKind::Char(a, s) => (FileType::Char, Some(a), Some(s)),
            NodeKind::Block(a, s) => (FileType::Block, Some(a), Some(s)),
            NodeKind::Socket(a) => (FileType::Socket, Some(a), None),
            NodeKind::Fifo(a) => (FileType::Fifo, Some(a), None),
            NodeKind::Other(number) => return number.encode(out),
        };
        kind.encode(out);
        if let Some(a) = attr {
            a.encode(out);
        }
        if let Some(s) = spec {
            s.encode(out);
        }
    }
    fn decode(r: &mut Reader) -> Result<NodeKind, Error> {
        let kind = match FileType::decode(r) {
            Err(Error::BadDiscriminant { value, .. }) => return Ok(NodeKind::Other(value)),
            kind => kind?,
        };
        Ok(match kind {
            FileType::Char => NodeKind::Char(SetAttr::decode(r)?, SpecData::decode(r)?),
            FileType::Block => NodeKind::Block(SetAttr::decode(r)?, SpecData::decode(r)?),
            FileType::Socket => NodeKind::Socket(SetAttr::decode(r)?),
            FileType::Fifo => NodeKind::Fifo(SetAttr::decode(r)?),
            other => NodeKind::Other(other as u32),
        })
    }
}

crate::xdr::calls! {
    Null;
    GetAttr(Fh), SetAttr(SetAttrArgs), Lookup(DirOp), Access(AccessArgs), ReadLink(Fh), Read(ReadArgs),
    Write(WriteArgs), Create(CreateArgs), MkDir(MkDirArgs), SymLink(SymLinkArgs), MkNod(MkNodArgs),
    Remove(DirOp), RmDir(DirOp), Rename(RenameArgs), Link(LinkArgs), ReadDir(ReadDirArgs),
    ReadDirPlus(ReadDirPlusArgs), FsStat(Fh), FsInfo(Fh), PathConf(Fh), Commit(CommitArgs),
}

impl Call {
    /// The object of the call: a file, or the directory that holds the name.
    pub fn target(&self) -> Option<&Fh> {
        Some(match self {
            Call::Null => return None,
            Call::GetAttr(fh) | Call::ReadLink(fh) | Call::FsStat(fh) | Call::FsInfo(fh) | Call::PathConf(fh) => fh,
            Call::SetAttr(a) => &a.fh,
            Call::Lookup(a) | Call::Remove(a) | Call::RmDir(a) => &a.dir,
            Call::Access(a) => &a.fh,
            Call::Read(a) => &a.fh,
            Call::Write(a) => &a.fh,
            Call::Create(a) => &a.at.dir,
            Call::MkDir(a) => &a.at.dir,
            Call::SymLink(a) => &a.at.dir,
            Call::MkNod(a) => &a.at.dir,
            Call::Rename(a) => &a.from.dir,
            Call::Link(a) => &a.fh,
            Call::ReadDir(a) => &a.dir,
            Call::ReadDirPlus(a) => &a.dir,
            Call::Commit(a) => &a.fh,
        })
    }

    /// The directory whose names the call changes; of two, the first. `None` if it changes none.
    pub fn changes_names_in(&self) -> Option<&Fh> {
        match self {
            Call::Create(CreateArgs { at, .. })
            | Call::MkDir(MkDirArgs { at, .. })
            | Call::SymLink(SymLinkArgs { at, .. })
            | Call::MkNod(MkNodArgs { at, .. })
            | Call::Remove(at)
            | Call::RmDir(at)
            | Call::Rename(RenameArgs { from: at, .. })
            | Call::Link(LinkArgs { at, .. }) => Some(&at.dir),
            Call::Null
            | Call::GetAttr(_)
            | Call::SetAttr(_)
            | Call::Lookup(_)
            | Call::Access(_)
            | Call::ReadLink(_)
            | Call::Read(_)
            | Call::Write(_)
            | Call::ReadDir(_)
            | Call::ReadDirPlus(_)
            | Call::FsStat(_)
            | Call::FsInfo(_)
            | Call::PathConf(_)
            | Call::Commit(_) => None,
        }
    }

    /// Whether the call changes names or attributes other than by writing data.
    pub fn changes_names(&self) -> bool {
        matches!(self, Call::SetAttr(_)) || self.changes_names_in().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"file";
    const DIR: &[u8] = b"dir";
    const OTHER: &[u8] = b"other";

    fn fh(handle: &'static [u8]) -> Fh {
        Fh(Bytes::from_static(handle))
    }

    fn at(dir: &'static [u8]) -> DirOp {
        DirOp { dir: fh(dir), name: Bytes::from_static(b"name") }
    }

    /// Every call with the directory whose names it changes.
    fn all() -> Vec<(Call, Option<&'static [u8]>)> {
        let (attr, target, what) = (SetAttr::NONE, Bytes::from_static(b"to"), NodeKind::Fifo(SetAttr::NONE));
        let (offset, count, stable, data) = (0, 1, Stable::Unstable, Bytes::from_static(b"x"));
        let (cookie, verf) = (0, [0; 8]);
        vec![
            (Call::Null, None),
            (Call::GetAttr(fh(FILE)), None),
            (Call::SetAttr(SetAttrArgs { fh: fh(FILE), attr: attr.clone(), guard: None }), None),
            (Call::Lookup(at(DIR)), None),
            (Call::Access(AccessArgs { fh: fh(FILE), access: 1 }), None),
            (Call::ReadLink(fh(FILE)), None),
            (Call::Read(ReadArgs { fh: fh(FILE), offset, count }), None),
            (Call::Write(WriteArgs { fh: fh(FILE), offset, count, stable, data }), None),
            (Call::Create(CreateArgs { at: at(DIR), how: CreateHow::Exclusive(verf) }), Some(DIR)),
            (Call::MkDir(MkDirArgs { at: at(DIR), attr: attr.clone() }), Some(DIR)),
            (Call::SymLink(SymLinkArgs { at: at(DIR), attr, target }), Some(DIR)),
            (Call::MkNod(MkNodArgs { at: at(DIR), what }), Some(DIR)),
            (Call::Remove(at(DIR)), Some(DIR)),
            (Call::RmDir(at(DIR)), Some(DIR)),
            (Call::Rename(RenameArgs { from: at(DIR), to: at(OTHER) }), Some(DIR)),
            (Call::Link(LinkArgs { fh: fh(FILE), at: at(DIR) }), Some(DIR)),
            (Call::ReadDir(ReadDirArgs { dir: fh(DIR), cookie, verf, count }), None),
            (Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(DIR), cookie, verf, dir_count: 1, max_count: 1 }), None),
            (Call::FsStat(fh(FILE)), None),
            (Call::FsInfo(fh(FILE)), None),
            (Call::PathConf(fh(FILE)), None),
            (Call::Commit(CommitArgs { fh: fh(FILE), offset, count }), None),
        ]
    }

    #[test]
    fn call_names_the_directory_it_changes() {
        let calls = all();
        assert!(calls.iter().map(|(call, _)| call.proc()).eq(Proc::ALL), "all procedures, in their order");
        for (call, dir) in calls {
            assert_eq!(call.changes_names_in().map(|fh| &fh.0[..]), dir, "{call:?}");
            assert_eq!(call.changes_names(), dir.is_some() || call.proc() == Proc::SetAttr, "{call:?}");
        }
    }
}
