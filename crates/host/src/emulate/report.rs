//! What became of a run.
//!
//! What was offered to the channel and what it did with it, to be computed again.
//!
//! How late things happened: counts by the microsecond, so that a run may last for days.

use super::setup::Setup;
use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, Config, ConfigError, FrameRecord, Lane, SideStats};
use std::time::Duration;

/// What one channel did, from its beginning to the report.
#[derive(Clone, Debug)]
pub struct Report {
    /// The channel's configuration.
    pub config: Config,
    /// Its seed.
    pub seed: u64,
    /// How many mobiles shared it.
    pub mobiles: usize,
    /// The congestion control of TCP in the stations.
    pub congestion: String,
    /// The channel's time at the report.
    pub until: Time,
    /// Each direction of each mobile: what was offered and what became of it.
    pub lanes: Vec<LaneReport>,
    /// Collisions, of a channel that has them.
    pub collisions: u64,
    /// How late deliveries were.
    pub lateness: Lateness,
    /// How late they may be in a valid run.
    pub lateness_max: Duration,
    /// Packets that no station is the destination of, and packets that are not IPv4.
    pub strays: u64,
    /// Packets that never came to the channel: their station sent them faster than the emulator took them from its
    /// device, and the kernel dropped them.
    pub overflowed: u64,
    /// Packets that came through and that the kernel did not take.
    pub refused: u64,
    /// Frames missing from the captures, since the emulator started: the disk was too slow, or full.
    pub captures_missed: u64,
    /// The first packets and their fates.
    pub journal: Journal,
}

/// One direction of one mobile.
#[derive(Clone, Debug)]
pub struct LaneReport {
    /// Which.
    pub lane: Lane,
    /// Its counters.
    pub stats: SideStats,
}

impl Report {
    pub(super) fn new(setup: &Setup, config: Config, seed: u64) -> Report {
        Report {
            config,
            seed,
            mobiles: setup.mobiles,
            congestion: setup.congestion.clone(),
            until: Time::ZERO,
            lanes: Vec::new(),
            collisions: 0,
            lateness: Lateness::default(),
            lateness_max: setup.lateness_max,
            strays: 0,
            overflowed: 0,
            refused: 0,
            captures_missed: 0,
            journal: Journal::default(),
        }
    }

    /// Whether the emulator kept its promises: every packet came to the channel, no delivery was too late,
    /// and every one was taken.
    pub fn valid(&self) -> bool {
        self.fault().is_none()
    }

    /// Which promise it did not keep.
    pub fn fault(&self) -> Option<String> {
        if self.lateness.max > self.lateness_max {
            let ms = self.lateness.max.as_secs_f64() * 1e3;
            return Some(format!("a frame was handed over {ms:.1} ms late"));
        }
        self.lost()
    }

    /// Which packets did not come to the channel, or not out of it.
    pub fn lost(&self) -> Option<String> {
        let counts = [(self.overflowed, "never came to the channel"), (self.refused, "were not taken by the kernel")];
        counts.into_iter().find(|(count, _)| *count > 0).map(|(count, what)| format!("{count} packets {what}"))
    }
}

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

/// Lateness beyond this shares the last count; its maximum is still exact.
const SCALE_US: usize = 20_000;

/// What was late by how much.
#[derive(Clone, Debug)]
pub(super) struct Latenesses {
    by_us: Vec<u64>,
    count: u64,
    max: Duration,
}

/// A summary of how late deliveries were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lateness {
    /// How many deliveries there were.
    pub count: u64,
    /// Half of them were no later (rounded up to a microsecond, at most 20 ms).
    pub p50: Duration,
    /// 99 of 100 were no later (likewise).
    pub p99: Duration,
    /// The latest.
    pub max: Duration,
}

impl Latenesses {
    pub(super) fn new() -> Latenesses {
        Latenesses { by_us: vec![0; SCALE_US + 1], count: 0, max: Duration::ZERO }
    }

    pub(super) fn add(&mut self, late: Duration) {
        let us = usize::try_from(late.as_nanos().div_ceil(1000)).unwrap_or(SCALE_US).min(SCALE_US);
        if let Some(count) = self.by_us.get_mut(us) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(late);
    }

    pub(super) fn summary(&self) -> Lateness {
        Lateness { count: self.count, p50: self.quantile(50), p99: self.quantile(99), max: self.max }
    }

    /// The least lateness that `percent` of all do not exceed.
    fn quantile(&self, percent: u64) -> Duration {
        let wanted = u128::from(self.count) * u128::from(percent);
        let mut seen = 0u128;
        for (us, n) in (0u64..).zip(&self.by_us) {
            seen += u128::from(*n);
            if seen * 100 >= wanted {
                return Duration::from_micros(us).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut all = Latenesses::new();
        assert_eq!(all.summary(), Lateness::default());
        for us in (1..=200).rev() {
            all.add(Duration::from_micros(us));
        }
        let us = Duration::from_micros;
        assert_eq!(all.summary(), Lateness { count: 200, p50: us(100), p99: us(198), max: us(200) });
    }

    #[test]
    fn the_maximum_is_exact_however_large() {
        let mut all = Latenesses::new();
        all.add(Duration::from_nanos(1_500_000_001));
        assert_eq!(all.summary().max, Duration::from_nanos(1_500_000_001));
        assert_eq!(all.summary().p50, Duration::from_millis(20));
    }
}
