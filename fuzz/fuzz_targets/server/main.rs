//! The server over a file system in memory, with clients on datagrams and on streams that come and go,
//! jobs that take their time, the handles it gave out, and all forms of the cache. It never panics,
//! answers with replies that a client can read, no more of them than it got messages, finishes what it
//! begins and keeps within its bounds; and with the cache at its full size a change that is repeated is
//! answered as it was.
//!
//! The first byte is how the server is set up. Then there are commands `op what who length bytes`: calls,
//! of which most bring good handles and names, the end of a job, a connection that breaks, time, a disk
//! that fails. `seeds` holds a few that a client could have sent.
#![no_main]

mod asked;
mod replays;
mod seeds;
mod setup;
mod world;

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_base::Path;
use remora_vfs::memory::OpKind;
use remora_wire::nfs3::{self, Status};
use remora_wire::{Xdr, mount, nfs2, nfsacl, portmap};

use world::{Call, World};

/// Of `what`: its job waits for a command that ends it.
const HOLD: u8 = 0x80;
/// The last transaction number once more.
const AGAIN: u8 = 0x40;
/// The procedure, which the other bits are, is NFSv2's.
const VERSION_2: u8 = 0x20;
/// Of `op`, with [`AGAIN`]: the number that a program which starts anew would use.
const ANEW: u8 = 0x80;

/// What the disk can be made to fail at.
const FAILING: [OpKind; 6] =
    [OpKind::Flush, OpKind::Commit, OpKind::Write, OpKind::GetAttr, OpKind::Create, OpKind::ReadDir];

fn command(world: &mut World, [op, what, who]: [u8; 3], bytes: &[u8]) {
    world.now += Duration::from_millis(10);
    let peer = usize::from(who & 7) % world.peers.len();
    match op % 20 {
        0..=8 => nfs(world, [op, what, who], peer, bytes),
        9 => world.finish(what, who & 0x80 != 0),
        10 | 11 => disconnect(world, peer, what),
        12 => world.now += Duration::from_millis(u64::from(what) * 40),
        13 => world.arrived = !world.arrived,
        14 if what & 1 != 0 => world.vfs.crash(),
        14 => world.vfs.restart(),
        15 => world.vfs.fail_next(FAILING[usize::from(what) % FAILING.len()], Status::Io, u32::from(who % 4)),
        16 => {
            // What is thrown away cannot be said again.
            world.replays.stop();
            world.server.shrink_cache(usize::from(what) * 64);
        }
        17 => {
            let vers = if who & 0x80 != 0 { mount::VERSION } else { mount::VERSION_1 };
            let path = [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
            other(world, peer, Call { prog: mount::PROGRAM, vers, proc: u32::from(what % 6) }, path, what & HOLD != 0);
        }
        18 if who & 0x80 != 0 => {
            let call = Call { prog: nfsacl::PROGRAM, vers: nfsacl::VERSION, proc: u32::from(what % 4) };
            let args = [&world.handles.get(nfsacl::VERSION, who >> 3)[..], bytes].concat();
            other(world, peer, call, args, what & HOLD != 0);
        }
        18 => {
            let call = Call { prog: portmap::PROGRAM, vers: 2 + u32::from(what / 10 % 3), proc: u32::from(what % 10) };
            other(world, peer, call, bytes.to_vec(), false);
        }
        _ => world.whole(peer, Bytes::copy_from_slice(bytes)),
    }
}

/// A call of NFS: a good handle, and behind it, as `op` says, bytes, a name, or what LINK and RENAME take.
fn nfs(world: &mut World, [op, what, who]: [u8; 3], peer: usize, bytes: &[u8]) {
    if what & AGAIN == 0 {
        world.xid += 1;
    } else if op & ANEW != 0 {
        world.xid = u32::from(who >> 6);
    }
    let vers = if what & VERSION_2 != 0 { nfs2::VERSION } else { nfs3::VERSION };
    let call = Call { prog: nfs3::PROGRAM, vers, proc: u32::from(what & 0x1f) };
    let handle = |n| world.handles.get(vers, n);
    let first = handle(who >> 3);
    let args = match (op % 20, bytes) {
        (2..=5, [a, _, rest @ ..]) => [&first[..], &name(*a), rest].concat(),
        (6, [a, b, rest @ ..]) => [&first[..], &handle(*a), &name(*b), rest].concat(),
        (7 | 8, [a, b, rest @ ..]) => [&first[..], &name(*a), &handle(*b), &name(a ^ b), rest].concat(),
        _ => [&first[..], bytes].concat(),
    };
    world.call(peer, call, args, what & HOLD != 0);
}

/// One of eight file names, encoded in XDR.
fn name(n: u8) -> Bytes {
    Bytes::from(vec![b'a' + n % 4; 1 + usize::from(n / 4) % 2]).to_bytes()
}

/// A call of another program.
fn other(world: &mut World, peer: usize, call: Call, args: Vec<u8>, hold: bool) {
    world.xid += 1;
    world.call(peer, call, args, hold);
}

/// A client's connection ends, and it connects again. The server hears of it as of an error or a good end, or
/// not yet.
fn disconnect(world: &mut World, peer: usize, what: u8) {
    let old = world.peers[peer];
    let Path::Stream(id) = old.path else { return };
    match what % 3 {
        0 => world.server.disconnected(old),
        1 => world.server.ended(old),
        _ => {}
    }
    if what % 3 < 2 {
        world.live.remove(&id);
    }
    world.reconnect(peer, what & 0x80 != 0);
}

fuzz_target!(init: seeds::write(), |data: &[u8]| {
    let Some((setup, rest)) = data.split_first() else { return };
    let mut world = World::new(*setup);
    for (head, bytes) in remora_fuzz::commands(rest) {
        command(&mut world, head, bytes);
    }
    world.end();
});
