//! The radio: clients' datagrams over the air, fragmented on one side and reassembled on the other.
//! A mobile may have several clients.

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, ConfigError, Lane, Side};
use remora_link::{Class, HandOffPhase};
use remora_wire::urgency::is_probe;

use super::air::Air;
use super::packets::{Cutter, Joiner};

/// A radio cell with a base station, behind which the server is, and mobiles.
#[derive(Debug)]
pub struct Radio {
    air: Air,
    cutter: Cutter,
    /// Incomplete datagrams at the base and at the mobile, for each mobile.
    joiners: Vec<[Joiner; 2]>,
    /// Capacity of a mobile's device queue in frames, if less than the base station's.
    mobile_frames: Option<usize>,
}

impl Radio {
    /// A cell with `mobiles` mobiles (range: 1 to 64), and the link protocol if given.
    pub fn new(
        config: remora_channel::Config,
        link: Option<&remora_link::Config>,
        seed: u64,
        mobiles: usize,
    ) -> Result<Radio, ConfigError> {
        let mtu = config.mtu;
        let air = Air::new(Channel::with_mobiles(config, seed, mobiles)?, mtu, link, seed);
        let joiners = (0..mobiles).map(|_| Default::default()).collect();
        Ok(Radio { air, cutter: Cutter::default(), joiners, mobile_frames: None })
    }

    /// Limits the mobiles' device queues to `frames` frames; further ones are dropped.
    pub fn limit_mobiles(&mut self, frames: usize) {
        self.mobile_frames = Some(frames);
    }

    pub fn channel(&self) -> &Channel {
        self.air.channel()
    }

    pub fn air(&self) -> &Air {
        &self.air
    }

    /// Sends a datagram between `client`, on the lane's mobile, and the server. Without that mobile
    /// it is lost.
    pub fn send(&mut self, now: Time, lane: Lane, client: usize, datagram: &Bytes) {
        if lane.mobile >= self.joiners.len() {
            return;
        }
        // The client's socket marks probes the same way.
        let class = if is_probe(datagram) { Class::Probe } else { Class::Default };
        for packet in self.cutter.cut(client, datagram, self.air.mtu()) {
            if lane.from == Side::Base || self.mobile_has_room(lane) {
                self.air.send(now, lane, client as u64, class, packet);
            }
        }
    }

    fn mobile_has_room(&self, lane: Lane) -> bool {
        self.mobile_frames.is_none_or(|frames| self.channel().queued_frames(lane) < frames)
    }

    /// The next datagram that arrived by `now`: sender's side, client, payload.
    pub fn poll(&mut self, now: Time) -> Option<(Side, usize, Bytes)> {
        while let Some((lane, packet)) = self.air.poll(now) {
            let joiner = &mut self.joiners[lane.mobile][lane.from as usize];
            if let Some((client, datagram)) = joiner.take(&packet) {
                return Some((lane.from, client, datagram));
            }
        }
        None
    }

    /// When an event is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.air.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.air.handle_timeout(now);
    }

    /// Every mobile announces a hand-off to the base station.
    pub fn announce(&mut self, now: Time, phase: HandOffPhase) {
        (0..self.joiners.len()).for_each(|mobile| self.air.announce(now, mobile, phase));
    }
}
