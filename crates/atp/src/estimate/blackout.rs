//! Blackout detection.
//!
//! After about a round-trip time without an expected answer, one small packet probes the peer. After three
//! unanswered packets, or a second such time, a blackout is declared. From then on probes of 70 bytes look for its
//! end.
//!
//! Frequent probes detect the end early, but a device may queue them all in front of the next urgent object. So the
//! two ends share the work. The end that last received objects has nothing to send: it probes every 40 ms for the
//! first half minute, then less often, down to once a second. The other end learns of the recovery from such a
//! probe, half a round trip earlier than from an answer to its own, and probes rarely. If both or neither received
//! objects, both probe often.
//!
//! An end with nothing in flight would not notice a blackout. So for a minute after the last object it probes at
//! doubling intervals.
//!
//! A probe of the peer proves only the direction from it. Packets sent on that evidence may be lost, so the next
//! such probe is accepted only after a growing pause.

use std::time::Duration;

use remora_base::Time;

use super::in_flight::InFlight;
use super::interface::{ACK_DELAY_MAX, Direction};

/// Assumed round-trip time before the first sample.
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(1000);
/// Acknowledgement delay of the receiver, and 10 ms for its timers.
const ACK_DELAY: Duration = ACK_DELAY_MAX.saturating_add(Duration::from_millis(10));
/// Cap on the transmission time in the timeout.
const AIRTIME_MAX: Duration = Duration::from_secs(1);
/// Unanswered packets that suffice for a blackout.
const UNANSWERED_MAX: u64 = 3;
/// Interval between probes: the duration of the blackout divided by this, within bounds.
const PROBE_SHARE: u32 = 800;
const PROBE_MIN: Duration = Duration::from_millis(40);
const PROBE_MAX: Duration = Duration::from_secs(1);
/// The same at the end that probes rarely: about twenty probes in half a minute.
const RARE_SHARE: u32 = 3;
const RARE_MAX: Duration = Duration::from_secs(5);
/// Age, at the start of a blackout, up to which an object counts for the choice of the probing end.
const LATELY: Duration = Duration::from_secs(64);
/// First and last interval of the probes on an idle path; each is twice the previous one.
const IDLE_PROBE_FIRST: Duration = Duration::from_secs(1);
const IDLE_PROBE_LAST: Duration = Duration::from_secs(32);
/// First pause after a tentative end that was not confirmed; doubles up to this many times.
const TENTATIVE_PAUSE: Duration = Duration::from_secs(1);
const TENTATIVE_MAX: u32 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Up,
    /// A probe is outstanding; a blackout is declared at `until`.
    Probed {
        until: Time,
    },
    /// No answer since `since`; the next probe is due at `probe`.
    Blackout {
        since: Time,
        probe: Time,
    },
}

/// The next probe on an idle path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IdleProbe {
    due: Time,
    pause: Duration,
}

/// Blackouts that ended on the evidence of a peer's probe, without an answer since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TentativeEnd {
    times: u32,
    /// When the next probe of the peer is accepted.
    next: Time,
}

/// Detects begin and end of blackouts.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlackoutDetector {
    stage: Stage,
    /// A probe is to be sent.
    probe_pending: bool,
    idle_probe: Option<IdleProbe>,
    tentative: Option<TentativeEnd>,
    /// When bytes of an object were last sent, since the peer's last answer.
    sent: Option<Time>,
    /// When bytes of an object were last sent before the peer's last answer.
    reached: Option<Time>,
    /// When bytes of an object were last received.
    got: Option<Time>,
}

/// Time to wait for an answer. `airtime` is the transmission time of a full packet.
fn silence_timeout(in_flight: &InFlight, airtime: Duration) -> Duration {
    let trip = in_flight.smoothed().unwrap_or(ROUND_TRIP_FIRST);
    trip + (in_flight.deviation() * 4).min(trip) + ACK_DELAY + (airtime * 2).min(AIRTIME_MAX)
}

impl IdleProbe {
    /// The probe after this one; `None` after the last.
    fn after(self) -> Option<IdleProbe> {
        let pause = self.pause * 2;
        (pause <= IDLE_PROBE_LAST).then_some(IdleProbe { due: self.due + pause, pause })
    }
}

impl BlackoutDetector {
    pub(super) fn new() -> BlackoutDetector {
        BlackoutDetector {
            stage: Stage::Up,
            probe_pending: false,
            idle_probe: None,
            tentative: None,
            sent: None,
            reached: None,
            got: None,
        }
    }

    /// The state without a blackout or suspicion.
    fn up(self) -> BlackoutDetector {
        BlackoutDetector { stage: Stage::Up, probe_pending: false, tentative: None, ..self }
    }

