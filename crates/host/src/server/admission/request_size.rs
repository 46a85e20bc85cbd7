//! The memory that a request holds while it is in progress.

use bytes::Bytes;
use remora_wire::nfs3::{PROGRAM, Proc, ReadArgs, ReadDirArgs, ReadDirPlusArgs};
use remora_wire::rpc::CallHeader;
use remora_wire::{Reader, Xdr, mount, nfs2, nfsacl};

/// The bytes that a request is charged in addition to its message and the data of its reply: as the core charges,
/// which would otherwise refuse admitted requests.
const REPLY: usize = remora_server::JOB_OVERHEAD;
/// The procedures of MOUNT that return lists (RFC 1813, appendix I).
const DUMP: u32 = 2;
const EXPORT: u32 = 5;

/// The bytes of a message and of the reply that it asks for, whose data is at most `io_max`. Malformed calls, and NFS
/// calls of strangers (peers that may use no export), get small replies.
pub(crate) fn of(message: &Bytes, is_stranger: bool, io_max: u32) -> usize {
    let data = reply_data(message, is_stranger).unwrap_or(0).min(io_max);
    message.len() + REPLY + data as usize
}

/// The bytes of data in the reply. `None` for a call without.
fn reply_data(message: &Bytes, is_stranger: bool) -> Option<u32> {
    let mut r = Reader::new(message.clone());
    let header = CallHeader::decode(&mut r).ok()?;
    match header.prog {
        PROGRAM | nfsacl::PROGRAM if is_stranger => None,
        PROGRAM => nfs_data(&header, r),
        nfsacl::PROGRAM => (header.proc == nfsacl::Proc::GetAcl as u32).then_some(nfsacl::RESULTS_MAX),
        // The lists of MOUNT may have the maximum size in every version.
        mount::PROGRAM => [DUMP, EXPORT].contains(&header.proc).then_some(u32::MAX),
        _ => None,
    }
}

fn nfs_data(header: &CallHeader, mut r: Reader) -> Option<u32> {
    if header.vers == nfs2::VERSION {
        // The server never sends more.
        let brings_data = matches!(nfs2::Proc::from_number(header.proc)?, nfs2::Proc::Read | nfs2::Proc::ReadDir);
        return brings_data.then_some(nfs2::DATA_MAX);
    }
    match Proc::from_number(header.proc)? {
        Proc::Read => ReadArgs::decode(&mut r).ok().map(|a| a.count),
        Proc::ReadDir => ReadDirArgs::decode(&mut r).ok().map(|a| a.count),
        Proc::ReadDirPlus => ReadDirPlusArgs::decode(&mut r).ok().map(|a| a.max_count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::nfs3::{Call, Fh, VERSION};
    use remora_wire::rpc::OpaqueAuth;

    fn message(call: &Call) -> Bytes {
        let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
        let mut out = Vec::new();
        CallHeader { xid: 1, prog: PROGRAM, vers: VERSION, proc: call.proc() as u32, cred, verf }.encode(&mut out);
        call.encode(&mut out);
        out.into()
    }

    #[test]
    fn version_2_counts_with_its_maximum() {
        for (proc, data) in [(nfs2::Proc::GetAttr, 0), (nfs2::Proc::Read, 8192), (nfs2::Proc::ReadDir, 8192)] {
            let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
            let mut out = Vec::new();
            let header = CallHeader { xid: 1, prog: PROGRAM, vers: nfs2::VERSION, proc: proc as u32, cred, verf };
            header.encode(&mut out);
            let m = Bytes::from(out);
            assert_eq!(of(&m, false, 9000), m.len() + REPLY + data, "{proc:?}");
        }
    }

    #[test]
    fn mount_lists_count_with_largest_reply() {
        for vers in 1..=3 {
            for proc in 0..=6 {
                let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
                let mut out = Vec::new();
                CallHeader { xid: 1, prog: mount::PROGRAM, vers, proc, cred, verf }.encode(&mut out);
                let m = Bytes::from(out);
                let is_list = [mount::Call::Dump.proc(), mount::Call::Export.proc()].contains(&proc);
                let data = if is_list { 9000 } else { 0 };
                assert_eq!(of(&m, false, 9000), m.len() + REPLY + data, "procedure {proc} of version {vers}");
            }
        }
    }

    #[test]
    fn requested_data_counts_up_to_the_limit() {
        let fh = || Fh(Bytes::from_static(&[7; 32]));
        let read = |count| Call::Read(ReadArgs { fh: fh(), offset: 0, count });
        let list = Call::ReadDir(ReadDirArgs { dir: fh(), cookie: 0, verf: [0; 8], count: 4096 });
        let plus =
            Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(), cookie: 0, verf: [0; 8], dir_count: 512, max_count: 8192 });
        for (call, data) in
            [(Call::GetAttr(fh()), 0), (read(100), 100), (read(u32::MAX), 9000), (list, 4096), (plus, 8192)]
        {
            let m = message(&call);
            assert_eq!(of(&m, false, 9000), m.len() + REPLY + data, "{call:?}");
            assert_eq!(of(&m, true, 9000), m.len() + REPLY, "a refusal: {call:?}");
        }
        for noise in [&b""[..], b"abc", &[0xff; 100]] {
            assert_eq!(of(&Bytes::from_static(noise), false, 9000), noise.len() + REPLY);
        }
    }
}
