//! Conditions of a peer and of the network that are worth a notice, once they last.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use remora_base::Time;
use remora_link::{LinkConfig, PeerView};

use super::report::{ChannelState, LinkNotice};
use super::throttle::{NoticeThrottle, Topic};

/// The conditions of one peer.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::link) struct PeerConditions {
    pub(in crate::link) advice: Advice,
    pub(in crate::link) channel: LastingChannelState,
    pub(in crate::link) duplicate_key: DuplicateKeyDetector,
}

/// How long the window must be too short: a single acknowledgement may be late.
const LONG_FOR: Duration = Duration::from_secs(5);
/// Consecutive acknowledgements that report only losses of long frames. Chance does not produce as many where half of
/// the frames are lost.
const LOST_MIN: u64 = 24;

/// Advice from the counters of a hop: its BDP exceeds the window, or large datagrams are lost.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::link) struct Advice {
    /// When the window became too short.
    long_since: Option<Time>,
}

impl Advice {
    /// The notice about the hop to the peer `name`, if one is due.
    pub(in crate::link) fn notice(
        &mut self,
        now: Time,
        name: &str,
        view: &PeerView,
        config: &LinkConfig,
        throttle: &mut NoticeThrottle,
    ) -> Option<LinkNotice> {
        let peer = view.peer;
        if view.stats.long_lost >= LOST_MIN && throttle.admits(now, Topic::LargeFrames(peer)) {
            return Some(LinkNotice::LargeFramesLost { name: name.to_owned() });
        }
        let carried = view.round_trip.and_then(|trip| config.window_rate(trip));
        let Some(carried) = carried.filter(|carried| config.rate.is_some_and(|rate| rate.bits() > carried.bits()))
        else {
            self.long_since = None;
            return None;
        };
        let since = *self.long_since.get_or_insert(now);
        let is_due = now.since(since) >= LONG_FOR && throttle.admits(now, Topic::ShortWindow(peer));
        is_due.then(|| LinkNotice::ShortWindow { name: name.to_owned(), carried })
    }
}

/// How long a state must last to be reported.
const CHANNEL_LASTS: Duration = Duration::from_secs(1);

/// Selects the channel states to report: only those that last. During error bursts the state changes every second; the
/// counters show that.
#[derive(Clone, Copy, Debug)]
pub(in crate::link) struct LastingChannelState {
    told: ChannelState,
    is: ChannelState,
    since: Time,
}

impl Default for LastingChannelState {
    fn default() -> LastingChannelState {
        LastingChannelState { told: ChannelState::Good, is: ChannelState::Good, since: Time::ZERO }
    }
}

impl LastingChannelState {
    pub(in crate::link) fn changed(&mut self, now: Time, to: ChannelState) {
        (self.is, self.since) = (to, now);
    }

    /// The state to report now, if there is one.
    pub(in crate::link) fn news(&mut self, now: Time) -> Option<ChannelState> {
        let is_news = self.is != self.told && now.since(self.since) >= CHANNEL_LASTS;
        is_news.then(|| {
            self.told = self.is;
            self.is
        })
    }
}

/// Returns to the previous address ...
const RETURNS: u32 = 5;
/// ... within this time, more than a roaming mobile makes between two networks. Each of two mobiles with one key calls
/// about every 3 s.
const WITHIN: Duration = Duration::from_secs(30);

/// Detects two mobiles that use one key. The base takes them for one mobile that moves, and they cut each other off in
/// turn.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::link) struct DuplicateKeyDetector {
    last: Option<SocketAddr>,
    before: Option<SocketAddr>,
    since: Time,
    returns: u32,
}

impl DuplicateKeyDetector {
    /// Records a new address of the key. Returns the previous address if the change indicates a duplicate key.
    pub(in crate::link) fn moved(&mut self, now: Time, to: SocketAddr) -> Option<SocketAddr> {
        let is_return = self.before == Some(to);
        (self.before, self.last) = (self.last, Some(to));
        if now.since(self.since) > WITHIN {
            (self.since, self.returns) = (now, 0);
        }
        self.returns = self.returns.saturating_add(u32::from(is_return));
        if self.returns < RETURNS { None } else { self.before }
    }
}

/// Most peers remembered; of more, only the existence is known.
const UNREACHABLE_MAX: usize = 1024;

/// The peers to which the kernel currently rejects datagrams: a mobile between two networks, or one mobile of a base
/// whose others are reachable.
#[derive(Debug, Default)]
pub(in crate::link) struct UnreachablePeers {
    to: BTreeSet<SocketAddr>,
    /// Whether a failure is currently reported.
    is_told: bool,
}

impl UnreachablePeers {
    /// Records that a datagram to `to` was rejected; true if sending worked for all peers before.
    pub(in crate::link) fn failed(&mut self, to: SocketAddr) -> bool {
        if self.to.len() < UNREACHABLE_MAX {
            self.to.insert(to);
        }
        !std::mem::replace(&mut self.is_told, true)
    }

