//! Clients' datagrams over the air, which carries packets: cut on one side, put together on the
//! other. Several clients may be on one mobile.

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
    /// What is incomplete at the base and at the mobile, for each mobile.
    joiners: Vec<[Joiner; 2]>,
    /// Frames that may wait in a mobile's device, where that is fewer than in the base station's.
    mobile_frames: Option<usize>,
}

impl Radio {
    /// A cell for `mobiles` mobiles (range: 1 to 64), with the link protocol if it is given.
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

    /// Has the mobiles' devices hold at most so many frames that wait; further ones are dropped.
    pub fn limit_mobiles(&mut self, frames: usize) {
        self.mobile_frames = Some(frames);
    }

    /// The channel below.
    pub fn channel(&self) -> &Channel {
        self.air.channel()
    }

    /// The air below.
    pub fn air(&self) -> &Air {
        &self.air
    }

    /// Sends a datagram between `client`, which is on the lane's mobile, and the server. Nothing
    /// comes of it if there is no such mobile.
    pub fn send(&mut self, now: Time, lane: Lane, client: usize, datagram: &Bytes) {
        if lane.mobile >= self.joiners.len() {
            return;
        }
        // As the client's socket marks it.
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

    /// The next datagram that has come through by `now`: where from, whose, and what.
    pub fn poll(&mut self, now: Time) -> Option<(Side, usize, Bytes)> {
        while let Some((lane, packet)) = self.air.poll(now) {
            let joiner = &mut self.joiners[lane.mobile][lane.from as usize];
            if let Some((client, datagram)) = joiner.take(&packet) {
                return Some((lane.from, client, datagram));
            }
        }
        None
    }

    /// When something is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.air.poll_timeout()
    }

    /// Lets the time be `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.air.handle_timeout(now);
    }

    /// Every mobile tells the base station of a cell switch.
    pub fn announce(&mut self, now: Time, phase: HandOffPhase) {
        (0..self.joiners.len()).for_each(|mobile| self.air.announce(now, mobile, phase));
    }
}
