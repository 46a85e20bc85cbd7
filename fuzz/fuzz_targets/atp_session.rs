//! Two ATP endpoints with a bad network between them, and arbitrary datagrams from an address that
//! is neither's (a stranger): no endpoint panics, and no object arrives twice or damaged.
//!
//! The input is a sequence of commands `kind length bytes`: submit an object at an endpoint, deliver
//! a stranger's datagram, corrupt a datagram of an endpoint, advance the time, begin or end an outage.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_atp::Options;
use remora_atp::session::{Config, Endpoint, Event, Guests, Identity, PeerId};
use remora_base::{Core, Peer, Time};
use remora_fuzz::Pair;

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

const fn addr(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

struct World {
    now: Time,
    ends: [Endpoint; 2],
    peers: [Option<PeerId>; 2],
    out: bool,
    /// Exclusive-ored into the next datagram, from its front.
    damage: Bytes,
    sent: [Vec<Bytes>; 2],
}

impl World {
    fn new() -> World {
        let end = |n: u8| {
            let config = Config {
                guests: if n == 0 { Guests::Anyone } else { Guests::Nobody },
                object_max: 100,
                buffer_peer: 1_000,
                ..Config::default()
            };
            let identity = Identity::from_secret([n + 1; 32]).expect("any bytes are a secret");
            Endpoint::new(config, identity, *EPOCH, Time::ZERO, n.into()).expect("a sound configuration")
        };
        let mut ends = [end(0), end(1)];
        let key = ends[0].public_key();
        let client = ends[1].connect(Time::ZERO, addr(1), key).ok();
        World {
            now: Time::ZERO,
            ends,
            peers: [None, client],
            out: false,
            damage: Bytes::new(),
            sent: [Vec::new(), Vec::new()],
        }
    }

    fn command(&mut self, kind: u8, bytes: &[u8]) {
        let n = usize::from(kind & 1);
        match (kind >> 1) % 6 {
            0 => {
                // Each tells itself apart by its number.
                let object: Bytes = [&(self.sent[n].len() as u32).to_be_bytes(), bytes].concat().into();
                if let Some(peer) = self.peers[n]
                    && self.ends[n].send(self.now, peer, object.clone(), Options::default()).is_ok()
                {
                    self.sent[n].push(object);
                }
            }
            1 => self.ends[n].handle_input(self.now, Peer::datagram(addr(9)), Bytes::copy_from_slice(bytes)),
            2 => self.damage = Bytes::copy_from_slice(bytes),
            3 => self.now += Duration::from_millis(u64::from(kind) + bytes.len() as u64 * 4),
            4 => self.out = !self.out,
            _ => self.ends[1].rebind(self.now),
        }
        self.settle();
    }

    fn damaged(&mut self, payload: Bytes) -> Bytes {
        if self.damage.is_empty() {
            return payload;
        }
        let damage = std::mem::take(&mut self.damage);
        let zeros = std::iter::repeat(&0);
        payload.iter().zip(damage.iter().chain(zeros)).map(|(a, b)| a ^ b).collect()
    }
}

impl Pair for World {
    fn ends(&mut self) -> (&mut [Endpoint; 2], Time) {
        (&mut self.ends, self.now)
    }

    fn carry(&mut self, to: usize, payload: Bytes) {
        let payload = self.damaged(payload);
        if !self.out {
            self.ends[to].handle_input(self.now, Peer::datagram(addr(2 - to as u16)), payload);
        }
    }

    fn take(&mut self, n: usize, event: Event) {
        match event {
            Event::Up { peer, .. } => self.peers[n] = Some(peer),
            Event::Received { object, .. } => {
                let at = self.sent[1 - n].iter().position(|o| *o == object);
                let at = at.expect("an object came that nobody sent, or one came twice");
                // What came is blanked, so that it is not found again.
                self.sent[1 - n][at] = Bytes::new();
            }
            _ => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    for ([kind], bytes) in remora_fuzz::commands(data) {
        world.command(kind, bytes);
    }
});
