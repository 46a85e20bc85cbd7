//! The results of NFSv2's procedures (RFC 1094, section 2.2).

use bytes::Bytes;

use super::call::Data;
use super::types::{Attr, Fh, Name, Status};
use super::types::{PATH_MAX, Proc};
use crate::nfs3::Entries;
use crate::xdr::ResultError;
use crate::{Error, Reader, Xdr};

/// Target of a symbolic link: at most [`PATH_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path(pub Bytes);

impl Xdr for Path {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Path, Error> {
        r.opaque(PATH_MAX).map(Path)
    }
}

xdr_struct! {
    /// Success of LOOKUP, CREATE or MKDIR (`diropres`).
    pub struct DirOpOk {
        pub fh: Fh,
        pub attr: Attr,
    }

    /// Success of READ.
    pub struct ReadOk {
        /// The file's attributes.
        pub attr: Attr,
        pub data: Data,
    }

    /// An entry of READDIR.
    pub struct Entry {
        pub fileid: u32,
        pub name: Name,
        /// Position behind this entry.
        pub cookie: u32,
    }

    /// Success of STATFS.
    pub struct StatFsOk {
        /// Preferred size of READ and WRITE in bytes.
        pub transfer_size: u32,
        /// Block size of the counts below, in bytes.
        pub block_size: u32,
        /// Blocks in the file system.
        pub blocks: u32,
        pub free: u32,
        /// Free blocks available to the caller.
        pub avail: u32,
    }
}

/// A procedure's results.
pub type Res<O> = Result<O, Status>;

impl ResultError<Status> for Status {
    fn of_status(status: Status) -> Status {
        status
    }
    fn status(&self) -> Status {
        *self
    }
}

crate::xdr::replies! {
    Null, Root, WriteCache;
    GetAttr(Res<Attr>), SetAttr(Res<Attr>), Lookup(Res<DirOpOk>), ReadLink(Res<Path>), Read(Res<ReadOk>),
    Write(Res<Attr>), Create(Res<DirOpOk>), Remove(Res<()>), Rename(Res<()>), Link(Res<()>), SymLink(Res<()>),
    MkDir(Res<DirOpOk>), RmDir(Res<()>), ReadDir(Res<Entries<Entry>>), StatFs(Res<StatFsOk>),
}
