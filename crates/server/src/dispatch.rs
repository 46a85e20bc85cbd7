//! Decodes messages into calls of the server's programs, or into the error replies of RFC 5531, section 9.

use std::sync::Arc;

use bytes::Bytes;
use remora_wire::rpc::{CallError, CallHeader, OpaqueAuth, Outcome, RPC_VERSION};
use remora_wire::{Reader, mount, nfs2, nfs3, nfsacl, portmap, rpcbind};

use crate::auth::{self, Caller};
use crate::job::Form;
use crate::portmap::Call as PortmapCall;
use crate::{Programs, Version, v2};

/// A decoded message.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// No RPC call; it gets no reply.
    NotACall,
    /// A call that is answered without results.
    Refused {
        xid: u32,
        outcome: Outcome,
    },
    /// NULL of any program. Any credential is accepted.
    Null {
        xid: u32,
    },
    /// A call of the MOUNT program, in the version that belongs to this NFS version.
    Mount {
        xid: u32,
        caller: Caller,
        version: Version,
        call: mount::Call,
    },
    /// A call of the portmapper. Any credential is accepted.
    Portmap {
        xid: u32,
        call: PortmapCall,
    },
    /// A call of NFSv2 that is answered without execution.
    Answered {
        xid: u32,
        reply: nfs2::Reply,
    },
    Nfs(NfsCall),
}

impl Incoming {
    /// The transaction id, if it is a call.
    pub(crate) fn xid(&self) -> Option<u32> {
        match self {
            Incoming::NotACall => None,
            Incoming::Refused { xid, .. }
            | Incoming::Null { xid }
            | Incoming::Mount { xid, .. }
            | Incoming::Portmap { xid, .. }
            | Incoming::Answered { xid, .. }
            | Incoming::Nfs(NfsCall { xid, .. }) => Some(*xid),
        }
    }
}

#[derive(Debug)]
pub(crate) struct NfsCall {
    pub(crate) xid: u32,
    pub(crate) cred: OpaqueAuth,
    pub(crate) caller: Caller,
    pub(crate) call: nfs3::Call,
    pub(crate) form: Form,
    /// The encoded arguments, for the duplicate request cache.
    pub(crate) args: Bytes,
}

/// Decodes a message that arrived where `programs` are served. `portmap`: whether the server is a portmapper.
pub(crate) fn read(message: Bytes, programs: Programs, portmap: bool) -> Incoming {
    let mut r = Reader::new(message);
    let header = match CallHeader::decode(&mut r) {
        Ok(header) => header,
        Err(CallError::NotACall(_)) => return Incoming::NotACall,
        Err(CallError::RpcVersion { xid, .. }) => {
            return Incoming::Refused { xid, outcome: Outcome::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION } };
        }
        Err(CallError::BadAuth { xid, why }) => {
            return Incoming::Refused { xid, outcome: Outcome::AuthError(why) };
        }
    };
    let xid = header.xid;
    call(header, r, programs, portmap).unwrap_or_else(|outcome| Incoming::Refused { xid, outcome })
}

/// A program of the server, in a supported version.
#[derive(Clone, Copy)]
enum Program {
    Nfs(Version),
    Acl,
    Mount(Version),
    Portmap(u32),
}

fn program(prog: u32, vers: u32, programs: Programs, portmap: bool) -> Result<Program, Outcome> {
    let spoken = |low, high| Err(Outcome::ProgMismatch { low, high });
    match (prog, vers) {
        _ if !programs.have(prog) => Err(Outcome::ProgUnavail),
        (nfs3::PROGRAM, nfs2::VERSION) => Ok(Program::Nfs(Version::V2)),
        (nfs3::PROGRAM, nfs3::VERSION) => Ok(Program::Nfs(Version::V3)),
        (nfs3::PROGRAM, _) => spoken(nfs2::VERSION, nfs3::VERSION),
        (nfsacl::PROGRAM, nfsacl::VERSION) => Ok(Program::Acl),
        (nfsacl::PROGRAM, _) => spoken(nfsacl::VERSION, nfsacl::VERSION),
        // Version 2 is version 1 plus a procedure that the server does not have.
        (mount::PROGRAM, mount::VERSION_1 | 2) => Ok(Program::Mount(Version::V2)),
        (mount::PROGRAM, mount::VERSION) => Ok(Program::Mount(Version::V3)),
        (mount::PROGRAM, _) => spoken(mount::VERSION_1, mount::VERSION),
        (portmap::PROGRAM, _) if portmap => match vers {
            portmap::VERSION | rpcbind::VERSION_3 | rpcbind::VERSION_4 => Ok(Program::Portmap(vers)),
            _ => spoken(portmap::VERSION, rpcbind::VERSION_4),
        },
        _ => Err(Outcome::ProgUnavail),
    }
}

