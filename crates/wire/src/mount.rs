//! MOUNT versions 1 and 3: from a path to a file handle (RFC 1094, appendix A; RFC 1813, appendix
//! I).
//!
//! Both have the same procedures and differ in the handle that MNT returns: NFSv2's or NFSv3's.
//! Version 2, which some clients use, is version 1 with PATHCONF.

use bytes::Bytes;

use crate::nfs2;
use crate::nfs3::Fh;
use crate::xdr::{get_list, get_result, known_or, put_list, put_result};
use crate::{Error, Reader, Xdr};

/// RPC program number.
pub const PROGRAM: u32 = 100_005;
/// Version used with NFSv3.
pub const VERSION: u32 = 3;
/// Version used with NFSv2.
pub const VERSION_1: u32 = 1;
/// Maximum length of a path in bytes (MNTPATHLEN).
pub const PATH_MAX: u32 = 1024;
/// Maximum length of a name in bytes (MNTNAMLEN).
pub const NAME_MAX: u32 = 255;

xdr_enum! {
    /// Error of MNT (`mountstat3` without MNT3_OK). Version 1 has UNIX error numbers, which are the
    /// same below 10,000.
    pub enum MountError {
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        Io = 5,
        Access = 13,
        /// Not a directory.
        NotDir = 20,
        Inval = 22,
        /// Name too long.
        NameTooLong = 63,
        NotSupp = 10004,
        ServerFault = 10006,
    }
}

/// A [`MountError`] on the wire: version 1 may carry any error number of the server's system.
struct Refusal(MountError);

impl Xdr for Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Refusal, Error> {
        known_or(r, MountError::ServerFault).map(Refusal)
    }
}

/// A mounted directory in version 3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    pub fh: Fh,
    /// Authentication flavors that the export accepts.
    pub flavors: Vec<u32>,
}

impl Xdr for Mounted {
    fn encode(&self, out: &mut Vec<u8>) {
        self.fh.encode(out);
        crate::xdr::put_array(out, &self.flavors);
    }
    fn decode(r: &mut Reader) -> Result<Mounted, Error> {
        Ok(Mounted { fh: Fh::decode(r)?, flavors: r.array(64)? })
    }
}

/// One mount of DUMP's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// The client's host name.
    pub host: Bytes,
    /// The mounted path.
    pub dir: Bytes,
}

/// One export of EXPORT's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub dir: Bytes,
    /// Groups that may mount it; an empty list means everybody.
    pub groups: Vec<Bytes>,
}

/// A call of the MOUNT program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Does nothing; tests whether the server answers.
    Null,
    /// Returns the handle of this path.
    Mnt(Bytes),
    /// Lists all mounts.
    Dump,
    /// Removes the caller's mount of this path from the list.
    Umnt(Bytes),
    /// Removes all mounts of the caller from the list.
    UmntAll,
    /// Lists the exports.
    Export,
}

impl Call {
    pub fn proc(&self) -> u32 {
        match self {
            Call::Null => 0,
            Call::Mnt(_) => 1,
            Call::Dump => 2,
            Call::Umnt(_) => 3,
            Call::UmntAll => 4,
            Call::Export => 5,
        }
    }

    /// Appends the arguments.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Call::Mnt(path) | Call::Umnt(path) = self {
            path.encode(out);
        }
    }

    /// Decodes the arguments of procedure `proc`; `None` if the procedure does not exist.
    pub fn decode(proc: u32, r: &mut Reader) -> Option<Result<Call, Error>> {
        Some(Ok(match proc {
            0 => Call::Null,
            1 => return Some(r.opaque(PATH_MAX).map(Call::Mnt)),
            2 => Call::Dump,
            3 => return Some(r.opaque(PATH_MAX).map(Call::Umnt)),
            4 => Call::UmntAll,
            5 => Call::Export,
            _ => return None,
        }))
    }
}

/// A version 3 reply.
pub type Reply = ReplyOf<Mounted>;

/// A version 1 reply.
pub type ReplyV1 = ReplyOf<nfs2::Fh>;

/// A reply whose MNT result is an `M`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyOf<M> {
    /// Reply to [`Call::Null`], [`Call::Umnt`] and [`Call::UmntAll`].
    Void,
    /// Reply to [`Call::Mnt`].
    Mnt(Result<M, MountError>),
    /// Reply to [`Call::Dump`].
    Dump(Vec<MountEntry>),
    /// Reply to [`Call::Export`].
    Export(Vec<Export>),
}

impl<M: Xdr> ReplyOf<M> {
    /// Appends the results.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ReplyOf::Void => {}
            ReplyOf::Mnt(res) => put_result(res, out),
            ReplyOf::Dump(list) => put_list(out, list, |e, out| {
                e.host.encode(out);
                e.dir.encode(out);
            }),
            ReplyOf::Export(list) => put_list(out, list, |e, out| {
                e.dir.encode(out);
                put_list(out, &e.groups, |g, out| g.encode(out));
            }),
        }
    }

    /// Decodes the results of procedure `proc`.
    pub fn decode(proc: u32, r: &mut Reader) -> Result<ReplyOf<M>, Error> {
        Ok(match proc {
            0 | 3 | 4 => ReplyOf::Void,
            1 => ReplyOf::Mnt(get_result(r)?.map_err(|Refusal(e)| e)),
            2 => {
                ReplyOf::Dump(get_list(r, |r| Ok(MountEntry { host: r.opaque(NAME_MAX)?, dir: r.opaque(PATH_MAX)? }))?)
            }
            5 => ReplyOf::Export(get_list(r, |r| {
                Ok(Export { dir: r.opaque(PATH_MAX)?, groups: get_list(r, |r| r.opaque(NAME_MAX))? })
            })?),
            value => return Err(Error::BadDiscriminant { what: "MOUNT procedure", value }),
        })
    }
}
