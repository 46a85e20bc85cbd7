//! The urgency of a call, by which carriers with priorities (ATP 02) order calls.
//!
//! It is derived from the message itself, where the caller sets none.

use std::time::Duration;

use bytes::Bytes;

use crate::nfs3::{Fh, PROGRAM, Proc, ReadArgs, Stable, VERSION};
use crate::rpc::CallHeader;
use crate::{Reader, Xdr, nfs2};

/// Maximum size of a READ that counts as interactive: a page of a program or a small file. Larger
/// ones copy files.
pub const SMALL_READ_MAX: u32 = 4096;

/// Code point (DSCP) of probes, calls without value if the answer is known anyway. It is for local
/// use (RFC 2474, section 6, pool 2) and has no priority elsewhere: a probe that overtakes earlier
/// calls would make them look lost.
pub const PROBE_DSCP: u8 = 3;
/// Lifetime of a probe on links that know its code point.
pub const PROBE_LIFETIME: Duration = Duration::from_secs(1);

/// Whether a message is a NULL call.
pub fn is_probe(message: &Bytes) -> bool {
    CallHeader::decode(&mut Reader::new(message.clone())).is_ok_and(|header| header.proc == 0)
}

/// Urgency of a call, the least urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Urgency {
    /// No program waits: a large READ, of a copy or of read-ahead.
    Bulk,
    /// No local program waits, but others may read the data: an UNSTABLE WRITE before its COMMIT.
    WriteBack,
    /// A program closes or syncs a file, or changes names or attributes.
    Sync,
    /// A person or a program waits: lookups, attributes, small reads.
    Foreground,
}

impl Urgency {
    /// The urgency of a call. Other programs' calls (MOUNT, portmapper) are in the foreground, as
    /// are malformed ones, whose answers are short.
    pub fn of(call: &Bytes) -> Urgency {
        let mut r = Reader::new(call.clone());
        let Ok(header) = CallHeader::decode(&mut r) else { return Urgency::Foreground };
        if header.prog != PROGRAM {
            return Urgency::Foreground;
        }
        let v3 = match header.vers {
            VERSION => of_v3(header.proc, &mut r),
            nfs2::VERSION => of_v2(header.proc),
            _ => None,
        };
        v3.unwrap_or(Urgency::Foreground)
    }
}

fn of_v3(proc: u32, r: &mut Reader) -> Option<Urgency> {
    let proc = Proc::from_number(proc)?;
    Some(match proc {
        Proc::Read if ReadArgs::decode(r).ok()?.count > SMALL_READ_MAX => Urgency::Bulk,
        Proc::Write if stability(r)? == Stable::Unstable => Urgency::WriteBack,
        Proc::Commit => Urgency::Sync,
        _ if proc.is_non_idempotent() => Urgency::Sync,
        _ => Urgency::Foreground,
    })
}

/// Decodes the stability of a WRITE up to its data.
fn stability(r: &mut Reader) -> Option<Stable> {
    Fh::decode(r).ok()?;
    u64::decode(r).ok()?;
    u32::decode(r).ok()?;
    Stable::decode(r).ok()
}

/// In NFSv2 every WRITE is synchronous, and no READ is large.
fn of_v2(proc: u32) -> Option<Urgency> {
    use nfs2::Proc::{GetAttr, Lookup, Null, Read, ReadDir, ReadLink, Root, StatFs};
    let proc = nfs2::Proc::from_number(proc)?;
    let asks = matches!(proc, Null | GetAttr | Root | Lookup | ReadLink | Read | ReadDir | StatFs);
    Some(if asks { Urgency::Foreground } else { Urgency::Sync })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs3::{Call, CommitArgs, WriteArgs};
    use crate::rpc::OpaqueAuth;
    use crate::{mount, portmap};

    fn header(prog: u32, vers: u32, proc: u32) -> Vec<u8> {
        let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
        let mut out = Vec::new();
        CallHeader { xid: 1, prog, vers, proc, cred, verf }.encode(&mut out);
        out
    }

    fn of(call: &Call) -> Urgency {
        let mut out = header(PROGRAM, VERSION, call.proc() as u32);
        call.encode(&mut out);
        Urgency::of(&out.into())
    }

    #[test]
    fn call_urgency_follows_procedure_and_size() {
        let fh = || Fh(Bytes::from_static(b"a file's handle"));
        let read = |count| Call::Read(ReadArgs { fh: fh(), offset: 0, count });
        let write =
            |stable| Call::Write(WriteArgs { fh: fh(), offset: 0, count: 3, stable, data: Bytes::from_static(b"abc") });
        for (call, urgency) in [
            (Call::GetAttr(fh()), Urgency::Foreground),
            (read(SMALL_READ_MAX), Urgency::Foreground),
            (read(SMALL_READ_MAX + 1), Urgency::Bulk),
            (write(Stable::Unstable), Urgency::WriteBack),
            (write(Stable::DataSync), Urgency::Sync),
            (write(Stable::FileSync), Urgency::Sync),
            (Call::Commit(CommitArgs { fh: fh(), offset: 0, count: 0 }), Urgency::Sync),
        ] {
            assert_eq!(of(&call), urgency, "{call:?}");
        }
        assert!(Urgency::Foreground > Urgency::Sync && Urgency::WriteBack > Urgency::Bulk);
    }

    #[test]
    fn probe_is_a_null_call_of_any_program() {
        for (message, probe) in [
            (header(PROGRAM, VERSION, 0), true),
            (header(mount::PROGRAM, mount::VERSION, 0), true),
            (header(mount::PROGRAM, mount::VERSION, 1), false),
            (header(PROGRAM, VERSION, 0)[..23].to_vec(), false),
            (Vec::new(), false),
        ] {
            assert_eq!(is_probe(&message.clone().into()), probe, "{message:?}");
        }
    }

    #[test]
    fn call_of_other_program_or_malformed_is_foreground() {
        for message in [
            header(mount::PROGRAM, mount::VERSION, 1),
            header(portmap::PROGRAM, portmap::VERSION, portmap::PROC_GETPORT),
            header(PROGRAM, VERSION, 99),
            header(PROGRAM, VERSION, Proc::Write as u32),
            b"nonsense".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(Urgency::of(&message.into()), Urgency::Foreground);
        }
        let write = header(PROGRAM, nfs2::VERSION, nfs2::Proc::Write as u32);
        assert_eq!(Urgency::of(&write.into()), Urgency::Sync);
    }
}
