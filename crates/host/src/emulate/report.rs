//! Report of a channel, its journal for replay, and the lateness of its deliveries.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, Config, ConfigError, FrameRecord, Lane, SideStats};

use super::setup::EmulationSetup;

/// Results of one channel, from its start to the report.
#[derive(Clone, Debug)]
pub struct EmulationReport {
    pub config: Config,
    pub seed: u64,
    pub mobiles: usize,
    /// TCP congestion control of the stations.
    pub congestion: String,
    /// The channel's time of the report.
    pub until: Time,
    /// Traffic and fates of each direction of each mobile.
    pub lanes: Vec<LaneReport>,
    /// Collisions, if the channel has them.
    pub collisions: u64,
    pub lateness: Lateness,
    /// Maximum lateness of a valid run.
    pub lateness_max: Duration,
    /// Packets that are not IPv4 or without a destination station.
    pub strays: u64,
    /// Packets that the kernel dropped before the channel, because the station sent them too fast.
    pub overflowed: u64,
    /// Packets delivered by the channel that the kernel refused.
    pub refused: u64,
    /// Frames missing in the captures since the emulator started: the disk was slow or full.
    pub captures_missed: u64,
    /// The first packets and their fates.
    pub journal: Journal,
}

/// One direction of one mobile.
#[derive(Clone, Debug)]
pub struct LaneReport {
    pub lane: Lane,
    pub stats: SideStats,
}

impl EmulationReport {
    pub(super) fn new(setup: &EmulationSetup, config: Config, seed: u64) -> EmulationReport {
        EmulationReport {
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

    /// Whether all packets reached the channel, no delivery was too late, and the kernel accepted each.
    pub fn valid(&self) -> bool {
        self.fault().is_none()
    }

    /// The condition that the run violates.
    pub fn fault(&self) -> Option<String> {
        if self.lateness.max > self.lateness_max {
            let ms = self.lateness.max.as_secs_f64() * 1e3;
            return Some(format!("a frame was handed over {ms:.1} ms late"));
        }
        self.lost()
    }

    /// The packets that did not reach the channel, or the kernel.
    pub fn lost(&self) -> Option<String> {
        let counts = [(self.overflowed, "never came to the channel"), (self.refused, "were not taken by the kernel")];
        counts.into_iter().find(|(count, _)| *count > 0).map(|(count, what)| format!("{count} packets {what}"))
    }
}

/// A packet given to the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The channel's time.
    pub at: Time,
    pub lane: Lane,
    /// Length, including the IP header.
    pub bytes: usize,
}

/// The first packets of a run and their fates.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Journal {
    /// Packets in the order in which they were offered.
    pub offers: Vec<Offer>,
    /// Fates in order, without the bytes.
    pub frames: Vec<FrameRecord>,
    /// Packets and fates beyond the journal's size.
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

    /// Computes the fates of the same offers in virtual time. They are equal if the emulator is exact and nothing
    /// was missed.
    pub fn replay(&self, config: &Config, seed: u64, mobiles: usize) -> Result<Vec<FrameRecord>, ConfigError> {
        let config = Config { trace_frames: self.offers.len().min(10_000_000), ..config.clone() };
        let mut channel = Channel::with_mobiles(config, seed, mobiles)?;
        for offer in &self.offers {
            channel.send_packet(offer.at, offer.lane, Bytes::from(vec![0; offer.bytes]));
        }
        // Later frames have no fate in the journal yet.
        let last = self.frames.iter().map(|f| f.start).max().unwrap_or_default();
        channel.handle_timeout(last + Duration::from_nanos(1));
        let frames = std::iter::from_fn(|| channel.poll_trace());
        Ok(frames.take(self.frames.len()).map(|f| FrameRecord { packet: Bytes::new(), ..f }).collect())
    }
}

/// Lateness beyond this shares the last count; the maximum stays exact.
const SCALE_US: usize = 20_000;

/// Histogram of lateness, in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Latenesses {
    by_us: Vec<u64>,
    count: u64,
    max: Duration,
}

/// Lateness of deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lateness {
    /// Number of deliveries.
    pub count: u64,
    /// Median, rounded up to a microsecond; at most 20 ms.
    pub p50: Duration,
    /// 99th percentile, likewise.
    pub p99: Duration,
    /// The maximum lateness.
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
    fn maximum_lateness_is_exact() {
        let mut all = Latenesses::new();
        all.add(Duration::from_nanos(1_500_000_001));
        assert_eq!(all.summary().max, Duration::from_nanos(1_500_000_001));
        assert_eq!(all.summary().p50, Duration::from_millis(20));
    }
}
