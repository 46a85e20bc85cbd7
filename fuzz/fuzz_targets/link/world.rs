//! The two ends, the network between them, and the packets sent.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Rate, Time, Transmit};
use remora_link::{ArqMode, Class, Duplex, Link, LinkConfig, LinkEvent, MediumScheduler, Packet};
use remora_wire::link::Frame;

use crate::packets::packet;

const fn peer(port: u16) -> Peer {
    Peer::datagram(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port))
}

/// The two ends.
pub(crate) const PEERS: [Peer; 2] = [peer(1), peer(2)];
/// Only the first end knows it, and it never answers.
const NOBODY: Peer = peer(3);
/// Frames under way; more are lost.
const WIRE_MAX: usize = 300;
/// The most frames that an end may be ahead of the other, and may hold for it.
const AHEAD_MAX: usize = 2040;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [Link; 2],
    /// Frames are lost while this is set.
    pub(crate) lossy: bool,
    /// They stay under way until a command has them arrive while this is set.
    pub(crate) slow: bool,
    /// Nobody made up a frame.
    pub(crate) honest: bool,
    config: LinkConfig,
    /// To whom, what: under way.
    wire: Vec<(usize, Bytes)>,
    /// By sender; what came is blanked.
    sent: [Vec<Bytes>; 2],
    /// The same without blanks.
    all: [Vec<Bytes>; 2],
    lives: u64,
    /// Packets that came to each end.
    came: [usize; 2],
}

fn config(setup: u8) -> LinkConfig {
    let small = setup & 0x80 == 0;
    LinkConfig {
        rate: [None, None, Some(Rate::of_bits(64_000)), Some(Rate::mbit(2))][usize::from(setup & 3)],
        mode: if setup & 0x1c == 0x1c { ArqMode::None } else { ArqMode::Arq },
        duplex: if setup & 4 == 0 { Duplex::Half } else { Duplex::Full },
        scheduler: if setup & 8 == 0 { MediumScheduler::Airtime } else { MediumScheduler::RoundRobin },
        mtu: if setup & 0x20 == 0 { 128 } else { 1450 },
        window_frames: if setup & 0x40 == 0 { 16 } else { 2024 },
        queue_packets_max: if small { 12 } else { 512 },
        queue_bytes_max: if small { 6000 } else { 1 << 20 },
        ..LinkConfig::default()
    }
}

impl World {
    pub(crate) fn new(setup: u8) -> World {
        let config = config(setup);
        let mut ends = [1, 2].map(|seed| Link::new(config.clone(), seed, Time::ZERO));
        ends[0].add_peer(Time::ZERO, PEERS[1]);
        ends[0].add_peer(Time::ZERO, NOBODY);
        ends[1].add_peer(Time::ZERO, PEERS[0]);
        World {
            now: Time::ZERO,
            ends,
            lossy: false,
            slow: false,
            honest: true,
            config,
            wire: Vec::new(),
            sent: Default::default(),
            all: Default::default(),
            lives: 3,
            came: [0; 2],
        }
    }

    /// An IP packet from end `n`, unless it is longer than the device above lets through.
    pub(crate) fn send(&mut self, n: usize, flow: u8, what: u8, body: &[u8]) {
        let class = Class::ALL[usize::from(what >> 5) % Class::ALL.len()];
        let bytes = packet(flow, self.sent[n].len() as u32, what, body);
        self.enqueue(n, Packet { flow: flow.into(), responsive: what & 3 < 2, class, bytes });
    }

    /// One that is no IP packet.
    pub(crate) fn send_bytes(&mut self, n: usize, flow: u8, responsive: bool, bytes: &[u8]) {
        if !bytes.is_empty() {
            let bytes = [bytes, &(self.sent[n].len() as u32).to_be_bytes()].concat().into();
            self.enqueue(n, Packet { flow: flow.into(), responsive, class: Class::Default, bytes });
        }
    }

    /// One, from the first end, that is never acknowledged, and may be too long.
    pub(crate) fn send_to_nobody(&mut self, flow: u8, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        let packet = Packet { flow: flow.into(), responsive: true, class: Class::Default, bytes };
        self.ends[0].enqueue(self.now, NOBODY, packet);
    }

    fn enqueue(&mut self, n: usize, packet: Packet) {
        if packet.bytes.len() <= self.config.packet_max() {
            self.sent[n].push(packet.bytes.clone());
            self.all[n].push(packet.bytes.clone());
            self.ends[n].enqueue(self.now, PEERS[1 - n], packet);
        }
    }

