//! The secure tunnel of a link: a base and its mobile with a bad network between them, a stranger that the
//! base does not know, and arbitrary datagrams from anywhere. Nothing panics; a frame arrives unchanged,
//! at most once, attributed to its sender; and both ends talk again when the network is good again.
//!
//! The first byte says whether the two have a session at the start, and whether the stranger is a base
//! or a mobile. Then there are commands `kind length bytes`: deliver an arbitrary datagram, corrupt the next
//! genuine one, replay an old one, send a frame, advance the time, begin or end an outage, move or stop the
//! mobile, restart an end. Keys and handshakes hold random numbers, so no two runs have the same bytes on the
//! wire.
//! An input takes tens of milliseconds: most of it is cryptography.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use remora_base::Time;
use remora_host::link::LinkIdentity;
use remora_host::link::tunnel::{KnownPeer, TunnelEndpoint, TunnelEvent};

const KEEPALIVE: Duration = Duration::from_secs(5);
const WALL: u64 = 1_700_000_000_000_000_000;
/// How far back a mobile's clock may be set when it begins anew, in nanoseconds.
const SET_BACK: u64 = 7_200_000_000_000;
/// What a datagram begins with: an initiation, its answer, and data (of which lower bits are more).
const KINDS: [u8; 4] = [1, 2, 0x80, 0x81];
/// Datagrams kept to be sent once more.
const OLD_MAX: usize = 64;
/// How long the two may take to find one another again. The longest silence that an end puts up with
/// is 180 s.
const PATIENCE: Duration = Duration::from_secs(400);

/// Of base, mobile and stranger.
static KEYS: LazyLock<[LinkIdentity; 3]> =
    LazyLock::new(|| [(); 3].map(|()| LinkIdentity::generate().expect("the system has random numbers")));

const BASE: usize = 0;
const MOBILE: usize = 1;
const STRANGER: usize = 2;

fn known(n: usize) -> KnownPeer {
    KnownPeer { key: KEYS[n].public, secret: None }
}

fn base(now: Time, seed: u64) -> TunnelEndpoint {
    TunnelEndpoint::base(KEYS[BASE].clone(), vec![known(MOBILE)], seed, WALL, now)
}

fn mobile(n: usize, base: SocketAddr, now: Time, seed: u64, wall: u64) -> TunnelEndpoint {
    TunnelEndpoint::mobile(KEYS[n].clone(), known(BASE), base, KEEPALIVE, seed, wall, now)
}

struct World {
    now: Time,
    endpoints: [TunnelEndpoint; 3],
    /// Where the base takes them to be: the mobile moves.
    addrs: [SocketAddr; 3],
    out: bool,
    /// Of the next end that begins anew.
    seed: u64,
    /// Exclusive-ored into the next datagram, from its front.
    damage: Vec<u8>,
    /// To whom, from where, what.
    old: Vec<(usize, SocketAddr, Vec<u8>)>,
    /// By sender; what came is blanked.
    sent: [Vec<Vec<u8>>; 3],
    came: [usize; 3],
}

impl World {
    fn new(setup: u8) -> World {
        let addrs = [1, 2, 3].map(|n| SocketAddr::from(([192, 0, 2, n], 5000)));
        let (now, to) = (Time::ZERO, addrs[BASE]);
        // One that calls the base, or one that only answers.
        let stranger = match setup & 4 {
            0 => TunnelEndpoint::base(KEYS[STRANGER].clone(), vec![], 3, WALL, now),
            _ => mobile(STRANGER, to, now, 3, WALL),
        };
        World {
            now,
            endpoints: [base(now, 1), mobile(MOBILE, to, now, 2, WALL), stranger],
            addrs,
            out: false,
            seed: 4,
            damage: Vec::new(),
            old: Vec::new(),
            sent: Default::default(),
            came: [0; 3],
        }
    }

    fn command(&mut self, kind: u8, bytes: &[u8]) {
        let n = usize::from(kind & 1);
        match (kind >> 1) % 8 {
            0 => self.endpoints[n].receive(self.now, self.addrs[STRANGER], bytes),
            1 => {
                // One that says what it is: kind and index come first.
                let first = KINDS[usize::from(kind >> 4) % KINDS.len()];
                let whole = [&[first, 0, 0, kind >> 6][..], bytes].concat();
                self.endpoints[n].receive(self.now, self.addrs[1 - n], &whole);
            }
            2 => self.damage = bytes.to_vec(),
            3 if !self.old.is_empty() => {
                let (to, from, datagram) = self.old[bytes.len() % self.old.len()].clone();
                // From where it came, or from elsewhere.
                let from = if kind & 0x80 == 0 { from } else { self.addrs[STRANGER] };
                self.endpoints[to].receive(self.now, from, &datagram);
            }
            3 | 4 => self.send(n, bytes),
            5 if kind & 0x80 != 0 => {
                self.pass(Duration::from_secs(u64::from(kind >> 4 & 7) * 60 + bytes.len() as u64 * 20));
            }
            5 => self.now += Duration::from_millis(u64::from(kind) + bytes.len() as u64 * 40),
            6 if kind & 0x80 == 0 => self.out = !self.out,
            6 => self.addrs[MOBILE].set_port(5000 + bytes.len() as u16),
            _ if kind & 0x80 != 0 => self.begin_anew(n, if kind & 0x40 == 0 { WALL } else { WALL - SET_BACK }),
            _ => self.endpoints[n].leave(self.now),
        }
        self.settle();
    }

