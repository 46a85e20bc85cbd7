//! What the figures of an end tell of its hop that nothing else does: that the way is longer than the window, and
//! that large datagrams do not arrive. Told when it has been so for a while, and seldom again.

use std::time::Duration;

use remora_base::Time;
use remora_link::{Config, PeerView};

use super::report::Notice;

/// For so long the way is to have been too long: an answer may be late for once.
const LONG_FOR: Duration = Duration::from_secs(5);
/// So many answers in a row tell of long frames lost and of none that arrived: chance does not, where half are lost.
const LOST_MIN: u64 = 24;
/// It is told again after this.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// What is known of one hop.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Advice {
    /// Since when the way has been too long.
    long_since: Option<Time>,
    window: Told,
    large: Told,
}

/// When something was told.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    quiet_until: Time,
}

impl Told {
    /// Whether to tell it now.
    fn take(&mut self, now: Time) -> bool {
        let is_due = now >= self.quiet_until;
        if is_due {
            self.quiet_until = now + TELL_EVERY;
        }
        is_due
    }
}

impl Advice {
    /// What is to be said of the hop to the end called `name`.
    pub(super) fn notice(&mut self, now: Time, name: &str, view: &PeerView, config: &Config) -> Option<Notice> {
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

    /// When (s) something was said in twenty minutes, where answers take `trip` ms from `from` s on and `long_lost` of
    /// them have told of lost frames.
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
    fn a_way_longer_than_the_window_is_told_after_a_while_and_seldom() {
        let said = told(100, 600, 10, 0);
        assert_eq!(said.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [15, 615]);
        assert!(said[0].1.contains("40.5 Mbit/s"), "{}", said[0].1);
        assert_eq!(told(100, 600, 1196, 0), [], "not for a moment");
        assert_eq!(told(30, 600, 10, 0), []);
    }

    #[test]
    fn large_frames_that_do_not_arrive_are_told() {
        let said = told(1, 10, 0, 24);
        assert_eq!(said.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0, 600]);
        assert!(said[0].1.contains("--mtu 1280"), "{}", said[0].1);
        assert_eq!(told(1, 10, 0, 23), []);
    }
}
