//! The results of NFSv2's procedures (RFC 1094, section 2.2).

use bytes::Bytes;

use super::{Attr, Data, Fh, Name, PATH_MAX, Proc, Status};
use crate::nfs3::Entries;
use crate::xdr::{get_result, put_result};
use crate::{Error, Reader, Xdr};

/// What a symbolic link points at: at most [`PATH_MAX`] bytes.
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
    /// LOOKUP, CREATE or MKDIR succeeded (`diropres`).
    pub struct DirOpOk {
        /// The object.
        pub fh: Fh,
        /// Its attributes.
        pub attr: Attr,
    }

    /// READ succeeded.
    pub struct ReadOk {
        /// The file's attributes.
        pub attr: Attr,
        /// The bytes.
        pub data: Data,
    }

    /// An entry of READDIR.
    pub struct Entry {
        /// Number of the file.
        pub fileid: u32,
        /// Its name.
        pub name: Name,
        /// To go on behind it.
        pub cookie: u32,
    }

    /// STATFS succeeded.
    pub struct StatFsOk {
        /// Best size of READ and WRITE in bytes.
        pub transfer_size: u32,
        /// Size of the blocks that follow, in bytes.
        pub block_size: u32,
        /// Blocks in the file system.
        pub blocks: u32,
        /// Blocks free.
        pub free: u32,
        /// Blocks free for the caller.
        pub avail: u32,
    }
}

/// A procedure's results.
pub type Res<O> = Result<O, Status>;

/// A reply: a procedure and its results.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // each variant is named after its procedure
pub enum Reply {
    Null,
    GetAttr(Res<Attr>),
    SetAttr(Res<Attr>),
    Root,
    Lookup(Res<DirOpOk>),
    ReadLink(Res<Path>),
    Read(Res<ReadOk>),
    WriteCache,
    Write(Res<Attr>),
    Create(Res<DirOpOk>),
    Remove(Res<()>),
    Rename(Res<()>),
    Link(Res<()>),
    SymLink(Res<()>),
    MkDir(Res<DirOpOk>),
    RmDir(Res<()>),
    ReadDir(Res<Entries<Entry>>),
    StatFs(Res<StatFsOk>),
}

macro_rules! procedures {
    ($($v:ident),*) => {
        impl Reply {
            /// The procedure.
            pub fn proc(&self) -> Proc {
                match self {
                    Reply::Null => Proc::Null,
                    Reply::Root => Proc::Root,
                    Reply::WriteCache => Proc::WriteCache,
                    $(Reply::$v(_) => Proc::$v,)*
                }
            }

            /// Appends the results.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    Reply::Null | Reply::Root | Reply::WriteCache => {}
                    $(Reply::$v(res) => put_result(res, out),)*
                }
            }

            /// Takes the results of `proc`.
            pub fn decode(proc: Proc, r: &mut Reader) -> Result<Reply, Error> {
                Ok(match proc {
                    Proc::Null => Reply::Null,
                    Proc::Root => Reply::Root,
                    Proc::WriteCache => Reply::WriteCache,
                    $(Proc::$v => Reply::$v(get_result(r)?),)*
                })
            }

            /// How it failed; `None` if it did not.
            pub fn status(&self) -> Option<Status> {
                match self {
                    Reply::Null | Reply::Root | Reply::WriteCache => None,
                    $(Reply::$v(res) => res.as_ref().err().copied(),)*
                }
            }

            /// The reply of `proc` that failed with `status`. NULL, ROOT and WRITECACHE cannot
            /// fail.
            pub fn failed(proc: Proc, status: Status) -> Reply {
                match proc {
                    Proc::Null => Reply::Null,
                    Proc::Root => Reply::Root,
                    Proc::WriteCache => Reply::WriteCache,
                    $(Proc::$v => Reply::$v(Err(status)),)*
                }
            }
        }
    };
}

procedures!(
    GetAttr, SetAttr, Lookup, ReadLink, Read, Write, Create, Remove, Rename, Link, SymLink, MkDir, RmDir, ReadDir,
    StatFs
);