fn call(header: CallHeader, r: Reader, programs: Programs, portmap: bool) -> Result<Incoming, Outcome> {
    let program = program(header.prog, header.vers, programs, portmap)?;
    if header.proc == 0 {
        // NULL with RPCSEC_GSS creates a context (RFC 2203, section 5.2.2).
        if header.cred.flavor == auth::RPCSEC_GSS {
            auth::caller(&header.cred)?;
        }
        return Ok(Incoming::Null { xid: header.xid });
    }
    match program {
        Program::Nfs(Version::V2) => nfs2_call(&header, auth::caller(&header.cred)?, r),
        Program::Nfs(Version::V3) => nfs3_call(&header, auth::caller(&header.cred)?, r),
        Program::Acl => acl_call(&header, auth::caller(&header.cred)?, r),
        Program::Mount(version) => mount_call(&header, auth::caller(&header.cred)?, version, r),
        Program::Portmap(vers) => portmap_call(&header, vers, r),
    }
}

fn mount_call(header: &CallHeader, caller: Caller, version: Version, mut r: Reader) -> Result<Incoming, Outcome> {
    let call = mount::Call::decode(header.proc, &mut r).ok_or(Outcome::ProcUnavail)?;
    let call = call.map_err(|_| Outcome::GarbageArgs)?;
    Ok(Incoming::Mount { xid: header.xid, caller, version, call })
}

fn portmap_call(header: &CallHeader, vers: u32, mut r: Reader) -> Result<Incoming, Outcome> {
    let call = match vers {
        portmap::VERSION => portmap::Call::decode(header.proc, &mut r).map(|call| call.map(PortmapCall::V2)),
        vers => rpcbind::Call::decode(vers, header.proc, &mut r).map(|call| call.map(PortmapCall::Later)),
    };
    let call = call.ok_or(Outcome::ProcUnavail)?;
    Ok(Incoming::Portmap { xid: header.xid, call: call.map_err(|_| Outcome::GarbageArgs)? })
}

fn nfs3_call(header: &CallHeader, caller: Caller, mut r: Reader) -> Result<Incoming, Outcome> {
    let proc = nfs3::Proc::from_number(header.proc).ok_or(Outcome::ProcUnavail)?;
    let args = r.clone().rest();
    let call = nfs3::Call::decode(proc, &mut r).map_err(|_| Outcome::GarbageArgs)?;
    Ok(Incoming::Nfs(NfsCall { xid: header.xid, cred: header.cred.clone(), caller, call, form: Form::V3, args }))
}

/// A call of NFSACL counts as the procedure of NFSv3 that takes the same checks and locks: GETATTR or SETATTR.
fn acl_call(header: &CallHeader, caller: Caller, mut r: Reader) -> Result<Incoming, Outcome> {
    let proc = nfsacl::Proc::from_number(header.proc).ok_or(Outcome::ProcUnavail)?;
    // The program's number tells the arguments from those of a SETATTR.
    let args = [&nfsacl::PROGRAM.to_be_bytes(), &*r.clone().rest()].concat().into();
    let acl_call = nfsacl::Call::decode(proc, &mut r).map_err(|_| Outcome::GarbageArgs)?;
    let call = match &acl_call {
        nfsacl::Call::Null => return Ok(Incoming::Null { xid: header.xid }),
        nfsacl::Call::GetAcl(a) => nfs3::Call::GetAttr(a.fh.clone()),
        nfsacl::Call::SetAcl(a) => {
            nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh: a.fh.clone(), attr: nfs3::SetAttr::NONE, guard: None })
        }
    };
    let form = Form::Acl(Arc::new(acl_call));
    Ok(Incoming::Nfs(NfsCall { xid: header.xid, cred: header.cred.clone(), caller, call, form, args }))
}

