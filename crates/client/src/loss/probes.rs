//! Probes, and whether a silence delays or loses what is sent in it.
//!
//! A link that loses packets in a bad period must be probed often, for everything sent meanwhile has to be
//! retransmitted, probes too. A link that holds packets and delivers them in order afterwards (link-level
//! retransmission, NFS/W 97, section 5.1, or a deep queue) needs no probes: each is held, too, and all of them and
//! their replies precede the data. The end of a silence shows which it is. If the first reply is to the oldest request,
//! nothing was lost; if it is to a later one, earlier ones were.
//!
//! Remora's link recognises probes by their mark ([`PROBE_DSCP`](remora_wire::urgency::PROBE_DSCP)) and keeps them for
//! [`PROBE_LIFETIME`] only, so a lost probe says nothing about what else it holds.
//!
//! A link that fragments long packets is assumed to hold packets. On such a link, and after a silence that lost
//! nothing, probes go out only after a while, each after twice the time of the one before, up to [`PROBE_MAX_PATIENT`].
//! After one loss they go out at the first pace again.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;
use remora_wire::urgency::PROBE_LIFETIME;

/// Longest time between probes: what is lost after the end of an outage.
pub(crate) const PROBE_MAX: Duration = Duration::from_millis(100);
/// Longest time between probes on a link that holds packets; short enough that the end of an outage is found within 0.3
/// s if the link has begun to lose.
const PROBE_MAX_PATIENT: Duration = Duration::from_millis(250);
/// Probes at that interval, some 2 s. In a longer outage a link would hold too many.
const PROBES_PATIENT: u32 = 10;
/// Interval after those: more than one in [`PROBE_LIFETIME`], and short enough that work goes on within 0.5 s of the
/// return of any link.
const PROBE_MAX_LATER: Duration = Duration::from_millis(400);
/// Probes at the first pace: longer than a burst of losses.
const PROBES_AT_FIRST_PACE: u32 = 24;
/// Probes without a reply, some 12 s, after which there are fewer: a link may hold those of the last 20 s, which
/// precede the data when it is back.
const PROBES_BEFORE_LONG: u32 = 128;
/// Interval then: this many times the first pace, within the limits below.
const LONG: u32 = 8;
const PROBE_LONG: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(500));
/// Probes remembered: more than a minute's. The first reply after a silence may be to any of them.
const PROBES_KEPT: usize = 512;
/// Silences in a row without a timely reply between them, after which the path counts as long.
const UNSETTLED_MAX: u32 = 3;
/// Time in first paces from which an overdue reply is a silence.
const SILENCE: u32 = 3;
/// Time in first paces before the first probe on a link that holds packets.
const PATIENCE: u32 = 8;

/// A reply, to a probe or a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// When its request was sent.
    pub(crate) sent: Time,
    /// No transmission whose fate was unknown was sent before it.
    pub(crate) is_oldest: bool,
    /// How long the reply to the oldest unanswered transmission was overdue.
    pub(crate) overdue: Duration,
}

/// A probe that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnsweredProbe {
    pub(crate) sent: Time,
    pub(crate) seq: u64,
    /// No earlier probe was lost.
    pub(crate) is_first: bool,
}

/// The latest reply.
#[derive(Clone, Copy, Debug)]
struct LastArrival {
    at: Time,
    /// When its request was sent.
    sent: Time,
}

/// The probes in flight, and the silences so far.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// Unanswered probes: xid, time of transmission, and sequence number.
    in_flight: VecDeque<(u32, Time, u64)>,
    last: Option<Time>,
    /// Probes since the last reply to a request.
    fruitless: u32,
    /// Probes since the last reply to anything.
    unheard: u32,
    heard: Option<LastArrival>,
    /// Silences delay and do not lose, as far as known.
    holds_packets: bool,
    /// When the last silence ended.
    resumed: Option<Time>,
    /// When the last hold ended, if the link kept what was in flight.
    kept_until: Option<Time>,
    /// Silences since the last timely reply: the path may have become long.
    unsettled: u32,
}

impl Probes {
    /// On a link that `holds` packets until it is seen to lose one.
    pub(crate) fn new(holds: bool) -> Probes {
        Probes { holds_packets: holds, ..Probes::default() }
    }

    /// Whether the link holds packets instead of losing them.
    pub(crate) fn holds_packets(&self) -> bool {
        self.holds_packets
    }

