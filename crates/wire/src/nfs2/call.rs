//! The arguments of NFSv2's procedures (RFC 1094, section 2.2).

use bytes::Bytes;

use super::types::{DATA_MAX, Proc};
use super::types::{Fh, Name, SetAttr};
use crate::{Error, Reader, Xdr};

/// Data of a READ or WRITE: at most [`DATA_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data(pub Bytes);

impl Xdr for Data {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Data, Error> {
        r.opaque(DATA_MAX).map(Data)
    }
}

xdr_struct! {
    /// A name in a directory (`diropargs`).
    pub struct DirOp {
        pub dir: Fh,
        pub name: Name,
    }

    pub struct SetAttrArgs {
        pub fh: Fh,
        pub attr: SetAttr,
    }

    pub struct ReadArgs {
        pub fh: Fh,
        /// Offset in bytes.
        pub offset: u32,
        /// Length in bytes.
        pub count: u32,
        pub total_count: u32,
    }

    pub struct WriteArgs {
        pub fh: Fh,
        pub begin_offset: u32,
        /// Offset in bytes.
        pub offset: u32,
        pub total_count: u32,
        pub data: Data,
    }

    /// CREATE and MKDIR.
    pub struct CreateArgs {
        /// Directory and name of the new object.
        pub at: DirOp,
        pub attr: SetAttr,
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

    pub struct SymLinkArgs {
        /// Directory and name of the link.
        pub at: DirOp,
        pub target: Bytes,
        pub attr: SetAttr,
    }

    pub struct ReadDirArgs {
        pub dir: Fh,
        /// Position: the cookie of the previous entry; 0 at the start.
        pub cookie: u32,
        /// Maximum size of the results in bytes.
        pub count: u32,
    }
}

crate::xdr::calls! {
    Null, Root, WriteCache;
    GetAttr(Fh), SetAttr(SetAttrArgs), Lookup(DirOp), ReadLink(Fh), Read(ReadArgs), Write(WriteArgs),
    Create(CreateArgs), Remove(DirOp), Rename(RenameArgs), Link(LinkArgs), SymLink(SymLinkArgs),
    MkDir(CreateArgs), RmDir(DirOp), ReadDir(ReadDirArgs), StatFs(Fh),
}
