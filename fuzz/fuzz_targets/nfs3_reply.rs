//! An RPC reply header, and the NFSv3 results behind it; the first byte says of which
//! procedure.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_fuzz::survives;
use remora_wire::Xdr;
use remora_wire::nfs3::{Proc, Reply};
use remora_wire::rpc::ReplyHeader;

fuzz_target!(|data: &[u8]| {
    let Some((first, message)) = data.split_first() else { return };
    let proc = Proc::ALL[usize::from(*first) % Proc::ALL.len()];
    let message = Bytes::copy_from_slice(message);
    let decode = |r: &mut _| Reply::decode(proc, r);
    // The results alone too: a header is seldom hit by chance.
    survives(message.clone(), decode, Reply::encode);
    if let Some((_, results)) = survives(message, ReplyHeader::decode, ReplyHeader::encode) {
        survives(results, decode, Reply::encode);
    }
});
