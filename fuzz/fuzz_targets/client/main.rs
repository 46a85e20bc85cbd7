//! The client core that reads one file and writes another, a bad network, and a server that is honest or
//! says what it likes. The client never panics and comes to rest at every moment, a call ends once; and
//! when the network is good again it comes to its end: after an honest server all bytes read are the
//! file's, and all bytes written are stable.
//!
//! The first byte is how the client is set up. Then there are commands `op what length bytes`: a call that
//! is answered, in part, falsely or not at all, an old answer once more, time, a link that the program
//! knows to be away, a connection that breaks, another call, a server that starts anew.
#![no_main]

mod server;
mod world;

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_base::Core;
use remora_wire::nfs3::{Call, CommitArgs};

use server::{ALL, forged};
use world::{World, fh};

fn command(world: &mut World, [op, what]: [u8; 2], bytes: &[u8]) {
    match op % 16 {
        0..=2 => {
            for _ in 0..=op >> 5 {
                answer(world, what, ALL);
            }
        }
        3 => answer(world, what, bytes.len() as u8),
        4 => forge(world, what, op & 0x80 == 0, bytes),
        5 => world.client.handle_input(world.now, world.server, Bytes::copy_from_slice(bytes)),
        6 => drop(world.pick(what)),
        7 => world.now += Duration::from_millis(u64::from(what)),
        8 => world.now += Duration::from_millis(u64::from(what) * 250),
        9 => world.give_old(what),
        10 => away(world, what),
        11 => world.disconnect(what & 1 != 0),
        12 => world.connect(),
        13 => world.ask(match what % 3 {
            0 => Call::GetAttr(fh()),
            1 => Call::ReadLink(fh()),
            _ => Call::Commit(CommitArgs { fh: fh(), offset: 0, count: 0 }),
        }),
        14 => undelivered(world, what),
        _ => world.disk.restart(),
    }
    world.settle();
}

/// One of the calls under way is answered, with `share` of what it asks for.
fn answer(world: &mut World, what: u8, share: u8) {
    if let Some(call) = world.pick(what) {
        let reply = world.disk.answer(&call, share);
        world.give(reply);
    }
}

/// One of them gets an answer with its number, and then anything.
fn forge(world: &mut World, what: u8, success: bool, bytes: &[u8]) {
    if let Some(call) = world.pick(what) {
        world.honest = false;
        world.give(forged(&call, success, bytes));
    }
}

/// What the program knows of the link.
fn away(world: &mut World, what: u8) {
    let (now, until) = (world.now, world.now + Duration::from_millis(u64::from(what) * 20));
    match what % 4 {
        0 => world.client.hold(now, until),
        1 => world.client.resume(now),
        2 => world.client.moved(now),
        _ => world.client.hold_kept(now, until),
    }
}

/// The carrier could not deliver one of the calls.
fn undelivered(world: &mut World, what: u8) {
    if let Some(call) = world.pick(what) {
        let xid = u32::from_be_bytes(*call.first_chunk().expect("a call has a number"));
        world.client.undelivered(world.now, xid);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((setup, rest)) = data.split_first() else { return };
    let mut world = World::new(*setup);
    world.settle();
    for (head, bytes) in remora_fuzz::commands(rest) {
        command(&mut world, head, bytes);
    }
    world.heal();
});