    /// Delivers or loses one of the frames in flight.
    pub(crate) fn arrive(&mut self, which: u8, lost: bool) {
        if self.wire.is_empty() {
            return;
        }
        let (to, frame) = self.wire.remove(usize::from(which) % self.wire.len());
        if !lost {
            self.ends[to].handle_input(self.now, PEERS[1 - to], frame);
        }
    }

    /// End `n` begins anew; the other learns of it from below, or by itself.
    pub(crate) fn begin_anew(&mut self, n: usize, told: bool) {
        self.lives += 1;
        self.ends[n] = Link::new(self.config.clone(), self.lives, self.now);
        self.ends[n].add_peer(self.now, PEERS[1 - n]);
        if told {
            self.ends[1 - n].restarted(self.now, PEERS[n]);
        }
        self.forget();
    }

    /// End `n` forgets the other, and the other learns of it.
    pub(crate) fn add_again(&mut self, n: usize) {
        self.ends[n].remove_peer(self.now, PEERS[1 - n]);
        self.ends[n].add_peer(self.now, PEERS[1 - n]);
        self.ends[1 - n].restarted(self.now, PEERS[n]);
        self.forget();
    }

    /// An end has begun anew: nobody is left who knows what came, so it may come again.
    fn forget(&mut self) {
        self.wire.clear();
        self.sent = self.all.clone();
    }

    /// Time passes, with the timers on the way.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..300 {
            let next = self.ends.iter().filter_map(Core::poll_timeout).min();
            let Some(at) = next.filter(|at| *at < end) else { break };
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Lets both ends come to rest at this moment.
    pub(crate) fn settle(&mut self) {
        for link in &mut self.ends {
            if link.poll_timeout().is_some_and(|at| at <= self.now) {
                link.handle_timeout(self.now);
            }
        }
        // What is sent at one moment is bounded: windows and queues are.
        for _ in 0..20_000 {
            let sent = [0, 1].map(|n| self.ends[n].poll_transmit(self.now));
            let quiet = sent.iter().all(Option::is_none);
            for (n, transmit) in sent.into_iter().enumerate() {
                transmit.into_iter().for_each(|transmit| self.carry(n, transmit));
            }
            [0, 1].into_iter().for_each(|n| self.take(n));
            if quiet {
                return self.check();
            }
        }
        panic!("no end of it");
    }

    fn carry(&mut self, from: usize, Transmit { to, payload, .. }: Transmit) {
        Frame::decode(payload.clone()).expect("a link sends frames");
        assert!(payload.len() <= self.config.mtu, "a frame of {} bytes", payload.len());
        match to {
            NOBODY => {}
            _ if self.lossy => {}
            _ if self.slow => {
                if self.wire.len() < WIRE_MAX {
                    self.wire.push((1 - from, payload));
                }
            }
            _ => self.ends[1 - from].handle_input(self.now, PEERS[from], payload),
        }
    }

    fn take(&mut self, n: usize) {
        while let Some(event) = self.ends[n].poll_event() {
            let LinkEvent::Deliver { packet, .. } = event else { continue };
            self.came[n] += 1;
            if self.honest {
                let at = self.sent[1 - n].iter().position(|sent| *sent == packet);
                let at = at.unwrap_or_else(|| panic!("came but was not sent, or came twice: {packet:?}"));
                self.sent[1 - n][at] = Bytes::new();
            }
        }
    }

    fn check(&self) {
        for view in self.ends.iter().flat_map(|link| link.snapshot().peers) {
            assert!(view.unacknowledged <= AHEAD_MAX && view.held <= AHEAD_MAX, "{view:?}");
        }
    }

    /// The network is good from now on: both ends must come to hear each other, if nobody lied to them.
    pub(crate) fn heal(&mut self) {
        (self.lossy, self.slow) = (false, false);
        self.wire.clear();
        for _ in 0..40 {
            self.came = [0; 2];
            self.send(0, 9, 0, &[]);
            self.send(1, 9, 0, &[]);
            self.pass(Duration::from_secs(5));
            if !self.honest || self.came.iter().all(|came| *came > 0) {
                return;
            }
        }
        panic!("they do not hear one another again: {:?}", self.ends[0].snapshot());
    }
}
