//! When a silent destination is asked again.

use std::time::Duration;

use crate::Config;

/// The gap between probes is at most this part of the outage so far,
const PART: u32 = 32;
/// or this part of it while others wait for the medium.
const PART_BUSY: u32 = 8;
/// In an outage of more than a minute probes come more rarely: this part of it, up to a second.
const LONG_PART: u32 = 600;
const LONG_MAX: Duration = Duration::from_secs(1);
/// Probes to one destination, or to all while others wait for the medium, take at most one part in this of it.
const AIRTIME_PART: u32 = 8;

/// What frames take of the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Airtimes {
    /// A probe; with one to each other destination that is silent, if somebody waits for the medium.
    pub(crate) probe: Duration,
    /// A full frame.
    pub(crate) frame: Duration,
}

/// What is known when a probe goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// How long it has lasted.
    pub(crate) silence: Duration,
    /// Probes before.
    pub(crate) probes: u32,
    /// What answers took before it.
    pub(crate) round_trip: Option<Duration>,
    /// Whether others wait for the medium.
    pub(crate) busy: bool,
}

impl Outage {
    /// How long to the next probe, where one takes `airtime`, if that is known.
    pub(crate) fn gap(&self, airtime: Option<Duration>, config: &Config) -> Duration {
        let (first, part) = if self.busy { (config.rts_interval_busy, PART_BUSY) } else { (config.rts_interval, PART) };
        let first = first.max(airtime.unwrap_or_default() * AIRTIME_PART);
        let most = config.rts_interval_max.max((self.silence / LONG_PART).min(LONG_MAX)).max(first);
        let gap = (self.silence / part).clamp(first, most);
        if airtime.is_some() { gap } else { gap.max(self.careful_gap(config)) }
    }

    /// The least while nothing tells what probes take: on a slow hop they would fill it before the first is
    /// answered. More than one within a round trip helps nobody, so it grows no longer than that.
    fn careful_gap(&self, config: &Config) -> Duration {
        let doubled = config.rts_interval.saturating_mul(1u32.checked_shl(self.probes).unwrap_or(u32::MAX));
        doubled.min(self.round_trip.unwrap_or(LONG_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn outage(silence: u64, busy: bool) -> Outage {
        Outage { silence: MS(silence), probes: 9, round_trip: None, busy }
    }

    #[test]
    fn probes_become_rarer_but_find_the_end_of_half_a_minute_soon() {
        let config = Config::default();
        for (silence, busy, expected) in [
            (0, false, 6),
            (0, true, 64),
            (160, false, 6),
            (320, false, 10),
            (160, true, 64),
            (500, true, 64),
            (30_000, false, 100),
            (30_000, true, 100),
            (300_000, false, 500),
            (86_400_000, false, 1000),
        ] {
            let gap = outage(silence, busy).gap(Some(MS(1) / 2), &config);
            assert_eq!(gap, MS(expected), "{silence} ms, busy: {busy}");
        }
        // On a hop of 64 kbit/s probes leave room for others.
        assert_eq!(outage(0, false).gap(Some(MS(7)), &config), MS(56));
    }

    #[test]
    fn while_nothing_tells_what_they_take_they_double_their_gap_up_to_a_round_trip() {
        let config = Config::default();
        let gap = |probes, round_trip| Outage { probes, round_trip, ..outage(0, false) }.gap(None, &config);
        assert_eq!(
            [0, 1, 2, 5, 9, 31, 32, u32::MAX].map(|n| gap(n, None)),
            [6, 12, 24, 192, 1000, 1000, 1000, 1000].map(MS)
        );
        assert_eq!([0, 1, 2, 9].map(|n| gap(n, Some(MS(20)))), [6, 12, 20, 20].map(MS));
        assert_eq!([0, 9].map(|n| gap(n, Some(MS(2)))), [6, 6].map(MS));
    }
}
