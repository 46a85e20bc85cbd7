//! Two ATP endpoints of which each may say to the other, behind the encryption, what no endpoint of ours
//! says; a slow network that changes the order, and what programs ask of their requests. Neither panics,
//! each holds no more than it may; and while both are honest no object comes twice or damaged.
//!
//! The input is a row of commands `kind length bytes`, as for `atp_session`, and more.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_atp::session::{Config, Endpoint, Event, Forged, ForgedEnd, Guests, Identity, PeerId};
use remora_atp::{Command, OnShortage, Options, Priority, RequestId};
use remora_base::{Core, Peer, Time};
use remora_fuzz::Pair;

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What an endpoint may hold of received objects, in bytes.
const BUFFER: u64 = 60_000;
/// Datagrams under way on the slow network; more are lost.
const WIRE_MAX: usize = 200;

const fn addr(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

struct World {
    now: Time,
    ends: [Endpoint; 2],
    peers: [Option<PeerId>; 2],
    out: bool,
    /// Datagrams stay under way until a command has them arrive.
    slow: bool,
    /// To whom, what: under way.
    wire: Vec<(usize, Bytes)>,
    /// Exclusive-ored into the next datagram, from its front.
    damage: Bytes,
    /// By sender; what came is blanked.
    sent: [Vec<Bytes>; 2],
    requests: [Vec<RequestId>; 2],
    /// Neither has said what none of ours says.
    honest: bool,
}

fn endpoint(n: u8) -> Endpoint {
    let config = Config {
        guests: if n == 0 { Guests::Anyone } else { Guests::Nobody },
        object_max: 20_000,
        buffer_peer: 50_000,
        buffer_total: BUFFER,
        streams: 8,
        window: 8_000,
        ..Config::default()
    };
    let identity = Identity::from_secret([n + 1; 32]).expect("any bytes are a secret");
    Endpoint::new(config, identity, *EPOCH, Time::ZERO, n.into()).expect("a sound configuration")
}

impl World {
    fn new() -> World {
        let mut world = World {
            now: Time::ZERO,
            ends: [endpoint(0), endpoint(1)],
            peers: [None; 2],
            out: false,
            slow: false,
            wire: Vec::new(),
            damage: Bytes::new(),
            sent: Default::default(),
            requests: Default::default(),
            honest: true,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        let key = self.ends[0].public_key();
        self.peers[1] = self.ends[1].connect(self.now, addr(1), key).ok();
    }

    fn command(&mut self, kind: u8, bytes: &[u8]) {
        let (n, len) = (usize::from(kind & 1), bytes.len());
        match (kind >> 1) % 14 {
            0 => self.send(n, kind, len, bytes),
            1 => self.ends[n].handle_input(self.now, Peer::datagram(addr(9)), Bytes::copy_from_slice(bytes)),
            2 => self.damage = Bytes::copy_from_slice(bytes),
            3 => self.now += Duration::from_millis(u64::from(kind) + len as u64 * 4),
            4 => self.out = !self.out,
            5 => self.ends[1].rebind(self.now),
            6 | 7 => self.forge(n, bytes),
            8 => self.send(n, kind, len, &vec![kind; len * 70]),
            9 => self.control(n, kind >> 5, len),
            10 => self.slow = !self.slow,
            11 => (0..=usize::from(kind >> 5)).for_each(|i| self.arrive(len * (i + 1))),
            12 => self.pass(Duration::from_millis(len as u64 * 100)),
            _ if kind & 0x80 != 0 => self.close(n),
            _ => {}
        }
        self.settle();
        let held = self.ends.iter().map(|end| end.usage().received_bytes).max();
        assert!(held.is_none_or(|held| held <= BUFFER), "{held:?}");
    }

    fn send(&mut self, n: usize, kind: u8, len: usize, body: &[u8]) {
        let Some(peer) = self.peers[n] else { return };
        let options = Options {
            priority: Priority::new(kind >> 4).unwrap_or_default(),
            deadline: (len % 3 == 1).then(|| Duration::from_millis(len as u64 * 20)),
            on_shortage: if len.is_multiple_of(2) { OnShortage::Drop } else { OnShortage::Suspend },
            ..Options::default()
        };
        // Each tells itself apart by its number.
        let object: Bytes = [&(self.sent[n].len() as u32).to_be_bytes()[..], body].concat().into();
        if let Ok(id) = self.ends[n].send(self.now, peer, object.clone(), options) {
            self.sent[n].push(object);
            self.requests[n].push(id);
        }
    }

    fn forge(&mut self, n: usize, bytes: &[u8]) {
        let (Some(peer), Some((how, said))) = (self.peers[n], bytes.split_first()) else { return };
        let end = match how >> 2 & 3 {
            0 | 1 => Some(ForgedEnd::Finish),
            2 => Some(ForgedEnd::Reset((how >> 4).into())),
            _ => None,
        };
        let what = if how & 1 == 0 { Forged::Datagram } else { Forged::Stream { both: how & 2 == 0, end } };
        self.honest = false;
        self.ends[n].forge(self.now, peer, what, Bytes::copy_from_slice(said));
    }

    fn control(&mut self, n: usize, what: u8, len: usize) {
        let Some(id) = self.requests[n].get(len % self.requests[n].len().max(1)).copied() else { return };
        let command = match what {
            0 => Command::Inspect,
            1 => Command::Cancel,
            2 => Command::Suspend,
            3 => Command::Restart,
            4 => Command::Prioritise(Priority::new(len as u8 & 15).unwrap_or_default()),
            5 => Command::Deadline(None),
            _ => Command::Deadline(Some(Duration::from_millis(len as u64 * 10))),
        };
        // A request may be over.
        let _ = self.ends[n].control(self.now, id, command);
    }

    /// One of the datagrams under way arrives.
    fn arrive(&mut self, which: usize) {
        if !self.wire.is_empty() {
            let (to, payload) = self.wire.remove(which % self.wire.len());
            self.receive(to, payload);
        }
    }

    fn receive(&mut self, to: usize, payload: Bytes) {
        self.ends[to].handle_input(self.now, Peer::datagram(addr(2 - to as u16)), payload);
    }

    /// Time passes, from timer to timer.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..200 {
            let next = self.ends.iter().filter_map(Core::poll_timeout).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.settle();
        }
    }

    /// One hangs up; the client connects again.
    fn close(&mut self, n: usize) {
        let Some(peer) = self.peers[n] else { return };
        self.ends[n].close(self.now, peer);
        if n == 1 {
            self.connect();
        }
    }

    fn damaged(&mut self, payload: Bytes) -> Bytes {
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
        if self.slow {
            if self.wire.len() < WIRE_MAX {
                self.wire.push((to, payload));
            }
        } else if !self.out {
            self.receive(to, payload);
        }
    }

    fn take(&mut self, n: usize, event: Event) {
        match event {
            Event::Up { peer, .. } => self.peers[n] = Some(peer),
            Event::Received { object, .. } if self.honest => {
                let at = self.sent[1 - n].iter().position(|sent| *sent == object);
                let at = at.expect("an object came that nobody sent, or one came twice");
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