    /// Begin of the current blackout.
    pub(super) fn blackout_since(&self) -> Option<Time> {
        match self.stage {
            Stage::Blackout { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Records an answer of the peer; returns whether it ended a blackout.
    pub(super) fn heard(&mut self) -> bool {
        let was_gone = self.blackout_since().is_some();
        *self = self.up();
        self.reached = self.sent.take().or(self.reached);
        was_gone
    }

    /// Records a probe of the peer; returns whether it ended a blackout.
    pub(super) fn peer_probed(&mut self, now: Time) -> bool {
        let believed = self.blackout_since().is_some() && self.tentative.is_none_or(|tentative| tentative.next <= now);
        if believed {
            let times = self.tentative.map_or(0, |tentative| (tentative.times + 1).min(TENTATIVE_MAX));
            let tentative = TentativeEnd { times, next: now + TENTATIVE_PAUSE * (1 << times) };
            // The answer to a probe reveals the losses, which may otherwise fill the window.
            *self = BlackoutDetector { tentative: Some(tentative), probe_pending: true, ..self.up() };
        }
        believed
    }

    /// Whether the last blackout ended on a peer's probe, without an answer since.
    pub(super) fn is_tentative(&self) -> bool {
        self.tentative.is_some()
    }

    /// Records that bytes of an object were sent or received.
    pub(super) fn object_progress(&mut self, now: Time, way: Direction) {
        self.idle_probe = Some(IdleProbe { due: now + IDLE_PROBE_FIRST, pause: IDLE_PROBE_FIRST });
        match way {
            Direction::Out => self.sent = Some(now),
            Direction::In => self.got = Some(now),
        }
    }

    /// Interval to the next probe, in a blackout that began at `since`.
    fn probe_interval(&self, now: Time, since: Time) -> Duration {
        let lately = |at: Option<Time>| at.is_some_and(|at| since.since(at) <= LATELY);
        let is_probed_by_peer = lately(self.reached) && !lately(self.got);
        let (share, max) = if is_probed_by_peer { (RARE_SHARE, RARE_MAX) } else { (PROBE_SHARE, PROBE_MAX) };
        (now.since(since) / share).clamp(PROBE_MIN, max)
    }

    /// The time until which a missing answer may still be in flight, while no probe is outstanding.
    pub(super) fn answer_due(&self, in_flight: &InFlight, airtime: Duration) -> Option<Time> {
        let well = self.stage == Stage::Up;
        in_flight.waiting_since().filter(|_| well).map(|since| since + silence_timeout(in_flight, airtime))
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self, in_flight: &InFlight, airtime: Duration) -> Option<Time> {
        match self.stage {
            Stage::Up => match in_flight.waiting_since() {
                Some(since) => Some(since + silence_timeout(in_flight, airtime)),
                None => self.idle_probe.map(|idle_probe| idle_probe.due),
            },
            Stage::Probed { until } => Some(until),
            Stage::Blackout { probe, .. } => Some(probe),
        }
    }

    /// Runs the timer; returns whether a blackout was declared. Full packets have `mtu` bytes.
    pub(super) fn handle_timeout(&mut self, now: Time, in_flight: &InFlight, airtime: Duration, mtu: u64) -> bool {
        if self.poll_timeout(in_flight, airtime).is_none_or(|due| now < due) {
            return false;
        }
        self.probe_pending = true;
        let since = in_flight.heard_at();
        match self.stage {
            Stage::Up if in_flight.waiting_since().is_none() => {
                self.idle_probe = self.idle_probe.and_then(IdleProbe::after);
                self.stage = Stage::Probed { until: now + silence_timeout(in_flight, airtime) };
                false
            }
            Stage::Up if in_flight.unanswered() < UNANSWERED_MAX && in_flight.bytes() < UNANSWERED_MAX * mtu => {
                self.stage = Stage::Probed { until: now + silence_timeout(in_flight, airtime) };
                false
            }
            Stage::Up | Stage::Probed { .. } => {
                self.stage = Stage::Blackout { since, probe: now + PROBE_MIN };
                true
            }
            Stage::Blackout { since, .. } => {
                self.stage = Stage::Blackout { since, probe: now + self.probe_interval(now, since) };
                false
            }
        }
    }

    /// Takes the pending probe.
    pub(super) fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probe_pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a steady round-trip time of 100 ms.
    fn in_flight() -> InFlight {
        let mut f = InFlight::new(Time::ZERO);
        for i in 0..100 {
            f.sent(Time::from_millis(10 * i), 100);
            f.acknowledged(Time::from_millis(10 * i + 100), Time::from_millis(10 * i), 100);
        }
        f
    }

    #[test]
    fn blackout_is_declared_after_a_round_trip_of_silence() {
        for (packets, latest_ms) in [(5, 150), (1, 300)] {
            let (mut f, mut s, start) = (in_flight(), BlackoutDetector::new(), Time::from_secs(2));
            (0..packets).for_each(|_| f.sent(start, 100));
            let mut now = start;
            while s.blackout_since().is_none() {
                now = s.poll_timeout(&f, Duration::from_millis(2)).unwrap();
                s.handle_timeout(now, &f, Duration::from_millis(2), 1000);
                assert!(s.take_probe() && !s.take_probe(), "every step asks once");
            }
            let took = now.since(start).as_millis();
            assert!((100..=latest_ms).contains(&took), "{packets} packets: {took} ms");
            assert!(s.heard() && s.blackout_since().is_none() && !s.heard());
        }
    }

    #[test]
    fn nothing_under_way_is_no_silence() {
        let s = BlackoutDetector::new();
        assert_eq!(s.poll_timeout(&in_flight(), Duration::ZERO), None);
    }

    #[test]
    fn a_link_on_which_nothing_moves_any_more_is_asked_for_a_minute() {
        let (f, mut s, mut asked) = (in_flight(), BlackoutDetector::new(), Vec::new());
        s.object_progress(Time::ZERO, Direction::In);
        while let Some(now) = s.poll_timeout(&f, Duration::ZERO) {
            s.handle_timeout(now, &f, Duration::ZERO, 1000);
            asked.push(now.since(Time::ZERO).as_secs());
            assert!(s.take_probe() && !s.heard());
        }
        assert_eq!(asked, [1, 3, 7, 15, 31, 63]);
        s.object_progress(Time::from_secs(100), Direction::Out);
        let now = Time::from_secs(101);
        assert_eq!(s.poll_timeout(&f, Duration::ZERO), Some(now));
        s.handle_timeout(now, &f, Duration::ZERO, 1000);
        let gone = s.poll_timeout(&f, Duration::ZERO).unwrap();
        assert!(s.handle_timeout(gone, &f, Duration::ZERO, 1000), "not answered");
        assert!(gone.since(now) < Duration::from_millis(150));
    }

    #[test]
    fn peer_probe_ends_blackout_with_growing_pauses() {
        let (mut f, mut s) = (in_flight(), BlackoutDetector::new());
        let mut believed = Vec::new();
        for ms in (2_000..60_000).step_by(50) {
            let now = Time::from_millis(ms);
            f.sent(now, 100);
            s.handle_timeout(now, &f, Duration::ZERO, 1000);
            if s.peer_probed(now) {
                f.heard(now);
                believed.push(ms);
            }
        }
        let pauses: Vec<u64> = believed.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000], "{believed:?}");
        s.heard();
        assert!(!s.peer_probed(Time::from_secs(70)), "there is no blackout");
    }

    #[test]
    fn who_sent_objects_probes_seldom_unless_it_got_some_too() {
        let (sent, got) = (Some(Direction::Out), Some(Direction::In));
        for (one, other, most) in [(sent, None, 25), (sent, got, 800), (got, None, 800), (None, None, 800)] {
            let (mut f, mut s, start) = (in_flight(), BlackoutDetector::new(), Time::from_secs(2));
            one.into_iter().chain(other).for_each(|way| s.object_progress(Time::from_millis(900), way));
            s.heard();
            // These packets are lost.
            s.object_progress(start, Direction::Out);
            (0..5).for_each(|_| f.sent(start, 100));
            let mut probes = 0;
            while let Some(now) = s.poll_timeout(&f, Duration::ZERO).filter(|at| *at < Time::from_secs(32)) {
                s.handle_timeout(now, &f, Duration::ZERO, 1000);
                probes += usize::from(s.take_probe());
            }
            assert!(probes <= most && probes > most / 2, "{one:?} {other:?}: {probes}");
        }
    }

    #[test]
    fn probes_get_rarer() {
        let (mut f, mut s, start) = (in_flight(), BlackoutDetector::new(), Time::from_secs(2));
        (0..5).for_each(|_| f.sent(start, 100));
        let mut times = Vec::new();
        while times.last().is_none_or(|t| *t < 1200.0) {
            let now = s.poll_timeout(&f, Duration::ZERO).unwrap();
            s.handle_timeout(now, &f, Duration::ZERO, 1000);
            times.push(now.since(start).as_secs_f64());
        }
        let gap_at = |t: f64| times.windows(2).find(|w| w[0] >= t).map(|w| w[1] - w[0]).unwrap();
        for (at, expected) in [(1.0, 0.04), (30.0, 0.04), (180.0, 0.226), (1000.0, 1.0)] {
            assert!((gap_at(at) - expected).abs() < 0.01, "at {at} s: {}", gap_at(at));
        }
    }
}
