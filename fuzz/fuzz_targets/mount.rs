//! MOUNT calls and replies, of versions 1 and 3; the first byte says of which procedure.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_fuzz::survives;
use remora_wire::mount::{Call, Reply, ReplyV1};

fuzz_target!(|data: &[u8]| {
    let Some((first, message)) = data.split_first() else { return };
    let proc = u32::from(*first) % 7;
    let message = Bytes::copy_from_slice(message);
    survives(message.clone(), |r| Call::decode(proc, r).and_then(Result::ok).ok_or(()), Call::encode);
    survives(message.clone(), |r| Reply::decode(proc, r), Reply::encode);
    survives(message, |r| ReplyV1::decode(proc, r), ReplyV1::encode);
});