    /// When the last probe was sent.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// A probe was sent.
    pub(crate) fn on_sent(&mut self, now: Time, xid: u32, seq: u64) {
        if self.in_flight.len() == PROBES_KEPT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back((xid, now, seq));
        self.last = Some(now);
        self.fruitless = self.fruitless.saturating_add(1);
        self.unheard = self.unheard.saturating_add(1);
    }

    /// Takes the reply to a probe on a path with the minimum RTT `trip`. Earlier unanswered probes were lost, or a link
    /// dropped them as too old. `None` if no probe has this xid.
    pub(crate) fn on_reply(&mut self, now: Time, xid: u32, trip: Duration) -> Option<AnsweredProbe> {
        let i = self.in_flight.iter().position(|p| p.0 == xid)?;
        let (_, sent, seq) = self.in_flight.get(i).copied()?;
        let is_first = self.in_flight.drain(..=i).take(i).all(|(_, sent, _)| now.since(sent) >= PROBE_LIFETIME + trip);
        if !is_first {
            self.on_loss();
        }
        Some(AnsweredProbe { sent, seq, is_first })
    }

    /// A request was answered.
    pub(crate) fn on_real_reply(&mut self) {
        self.fruitless = 0;
    }

    /// A reply arrived. Returns whether it ended a silence that held back earlier requests.
    pub(crate) fn on_heard(&mut self, now: Time, heard: Arrival, pace: Duration) -> bool {
        let quiet = self.heard.is_none_or(|last| now.since(last.at) >= pace * SILENCE);
        self.heard = Some(LastArrival { at: now, sent: heard.sent });
        self.unheard = 0;
        if !quiet || heard.overdue < pace * SILENCE {
            if self.resumed.is_none_or(|t| heard.sent > t) {
                self.unsettled = 0;
            }
            return false;
        }
        if self.unsettled == UNSETTLED_MAX {
            return false;
        }
        if !heard.is_oldest && !self.holds_packets {
            self.on_loss();
            return false;
        }
        self.holds_packets = true;
        self.resumed = Some(now);
        self.unsettled += 1;
        true
    }

    /// Something was lost.
    pub(crate) fn on_loss(&mut self) {
        self.holds_packets = false;
    }

    /// A hold is over; `kept` if the link kept what was in flight.
    pub(crate) fn on_resume(&mut self, now: Time, kept: bool) {
        self.heard = Some(LastArrival { at: now, sent: now });
        self.kept_until = Some(now).filter(|_| kept);
    }

    /// When a transmission set out: at `sent`, or at the end of a hold through which the link kept it.
    pub(crate) fn kept(&self, sent: Time) -> Time {
        self.kept_until.map_or(sent, |end| end.max(sent))
    }

    /// Whether the latest reply came at `since` or later, and is to a transmission after `sent`.
    pub(crate) fn has_heard(&self, since: Time, sent: Time) -> bool {
        self.heard.is_some_and(|last| last.at >= since && last.sent > sent)
    }

    /// The end of a silence that held back a request sent at `sent`.
    pub(crate) fn held_until(&self, sent: Time) -> Option<Time> {
        self.resumed.filter(|t| sent <= *t)
    }

    /// When the next probe is due, if one is wanted at `at` even on a link that holds packets.
    pub(crate) fn due_once_at(&self, at: Time, pace: Duration) -> Time {
        if self.last.is_none_or(|last| last < at) { at } else { self.due_at(at, pace) }
    }

