//! The air of one cell: the emulated channel, which carries IP packets between a base station
//! and its mobiles, and the link protocol on it if there is one.
//!
//! Without the protocol a packet is a frame of the channel. With it a packet goes to the link
//! core of its station; what the core sends are frames, each longer by what a host adds below
//! it: `overhead` bytes of IP, UDP, session and tag, which stand here as zeros.

use std::collections::VecDeque;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use remora_base::{Core, Peer, Time};
use remora_channel::{Channel, DATA_FRAME_MIN, FrameRecord, Lane, Side};
use remora_link::{Class, Event, HandOffPhase, Link, Mode, Packet, PeerStats};

use super::addr::{base_peer, mobile_of, mobile_peer};

/// A channel and the stations on it.
#[derive(Debug)]
pub struct Air {
    channel: Channel,
    mtu: usize,
    links: Option<Links>,
    /// Packets that have come through, with the time.
    arrived: VecDeque<(Time, Lane, Bytes)>,
    /// When frames that carry data arrived, and on which lane, in order.
    data_frames: Vec<(Time, Lane)>,
}

/// The link cores: the base's, and each mobile's.
struct Links {
    base: Link,
    mobiles: Vec<Link>,
    overhead: usize,
}

impl Air {
    /// The air of `channel`, whose frames have up to `mtu` bytes, with the link protocol if it is
    /// given.
    pub fn new(channel: Channel, mtu: usize, link: Option<&remora_link::Config>, seed: u64) -> Air {
        let links = link.map(|config| Links::new(config, seed, channel.mobiles()));
        let mtu = link.map_or(mtu, remora_link::Config::packet_max);
        Air { channel, mtu, links, arrived: VecDeque::new(), data_frames: Vec::new() }
    }

    /// The longest packet it carries, in bytes.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The oldest frame that was on the channel and not yet taken, if its trace is kept.
    pub fn poll_frame(&mut self) -> Option<FrameRecord> {
        self.channel.poll_trace()
    }

    /// The link core of the base station, if there is the protocol.
    pub fn base(&self) -> Option<&Link> {
        self.links.as_ref().map(|l| &l.base)
    }

    /// Whether what is lost on it is sent again.
    pub fn keeps(&self) -> bool {
        self.base().is_some_and(|link| link.config().mode == Mode::Arq)
    }

    /// When the frames that carry data (of [`DATA_FRAME_MIN`] bytes and more) arrived on `lane`, in order.
    pub fn data_frames(&self, lane: Lane) -> impl Iterator<Item = Time> {
        self.data_frames.iter().filter(move |(_, on)| *on == lane).map(|(at, _)| *at)
    }

    /// What the link core that sends on `lane` counted, if there is the protocol.
    pub fn link_stats(&self, lane: Lane) -> Option<PeerStats> {
        let links = self.links.as_ref()?;
        let link = match lane.from {
            Side::Base => &links.base,
            Side::Mobile => links.mobiles.get(lane.mobile)?,
        };
        link.stats(far_peer(lane)).copied()
    }

    /// Sends an IP packet; packets of one `flow` arrive in order if there is the protocol.
    pub fn send(&mut self, now: Time, lane: Lane, flow: u64, class: Class, packet: Bytes) {
        match &mut self.links {
            None => self.channel.send_packet(now, lane, packet),
            Some(links) => {
                let (link, peer) = links.station(lane);
                link.enqueue(now, peer, Packet { flow, class, responsive: false, bytes: packet });
                self.drain(now, lane.from, lane.mobile);
            }
        }
    }

    /// The next packet that has come through by `now`: on which lane, and what.
    pub fn poll(&mut self, now: Time) -> Option<(Lane, Bytes)> {
        self.handle_timeout(now);
        self.arrived.pop_front().map(|(_, lane, packet)| (lane, packet))
    }

