//! Credentials of calls: AUTH_NONE and AUTH_SYS (RFC 5531, section 8.2 and appendix A).
//!
//! AUTH_SYS is decoded more liberally than the RFC specifies, because clients deviate from it: an empty body means
//! AUTH_NONE (some BSDs send it with NULL), bytes behind the groups are ignored, and of more than 16 groups the first
//! 16 count.

use remora_vfs::Cred;
use remora_wire::rpc::{AUTH_MAX, OpaqueAuth, Outcome};
use remora_wire::{Error, Reader, Xdr};

/// The flavor of RPCSEC_GSS (RFC 2203), which the server does not support.
pub(crate) const RPCSEC_GSS: u32 = 6;
/// Most supplementary groups of a caller (RFC 5531, appendix A).
const GIDS_MAX: usize = 16;

/// The caller's credential; `None` is anonymous.
pub(crate) type Caller = Option<Cred>;

/// Decodes a credential. The error is the outcome with which the call is denied.
pub(crate) fn caller(cred: &OpaqueAuth) -> Result<Caller, Outcome> {
    match cred.flavor {
        OpaqueAuth::NONE => Ok(None),
        OpaqueAuth::UNIX if cred.body.is_empty() => Ok(None),
        OpaqueAuth::UNIX => {
            decode(Reader::new(cred.body.clone())).map(Some).map_err(|_| Outcome::AuthError(Outcome::AUTH_BADCRED))
        }
        // The server issues no AUTH_SHORT handles. A client that has one from another server must send the full
        // credential (RFC 5531, appendix A).
        OpaqueAuth::SHORT => Err(Outcome::AuthError(Outcome::AUTH_REJECTEDCRED)),
        _ => Err(Outcome::AuthError(Outcome::AUTH_TOOWEAK)),
    }
}

fn decode(mut r: Reader) -> Result<Cred, Error> {
    let _stamp = u32::decode(&mut r)?;
    let _machine = r.opaque(255)?;
    let (uid, gid) = (u32::decode(&mut r)?, u32::decode(&mut r)?);
    let mut gids: Vec<u32> = r.array(AUTH_MAX / 4)?;
    gids.truncate(GIDS_MAX);
    Ok(Cred { uid, gid, gids })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use remora_wire::rpc::AuthUnix;

    fn unix(body: impl Into<Bytes>) -> OpaqueAuth {
        OpaqueAuth { flavor: OpaqueAuth::UNIX, body: body.into() }
    }

    fn body(groups: u32) -> Vec<u8> {
        AuthUnix { stamp: 9, machine: "bsd".into(), uid: 7, gid: 8, gids: (0..groups).collect() }.to_bytes().to_vec()
    }

    #[test]
    fn callers_are_read_as_clients_write_them() {
        let user = |n: u32| Ok(Some(Cred { uid: 7, gid: 8, gids: (0..n).collect() }));
        let trailing = [body(2), vec![0; 8]].concat();
        for (cred, want) in [
            (OpaqueAuth::none(), Ok(None)),
            (unix(""), Ok(None)),
            (unix(body(0)), user(0)),
            (unix(body(16)), user(16)),
            (unix(body(20)), user(16)),
            (unix(trailing), user(2)),
            (unix(&b"\0\0\0\0\xff\xff\xff\xff"[..]), Err(Outcome::AuthError(Outcome::AUTH_BADCRED))),
            (unix(body(3)[..20].to_vec()), Err(Outcome::AuthError(Outcome::AUTH_BADCRED))),
            (
                OpaqueAuth { flavor: 2, body: Bytes::from_static(b"short") },
                Err(Outcome::AuthError(Outcome::AUTH_REJECTEDCRED)),
            ),
            (OpaqueAuth { flavor: 6, body: Bytes::new() }, Err(Outcome::AuthError(Outcome::AUTH_TOOWEAK))),
        ] {
            assert_eq!(caller(&cred), want, "{cred:?}");
        }
    }
}
