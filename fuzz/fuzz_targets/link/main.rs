//! Two ends of the link protocol that are set up in any way, IP packets between them, a bad network, time
//! that passes as their timers say, an end that begins anew, a third one that never answers, and frames
//! that a peer makes up. Neither end panics, both stay within their bounds, and send frames only, none
//! longer than the hop takes; between honest ends a packet arrives once, as it was sent, or not at all; and
//! when the network is good again both hear each other.
//!
//! The first byte is how the ends are set up. Then there are commands `op what length bytes`. The whole input
//! is tried as a frame, too.
#![no_main]

mod packets;
mod world;

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_base::Core;
use remora_link::HandOffPhase;
use remora_wire::link::Frame;

use world::{PEERS, World};

fn command(world: &mut World, [op, what]: [u8; 2], bytes: &[u8]) {
    let n = usize::from(op & 1);
    match (op >> 1) % 13 {
        0 => {
            world.honest = false;
            world.ends[n].handle_input(world.now, PEERS[1 - n], Bytes::copy_from_slice(bytes));
        }
        1..=3 => several(world, n, [op, what], bytes),
        4 => world.pass(Duration::from_millis(what.into())),
        5 => world.pass(Duration::from_millis(u64::from(what) * 200)),
        6 => world.lossy = !world.lossy,
        7 => world.slow = !world.slow,
        8 => (0..=op >> 5).for_each(|i| world.arrive(what.wrapping_mul(i + 1), op & 0x10 != 0 && i == 0)),
        9 if what & 1 == 0 => {
            let expected = Duration::from_millis(u64::from(what) * 10);
            world.ends[n].announce_handoff(world.now, HandOffPhase::Begin { expected });
        }
        9 => world.ends[n].announce_handoff(world.now, HandOffPhase::End),
        10 => world.begin_anew(n, what & 1 == 0),
        11 => world.add_again(n),
        _ if what & 1 == 0 => world.send_to_nobody(what, bytes),
        _ => world.send_bytes(n, what, op & 0x20 == 0, bytes),
    }
    world.settle();
}

/// Packets of one or two flows, which hold the bytes or more than a frame takes.
fn several(world: &mut World, n: usize, [op, what]: [u8; 2], bytes: &[u8]) {
    let more = op >> 5;
    let long = vec![what; bytes.len() * (1 + usize::from(more))];
    let body = if op & 0x10 == 0 { bytes } else { &long };
    for i in 0..=more {
        world.send(n, (i & 1) + (what >> 6), what, body);
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(frame) = Frame::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
    }
    let Some((setup, rest)) = data.split_first() else { return };
    let mut world = World::new(*setup);
    for (head, bytes) in remora_fuzz::commands(rest) {
        command(&mut world, head, bytes);
    }
    world.heal();
});
