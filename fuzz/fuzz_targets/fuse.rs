//! Requests of the kernel's FUSE protocol, with the length in the header set right. What a request holds lies
//! within it, and an INIT is answered or refused.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_wire::fuse::{Header, Operation, Reply, Request, Wanted, negotiate};

fuzz_target!(|data: &[u8]| {
    let _ = Request::decode(&Bytes::copy_from_slice(data));
    let mut message = data.to_vec();
    message.resize(message.len().max(Header::LEN), 0);
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    let message = Bytes::from(message);
    let header = Header::decode(&message);
    let Ok(request) = Request::decode(&message) else { return };
    assert_eq!(header, Ok(request.header));
    let body = message.len() - Header::LEN;
    match request.op {
        Operation::Init(offer) => {
            if let Ok(out) = negotiate(&offer, &Wanted::default()) {
                assert_eq!(out.flags & !offer.flags, 0);
                assert_eq!(Reply::Init(out).encode(1).head.len(), 16 + 64);
            }
        }
        Operation::BatchForget(forgets) => assert!(forgets.len() * 16 < body),
        Operation::Write { data, .. } => assert!(data.len() < body),
        Operation::SymLink { name, target } | Operation::Rename { name, new_name: target, .. } => {
            assert!(name.len() + target.len() + 2 <= body);
            assert!(![name, target].iter().any(|name| name.contains(&0)));
        }
        Operation::Lookup { name } | Operation::Link { name, .. } | Operation::Create { name, .. } => {
            assert!(name.len() < body && !name.contains(&0));
        }
        _ => {}
    }
});
