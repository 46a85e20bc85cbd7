//! A toy medium: a base station and its mobiles share one channel and take turns by frame. Each mobile has its own bad
//! periods, in which all frames to or from it are lost.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use etherparse::PacketBuilder;
use remora_base::{Core, Peer, Rate, Rng, Time};
use remora_link::{Class, Link, LinkConfig, LinkEvent, Packet, PeerView};

/// The medium below the links.
pub(crate) struct Medium {
    pub(crate) rate: Rate,
    /// Whether all stations share one medium; otherwise each has its own.
    pub(crate) half_duplex: bool,
    /// Delay of each frame in one direction.
    pub(crate) delay: Duration,
    /// Bytes added to each frame.
    pub(crate) overhead: usize,
    /// Probability that a frame is lost.
    pub(crate) loss: f64,
    /// Loss probability of the frames that this station sends.
    pub(crate) loss_from: Option<(usize, f64)>,
    /// Rate of this station.
    pub(crate) rate_from: Option<(usize, Rate)>,
    /// Frames in a device above which it drops new ones.
    pub(crate) device_frames_max: usize,
    /// Whether all stations send through one device.
    pub(crate) one_device: bool,
    /// Length in bytes above which frames are lost.
    pub(crate) longest: usize,
    /// Bad periods of each mobile, in order.
    pub(crate) bad: Vec<Vec<(Time, Time)>>,
    /// Frames that this station sends in this period are lost.
    pub(crate) mute: Option<(usize, Time, Time)>,
    /// Frames that this station sends arrive no earlier than this time.
    pub(crate) late: Option<(usize, Time)>,
    /// Reordering: one in this many full frames of the base arrives this many frames late.
    pub(crate) overtaken: Option<(u64, u64)>,
}

impl Medium {
    /// A clean hop of 1 Mbit/s, half duplex, 2 ms.
    pub(crate) fn new(mobiles: usize) -> Medium {
        Medium {
            rate: Rate::mbit(1),
            half_duplex: true,
            delay: Duration::from_millis(2),
            overhead: 50,
            loss: 0.0,
            loss_from: None,
            rate_from: None,
            device_frames_max: usize::MAX,
            one_device: false,
            longest: usize::MAX,
            bad: vec![Vec::new(); mobiles],
            mute: None,
            late: None,
            overtaken: None,
        }
    }

    /// Gives each mobile independent good periods with a mean of 1 s and bad ones with this mean, uniform on a grid of
    /// 20 ms.
    pub(crate) fn with_weather(mut self, mean: Duration, seed: u64, until: Time) -> Medium {
        for (mobile, bad) in self.bad.iter_mut().enumerate() {
            let mut rng = Rng::stream(seed, &format!("weather {mobile}"));
            let mut draw = |mean: Duration| {
                let steps = mean.as_millis() as u64 / 10;
                Duration::from_millis(20) * rng.below(steps + 1) as u32
            };
            let mut at = Time::ZERO;
            while at < until && !mean.is_zero() {
                let begins = at + draw(Duration::from_secs(1));
                at = begins + draw(mean);
                bad.push((begins, at));
            }
        }
        self
    }

    /// The share of the time until `until` in which this mobile's channel is good.
    pub(crate) fn good_share(&self, mobile: usize, until: Time) -> f64 {
        let bad: Duration = self.bad[mobile].iter().map(|(b, e)| (*e).min(until).since(*b)).sum();
        1.0 - bad.as_secs_f64() / until.as_secs_f64()
    }

    fn is_bad(&self, mobile: usize, start: Time, end: Time) -> bool {
        let periods = &self.bad[mobile];
        let first = periods.partition_point(|(_, e)| *e <= start);
        periods[first..].iter().take_while(|(b, _)| *b < end).any(|(b, e)| b < e)
    }
}

/// A frame between two stations.
pub(crate) struct InFlight {
    from: usize,
    to: usize,
    bytes: Bytes,
}

/// Stations on a medium: 0 is the base, 1 and up are mobiles.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) medium: Medium,
    pub(crate) links: Vec<Link>,
    /// Packets delivered to each station, with time and sender.
    pub(crate) delivered: Vec<Vec<(Time, usize, Bytes)>>,
    pub(crate) events: Vec<(usize, LinkEvent)>,
    /// Most frames waiting in a device, not counting the one on the medium.
    pub(crate) device_max: usize,
    /// Frames lost on the medium.
    pub(crate) lost: u64,
    devices: Vec<VecDeque<(usize, usize, Bytes)>>,
    free_at: Vec<Time>,
    turn: usize,
    air: BTreeMap<(Time, u64), InFlight>,
    sent: u64,
    /// Number of frames of the base that have arrived or will, and the frames delayed until a later number.
    from_base: u64,
    waylaid: VecDeque<(u64, InFlight)>,
    rng: Rng,
}