    /// When something is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let arrived = self.arrived.front().map(|(at, ..)| *at);
        let links = self.links.iter().filter_map(Links::poll_timeout);
        links.chain(arrived).chain(self.channel.poll_timeout()).min()
    }

    /// Lets the time be `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.wake_links(now);
        while let Some(delivery) = self.channel.poll_delivery(now) {
            let lane = Lane { mobile: delivery.mobile, from: delivery.to.other() };
            if delivery.datagram.len() >= DATA_FRAME_MIN {
                self.data_frames.push((delivery.at, lane));
            }
            let Some(links) = &mut self.links else {
                self.arrived.push_back((delivery.at, lane, delivery.datagram));
                continue;
            };
            let frame = delivery.datagram.slice(..delivery.datagram.len().saturating_sub(links.overhead));
            let (link, from) = links.station(Lane { mobile: lane.mobile, from: delivery.to });
            link.handle_input(now, from, frame);
            self.drain(now, delivery.to, lane.mobile);
        }
    }

    /// A mobile's station tells the base station of a cell switch.
    pub fn announce(&mut self, now: Time, mobile: usize, phase: HandOffPhase) {
        if let Some(link) = self.links.as_mut().and_then(|l| l.mobiles.get_mut(mobile)) {
            link.announce_handoff(now, phase);
            self.drain(now, Side::Mobile, mobile);
        }
    }

    fn wake_links(&mut self, now: Time) {
        let mobiles = self.links.as_ref().map_or(0, |l| l.mobiles.len());
        let stations = (0..mobiles).map(|m| (Side::Mobile, m));
        for (side, mobile) in stations.chain([(Side::Base, 0)]) {
            let Some(links) = &mut self.links else { return };
            let link = links.core(side, mobile);
            if link.poll_timeout().is_some_and(|t| t <= now) {
                link.handle_timeout(now);
                self.drain(now, side, mobile);
            }
        }
    }

    /// Puts on the air what a station's link sends, and takes what it hands up.
    fn drain(&mut self, now: Time, side: Side, mobile: usize) {
        let Some(links) = &mut self.links else { return };
        let overhead = links.overhead;
        let link = links.core(side, mobile);
        while let Some(transmit) = link.poll_transmit(now) {
            let lane = lane_of(side, mobile, transmit.to);
            let mut frame = BytesMut::with_capacity(transmit.payload.len() + overhead);
            frame.put_slice(&transmit.payload);
            frame.put_bytes(0, overhead);
            self.channel.send_packet(now, lane, frame.freeze());
        }
        while let Some(event) = link.poll_event() {
            if let Event::Deliver { from, packet } = event {
                let sent = lane_of(side, mobile, from);
                let lane = Lane { from: sent.from.other(), ..sent };
                self.arrived.push_back((now, lane, packet));
            }
        }
    }
}

/// Whom the station that sends on `lane` knows at the other end.
fn far_peer(lane: Lane) -> Peer {
    match lane.from {
        Side::Base => mobile_peer(lane.mobile),
        Side::Mobile => base_peer(),
    }
}

/// On which lane a station talks to `peer`.
fn lane_of(side: Side, mobile: usize, peer: Peer) -> Lane {
    Lane { from: side, mobile: mobile_of(peer).unwrap_or(mobile) }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("base", &self.base.snapshot()).finish_non_exhaustive()
    }
}

impl Links {
    fn new(config: &remora_link::Config, seed: u64, mobiles: usize) -> Links {
        // A mobile's epoch must not be the base's, so each station has a seed of its own.
        let station = |n: usize| Link::new(config.clone(), seed.wrapping_add(n as u64), Time::ZERO);
        let mut base = station(0);
        (0..mobiles).for_each(|m| base.add_peer(Time::ZERO, mobile_peer(m)));
        let mobile = |m: usize| {
            let mut link = station(m + 1);
            link.add_peer(Time::ZERO, base_peer());
            link
        };
        Links { base, mobiles: (0..mobiles).map(mobile).collect(), overhead: config.overhead }
    }

    fn core(&mut self, side: Side, mobile: usize) -> &mut Link {
        match side {
            Side::Base => &mut self.base,
            Side::Mobile => &mut self.mobiles[mobile],
        }
    }

    /// The core that sends on a lane, and whom it knows at the other end.
    fn station(&mut self, lane: Lane) -> (&mut Link, Peer) {
        (self.core(lane.from, lane.mobile), far_peer(lane))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.mobiles.iter().chain([&self.base]).filter_map(Link::poll_timeout).min()
    }
}