fn nfs2_call(header: &CallHeader, caller: Caller, mut r: Reader) -> Result<Incoming, Outcome> {
    let proc = nfs2::Proc::from_number(header.proc).ok_or(Outcome::ProcUnavail)?;
    let args = r.clone().rest();
    let call = nfs2::Call::decode(proc, &mut r).map_err(|_| Outcome::GarbageArgs)?;
    let (xid, form) = (header.xid, Form::V2(proc));
    Ok(match v2::to_v3(call) {
        Ok(call) => Incoming::Nfs(NfsCall { xid, cred: header.cred.clone(), caller, call, form, args }),
        Err(reply) => Incoming::Answered { xid, reply },
    })
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
    fn uncallable_procedures_get_the_rfc_errors() {
        let (nfs, mnt, acl) = (nfs3::PROGRAM, mount::PROGRAM, nfsacl::PROGRAM);
        for (message, want) in [
            (message(100_001, 2, 0, 0, &[]), Outcome::ProgUnavail),
            (message(nfs, 1, 0, 0, &[]), Outcome::ProgMismatch { low: 2, high: 3 }),
            (message(nfs, 4, 1, 0, &[]), Outcome::ProgMismatch { low: 2, high: 3 }),
            (message(mnt, 0, 1, 0, &[]), Outcome::ProgMismatch { low: 1, high: 3 }),
            (message(mnt, 4, 1, 0, &[]), Outcome::ProgMismatch { low: 1, high: 3 }),
            (message(nfs, 2, 18, 0, &[]), Outcome::ProcUnavail),
            (message(nfs, 2, 1, 0, &[0; 31]), Outcome::GarbageArgs),
            (message(nfs, 2, 1, 6, &[0; 32]), Outcome::AuthError(Outcome::AUTH_TOOWEAK)),
            (message(mnt, 2, 7, 0, &[]), Outcome::ProcUnavail),
            (message(portmap::PROGRAM, 1, 3, 0, &[]), Outcome::ProgMismatch { low: 2, high: 4 }),
            (message(portmap::PROGRAM, 5, 3, 0, &[]), Outcome::ProgMismatch { low: 2, high: 4 }),
            (message(portmap::PROGRAM, 3, 9, 0, &[0; 20]), Outcome::ProcUnavail),
            (message(portmap::PROGRAM, 4, 5, 0, &[0; 20]), Outcome::ProcUnavail),
            (message(portmap::PROGRAM, 4, 9, 0, &[0; 19]), Outcome::GarbageArgs),
            (message(portmap::PROGRAM, 2, 5, 0, &[]), Outcome::ProcUnavail),
            (message(portmap::PROGRAM, 2, 3, 0, &[0; 15]), Outcome::GarbageArgs),
            (message(nfs, 3, 22, 0, &[]), Outcome::ProcUnavail),
            (message(mnt, 3, 6, 0, &[]), Outcome::ProcUnavail),
            (message(nfs, 3, 1, 0, &[0, 0, 0, 65]), Outcome::GarbageArgs),
            (message(nfs, 3, 1, 0, &[]), Outcome::GarbageArgs),
            (message(mnt, 3, 1, 0, &[0, 0, 9, 0]), Outcome::GarbageArgs),
            (message(nfs, 3, 1, 6, &[]), Outcome::AuthError(Outcome::AUTH_TOOWEAK)),
            (message(acl, 2, 1, 0, &[]), Outcome::ProgMismatch { low: 3, high: 3 }),
            (message(acl, 3, 3, 0, &[]), Outcome::ProcUnavail),
            (message(acl, 3, 1, 0, &[0; 7]), Outcome::GarbageArgs),
            (message(acl, 3, 2, 0, &[&[0; 11][..], &[0xff; 13]].concat()), Outcome::GarbageArgs),
            (message(acl, 3, 1, 6, &[0; 8]), Outcome::AuthError(Outcome::AUTH_TOOWEAK)),
        ] {
            match read(message, Programs::All, true) {
                Incoming::Refused { xid: 5, outcome } => assert_eq!(outcome, want),
                other => panic!("{other:?} instead of {want:?}"),
            }
        }
    }

    #[test]
    fn portmapper_program_is_absent_by_default() {
        let ask = |vers, on| read(message(portmap::PROGRAM, vers, 4, 0, &[]), Programs::All, on);
        for vers in [2, 3, 4] {
            assert!(matches!(ask(vers, false), Incoming::Refused { outcome: Outcome::ProgUnavail, .. }));
        }
        for (vers, dump) in [
            (2, PortmapCall::V2(portmap::Call::Dump)),
            (3, PortmapCall::Later(rpcbind::Call::Dump)),
            (4, PortmapCall::Later(rpcbind::Call::Dump)),
        ] {
            assert!(matches!(ask(vers, true), Incoming::Portmap { xid: 5, call } if call == dump));
        }
    }

    #[test]
    fn program_port_has_no_other_program() {
        let (nfs, mnt, pmap, acl) = (nfs3::PROGRAM, mount::PROGRAM, portmap::PROGRAM, nfsacl::PROGRAM);
        for (programs, there) in
            [(Programs::All, &[nfs, mnt, pmap, acl][..]), (Programs::Mount, &[mnt]), (Programs::Portmap, &[pmap])]
        {
            for (prog, vers) in [(nfs, 2), (nfs, 3), (nfs, 4), (mnt, 1), (mnt, 3), (pmap, 2), (acl, 3), (1, 1)] {
                let read = read(message(prog, vers, 0, 0, &[]), programs, true);
                let missing = matches!(read, Incoming::Refused { outcome: Outcome::ProgUnavail, .. });
                assert_eq!(missing, !there.contains(&prog), "{programs:?} {prog} {vers}");
            }
        }
    }

    #[test]
    fn credential_of_excessive_length_is_denied() {
        // Six words of header, a flavor and the credential's length; then the same of the verifier.
        for (length, why) in [(28, Outcome::AUTH_BADCRED), (36, Outcome::AUTH_BADVERF)] {
            let mut long = message(nfs3::PROGRAM, 3, 1, 0, &[]).to_vec();
            long[length..length + 4].copy_from_slice(&401u32.to_be_bytes());
            let read = read(long.into(), Programs::All, false);
            let want = Outcome::AuthError(why);
            assert!(matches!(read, Incoming::Refused { xid: 5, outcome } if outcome == want));
        }
    }

    #[test]
    fn pings_need_no_credential_and_noise_no_answer() {
        let (nfs, mnt, acl) = (nfs3::PROGRAM, mount::PROGRAM, nfsacl::PROGRAM);
        for (prog, vers) in [(nfs, 2), (nfs, 3), (mnt, 1), (mnt, 3), (acl, 3)] {
            assert!(matches!(read(message(prog, vers, 0, 7, &[]), Programs::All, false), Incoming::Null { xid: 5 }));
            let context = read(message(prog, vers, 0, auth::RPCSEC_GSS, &[]), Programs::All, false);
            assert!(matches!(context, Incoming::Refused { xid: 5, outcome: Outcome::AuthError(_) }));
        }
        for noise in [&b""[..], b"abc", &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2], &[0, 0, 0, 1, 0, 0, 0, 0]] {
            assert!(matches!(read(Bytes::copy_from_slice(noise), Programs::All, false), Incoming::NotACall));
        }
        let version = [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3];
        let want = Outcome::RpcMismatch { low: 2, high: 2 };
        assert!(
            matches!(read(Bytes::copy_from_slice(&version), Programs::All, false), Incoming::Refused { xid: 5, outcome } if outcome == want)
        );
    }
}