/// The address of a station.
pub(crate) fn peer(station: usize) -> Peer {
    Peer::datagram(([10, 0, 0, station as u8], 0).into())
}

fn station(peer: Peer) -> usize {
    match peer.addr.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]),
        std::net::IpAddr::V6(_) => unreachable!(),
    }
}

/// Length of the headers of IP and UDP.
const HEADERS: usize = 28;

/// A packet whose first eight bytes encode its flow and number, after the headers of a datagram if they fit. The other
/// bytes vary.
pub(crate) fn packet(flow: u32, number: u32, len: usize, class: Class) -> Packet {
    let mut bytes: Vec<u8> = (0..len.max(8)).map(|i| (i / 251 + i + number as usize) as u8).collect();
    let at = headers_len(bytes.len());
    bytes[at..at + 4].copy_from_slice(&flow.to_be_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
    if at > 0 {
        let datagram = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(flow as u16, 2049);
        let mut packet = Vec::with_capacity(bytes.len());
        datagram.write(&mut packet, &bytes[HEADERS..]).unwrap();
        bytes = packet;
    }
    Packet { flow: flow.into(), class, responsive: true, bytes: bytes.into() }
}

fn headers_len(len: usize) -> usize {
    if len >= HEADERS + 8 { HEADERS } else { 0 }
}

/// The flow and number of a packet.
pub(crate) fn label(packet: &[u8]) -> (u32, u32) {
    let at = headers_len(packet.len());
    let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
    (word(at), word(at + 4))
}

impl World {
    pub(crate) fn new(config: &LinkConfig, medium: Medium, seed: u64) -> World {
        let stations = medium.bad.len() + 1;
        let links = (0..stations).map(|s| World::link(config, s, stations, seed, Time::ZERO)).collect();
        World {
            now: Time::ZERO,
            links,
            delivered: vec![Vec::new(); stations],
            events: Vec::new(),
            device_max: 0,
            lost: 0,
            devices: vec![VecDeque::new(); stations],
            free_at: vec![Time::ZERO; stations],
            turn: 0,
            air: BTreeMap::new(),
            sent: 0,
            from_base: 0,
            waylaid: VecDeque::new(),
            rng: Rng::stream(seed, "medium"),
            medium,
        }
    }

    fn link(config: &LinkConfig, station: usize, stations: usize, seed: u64, now: Time) -> Link {
        let mut link = Link::new(config.clone(), seed.wrapping_mul(1000) + station as u64, now);
        for other in if station == 0 { 1..stations } else { 0..1 } {
            link.add_peer(now, peer(other));
        }
        link
    }

    /// Restarts a station without its state.
    pub(crate) fn restart(&mut self, station: usize, seed: u64) {
        let config = self.links[station].config().clone();
        self.links[station] = World::link(&config, station, self.links.len(), seed, self.now);
    }

    /// Reports to `station` that `peer` has restarted, and drops the peer's earlier frames.
    pub(crate) fn tell_of_restart(&mut self, station: usize, peer: usize) {
        self.devices.iter_mut().for_each(|device| device.retain(|(from, ..)| *from != peer));
        self.air.retain(|_, frame| frame.from != peer);
        self.links[station].restarted(self.now, self::peer(peer));
        self.drain(station);
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, packet: Packet) {
        self.links[from].enqueue(self.now, peer(to), packet);
        self.drain(from);
    }

    /// Keeps `waiting` packets of `len` bytes of the flow `flow` queued from one station to another, numbered upwards
    /// from `next`.
    pub(crate) fn saturate(&mut self, from: usize, to: usize, flow: u32, next: &mut u32, len: usize, waiting: usize) {
        let there = |w: &World| w.view(from, to).queue_packets;
        for _ in there(self)..waiting {
            self.send(from, to, packet(flow, *next, len, Class::Default));
            *next += 1;
        }
    }

    /// The view of station `from` on its destination `to`.
    pub(crate) fn view(&self, from: usize, to: usize) -> PeerView {
        self.links[from].view(peer(to)).expect("a destination")
    }

    /// The labels of the packets delivered to a station, in order.
    pub(crate) fn labels(&self, station: usize) -> Vec<(u32, u32)> {
        self.delivered[station].iter().map(|(_, _, p)| label(p)).collect()
    }

    /// Delivers a frame to `station` that no station sent.
    pub(crate) fn inject(&mut self, from: usize, to: usize, frame: Bytes) {
        self.links[to].handle_input(self.now, peer(from), frame);
        self.drain(to);
    }

    /// Runs until `until` and calls `app` before every step.
    pub(crate) fn run(&mut self, until: Time, mut app: impl FnMut(&mut World)) {
        loop {
            app(self);
            let timers = self.links.iter().filter_map(Core::poll_timeout).min();
            let arrival = self.air.first_key_value().map(|((at, _), _)| *at);
            let start = self.next_start().map(|(at, _)| at);
            let next = [timers, arrival, start].into_iter().flatten().min().unwrap_or(Time::MAX);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        while let Some((start, from)) = self.next_start().filter(|(start, _)| *start <= self.now) {
            self.start(start, from);
        }
        while let Some(entry) = self.air.first_entry().filter(|e| e.key().0 <= self.now) {
            let InFlight { from, to, bytes: frame } = entry.remove();
            self.links[to].handle_input(self.now, peer(from), frame);
            self.drain(to);
        }
        for station in 0..self.links.len() {
            if self.links[station].poll_timeout().is_some_and(|at| at <= self.now) {
                self.links[station].handle_timeout(self.now);
                self.drain(station);
                let again = self.links[station].poll_timeout();
                assert!(again.is_none_or(|at| at > self.now), "station {station} asks for {again:?} at {:?}", self.now);
            }
        }
    }

    fn drain(&mut self, station: usize) {
        while let Some(transmit) = self.links[station].poll_transmit(self.now) {
            let limit = self.links[station].config().mtu;
            assert!(transmit.payload.len() <= limit, "a frame of {} bytes", transmit.payload.len());
            let device = if self.medium.one_device { 0 } else { station };
            if self.devices[device].len() < self.medium.device_frames_max {
                self.devices[device].push_back((station, self::station(transmit.to), transmit.payload));
            }
            while let Some((start, from)) = self.next_start().filter(|(start, _)| *start <= self.now) {
                self.start(start, from);
            }
            self.device_max = self.device_max.max(self.devices[device].len());
        }
        while let Some(event) = self.links[station].poll_event() {
            match event {
                LinkEvent::Deliver { from, packet } => {
                    self.delivered[station].push((self.now, self::station(from), packet));
                }
                other => self.events.push((station, other)),
            }
        }
    }

    /// The station whose frame starts next: the first in turn among the earliest.
    fn next_start(&self) -> Option<(Time, usize)> {
        let stations = self.devices.len();
        let in_turn = (1..=stations).map(|i| (self.turn + i) % stations);
        let waiting = in_turn.filter(|s| !self.devices[*s].is_empty());
        waiting.map(|s| (self.free_at[s].max(self.now), s)).min_by_key(|(at, _)| *at)
    }

    fn start(&mut self, start: Time, device: usize) {
        let Some((from, to, frame)) = self.devices[device].pop_front() else { return };
        let other = self.medium.rate_from.filter(|(who, _)| *who == from).map(|(_, rate)| rate);
        let end = start + other.unwrap_or(self.medium.rate).airtime((frame.len() + self.medium.overhead) as u64);
        match self.medium.half_duplex {
            true => self.free_at.iter_mut().for_each(|f| *f = end),
            false => self.free_at[device] = end,
        }
        self.turn = device;
        let other = self.medium.loss_from.filter(|(who, _)| *who == from).map(|(_, loss)| loss);
        let unlucky = self.rng.chance(other.unwrap_or(self.medium.loss));
        let mute = self.medium.mute.is_some_and(|(who, b, e)| who == from && start < e && end > b);
        if unlucky || mute || frame.len() > self.medium.longest || self.medium.is_bad(from.max(to) - 1, start, end) {
            self.lost += 1;
        } else {
            let late = self.medium.late.filter(|(who, _)| *who == from).map_or(Time::ZERO, |(_, until)| until);
            self.carry((end + self.medium.delay).max(late), InFlight { from, to, bytes: frame });
        }
    }

    /// Delivers a frame at `at`, then the frames held back for it, or holds the frame back itself.
    fn carry(&mut self, at: Time, frame: InFlight) {
        if let Some((one_in, later)) = self.medium.overtaken.filter(|_| frame.from == 0) {
            self.from_base += 1;
            if frame.bytes.len() > 1000 && self.from_base.is_multiple_of(one_in) {
                return self.waylaid.push_back((self.from_base + later, frame));
            }
        }
        self.arrive(at, frame);
        while self.waylaid.front().is_some_and(|(due, _)| *due <= self.from_base)
            && let Some((_, frame)) = self.waylaid.pop_front()
        {
            self.arrive(at, frame);
        }
    }

    fn arrive(&mut self, at: Time, frame: InFlight) {
        self.air.insert((at, self.sent), frame);
        self.sent += 1;
    }
}
