//! NFSv2's calls and replies, and the portmapper's in all its versions; the first byte says of which procedure.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_fuzz::survives;
use remora_wire::nfs2::{Call, Proc, Reply};
use remora_wire::{portmap, rpcbind};

/// Numbers from here on are the portmapper's procedures,
const PORTMAP: u32 = 18;
/// and from here on those of its later versions.
const RPCBIND: u32 = PORTMAP + 6;

fuzz_target!(|data: &[u8]| {
    let Some((first, message)) = data.split_first() else { return };
    let (number, message) = (u32::from(*first) % (RPCBIND + 10), Bytes::copy_from_slice(message));
    if let Some(proc) = Proc::from_number(number) {
        survives(message.clone(), |r| Call::decode(proc, r), Call::encode);
        survives(message, |r| Reply::decode(proc, r), Reply::encode);
    } else if let Some(proc) = number.checked_sub(RPCBIND) {
        let decode = |r: &mut _| rpcbind::Call::decode(4, proc, r).and_then(Result::ok).ok_or(());
        survives(message.clone(), decode, rpcbind::Call::encode);
        if let Some(addr) = rpcbind::from_universal(&message) {
            assert_eq!(rpcbind::from_universal(&rpcbind::universal(addr)), Some(addr));
        }
        survives(message, |r| rpcbind::Reply::decode(proc, r), rpcbind::Reply::encode);
    } else {
        let proc = number - PORTMAP;
        let decode = |r: &mut _| portmap::Call::decode(proc, r).and_then(Result::ok).ok_or(());
        survives(message.clone(), decode, portmap::Call::encode);
        survives(message, |r| portmap::Reply::decode(proc, r), portmap::Reply::encode);
    }
});
