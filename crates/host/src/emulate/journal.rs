//! What was offered to the channel and what it did with it, to be computed again.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, Config, ConfigError, FrameRecord, Lane};

/// A packet given to the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// When, in the channel's time.
    pub at: Time,
    /// From whom to whom.
    pub lane: Lane,
    /// Its length, IP header included.
    pub bytes: usize,
}

/// The first packets of a run and their fates.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Journal {
    /// The packets, in the order they were offered.
    pub offers: Vec<Offer>,
    /// Their fates, in the order they were met; without the packets' bytes.
    pub frames: Vec<FrameRecord>,
    /// Offers and fates that found no room.
    pub missed: u64,
    limit: usize,
}

impl Journal {
    pub(super) fn new(limit: usize) -> Journal {
        Journal { limit, ..Journal::default() }
    }

    pub(super) fn offer(&mut self, at: Time, lane: Lane, bytes: usize) {
        match self.offers.len() < self.limit {
            true => self.offers.push(Offer { at, lane, bytes }),
            false => self.missed += 1,
        }
    }

    pub(super) fn frame(&mut self, frame: FrameRecord) {
        match self.frames.len() < self.limit {
            true => self.frames.push(FrameRecord { packet: Bytes::new(), ..frame }),
            false => self.missed += 1,
        }
    }

    /// What a channel in virtual time does with the same offers: the same, if the emulator is
    /// true to its model and nothing was missed.
    pub fn replay(&self, config: &Config, seed: u64, mobiles: usize) -> Result<Vec<FrameRecord>, ConfigError> {
        let config = Config { trace_frames: self.offers.len().min(10_000_000), ..config.clone() };
        let mut channel = Channel::with_mobiles(config, seed, mobiles)?;
        for offer in &self.offers {
            channel.send_packet(offer.at, offer.lane, Bytes::from(vec![0; offer.bytes]));
        }
        // Later frames than these have not met their fate in the journal either.
        let last = self.frames.iter().map(|f| f.start).max().unwrap_or_default();
        channel.handle_timeout(last + Duration::from_nanos(1));
        let frames = std::iter::from_fn(|| channel.poll_trace());
        Ok(frames.take(self.frames.len()).map(|f| FrameRecord { packet: Bytes::new(), ..f }).collect())
    }
}