    /// When the next probe is due, if a reply is overdue since `overdue`.
    pub(crate) fn due_at(&self, overdue: Time, pace: Duration) -> Time {
        let (first, interval) = if self.holds_packets {
            let first = (pace * PATIENCE).min(PROBE_MAX_PATIENT);
            let most = if self.unheard < PROBES_PATIENT { PROBE_MAX_PATIENT } else { PROBE_MAX_LATER };
            (overdue + first, first.saturating_mul(1 << self.unheard.min(16)).min(most))
        } else {
            let growth = 1.25f64.powi(self.fruitless.saturating_sub(PROBES_AT_FIRST_PACE).min(64) as i32);
            let early = pace.mul_f64(growth).min(PROBE_MAX);
            let late = (pace * LONG).clamp(PROBE_LONG.0, PROBE_LONG.1);
            (overdue, if self.unheard < PROBES_BEFORE_LONG { early } else { late })
        };
        self.last.map_or(first, |last| first.max(last + interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Duration = Duration::from_millis(12);

    /// The reply, at `at_ms`, to a transmission `age_ms` earlier that is overdue for as long.
    fn hear(probes: &mut Probes, at_ms: u64, age_ms: u64, is_oldest: bool) -> bool {
        let overdue = Duration::from_millis(age_ms);
        let heard = Arrival { sent: Time::from_millis(at_ms - age_ms), is_oldest, overdue };
        probes.on_heard(Time::from_millis(at_ms), heard, PACE)
    }

    /// When the first `n` probes are sent, in milliseconds since the reply was due.
    fn schedule(probes: &mut Probes, n: u32) -> Vec<u64> {
        let due = Time::from_secs(100);
        let mut times = Vec::new();
        for xid in 0..n {
            let at = probes.due_at(due, PACE);
            probes.on_sent(at, xid, u64::from(xid));
            times.push(at.since(due).as_millis() as u64);
        }
        times
    }

    #[test]
    fn holding_link_is_probed_late_until_a_loss() {
        let mut probes = Probes::default();
        assert_eq!(schedule(&mut probes, 4), [0, 12, 24, 36]);
        let mut probes = Probes::default();
        let long = schedule(&mut probes, 200);
        assert_eq!((long[127] - long[126], long[128] - long[127], long[199] - long[198]), (100, 200, 200));
        let mut probes = Probes::default();
        assert!(hear(&mut probes, 1000, 200, true));
        let times = schedule(&mut probes, 14);
        assert_eq!(times[..6], [96, 288, 538, 788, 1038, 1288]);
        assert_eq!(times[13] - times[12], 400);
        probes.on_loss();
        assert!(!hear(&mut probes, 200_000, 200, false), "it lost something");
        assert!(!probes.holds_packets);
    }

    #[test]
    fn fragmenting_link_is_probed_late_until_a_loss() {
        let mut probes = Probes::new(true);
        assert_eq!(schedule(&mut probes, 3), [96, 288, 538]);
        let mut probes = Probes::new(true);
        probes.on_loss();
        assert_eq!(schedule(&mut probes, 3), [0, 12, 24]);
    }

    #[test]
    fn reply_proves_only_earlier_transmissions_lost() {
        let mut probes = Probes::default();
        let at = Time::from_millis;
        assert!(!probes.has_heard(Time::ZERO, Time::ZERO));
        hear(&mut probes, 1000, 200, true);
        for (since, sent, heard) in [(1000, 799, true), (1001, 799, false), (1000, 800, false), (900, 900, false)] {
            assert_eq!(probes.has_heard(at(since), at(sent)), heard, "{since} {sent}");
        }
    }

    #[test]
    fn timely_or_crowded_reply_ends_no_silence() {
        for (before, age) in [(990, 200), (500, 20)] {
            let mut probes = Probes::default();
            hear(&mut probes, before, 0, true);
            assert!(!hear(&mut probes, 1000, age, true) && !probes.holds_packets, "{before} {age}");
        }
    }

    #[test]
    fn path_that_became_long_is_not_a_silence_for_ever() {
        let mut probes = Probes::default();
        let ends =
            |probes: &mut Probes, from: u64| (0..9).filter(|i| hear(probes, from + 600 * i, 500, true)).count() as u32;
        assert_eq!(ends(&mut probes, 1000), UNSETTLED_MAX);
        hear(&mut probes, 20_000, 0, true);
        assert_eq!(ends(&mut probes, 30_000), UNSETTLED_MAX, "after something in time it may be one again");
    }

    #[test]
    fn passed_probe_is_lost_unless_a_link_dropped_it() {
        let (at, ms, trip) = (Time::from_millis, Duration::from_millis, Duration::from_millis(40));
        for (answered_at, held) in [(2100, false), (3039, false), (3040, true)] {
            let mut probes = Probes::default();
            hear(&mut probes, 1000, 200, true);
            (0..4).for_each(|xid| probes.on_sent(at(2000), xid, 10 + u64::from(xid)));
            let answered = |seq, is_first| Some(AnsweredProbe { sent: at(2000), seq, is_first });
            assert_eq!(probes.on_reply(at(2000) + ms(40), 0, trip), answered(10, true));
            assert!(probes.holds_packets);
            assert_eq!(probes.on_reply(at(answered_at), 2, trip), answered(12, held));
            assert_eq!(probes.holds_packets, held, "{answered_at}");
            assert!(probes.on_reply(at(answered_at), 1, trip).is_none());
            assert_eq!(probes.on_reply(at(answered_at), 3, trip), answered(13, true));
        }
    }
}
