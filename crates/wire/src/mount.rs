//! MOUNT versions 1 and 3: from a path to a file handle (RFC 1094, appendix A; RFC 1813,
//! appendix I).
//!
//! The two have the same procedures and differ in what MNT brings: a handle of NFSv2 or of
//! NFSv3. Version 2, which some clients ask for, is version 1 and PATHCONF.

use bytes::Bytes;

use crate::nfs2;
use crate::nfs3::Fh;
use crate::xdr::{get_list, get_result, known_or, put_list, put_result};
use crate::{Error, Reader, Xdr};

/// The program's number.
pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFSv3.
pub const VERSION: u32 = 3;
/// The version that goes with NFSv2.
pub const VERSION_1: u32 = 1;
/// The longest path in bytes (MNTPATHLEN).
pub const PATH_MAX: u32 = 1024;
/// The longest name in bytes (MNTNAMLEN).
pub const NAME_MAX: u32 = 255;

xdr_enum! {
    /// Why a path could not be mounted (`mountstat3` without MNT3_OK). Version 1 has UNIX
    /// error numbers there, which are the same below 10,000.
    pub enum MountError {
        /// Not owner.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// I/O error.
        Io = 5,
        /// Permission denied.
        Access = 13,
        /// Not a directory.
        NotDir = 20,
        /// Invalid argument.
        Inval = 22,
        /// Name too long.
        NameTooLong = 63,
        /// Not supported.
        NotSupp = 10004,
        /// A failure on the server.
        ServerFault = 10006,
    }
}

/// A [`MountError`] as it arrives: version 1 may bring any error number of the server's system.
struct Refusal(MountError);

impl Xdr for Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<Refusal, Error> {
        known_or(r, MountError::ServerFault).map(Refusal)
    }
}

/// A mounted directory, as version 3 tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// Its handle.
    pub fh: Fh,
    /// Authentication flavors the export takes.
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

/// One mount, as DUMP lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// Who mounted.
    pub host: Bytes,
    /// What.
    pub dir: Bytes,
}

/// One export, as EXPORT lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its path.
    pub dir: Bytes,
    /// Who may mount it; nobody named means everybody.
    pub groups: Vec<Bytes>,
}

/// A call of the MOUNT program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Nothing, to see whether the server answers.
    Null,
    /// The handle of this path.
    Mnt(Bytes),
    /// Who has mounted what.
    Dump,
    /// Forget that the caller mounted this path.
    Umnt(Bytes),
    /// Forget all that the caller mounted.
    UmntAll,
    /// What can be mounted.
    Export,
}

impl Call {
    /// The procedure's number.
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

    /// Takes the arguments of procedure `proc`; `None` if there is no such procedure.
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

/// A reply of the MOUNT program in version 3.
pub type Reply = ReplyOf<Mounted>;

/// A reply of the MOUNT program in version 1.
pub type ReplyV1 = ReplyOf<nfs2::Fh>;

/// A reply of the MOUNT program whose MNT brings an `M`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyOf<M> {
    /// To [`Call::Null`], [`Call::Umnt`] and [`Call::UmntAll`].
    Void,
    /// To [`Call::Mnt`].
    Mnt(Result<M, MountError>),
    /// To [`Call::Dump`].
    Dump(Vec<MountEntry>),
    /// To [`Call::Export`].
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

    /// Takes the results of procedure `proc`.
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
