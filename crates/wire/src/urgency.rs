//! Who waits for a call: what carriers that know priorities (ATP 02) order calls by.
//!
//! It is read from the message itself, so both ends of a connection come to the same, and nothing
//! has to be carried beside the message.

use std::time::Duration;

use bytes::Bytes;

use crate::nfs3::{Fh, PROGRAM, Proc, ReadArgs, Stable, VERSION};
use crate::rpc::CallHeader;
use crate::{Reader, Xdr, nfs2};

/// The most bytes of a READ that somebody is taken to wait for: a page of a program or a small
/// file. What asks for more moves a file.
pub const SMALL_READ_MAX: u32 = 4096;

/// The code point (DSCP) of calls that ask whether anybody is there, and are worth nothing when that shows
/// anyhow. It is one for local use (RFC 2474, section 6, pool 2), and elsewhere as good as none: a probe must not
/// overtake the calls before it, or they would pass for lost.
pub const PROBE_DSCP: u8 = 3;
/// How long a link that knows the mark keeps such a call, and the caller expects it to.
pub const PROBE_LIFETIME: Duration = Duration::from_secs(1);

/// Whether a message is a call of NULL, which asks for nothing but an answer.
pub fn is_probe(message: &Bytes) -> bool {
    CallHeader::decode(&mut Reader::new(message.clone())).is_ok_and(|header| header.proc == 0)
}

/// Who waits for a call, the least urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Urgency {
    /// Nobody yet: a large READ, which is a copy or was asked for ahead of its use.
    Bulk,
    /// Nobody here, but what others may read: an UNSTABLE WRITE, which a COMMIT follows.
    WriteBack,
    /// A program that closes or syncs a file, or changes names or attributes.
    Sync,
    /// A person, or a program in the middle of its work: lookups, attributes, small reads.
    Foreground,
}

impl Urgency {
    /// That of a call. What is no NFS call is in the foreground: MOUNT and the portmapper's are,
    /// and to what makes no sense the answer is short.
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

/// How stable a WRITE is to be; its data is left where it is.
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
    fn calls_are_as_urgent_as_whoever_waits_for_them() {
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
    fn a_probe_is_a_call_of_null_of_whatever_program() {
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
    fn other_programs_and_nonsense_are_answered_at_once() {
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
