//! What became of a run.

use std::time::Duration;

use remora_base::Time;
use remora_channel::{Config, Lane, SideStats};

use super::{Journal, Lateness, Setup};

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
