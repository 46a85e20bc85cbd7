//! The arguments of NFSv3's procedures (RFC 1813, section 3.3).

use bytes::Bytes;

use super::{Fh, FileType, Name, NfsTime, Proc, SetAttr, SpecData, Stable};
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
/// ACCESS: execute.
pub const ACCESS_EXECUTE: u32 = 0x20;

xdr_struct! {
    /// A name in a directory (`diropargs3`).
    pub struct DirOp {
        /// The directory.
        pub dir: Fh,
        /// The name.
        pub name: Name,
    }

    /// SETATTR.
    pub struct SetAttrArgs {
        /// The object.
        pub fh: Fh,
        /// Its new attributes.
        pub attr: SetAttr,
        /// Only if its ctime is this.
        pub guard: Option<NfsTime>,
    }

    /// ACCESS.
    pub struct AccessArgs {
        /// The object.
        pub fh: Fh,
        /// `ACCESS_*` bits asked about.
        pub access: u32,
    }

    /// READ.
    pub struct ReadArgs {
        /// The file.
        pub fh: Fh,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub count: u32,
    }

    /// WRITE.
    pub struct WriteArgs {
        /// The file.
        pub fh: Fh,
        /// First byte.
        pub offset: u64,
        /// Bytes; equal to the length of `data` in an honest call.
        pub count: u32,
        /// How stable before the reply.
        pub stable: Stable,
        /// The bytes.
        pub data: Bytes,
    }

    /// CREATE.
    pub struct CreateArgs {
        /// Where.
        pub at: DirOp,
        /// How.
        pub how: CreateHow,
    }

    /// MKDIR.
    pub struct MkDirArgs {
        /// Where.
        pub at: DirOp,
        /// First attributes.
        pub attr: SetAttr,
    }

    /// SYMLINK.
    pub struct SymLinkArgs {
        /// Where.
        pub at: DirOp,
        /// First attributes.
        pub attr: SetAttr,
        /// What it points at.
        pub target: Bytes,
    }

    /// MKNOD.
    pub struct MkNodArgs {
        /// Where.
        pub at: DirOp,
        /// What.
        pub what: NodeKind,
    }

    /// RENAME.
    pub struct RenameArgs {
        /// The present name.
        pub from: DirOp,
        /// The new name.
        pub to: DirOp,
    }

    /// LINK.
    pub struct LinkArgs {
        /// The file.
        pub fh: Fh,
        /// Its further name.
        pub at: DirOp,
    }

    /// READDIR.
    pub struct ReadDirArgs {
        /// The directory.
        pub dir: Fh,
        /// Go on behind this entry; 0 from the start.
        pub cookie: u64,
        /// The verifier that came with the cookie; zeros at the start.
        pub verf: [u8; 8],
        /// The most bytes of results.
        pub count: u32,
    }

    /// READDIRPLUS.
    pub struct ReadDirPlusArgs {
        /// The directory.
        pub dir: Fh,
        /// Go on behind this entry; 0 from the start.
        pub cookie: u64,
        /// The verifier that came with the cookie; zeros at the start.
        pub verf: [u8; 8],
        /// The most bytes of names, ids and cookies.
        pub dir_count: u32,
        /// The most bytes of results.
        pub max_count: u32,
    }

    /// COMMIT.
    pub struct CommitArgs {
        /// The file.
        pub fh: Fh,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0 to the end of the file.
        pub count: u32,
    }
}

/// How to create a file (`createhow3`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateHow {
    /// Use one that exists.
    Unchecked(SetAttr),
    /// Fail if one exists.
    Guarded(SetAttr),
    /// Fail if one exists, unless it was made with this verifier.
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

/// What MKNOD is to make (`mknoddata3`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A character device.
    Char(SetAttr, SpecData),
    /// A block device.
    Block(SetAttr, SpecData),
    /// A socket.
    Socket(SetAttr),
    /// A named pipe.
    Fifo(SetAttr),
    /// The number of a type that MKNOD does not make, or of none; the answer is
    /// [`super::Status::BadType`].
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

/// A call: a procedure and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // each variant is named after its procedure
pub enum Call {
    Null,
    GetAttr(Fh),
    SetAttr(SetAttrArgs),
    Lookup(DirOp),
    Access(AccessArgs),
    ReadLink(Fh),
    Read(ReadArgs),
    Write(WriteArgs),
    Create(CreateArgs),
    MkDir(MkDirArgs),
    SymLink(SymLinkArgs),
    MkNod(MkNodArgs),
    Remove(DirOp),
    RmDir(DirOp),
    Rename(RenameArgs),
    Link(LinkArgs),
    ReadDir(ReadDirArgs),
    ReadDirPlus(ReadDirPlusArgs),
    FsStat(Fh),
    FsInfo(Fh),
    PathConf(Fh),
    Commit(CommitArgs),
}

macro_rules! procedures {
    ($($v:ident),*) => {
        impl Call {
            /// The procedure.
            pub fn proc(&self) -> Proc {
                match self {
                    Call::Null => Proc::Null,
                    $(Call::$v(_) => Proc::$v,)*
                }
            }

            /// Appends the arguments.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    Call::Null => {}
                    $(Call::$v(args) => args.encode(out),)*
                }
            }

            /// Takes the arguments of `proc`.
            pub fn decode(proc: Proc, r: &mut Reader) -> Result<Call, Error> {
                Ok(match proc {
                    Proc::Null => Call::Null,
                    $(Proc::$v => Call::$v(Xdr::decode(r)?),)*
                })
            }
        }
    };
}

procedures!(
    GetAttr,
    SetAttr,
    Lookup,
    Access,
    ReadLink,
    Read,
    Write,
    Create,
    MkDir,
    SymLink,
    MkNod,
    Remove,
    RmDir,
    Rename,
    Link,
    ReadDir,
    ReadDirPlus,
    FsStat,
    FsInfo,
    PathConf,
    Commit
);

impl Call {
    /// The object the call is about: the file, or the directory that holds the name.
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

    /// The directory in which the call changes names; of two, the first. `None` if it changes none.
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

    /// Whether the call changes names or attributes by itself, and not with data as WRITE does.
    pub fn changes_names(&self) -> bool {
        matches!(self, Call::SetAttr(_)) || self.changes_names_in().is_some()
    }
}

#[cfg(test)]
mod tests;