    /// A long time passes, with the timers on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..200 {
            let next = self.endpoints.iter().filter_map(TunnelEndpoint::poll_timeout).min();
            let Some(at) = next.filter(|at| *at < end) else { break };
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = end;
    }

    /// An end knows nothing any more but its key and who the other is; the mobile's clock says `wall`.
    fn begin_anew(&mut self, n: usize, wall: u64) {
        self.seed += 1;
        self.endpoints[n] = match n {
            BASE => base(self.now, self.seed),
            _ => mobile(n, self.addrs[BASE], self.now, self.seed, wall),
        };
    }

    /// A frame from base or mobile. Each tells itself apart by its number.
    fn send(&mut self, n: usize, bytes: &[u8]) {
        let frame = [&(self.sent[n].len() as u32).to_be_bytes(), bytes].concat();
        if self.endpoints[n].send(self.now, 0, &frame) {
            self.sent[n].push(frame);
        }
    }

    /// Lets all come to rest at this moment.
    fn settle(&mut self) {
        for endpoint in &mut self.endpoints {
            if endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
                endpoint.handle_timeout(self.now);
            }
        }
        for _ in 0..10_000 {
            let mut quiet = true;
            for n in 0..3 {
                while let Some(event) = self.endpoints[n].poll_event() {
                    self.take(n, event);
                }
                while let Some(outgoing) = self.endpoints[n].poll_outgoing() {
                    quiet = false;
                    self.carry(n, outgoing.to, outgoing.bytes);
                }
            }
            if quiet {
                return;
            }
        }
        panic!("no end of it");
    }

    fn carry(&mut self, from: usize, to: SocketAddr, mut bytes: Vec<u8>) {
        // What is sent to where a mobile no longer is gets lost.
        let Some(to) = self.addrs.iter().position(|addr| *addr == to) else { return };
        if self.old.len() < OLD_MAX {
            self.old.push((to, self.addrs[from], bytes.clone()));
        }
        if self.out {
            return;
        }
        let damage = std::mem::take(&mut self.damage);
        bytes.iter_mut().zip(damage).for_each(|(byte, damage)| *byte ^= damage);
        self.endpoints[to].receive(self.now, self.addrs[from], &bytes);
    }

    fn take(&mut self, n: usize, event: TunnelEvent) {
        match event {
            TunnelEvent::Frame { frame, .. } => {
                assert_ne!(n, STRANGER, "nobody talks to it");
                let sent = &mut self.sent[1 - n];
                let at = sent.iter().position(|f| *f == frame);
                let at = at.expect("a frame came that nobody sent, or one came twice");
                sent[at].clear();
                self.came[n] += 1;
            }
            TunnelEvent::Up { .. } | TunnelEvent::Renewed { .. } | TunnelEvent::Restarted { .. } => {
                assert_ne!(n, STRANGER, "the base does not know it");
            }
            TunnelEvent::Stranger { key, .. } => assert_eq!((n, key), (BASE, KEYS[STRANGER].public)),
            TunnelEvent::Down { .. }
            | TunnelEvent::Moved { .. }
            | TunnelEvent::NoAnswer { .. }
            | TunnelEvent::OtherSecret
            | TunnelEvent::OtherBase { .. } => {}
        }
    }

    /// The network is good from now on: both ends must come to hear each other.
    fn heal(&mut self) {
        self.out = false;
        self.damage.clear();
        self.came = [0; 3];
        let end = self.now + PATIENCE;
        while self.came[BASE] == 0 || self.came[MOBILE] == 0 {
            assert!(self.now < end, "they do not find one another again");
            self.now += Duration::from_millis(500);
            self.settle();
            self.send(BASE, &[]);
            self.send(MOBILE, &[]);
            self.settle();
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((setup, rest)) = data.split_first() else { return };
    let mut world = World::new(*setup);
    if setup & 1 == 0 {
        world.settle();
    }
    for ([kind], bytes) in remora_fuzz::commands(rest) {
        world.command(kind, bytes);
    }
    world.heal();
});
