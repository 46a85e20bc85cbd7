//! The results of NFSv3's procedures (RFC 1813, section 3.3).

use bytes::Bytes;

use super::types::Proc;
use super::types::{Attr, Fh, Name, NfsTime, Stable, Status, Wcc};
use crate::xdr::{ResultError, known_or};
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
        pub fh: Fh,
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
        pub target: Bytes,
    }

    /// Success of READ.
    pub struct ReadOk {
        /// The file's attributes.
        pub attr: Option<Attr>,
        pub count: u32,
        /// Whether the data ends at the end of the file.
        pub eof: bool,
        pub data: Bytes,
    }

    /// Success of WRITE.
    pub struct WriteOk {
        /// The file before and after.
        pub wcc: Wcc,
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
        pub attr: Option<Attr>,
        /// The directory before and after.
        pub dir: Wcc,
    }

    /// Result of RENAME, successful or not.
    #[derive(Default)]
    pub struct RenameDirs {
        /// The old name's directory before and after.
        pub from: Wcc,
        /// The new name's directory before and after.
        pub to: Wcc,
    }

    /// Result of LINK, successful or not.
    #[derive(Default)]
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
        pub entries: Entries<Entry>,
    }

    /// An entry of READDIR.
    pub struct Entry {
        pub fileid: u64,
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
        pub entries: Entries<EntryPlus>,
    }

    /// An entry of READDIRPLUS.
    pub struct EntryPlus {
        pub fileid: u64,
        pub name: Name,
        /// Position behind this entry.
        pub cookie: u64,
        pub attr: Option<Attr>,
        pub fh: Option<Fh>,
    }

    /// Success of FSSTAT. Sizes in bytes.
    pub struct FsStatOk {
        /// The object's attributes.
        pub attr: Option<Attr>,
        pub total: u64,
        pub free: u64,
        /// Free space available to the caller.
        pub avail: u64,
        pub files: u64,
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
        pub read_max: u32,
        pub read_pref: u32,
        /// READ sizes should be a multiple of this.
        pub read_mult: u32,
        pub write_max: u32,
        pub write_pref: u32,
        /// WRITE sizes should be a multiple of this.
        pub write_mult: u32,
        pub dir_pref: u32,
        /// Maximum file size.
        pub max_file: u64,
        pub time_delta: NfsTime,
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

impl<I: Default> ResultError<Status> for Failed<I> {
    fn of_status(status: Status) -> Failed<I> {
        Failed { status, info: I::default() }
    }
    fn status(&self) -> Status {
        self.status
    }
}

/// A page of directory entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries<E> {
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

crate::xdr::replies! {
    Null;
    GetAttr(Res<Attr, ()>), SetAttr(Res<Wcc, Wcc>), Lookup(Res<LookupOk, Option<Attr>>),
    Access(Res<AccessOk, Option<Attr>>), ReadLink(Res<ReadLinkOk, Option<Attr>>),
    Read(Res<ReadOk, Option<Attr>>), Write(Res<WriteOk, Wcc>), Create(Res<MadeOk, Wcc>),
    MkDir(Res<MadeOk, Wcc>), SymLink(Res<MadeOk, Wcc>), MkNod(Res<MadeOk, Wcc>), Remove(Res<Wcc, Wcc>),
    RmDir(Res<Wcc, Wcc>), Rename(Res<RenameDirs, RenameDirs>), Link(Res<LinkAttrs, LinkAttrs>),
    ReadDir(Res<ReadDirOk, Option<Attr>>), ReadDirPlus(Res<ReadDirPlusOk, Option<Attr>>),
    FsStat(Res<FsStatOk, Option<Attr>>), FsInfo(Res<FsInfoOk, Option<Attr>>),
    PathConf(Res<PathConfOk, Option<Attr>>), Commit(Res<CommitOk, Wcc>),
}
