//! ONC RPC version 2: the call and reply headers (RFC 5531).

use bytes::Bytes;

use crate::{Error, Reader, Xdr};

/// Maximum length of a credential or verifier in bytes (RFC 5531, section 8.2).
pub const AUTH_MAX: u32 = 400;
/// RPC version supported here.
pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// A credential or verifier (`opaque_auth`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpaqueAuth {
    /// Flavor: [`OpaqueAuth::NONE`], [`OpaqueAuth::UNIX`] or another.
    pub flavor: u32,
    /// At most [`AUTH_MAX`] bytes.
    pub body: Bytes,
}

impl OpaqueAuth {
    pub const NONE: u32 = 0;
    /// AUTH_SYS, called AUTH_UNIX before RFC 5531.
    pub const UNIX: u32 = 1;
    /// AUTH_SHORT: a server's abbreviation of an AUTH_SYS credential.
    pub const SHORT: u32 = 2;

    /// The empty credential.
    pub const fn none() -> OpaqueAuth {
        OpaqueAuth { flavor: OpaqueAuth::NONE, body: Bytes::new() }
    }

    /// An AUTH_SYS credential.
    pub fn unix(auth: &AuthUnix) -> OpaqueAuth {
        OpaqueAuth { flavor: OpaqueAuth::UNIX, body: auth.to_bytes() }
    }
}

impl Xdr for OpaqueAuth {
    fn encode(&self, out: &mut Vec<u8>) {
        self.flavor.encode(out);
        self.body.encode(out);
    }
    fn decode(r: &mut Reader) -> Result<OpaqueAuth, Error> {
        Ok(OpaqueAuth { flavor: u32::decode(r)?, body: r.opaque(AUTH_MAX)? })
    }
}

/// AUTH_SYS: the caller's identity, as claimed by the client (RFC 5531, appendix A).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthUnix {
    /// Arbitrary number chosen by the caller.
    pub stamp: u32,
    /// Host name of the caller, at most 255 bytes.
    pub machine: Bytes,
    /// Effective user ID.
    pub uid: u32,
    /// Effective group ID.
    pub gid: u32,
    /// Supplementary groups, at most 16.
    pub gids: Vec<u32>,
}

impl Xdr for AuthUnix {
    fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        self.machine.encode(out);
        self.uid.encode(out);
        self.gid.encode(out);
        crate::xdr::put_array(out, &self.gids);
    }
    fn decode(r: &mut Reader) -> Result<AuthUnix, Error> {
        Ok(AuthUnix {
            stamp: u32::decode(r)?,
            machine: r.opaque(255)?,
            uid: u32::decode(r)?,
            gid: u32::decode(r)?,
            gids: r.array(16)?,
        })
    }
}

/// The header of a call; the procedure's arguments follow it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallHeader {
    /// Transaction ID: matches a reply to its call, and a retransmission to its original.
    pub xid: u32,
    pub prog: u32,
    pub vers: u32,
    pub proc: u32,
    pub cred: OpaqueAuth,
    pub verf: OpaqueAuth,
}

/// A message that is not a valid call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// Not a call: the server drops it.
    #[error("not an RPC call: {0}")]
    NotACall(Error),
    /// Unsupported RPC version: the server denies the call.
    #[error("unsupported RPC version {vers}")]
    RpcVersion {
        xid: u32,
        /// RPC version of the call.
        vers: u32,
    },
    /// A credential or verifier longer than [`AUTH_MAX`]: the server denies the call.
    #[error("a credential or verifier exceeds {AUTH_MAX} bytes")]
    BadAuth {
        xid: u32,
        /// `auth_stat` of the reply: [`Outcome::AUTH_BADCRED`] or [`Outcome::AUTH_BADVERF`].
        why: u32,
    },
}

impl From<Error> for CallError {
    fn from(e: Error) -> CallError {
        CallError::NotACall(e)
    }
}

impl CallHeader {
    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for word in [self.xid, CALL, RPC_VERSION, self.prog, self.vers, self.proc] {
            word.encode(out);
        }
        self.cred.encode(out);
        self.verf.encode(out);
    }

    /// Decodes the header at the front of `r`, up to the arguments.
    pub fn decode(r: &mut Reader) -> Result<CallHeader, CallError> {
        let xid = u32::decode(r)?;
        match u32::decode(r)? {
            CALL => {}
            value => return Err(CallError::NotACall(Error::BadDiscriminant { what: "call", value })),
        }
        let vers = u32::decode(r)?;
        if vers != RPC_VERSION {
            return Err(CallError::RpcVersion { xid, vers });
        }
        let (prog, vers, proc) = (u32::decode(r)?, u32::decode(r)?, u32::decode(r)?);
        let mut auth = |why| match OpaqueAuth::decode(r) {
            Err(Error::TooLong { .. }) => Err(CallError::BadAuth { xid, why }),
            other => Ok(other?),
        };
        let (cred, verf) = (auth(Outcome::AUTH_BADCRED)?, auth(Outcome::AUTH_BADVERF)?);
        Ok(CallHeader { xid, prog, vers, proc, cred, verf })
    }
}