    /// Records that a datagram to `to` was sent; true if no current peer address (`is_end`) remains unreachable.
    pub(in crate::link) fn left(&mut self, to: SocketAddr, is_end: impl Fn(&SocketAddr) -> bool) -> bool {
        if !self.is_told {
            return false;
        }
        self.to.retain(|at| *at != to && is_end(at));
        self.is_told = !self.to.is_empty();
        !self.is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_base::{Peer, Rate};
    use remora_link::{PeerState, PeerStats};

    /// Times (s) and texts of the notices in twenty minutes, with an acknowledgement delay of `trip` ms from `from` s
    /// on, and `long_lost` losses of long frames.
    fn advice_of(mbit: u64, trip: u64, from: u64, long_lost: u64) -> Vec<(u64, String)> {
        let config = LinkConfig { rate: Some(Rate::mbit(mbit)), ..LinkConfig::default() };
        let (mut advice, mut throttle) = (Advice::default(), NoticeThrottle::default());
        let said = (0..1200).filter_map(|second| {
            let view = PeerView {
                peer: Peer::datagram(([10, 0, 0, 2], 0).into()),
                state: PeerState::Good,
                queue_packets: 0,
                queue_bytes: 0,
                unacknowledged: 0,
                held: 0,
                round_trip: (second >= from).then_some(Duration::from_millis(trip)),
                stats: PeerStats { long_lost, ..PeerStats::default() },
            };
            let notice = advice.notice(Time::from_secs(second), "the base", &view, &config, &mut throttle)?;
            Some((second, notice.to_string()))
        });
        said.collect()
    }

    #[test]
    fn bdp_above_window_is_reported_late_and_seldom() {
        let said = advice_of(100, 600, 10, 0);
        assert_eq!(said.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [15, 615]);
        assert!(said[0].1.contains("40.5 Mbit/s"), "{}", said[0].1);
        assert_eq!(advice_of(100, 600, 1196, 0), [], "not for a moment");
        assert_eq!(advice_of(30, 600, 10, 0), []);
    }

    #[test]
    fn lost_large_frames_are_reported() {
        let said = advice_of(1, 10, 0, 24);
        assert_eq!(said.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0, 600]);
        assert!(said[0].1.contains("--mtu 1280"), "{}", said[0].1);
        assert_eq!(advice_of(1, 10, 0, 23), []);
    }

    #[test]
    fn lasting_state_is_reported_once() {
        use ChannelState::{Good, Suspect};
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut notices = LastingChannelState::default();
        assert_eq!(notices.news(at(5000)), None);
        for burst in 0..100 {
            notices.changed(at(6000 + burst * 1000), Suspect);
            assert_eq!(notices.news(at(6250 + burst * 1000)), None);
            notices.changed(at(6300 + burst * 1000), Good);
            assert_eq!(notices.news(at(6500 + burst * 1000)), None, "nothing was told of it");
        }
        notices.changed(at(200_000), Suspect);
        assert_eq!([200_999, 201_000, 205_000].map(|ms| notices.news(at(ms))), [None, Some(Suspect), None]);
        notices.changed(at(206_000), Good);
        notices.changed(at(206_500), Suspect);
        assert_eq!(notices.news(at(210_000)), None, "as it was told");
        notices.changed(at(211_000), Good);
        assert_eq!([211_999, 212_000].map(|ms| notices.news(at(ms))), [None, Some(Good)]);
    }

    /// Moves to the next of `places` addresses every `seconds` for ten minutes; returns the number of reports and the
    /// time of the first.
    fn reports_of_moves(seconds: u64, places: u16) -> (usize, Option<u64>) {
        let (mut detector, mut throttle) = (DuplicateKeyDetector::default(), NoticeThrottle::default());
        let peer = Peer::datagram(([10, 0, 0, 2], 0).into());
        let moves = (0..600 / seconds).map(|i| (i * seconds, i));
        let at = |i: u64| SocketAddr::from(([192, 0, 2, 1], 1 + (i % u64::from(places)) as u16));
        let is_reported = |(s, i)| {
            let now = Time::from_secs(s);
            (detector.moved(now, at(i)).is_some() && throttle.admits(now, Topic::DuplicateKey(peer))).then_some(s)
        };
        let reported: Vec<u64> = moves.filter_map(is_reported).collect();
        (reported.len(), reported.first().copied())
    }

    #[test]
    fn duplicate_key_is_reported_and_roaming_is_not() {
        for (seconds, places, expected) in [
            (3, 2, (1, Some(18))),
            (10, 2, (0, None)),
            // A new port with each move, as behind some NATs.
            (1, 600, (0, None)),
        ] {
            assert_eq!(reports_of_moves(seconds, places), expected, "{places} places, {seconds} s each");
        }
    }

    #[test]
    fn unreachable_peer_is_reported_once() {
        let [a, b, c] = [1, 2, 3].map(|n| SocketAddr::from(([10, 0, 0, n], 7)));
        let mut unsent = UnreachablePeers::default();
        assert!(!unsent.left(a, |_| true), "nothing was amiss");
        assert!(unsent.failed(b));
        for _ in 0..9 {
            assert!(!unsent.left(a, |_| true) && !unsent.failed(b));
        }
        assert!(!unsent.failed(c) && !unsent.left(b, |_| true), "there is another");
        assert!(unsent.left(c, |_| true) && !unsent.left(c, |_| true));
        assert!(unsent.failed(b));
        assert!(unsent.left(a, |at| *at != b), "nobody is there any more");
        for n in 0..5000 {
            unsent.failed(SocketAddr::from(([10, 1, 0, 1], n)));
        }
        assert_eq!(unsent.to.len(), UNREACHABLE_MAX);
    }
}
