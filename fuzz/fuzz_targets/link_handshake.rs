//! The secure tunnel of a link: a base and its mobile with a bad network between them, a mobile that
//! the base does not know, and arbitrary datagrams from anywhere. Nobody panics, a frame arrives once,
//! as it was sent and from whom it is, or not at all; and when the network is good again both ends talk.
//!
//! The input is a row of commands `kind length bytes`: a datagram from nowhere, what the next genuine
//! one is changed by, an old one once more, a frame, time that passes, a network that goes or comes, a
//! mobile that moves or leaves. Keys and handshakes hold random numbers, so no two runs have the
//! same bytes on the wire.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use remora_base::Time;
use remora_host::link::Identity;
use remora_host::link::party::{Event, Known, Party};

const KEEPALIVE: Duration = Duration::from_secs(5);
const WALL: u64 = 1_700_000_000_000_000_000;
/// Datagrams kept to be sent once more.
const OLD_MAX: usize = 64;
/// How long the two may take to find one another again. The longest silence that an end puts up with
/// is 180 s.
const PATIENCE: Duration = Duration::from_secs(400);

/// Of base, mobile and stranger.
static KEYS: LazyLock<[Identity; 3]> =
    LazyLock::new(|| [(); 3].map(|()| Identity::generate().expect("the system has random numbers")));

const BASE: usize = 0;
const MOBILE: usize = 1;
const STRANGER: usize = 2;

struct World {
    now: Time,
    parties: [Party; 3],
    /// Where the base takes them to be: the mobile moves.
    addrs: [SocketAddr; 3],
    out: bool,
    /// Exclusive-ored into the next datagram, from its front.
    damage: Vec<u8>,
    /// To whom, from where, what.
    old: Vec<(usize, SocketAddr, Vec<u8>)>,
    /// By sender; what came is blanked.
    sent: [Vec<Vec<u8>>; 3],
    came: [usize; 3],
}

impl World {
    fn new() -> World {
        let known = |n: usize| Known { key: KEYS[n].public, secret: None };
        let addrs = [1, 2, 3].map(|n| SocketAddr::from(([192, 0, 2, n], 5000)));
        let mobile =
            |n: usize| Party::mobile(KEYS[n].clone(), known(BASE), addrs[BASE], KEEPALIVE, n as u64, WALL, Time::ZERO);
        let base = Party::base(KEYS[BASE].clone(), vec![known(MOBILE)], 0, WALL, Time::ZERO);
        World {
            now: Time::ZERO,
            parties: [base, mobile(MOBILE), mobile(STRANGER)],
            addrs,
            out: false,
            damage: Vec::new(),
            old: Vec::new(),
            sent: Default::default(),
            came: [0; 3],
        }
    }

    fn command(&mut self, kind: u8, bytes: &[u8]) {
        let n = usize::from(kind & 1);
        match (kind >> 1) % 8 {
            0 => self.parties[n].receive(self.now, self.addrs[STRANGER], bytes),
            1 => {
                // One that says what it is: kind and index come first.
                let whole = [&[kind % 4, 0, 0, kind >> 4][..], bytes].concat();
                self.parties[n].receive(self.now, self.addrs[1 - n], &whole);
            }
            2 => self.damage = bytes.to_vec(),
            3 if !self.old.is_empty() => {
                let (to, from, datagram) = self.old[bytes.len() % self.old.len()].clone();
                // From where it came, or from elsewhere.
                let from = if kind & 0x80 == 0 { from } else { self.addrs[STRANGER] };
                self.parties[to].receive(self.now, from, &datagram);
            }
            3 | 4 => self.send(n, bytes),
            5 => self.now += Duration::from_millis(u64::from(kind) + bytes.len() as u64 * 40),
            6 if kind & 0x80 == 0 => self.out = !self.out,
            6 => self.addrs[MOBILE].set_port(5000 + bytes.len() as u16),
            _ => self.parties[n].leave(self.now),
        }
        self.settle();
    }

    /// A frame from base or mobile. Each tells itself apart by its number.
    fn send(&mut self, n: usize, bytes: &[u8]) {
        let frame = [&(self.sent[n].len() as u32).to_be_bytes(), bytes].concat();
        if self.parties[n].send(self.now, 0, &frame) {
            self.sent[n].push(frame);
        }
    }

    /// Lets all come to rest at this moment.
    fn settle(&mut self) {
        for party in &mut self.parties {
            if party.poll_timeout().is_some_and(|at| at <= self.now) {
                party.handle_timeout(self.now);
            }
        }
        for _ in 0..10_000 {
            let mut quiet = true;
            for n in 0..3 {
                while let Some(event) = self.parties[n].poll_event() {
                    self.take(n, event);
                }
                while let Some(outgoing) = self.parties[n].poll_outgoing() {
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
        self.parties[to].receive(self.now, self.addrs[from], &bytes);
    }

    fn take(&mut self, n: usize, event: Event) {
        match event {
            Event::Frame { frame, .. } => {
                assert_ne!(n, STRANGER, "nobody talks to it");
                let sent = &mut self.sent[1 - n];
                let at = sent.iter().position(|f| *f == frame);
                let at = at.expect("a frame came that nobody sent, or one came twice");
                sent[at].clear();
                self.came[n] += 1;
            }
            Event::Up { .. } | Event::Renewed { .. } | Event::Restarted { .. } => {
                assert_ne!(n, STRANGER, "the base does not know it");
            }
            Event::Stranger { key, .. } => assert_eq!((n, key), (BASE, KEYS[STRANGER].public)),
            Event::Down { .. } | Event::Moved { .. } | Event::NoAnswer | Event::OtherSecret => {}
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
    let mut world = World::new();
    world.settle();
    let mut rest = data;
    while let [kind, len, more @ ..] = rest {
        let (bytes, after) = more.split_at(usize::from(*len).min(more.len()));
        world.command(*kind, bytes);
        rest = after;
    }
    world.heal();
});
