//! The air of one cell: the emulated channel, which carries IP packets between a base station and
//! its mobiles, and the link protocol on it, if any.
//!
//! Without the protocol a packet is a frame of the channel. With it the station's link core takes
//! packets and sends frames. The channel's frames then have `overhead` more bytes of IP, UDP,
//! session and tag headers, here zeros.

use std::collections::VecDeque;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use remora_base::{Core, Peer, Time};
use remora_channel::{Channel, DATA_FRAME_MIN, FrameRecord, Lane, Side};
use remora_link::{ArqMode, Class, HandOffPhase, Link, LinkEvent, Packet, PeerStats};

use super::addr::{base_peer, mobile_of, mobile_peer};

/// A channel and its stations.
#[derive(Debug)]
pub struct Air {
    channel: Channel,
    mtu: usize,
    links: Option<Links>,
    /// Packets that arrived, with the time.
    arrived: VecDeque<(Time, Lane, Bytes)>,
    /// Arrivals of data frames with their lanes, in order.
    data_frames: Vec<(Time, Lane)>,
}

/// The link cores: the base's, and each mobile's.
struct Links {
    base: Link,
    mobiles: Vec<Link>,
    overhead: usize,
}

impl Air {
    /// The air over `channel`, whose frames have up to `mtu` bytes, with the link protocol if
    /// given.
    pub fn new(channel: Channel, mtu: usize, link: Option<&remora_link::LinkConfig>, seed: u64) -> Air {
        let links = link.map(|config| Links::new(config, seed, channel.mobiles()));
        let mtu = link.map_or(mtu, remora_link::LinkConfig::packet_max);
        Air { channel, mtu, links, arrived: VecDeque::new(), data_frames: Vec::new() }
    }

    /// Maximum length of a packet in bytes.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The oldest frame record not yet taken, if the channel keeps a trace.
    pub fn poll_frame(&mut self) -> Option<FrameRecord> {
        self.channel.poll_trace()
    }

    /// The base station's link core, if the protocol runs.
    pub fn base(&self) -> Option<&Link> {
        self.links.as_ref().map(|l| &l.base)
    }

    /// Whether lost frames are retransmitted.
    pub fn keeps(&self) -> bool {
        self.base().is_some_and(|link| link.config().mode == ArqMode::Arq)
    }

    /// Arrivals on `lane` of frames that carry data (at least [`DATA_FRAME_MIN`] bytes), in order.
    pub fn data_frames(&self, lane: Lane) -> impl Iterator<Item = Time> {
        self.data_frames.iter().filter(move |(_, on)| *on == lane).map(|(at, _)| *at)
    }

    /// The counters of the link core that sends on `lane`, if the protocol runs.
    pub fn link_stats(&self, lane: Lane) -> Option<PeerStats> {
        let links = self.links.as_ref()?;
        let link = match lane.from {
            Side::Base => &links.base,
            Side::Mobile => links.mobiles.get(lane.mobile)?,
        };
        link.stats(far_peer(lane)).copied()
    }

    /// Sends an IP packet; with the protocol, packets of one `flow` arrive in order.
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

    /// The next packet that arrived by `now`, with its lane.
    pub fn poll(&mut self, now: Time) -> Option<(Lane, Bytes)> {
        self.handle_timeout(now);
        self.arrived.pop_front().map(|(_, lane, packet)| (lane, packet))
    }

    /// When an event is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let arrived = self.arrived.front().map(|(at, ..)| *at);
        let links = self.links.iter().filter_map(Links::poll_timeout);
        links.chain(arrived).chain(self.channel.poll_timeout()).min()
    }

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

    /// A mobile announces a hand-off to the base station.
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

    /// Sends the frames of a station's link core, and takes its packets.
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
            if let LinkEvent::Deliver { from, packet } = event {
                let sent = lane_of(side, mobile, from);
                let lane = Lane { from: sent.from.other(), ..sent };
                self.arrived.push_back((now, lane, packet));
            }
        }
    }
}

/// The peer of the station that sends on `lane`.
fn far_peer(lane: Lane) -> Peer {
    match lane.from {
        Side::Base => mobile_peer(lane.mobile),
        Side::Mobile => base_peer(),
    }
}

/// The lane from a station to `peer`.
fn lane_of(side: Side, mobile: usize, peer: Peer) -> Lane {
    Lane { from: side, mobile: mobile_of(peer).unwrap_or(mobile) }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("base", &self.base.snapshot()).finish_non_exhaustive()
    }
}

impl Links {
    fn new(config: &remora_link::LinkConfig, seed: u64, mobiles: usize) -> Links {
        // A mobile's epoch must differ from the base's, so each station has its own seed.
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

    /// The core that sends on a lane, and its peer.
    fn station(&mut self, lane: Lane) -> (&mut Link, Peer) {
        (self.core(lane.from, lane.mobile), far_peer(lane))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.mobiles.iter().chain([&self.base]).filter_map(Link::poll_timeout).min()
    }
}
