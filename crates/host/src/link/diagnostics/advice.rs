//! Advice from the counters of a hop: its BDP exceeds the window, or large datagrams are lost. Reported after the
//! condition has lasted, and seldom repeated.

use std::time::Duration;

use remora_base::Time;
use remora_link::{Config, PeerView};

use super::report::Notice;

/// How long the window must be too short: a single acknowledgement may be late.
const LONG_FOR: Duration = Duration::from_secs(5);
/// Consecutive acknowledgements that report only losses of long frames. Chance does not produce as many where half of
/// the frames are lost.
const LOST_MIN: u64 = 24;
/// Shortest time between two reports of one condition.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// The conditions of one hop.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::link) struct Advice {
    /// When the window became too short.
    long_since: Option<Time>,
    window: Told,
    large: Told,
}

/// Times of the latest reports.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    quiet_until: Time,
}

impl Told {
    /// Whether to report the condition now.
    fn take(&mut self, now: Time) -> bool {
        let is_due = now >= self.quiet_until;
        if is_due {
            self.quiet_until = now + TELL_EVERY;
        }
        is_due
    }
}

impl Advice {
    /// The notice about the hop to the peer `name`, if one is due.
    pub(in crate::link) fn notice(
        &mut self,
        now: Time,
        name: &str,
        view: &PeerView,
        config: &Config,
    ) -> Option<Notice> {
        if view.stats.long_lost >= LOST_MIN && self.large.take(now) {
            return Some(Notice::Large { name: name.to_owned() });
        }
        let carried = view.round_trip.and_then(|trip| config.window_rate(trip));
        let Some(carried) = carried.filter(|carried| config.rate.is_some_and(|rate| rate.bits() > carried.bits()))
        else {
            self.long_since = None;
            return None;
        };
        let since = *self.long_since.get_or_insert(now);
        let is_told = now.since(since) >= LONG_FOR && self.window.take(now);
        is_told.then(|| Notice::LongWay { name: name.to_owned(), carried })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_base::{Peer, Rate};
    use remora_link::{PeerStats, State};

    /// Times (s) and texts of the notices in twenty minutes, with an acknowledgement delay of `trip` ms from `from` s
    /// on, and `long_lost` losses of long frames.
    fn told(mbit: u64, trip: u64, from: u64, long_lost: u64) -> Vec<(u64, String)> {
        let config = Config { rate: Some(Rate::mbit(mbit)), ..Config::default() };
        let mut advice = Advice::default();
        let said = (0..1200).filter_map(|second| {
            let view = PeerView {
                peer: Peer::datagram(([10, 0, 0, 2], 0).into()),
                state: State::Good,
                queue_packets: 0,
                queue_bytes: 0,
                unacknowledged: 0,
                held: 0,
                round_trip: (second >= from).then_some(Duration::from_millis(trip)),
                stats: PeerStats { long_lost, ..PeerStats::default() },
            };
            let notice = advice.notice(Time::from_secs(second), "the base", &view, &config)?;
            Some((second, notice.to_string()))
        });
        said.collect()
    }

    #[test]
    fn bdp_above_window_is_reported_late_and_seldom() {
        let said = told(100, 600, 10, 0);
        assert_eq!(said.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [15, 615]);
        assert!(said[0].1.contains("40.5 Mbit/s"), "{}", said[0].1);
        assert_eq!(told(100, 600, 1196, 0), [], "not for a moment");
        assert_eq!(told(30, 600, 10, 0), []);
    }

    #[test]
    fn lost_large_frames_are_reported() {
        let said = told(1, 10, 0, 24);
        assert_eq!(said.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0, 600]);
        assert!(said[0].1.contains("--mtu 1280"), "{}", said[0].1);
        assert_eq!(told(1, 10, 0, 23), []);
    }
}
