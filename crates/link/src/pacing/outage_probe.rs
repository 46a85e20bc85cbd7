//! Probe intervals during an outage.

use std::time::Duration;

use crate::LinkConfig;

/// Longest interval as a fraction of the outage so far: 1/32,
const PART: u32 = 32;
/// or 1/8 while other destinations have data to send.
const PART_BUSY: u32 = 8;
/// In outages of more than a minute: 1/600, up to [`LONG_MAX`].
const LONG_PART: u32 = 600;
const LONG_MAX: Duration = Duration::from_secs(1);
/// Largest share of the airtime for the probes of one destination, or of all while other destinations have data to
/// send: 1/8.
const AIRTIME_PART: u32 = 8;

/// Airtime of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeAirtimes {
    /// A probe. While a destination has data to send, one probe to each silent destination.
    pub(crate) probe: Duration,
    /// Airtime of a full frame.
    pub(crate) frame: Duration,
}

/// An outage at the time of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// Its duration so far.
    pub(crate) silence: Duration,
    pub(crate) probes: u32,
    /// Acknowledgement delay before the outage.
    pub(crate) round_trip: Option<Duration>,
    /// Whether other destinations have data to send.
    pub(crate) busy: bool,
}

impl Outage {
    /// The interval to the next probe, where one takes `airtime` if the rate is known.
    pub(crate) fn gap(&self, airtime: Option<Duration>, config: &LinkConfig) -> Duration {
        let (first, part) = if self.busy { (config.rts_interval_busy, PART_BUSY) } else { (config.rts_interval, PART) };
        let first = first.max(airtime.unwrap_or_default() * AIRTIME_PART);
        let most = config.rts_interval_max.max((self.silence / LONG_PART).min(LONG_MAX)).max(first);
        let gap = (self.silence / part).clamp(first, most);
        if airtime.is_some() { gap } else { gap.max(self.careful_gap(config)) }
    }

    /// The shortest interval while the rate is unknown. It doubles with each probe up to the RTT, so that probes do
    /// not fill a slow hop before the first acknowledgement.
    fn careful_gap(&self, config: &LinkConfig) -> Duration {
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
    fn probe_interval_grows_slowly_with_outage() {
        let config = LinkConfig::default();
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
        // At 64 kbit/s probes leave room for other destinations.
        assert_eq!(outage(0, false).gap(Some(MS(7)), &config), MS(56));
    }

    #[test]
    fn probe_interval_with_unknown_rate_doubles_up_to_rtt() {
        let config = LinkConfig::default();
        let gap = |probes, round_trip| Outage { probes, round_trip, ..outage(0, false) }.gap(None, &config);
        assert_eq!(
            [0, 1, 2, 5, 9, 31, 32, u32::MAX].map(|n| gap(n, None)),
            [6, 12, 24, 192, 1000, 1000, 1000, 1000].map(MS)
        );
        assert_eq!([0, 1, 2, 9].map(|n| gap(n, Some(MS(20)))), [6, 12, 20, 20].map(MS));
        assert_eq!([0, 9].map(|n| gap(n, Some(MS(2)))), [6, 6].map(MS));
    }
}
