//! The results of NFSv3's procedures (RFC 1813, section 3.3).

use bytes::Bytes;

use super::{Attr, Fh, Name, NfsTime, Proc, Stable, Status, Wcc};
use crate::xdr::{get_result, known_or, put_result};
use crate::{Error, Reader, Xdr};

/// FSINFO: hard links are supported.
pub const FSF_LINK: u32 = 0x01;
/// FSINFO: symbolic links are supported.
pub const FSF_SYMLINK: u32 = 0x02;
/// FSINFO: PATHCONF is the same for every file.
pub const FSF_HOMOGENEOUS: u32 = 0x08;
/// FSINFO: SETATTR can set times.
pub const FSF_CANSETTIME: u32 = 0x10;

xdr_struct! {
    /// LOOKUP succeeded.
    pub struct LookupOk {
        /// The object.
        pub fh: Fh,
        /// Its attributes.
        pub attr: Option<Attr>,
        /// The directory's.
        pub dir: Option<Attr>,
    }

    /// ACCESS succeeded.
    pub struct AccessOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// The `ACCESS_*` bits granted.
        pub access: u32,
    }

    /// READLINK succeeded.
    pub struct ReadLinkOk {
        /// The link's attributes.
        pub attr: Option<Attr>,
        /// What it points at.
        pub target: Bytes,
    }

    /// READ succeeded.
    pub struct ReadOk {
        /// The file's attributes.
        pub attr: Option<Attr>,
        /// Bytes read.
        pub count: u32,
        /// Whether the last byte read is the file's last.
        pub eof: bool,
        /// The bytes.
        pub data: Bytes,
    }

    /// WRITE succeeded.
    pub struct WriteOk {
        /// The file before and after.
        pub wcc: Wcc,
        /// Bytes written.
        pub count: u32,
        /// How stable they are.
        pub committed: Stable,
        /// Changes when uncommitted data may have been lost.
        pub verf: [u8; 8],
    }

    /// CREATE, MKDIR, SYMLINK or MKNOD succeeded.
    pub struct MadeOk {
        /// The new object.
        pub fh: Option<Fh>,
        /// Its attributes.
        pub attr: Option<Attr>,
        /// The directory before and after.
        pub dir: Wcc,
    }

    /// RENAME, succeeded or failed.
    pub struct RenameDirs {
        /// The old name's directory before and after.
        pub from: Wcc,
        /// The new name's directory before and after.
        pub to: Wcc,
    }

    /// LINK, succeeded or failed.
    pub struct LinkAttrs {
        /// The file's attributes.
        pub attr: Option<Attr>,
        /// The new name's directory before and after.
        pub dir: Wcc,
    }

    /// READDIR succeeded.
    pub struct ReadDirOk {
        /// The directory's attributes.
        pub dir: Option<Attr>,
        /// Goes with the cookies.
        pub verf: [u8; 8],
        /// Entries.
        pub entries: Entries<Entry>,
    }

    /// An entry of READDIR.
    pub struct Entry {
        /// Number of the file.
        pub fileid: u64,
        /// Its name.
        pub name: Name,
        /// To go on behind it.
        pub cookie: u64,
    }

    /// READDIRPLUS succeeded.
    pub struct ReadDirPlusOk {
        /// The directory's attributes.
        pub dir: Option<Attr>,
        /// Goes with the cookies.
        pub verf: [u8; 8],
        /// Entries.
        pub entries: Entries<EntryPlus>,
    }

    /// An entry of READDIRPLUS.
    pub struct EntryPlus {
        /// Number of the file.
        pub fileid: u64,
        /// Its name.
        pub name: Name,
        /// To go on behind it.
        pub cookie: u64,
        /// Its attributes.
        pub attr: Option<Attr>,
        /// Its handle.
        pub fh: Option<Fh>,
    }

    /// FSSTAT succeeded. All sizes in bytes.
    pub struct FsStatOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// Size of the file system.
        pub total: u64,
        /// Free.
        pub free: u64,
        /// Free for the caller.
        pub avail: u64,
        /// File slots.
        pub files: u64,
        /// File slots free.
        pub files_free: u64,
        /// File slots free for the caller.
        pub files_avail: u64,
        /// Seconds for which this is expected to hold; 0 for none.
        pub invar_secs: u32,
    }

    /// FSINFO succeeded. Sizes in bytes.
    pub struct FsInfoOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// Largest READ.
        pub read_max: u32,
        /// Best READ.
        pub read_pref: u32,
        /// READ sizes should be a multiple of this.
        pub read_mult: u32,
        /// Largest WRITE.
        pub write_max: u32,
        /// Best WRITE.
        pub write_pref: u32,
        /// WRITE sizes should be a multiple of this.
        pub write_mult: u32,
        /// Best READDIR.
        pub dir_pref: u32,
        /// Largest file.
        pub max_file: u64,
        /// Granularity of times.
        pub time_delta: NfsTime,
        /// `FSF_*` bits.
        pub properties: u32,
    }

    /// PATHCONF succeeded.
    pub struct PathConfOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// Most hard links to a file.
        pub link_max: u32,
        /// Longest name.
        pub name_max: u32,
        /// Longer names are refused, not cut.
        pub no_trunc: bool,
        /// Only root gives files away.
        pub chown_restricted: bool,
        /// Upper and lower case are the same.
        pub case_insensitive: bool,
        /// Case is kept.
        pub case_preserving: bool,
    }

    /// COMMIT succeeded.
    pub struct CommitOk {
        /// The file before and after.
        pub wcc: Wcc,
        /// See [`WriteOk::verf`].
        pub verf: [u8; 8],
    }
}

