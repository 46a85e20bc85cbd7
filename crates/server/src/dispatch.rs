//! From a message to a call of one of our programs, or to the answer that RFC 5531, section 9
//! has for messages that are none.

use bytes::Bytes;
use remora_wire::rpc::{CallError, CallHeader, OpaqueAuth, Outcome, RPC_VERSION};
use remora_wire::{Reader, mount, nfs3};

use crate::auth::{self, Caller};

/// What a message turned out to be.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// No RPC call: there is nobody to answer.
    NotACall,
    /// A call that is answered with its header alone.
    Refused { xid: u32, outcome: Outcome },
    /// NULL of either program: a ping. Any credential will do.
    Null { xid: u32 },
    /// A call of the MOUNT program.
    Mount { xid: u32, caller: Caller, call: mount::Call },
    /// A call of the NFS program.
    Nfs(NfsCall),
}

/// A call of the NFS program.
#[derive(Debug)]
pub(crate) struct NfsCall {
    pub(crate) xid: u32,
    pub(crate) cred: OpaqueAuth,
    pub(crate) caller: Caller,
    pub(crate) call: nfs3::Call,
    /// The arguments as they came, for the duplicate request cache.
    pub(crate) args: Bytes,
}

/// Reads a message.
pub(crate) fn read(message: Bytes) -> Incoming {
    let mut r = Reader::new(message);
    let header = match CallHeader::decode(&mut r) {
        Ok(header) => header,
        Err(CallError::NotACall(_)) => return Incoming::NotACall,
        Err(CallError::RpcVersion { xid, .. }) => {
            return Incoming::Refused { xid, outcome: Outcome::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION } };
        }
        Err(CallError::BadAuth { xid }) => {
            return Incoming::Refused { xid, outcome: Outcome::AuthError(Outcome::AUTH_BADCRED) };
        }
    };
    let xid = header.xid;
    call(header, r).unwrap_or_else(|outcome| Incoming::Refused { xid, outcome })
}

fn call(header: CallHeader, r: Reader) -> Result<Incoming, Outcome> {
    let version = match header.prog {
        nfs3::PROGRAM => nfs3::VERSION,
        mount::PROGRAM => mount::VERSION,
        _ => return Err(Outcome::ProgUnavail),
    };
    if header.vers != version {
        return Err(Outcome::ProgMismatch { low: version, high: version });
    }
    if header.proc == 0 {
        return Ok(Incoming::Null { xid: header.xid });
    }
    let caller = auth::caller(&header.cred)?;
    if header.prog == mount::PROGRAM { mount_call(&header, caller, r) } else { nfs_call(&header, caller, r) }
}

fn mount_call(header: &CallHeader, caller: Caller, mut r: Reader) -> Result<Incoming, Outcome> {
    let call = mount::Call::decode(header.proc, &mut r).ok_or(Outcome::ProcUnavail)?;
    let call = call.map_err(|_| Outcome::GarbageArgs)?;
    Ok(Incoming::Mount { xid: header.xid, caller, call })
}

fn nfs_call(header: &CallHeader, caller: Caller, mut r: Reader) -> Result<Incoming, Outcome> {
    let proc = nfs3::Proc::from_number(header.proc).ok_or(Outcome::ProcUnavail)?;
    let args = r.clone().rest();
    let call = nfs3::Call::decode(proc, &mut r).map_err(|_| Outcome::GarbageArgs)?;
    Ok(Incoming::Nfs(NfsCall { xid: header.xid, cred: header.cred.clone(), caller, call, args }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(prog: u32, vers: u32, proc: u32, flavor: u32, args: &[u8]) -> Bytes {
        let cred = OpaqueAuth { flavor, body: Bytes::new() };
        let mut out = Vec::new();
        CallHeader { xid: 5, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut out);
        out.extend_from_slice(args);
        out.into()
    }

    #[test]
    fn what_cannot_be_called_is_answered_as_the_rfc_says() {
        let (nfs, mnt) = (nfs3::PROGRAM, mount::PROGRAM);
        for (message, want) in [
            (message(100_000, 2, 0, 0, &[]), Outcome::ProgUnavail),
            (message(nfs, 2, 0, 0, &[]), Outcome::ProgMismatch { low: 3, high: 3 }),
            (message(nfs, 4, 1, 0, &[]), Outcome::ProgMismatch { low: 3, high: 3 }),
            (message(mnt, 1, 1, 0, &[]), Outcome::ProgMismatch { low: 3, high: 3 }),
            (message(nfs, 3, 22, 0, &[]), Outcome::ProcUnavail),
            (message(mnt, 3, 6, 0, &[]), Outcome::ProcUnavail),
            (message(nfs, 3, 1, 0, &[0, 0, 0, 65]), Outcome::GarbageArgs),
            (message(nfs, 3, 1, 0, &[]), Outcome::GarbageArgs),
            (message(mnt, 3, 1, 0, &[0, 0, 9, 0]), Outcome::GarbageArgs),
            (message(nfs, 3, 1, 6, &[]), Outcome::AuthError(Outcome::AUTH_TOOWEAK)),
        ] {
            match read(message) {
                Incoming::Refused { xid: 5, outcome } => assert_eq!(outcome, want),
                other => panic!("{other:?} instead of {want:?}"),
            }
        }
    }

    #[test]
    fn a_credential_that_is_too_long_is_denied_and_not_passed_over_in_silence() {
        let mut long = message(nfs3::PROGRAM, 3, 1, 1, &[]).to_vec();
        // The credential's length follows six words of header and its flavor.
        long[28..32].copy_from_slice(&401u32.to_be_bytes());
        let want = Outcome::AuthError(Outcome::AUTH_BADCRED);
        assert!(matches!(read(long.into()), Incoming::Refused { xid: 5, outcome } if outcome == want));
    }

    #[test]
    fn pings_need_no_credential_and_noise_no_answer() {
        assert!(matches!(read(message(nfs3::PROGRAM, 3, 0, 6, &[])), Incoming::Null { xid: 5 }));
        assert!(matches!(read(message(mount::PROGRAM, 3, 0, 6, &[])), Incoming::Null { xid: 5 }));
        for noise in [&b""[..], b"abc", &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2], &[0, 0, 0, 1, 0, 0, 0, 0]] {
            assert!(matches!(read(Bytes::copy_from_slice(noise)), Incoming::NotACall));
        }
        let version = [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3];
        let want = Outcome::RpcMismatch { low: 2, high: 2 };
        assert!(
            matches!(read(Bytes::copy_from_slice(&version)), Incoming::Refused { xid: 5, outcome } if outcome == want)
        );
    }
}
