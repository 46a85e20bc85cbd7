//! Bytes that mean no good.

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::{Peer, Time};
use remora_server::cache;
use remora_wire::nfs3::Fh;

use crate::world::{World, encode, every_procedure, tcp, udp};

fn caches() -> impl Strategy<Value = cache::Config> {
    prop_oneof![
        Just(cache::Config::Off),
        Just(cache::Config::reference()),
        Just(cache::Config::juszczak()),
        Just(cache::Config::full()),
    ]
}

/// Gives the server a message, runs what it asks for, and checks that it answers at most
/// once.
fn feed(w: &mut World, from: Peer, message: Vec<u8>) {
    w.sent.clear();
    w.input(from, message.into());
    assert!(w.jobs.len() <= 1);
    w.run_all();
    assert!(w.sent.len() <= 1 && w.sent.iter().all(|t| t.to == from));
    assert_eq!(w.server.in_flight(), 0);
}

proptest! {
    #[test]
    fn any_bytes(cache in caches(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        feed(&mut World::new(cache), udp(), bytes);
    }

    #[test]
    fn any_arguments(cache in caches(), proc in 0u32..24, mount: bool, args in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut w = World::new(cache);
        let mut message = encode(1, &remora_wire::nfs3::Call::Null).to_vec();
        if mount {
            message[12..16].copy_from_slice(&remora_wire::mount::PROGRAM.to_be_bytes());
        }
        message[20..24].copy_from_slice(&proc.to_be_bytes());
        message.extend(args);
        feed(&mut w, tcp(1), message);
    }

    #[test]
    fn valid_calls_cut_short_or_changed(
        cache in caches(),
        which: prop::sample::Index,
        cut: Option<prop::sample::Index>,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut w = World::new(cache);
        let root = w.root();
        let calls = every_procedure(&root);
        let mut message = encode(1, which.get(&calls)).to_vec();
        for (at, byte) in changes {
            *at.get_mut(&mut message) = byte;
        }
        if let Some(cut) = cut {
            message.truncate(cut.index(message.len() + 1));
        }
        feed(&mut w, udp(), message.clone());
        feed(&mut w, udp(), message);
    }

    #[test]
    fn any_handle(bytes in prop::collection::vec(any::<u8>(), 0..=64)) {
        let mut w = World::new(cache::Config::full());
        for call in every_procedure(&Fh(Bytes::from(bytes))) {
            prop_assert!(w.call(&call).status().is_some());
        }
    }
}

#[test]
fn counters_name_the_violations() {
    let mut w = World::new(cache::Config::full());
    let good = encode(1, &remora_wire::nfs3::Call::GetAttr(Fh(Bytes::new()))).to_vec();
    let with = |at: usize, word: u32| {
        let mut m = good.clone();
        m[at..at + 4].copy_from_slice(&word.to_be_bytes());
        m
    };
    // Offsets of a call header's words: message type 4, RPC version 8, program 12, version 16,
    // procedure 20, flavor 24.
    for m in
        [with(4, 1), with(8, 3), with(12, 1), with(16, 9), with(20, 99), with(24, 6), good[..good.len() - 4].to_vec()]
    {
        feed(&mut w, udp(), m);
    }
    let s = w.server.stats();
    assert_eq!([s.not_calls, s.bad_rpc_version, s.bad_procedure, s.bad_auth, s.bad_arguments], [1; 5]);
    assert_eq!((s.bad_program, s.messages, s.replies, s.executed), (2, 7, 6, 0));
    assert_eq!(w.now, Time::from_secs(1_000));
}