/// Outcome of a call. The procedure's results follow [`Outcome::Success`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Outcome {
    /// Executed; the results follow.
    #[error("success")]
    Success,
    /// The server does not run the program.
    #[error("the server does not run this program")]
    ProgUnavail,
    /// The server runs other versions of the program.
    #[error("the server speaks versions {low} to {high} only")]
    ProgMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// The program does not have the procedure.
    #[error("the server has no such procedure")]
    ProcUnavail,
    /// The arguments cannot be decoded.
    #[error("the server could not read the arguments")]
    GarbageArgs,
    /// Server failure, such as lack of memory.
    #[error("the server reports an internal error")]
    SystemErr,
    /// Denied: unsupported RPC version.
    #[error("the server speaks RPC versions {low} to {high} only")]
    RpcMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// Denied: credential refused, with its `auth_stat`.
    #[error("the server refuses the credentials (auth_stat {0})")]
    AuthError(u32),
}

impl Outcome {
    /// `auth_stat` 1: the credential cannot be decoded.
    pub const AUTH_BADCRED: u32 = 1;
    /// `auth_stat` 2: the client must begin a new session.
    pub const AUTH_REJECTEDCRED: u32 = 2;
    /// `auth_stat` 3: the verifier cannot be decoded.
    pub const AUTH_BADVERF: u32 = 3;
    /// `auth_stat` 5: the credential is too weak.
    pub const AUTH_TOOWEAK: u32 = 5;
}

/// The header of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHeader {
    pub xid: u32,
    pub outcome: Outcome,
}

impl Xdr for ReplyHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        self.xid.encode(out);
        REPLY.encode(out);
        let accepted = |out: &mut Vec<u8>, stat: u32| {
            0u32.encode(out);
            OpaqueAuth::none().encode(out);
            stat.encode(out);
        };
        match self.outcome {
            Outcome::Success => accepted(out, 0),
            Outcome::ProgUnavail => accepted(out, 1),
            Outcome::ProgMismatch { low, high } => {
                accepted(out, 2);
                low.encode(out);
                high.encode(out);
            }
            Outcome::ProcUnavail => accepted(out, 3),
            Outcome::GarbageArgs => accepted(out, 4),
            Outcome::SystemErr => accepted(out, 5),
            Outcome::RpcMismatch { low, high } => [1, 0, low, high].iter().for_each(|w| w.encode(out)),
            Outcome::AuthError(stat) => [1, 1, stat].iter().for_each(|w| w.encode(out)),
        }
    }

    fn decode(r: &mut Reader) -> Result<ReplyHeader, Error> {
        let xid = u32::decode(r)?;
        match u32::decode(r)? {
            REPLY => {}
            value => return Err(Error::BadDiscriminant { what: "reply", value }),
        }
        let outcome = match u32::decode(r)? {
            0 => decode_accepted(r)?,
            1 => decode_denied(r)?,
            value => return Err(Error::BadDiscriminant { what: "reply_stat", value }),
        };
        Ok(ReplyHeader { xid, outcome })
    }
}

fn decode_accepted(r: &mut Reader) -> Result<Outcome, Error> {
    OpaqueAuth::decode(r)?;
    Ok(match u32::decode(r)? {
        0 => Outcome::Success,
        1 => Outcome::ProgUnavail,
        2 => Outcome::ProgMismatch { low: u32::decode(r)?, high: u32::decode(r)? },
        3 => Outcome::ProcUnavail,
        4 => Outcome::GarbageArgs,
        5 => Outcome::SystemErr,
        value => return Err(Error::BadDiscriminant { what: "accept_stat", value }),
    })
}

fn decode_denied(r: &mut Reader) -> Result<Outcome, Error> {
    Ok(match u32::decode(r)? {
        0 => Outcome::RpcMismatch { low: u32::decode(r)?, high: u32::decode(r)? },
        1 => Outcome::AuthError(u32::decode(r)?),
        value => return Err(Error::BadDiscriminant { what: "reject_stat", value }),
    })
}
