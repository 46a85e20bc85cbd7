//! An RPC call header, and the NFSv3, NFSACL or MOUNT arguments behind it; and who waits for the call.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_fuzz::survives;
use remora_wire::nfs3::{Call, Proc};
use remora_wire::rpc::{AuthUnix, CallHeader};
use remora_wire::urgency::{Urgency, is_probe};
use remora_wire::{Xdr, mount, nfsacl};

fuzz_target!(|data: &[u8]| {
    let message = Bytes::copy_from_slice(data);
    // Both are read from messages that nobody has checked yet.
    assert!(!is_probe(&message) || Urgency::of(&message) == Urgency::Foreground, "a probe is not urgent");
    let Some((header, args)) = survives(message, CallHeader::decode, CallHeader::encode) else { return };
    survives(header.cred.body, AuthUnix::decode, AuthUnix::encode);
    if header.prog == mount::PROGRAM {
        // A procedure that is not there is not an error of the decoder's; here it is one.
        let decode = |r: &mut _| mount::Call::decode(header.proc, r).and_then(Result::ok).ok_or(());
        survives(args, decode, mount::Call::encode);
    } else if header.prog == nfsacl::PROGRAM {
        let Some(proc) = nfsacl::Proc::from_number(header.proc) else { return };
        survives(args.clone(), |r| nfsacl::Call::decode(proc, r), nfsacl::Call::encode);
        survives(args, |r| nfsacl::Reply::decode(proc, r), nfsacl::Reply::encode);
    } else if let Some(proc) = Proc::from_number(header.proc) {
        survives(args, |r| Call::decode(proc, r), Call::encode);
    }
});
