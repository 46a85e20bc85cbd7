//! The results of NFSv3's procedures (RFC 1813, section 3.3).

use bytes::Bytes;

use super::proc::Proc;
use super::types::{Attr, Fh, Name, NfsTime, Stable, Status, Wcc};
use crate::xdr::{get_result, known_or, put_result};
use crate::{Error, Reader, Xdr};

/// FSINFO: hard links are supported.
pub const FSF_LINK: u32 = 0x01;
/// FSINFO: symbolic links are supported.
pub const FSF_SYMLINK: u32 = 0x02;
/// FSINFO: PATHCONF has the same results for every file.
pub const FSF_HOMOGENEOUS: u32 = 0x08;
/// FSINFO: SETATTR can set times.
pub const FSF_CANSETTIME: u32 = 0x10;

xdr_struct! {
    /// Success of LOOKUP.
    pub struct LookupOk {
        /// Object.
        pub fh: Fh,
        /// Its attributes.
        pub attr: Option<Attr>,
        /// The directory's attributes.
        pub dir: Option<Attr>,
    }

    /// Success of ACCESS.
    pub struct AccessOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// The `ACCESS_*` bits granted.
        pub access: u32,
    }

    /// Success of READLINK.
    pub struct ReadLinkOk {
        /// The link's attributes.
        pub attr: Option<Attr>,
        /// Target path.
        pub target: Bytes,
    }

    /// Success of READ.
    pub struct ReadOk {
        /// The file's attributes.
        pub attr: Option<Attr>,
        /// Bytes read.
        pub count: u32,
        /// Whether the data ends at the end of the file.
        pub eof: bool,
        /// Data.
        pub data: Bytes,
    }

    /// Success of WRITE.
    pub struct WriteOk {
        /// The file before and after.
        pub wcc: Wcc,
        /// Bytes written.
        pub count: u32,
        /// Stability of the data.
        pub committed: Stable,
        /// Write verifier: changes when the server may have lost UNSTABLE data.
        pub verf: [u8; 8],
    }

    /// Success of CREATE, MKDIR, SYMLINK or MKNOD.
    pub struct MadeOk {
        /// The new object.
        pub fh: Option<Fh>,
        /// Its attributes.
        pub attr: Option<Attr>,
        /// The directory before and after.
        pub dir: Wcc,
    }

    /// Result of RENAME, successful or not.
    pub struct RenameDirs {
        /// The old name's directory before and after.
        pub from: Wcc,
        /// The new name's directory before and after.
        pub to: Wcc,
    }

    /// Result of LINK, successful or not.
    pub struct LinkAttrs {
        /// The file's attributes.
        pub attr: Option<Attr>,
        /// The new name's directory before and after.
        pub dir: Wcc,
    }

    /// Success of READDIR.
    pub struct ReadDirOk {
        /// The directory's attributes.
        pub dir: Option<Attr>,
        /// Verifier of the cookies.
        pub verf: [u8; 8],
        /// Entries.
        pub entries: Entries<Entry>,
    }

    /// An entry of READDIR.
    pub struct Entry {
        /// File identifier.
        pub fileid: u64,
        /// Its name.
        pub name: Name,
        /// Position behind this entry.
        pub cookie: u64,
    }

    /// Success of READDIRPLUS.
    pub struct ReadDirPlusOk {
        /// The directory's attributes.
        pub dir: Option<Attr>,
        /// Verifier of the cookies.
        pub verf: [u8; 8],
        /// Entries.
        pub entries: Entries<EntryPlus>,
    }

    /// An entry of READDIRPLUS.
    pub struct EntryPlus {
        /// File identifier.
        pub fileid: u64,
        /// Its name.
        pub name: Name,
        /// Position behind this entry.
        pub cookie: u64,
        /// Its attributes.
        pub attr: Option<Attr>,
        /// Its handle.
        pub fh: Option<Fh>,
    }

    /// Success of FSSTAT. Sizes in bytes.
    pub struct FsStatOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// Total size.
        pub total: u64,
        /// Free space.
        pub free: u64,
        /// Free space available to the caller.
        pub avail: u64,
        /// Total files.
        pub files: u64,
        /// Free files.
        pub files_free: u64,
        /// Free files available to the caller.
        pub files_avail: u64,
        /// Seconds for which the file system is expected not to change; 0 for none.
        pub invar_secs: u32,
    }

    /// Success of FSINFO. Sizes in bytes.
    pub struct FsInfoOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// Maximum READ.
        pub read_max: u32,
        /// Preferred READ.
        pub read_pref: u32,
        /// READ sizes should be a multiple of this.
        pub read_mult: u32,
        /// Maximum WRITE.
        pub write_max: u32,
        /// Preferred WRITE.
        pub write_pref: u32,
        /// WRITE sizes should be a multiple of this.
        pub write_mult: u32,
        /// Preferred READDIR.
        pub dir_pref: u32,
        /// Maximum file size.
        pub max_file: u64,
        /// Time granularity.
        pub time_delta: NfsTime,
        /// `FSF_*` bits.
        pub properties: u32,
    }

    /// Success of PATHCONF.
    pub struct PathConfOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        /// Maximum link count.
        pub link_max: u32,
        /// Maximum length of a name.
        pub name_max: u32,
        /// Whether longer names are refused, not truncated.
        pub no_trunc: bool,
        /// Whether only root may change the owner.
        pub chown_restricted: bool,
        /// Whether names are case-insensitive.
        pub case_insensitive: bool,
        /// Whether names keep their case.
        pub case_preserving: bool,
    }

    /// Success of COMMIT.
    pub struct CommitOk {
        /// The file before and after.
        pub wcc: Wcc,
        /// Write verifier: see [`WriteOk::verf`].
        pub verf: [u8; 8],
    }
}

/// Failure of a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed<I> {
    /// Error.
    pub status: Status,
    /// Attributes returned in spite of the failure.
    pub info: I,
}

impl<I: Xdr> Xdr for Failed<I> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.status.encode(out);
        self.info.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Failed<I>, Error> {
        // Some servers return disk errors whose numbers RFC 1813 lacks. The call failed all the
        // same, and the reply continues as for any failure.
        Ok(Failed { status: known_or(r, Status::ServerFault)?, info: I::decode(r)? })
    }
}

/// A page of directory entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries<E> {
    /// Entries.
    pub list: Vec<E>,
    /// Whether the page reaches the end of the directory.
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

/// Results of a procedure: `O` on success, `I` beside the status on failure.
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
            /// Procedure of the reply.
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

            /// Decodes the results of `proc`.
            pub fn decode(proc: Proc, r: &mut Reader) -> Result<Reply, Error> {
                Ok(match proc {
                    Proc::Null => Reply::Null,
                    $(Proc::$v => Reply::$v(get_result(r)?),)*
                })
            }

            /// Error; `None` on success.
            pub fn status(&self) -> Option<Status> {
                match self {
                    Reply::Null => None,
                    $(Reply::$v(res) => res.as_ref().err().map(|f| f.status),)*
                }
            }

            /// The reply of `proc` with the error `status` and no attributes. NULL cannot fail.
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