/// A procedure failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed<I> {
    /// Why.
    pub status: Status,
    /// What is known of the objects all the same.
    pub info: I,
}

impl<I: Xdr> Xdr for Failed<I> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.status.encode(out);
        self.info.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Failed<I>, Error> {
        // Servers pass on errors of their disks that have no number in RFC 1813. The call failed,
        // whatever the number says, and the answer goes on as any failure's does.
        Ok(Failed { status: known_or(r, Status::ServerFault)?, info: I::decode(r)? })
    }
}

/// A page of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries<E> {
    /// The entries.
    pub list: Vec<E>,
    /// Whether the last one is the directory's last.
    pub eof: bool,
}

impl<E: Xdr> Xdr for Entries<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        for e in &self.list {
            true.encode(out);
            e.encode(out);
        }
        false.encode(out);
        self.eof.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Entries<E>, Error> {
        let mut list = Vec::new();
        while bool::decode(r)? {
            list.push(E::decode(r)?);
        }
        Ok(Entries { list, eof: bool::decode(r)? })
    }
}

/// A procedure's results: `O` when it succeeded, `I` beside the status when it failed.
pub type Res<O, I> = Result<O, Failed<I>>;

/// A reply: a procedure and its results.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // each variant is named after its procedure
pub enum Reply {
    Null,
    GetAttr(Res<Attr, ()>),
    SetAttr(Res<Wcc, Wcc>),
    Lookup(Res<LookupOk, Option<Attr>>),
    Access(Res<AccessOk, Option<Attr>>),
    ReadLink(Res<ReadLinkOk, Option<Attr>>),
    Read(Res<ReadOk, Option<Attr>>),
    Write(Res<WriteOk, Wcc>),
    Create(Res<MadeOk, Wcc>),
    MkDir(Res<MadeOk, Wcc>),
    SymLink(Res<MadeOk, Wcc>),
    MkNod(Res<MadeOk, Wcc>),
    Remove(Res<Wcc, Wcc>),
    RmDir(Res<Wcc, Wcc>),
    Rename(Res<RenameDirs, RenameDirs>),
    Link(Res<LinkAttrs, LinkAttrs>),
    ReadDir(Res<ReadDirOk, Option<Attr>>),
    ReadDirPlus(Res<ReadDirPlusOk, Option<Attr>>),
    FsStat(Res<FsStatOk, Option<Attr>>),
    FsInfo(Res<FsInfoOk, Option<Attr>>),
    PathConf(Res<PathConfOk, Option<Attr>>),
    Commit(Res<CommitOk, Wcc>),
}

macro_rules! procedures {
    ($($v:ident: $none:expr),*) => {
        impl Reply {
            /// The procedure.
            pub fn proc(&self) -> Proc {
                match self {
                    Reply::Null => Proc::Null,
                    $(Reply::$v(_) => Proc::$v,)*
                }
            }

            /// Appends the results.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    Reply::Null => {}
                    $(Reply::$v(res) => put_result(res, out),)*
                }
            }

            /// Takes the results of `proc`.
            pub fn decode(proc: Proc, r: &mut Reader) -> Result<Reply, Error> {
                Ok(match proc {
                    Proc::Null => Reply::Null,
                    $(Proc::$v => Reply::$v(get_result(r)?),)*
                })
            }

            /// How it failed; `None` if it did not.
            pub fn status(&self) -> Option<Status> {
                match self {
                    Reply::Null => None,
                    $(Reply::$v(res) => res.as_ref().err().map(|f| f.status),)*
                }
            }

            /// The reply of `proc` that failed with `status` and knows nothing else. NULL
            /// cannot fail.
            pub fn failed(proc: Proc, status: Status) -> Reply {
                match proc {
                    Proc::Null => Reply::Null,
                    $(Proc::$v => Reply::$v(Err(Failed { status, info: $none })),)*
                }
            }
        }
    };
}

procedures!(
    GetAttr: (), SetAttr: Wcc::NONE, Lookup: None, Access: None, ReadLink: None, Read: None, Write: Wcc::NONE,
    Create: Wcc::NONE, MkDir: Wcc::NONE, SymLink: Wcc::NONE, MkNod: Wcc::NONE, Remove: Wcc::NONE, RmDir: Wcc::NONE,
    Rename: RenameDirs { from: Wcc::NONE, to: Wcc::NONE }, Link: LinkAttrs { attr: None, dir: Wcc::NONE },
    ReadDir: None, ReadDirPlus: None, FsStat: None, FsInfo: None, PathConf: None, Commit: Wcc::NONE
);
