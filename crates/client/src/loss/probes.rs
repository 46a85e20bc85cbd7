//! Probes, and what silences turn out to be.
//!
//! A link that loses what is sent in a bad period must be asked often whether it is back, for
//! everything sent meanwhile has to be sent again, probes too. A link that holds it and
//! delivers it in order afterwards (link-level retransmission, NFS/W 97, section 5.1, or a deep
//! queue) need not be asked at all: each probe only joins what is held, and all of them and their
//! answers go before the data. Which it is shows at a silence's end. If the first answer is
//! that to the oldest request, nothing was lost; if it is to a later one, what came before is.
//!
//! Remora's link knows probes by their mark ([`PROBE_DSCP`](remora_wire::urgency::PROBE_DSCP)) and keeps them for
//! [`PROBE_LIFETIME`] only, so what it drops of them says nothing of what else it holds.
//!
//! A link that cuts long packets up is taken for one that holds from the start. There, and after a silence of the first
//! kind, probes go out only when one has lasted, and each after
//! twice the time of the one before, up to [`PROBE_MAX_PATIENT`]. One loss, and they go out at the
//! first pace again.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;
use remora_wire::urgency::PROBE_LIFETIME;

/// The longest time between probes: what is lost after the end of an outage.
pub(crate) const PROBE_MAX: Duration = Duration::from_millis(100);
/// The same on a link that holds what it cannot deliver; short enough that one that has begun to
/// lose is found to be back within 0.3 s,
const PROBE_MAX_PATIENT: Duration = Duration::from_millis(250);
/// for so many probes, some 2 s. In a longer outage a link holds too many,
const PROBES_PATIENT: u32 = 10;
/// and there are fewer, but more than one in [`PROBE_LIFETIME`].
const PROBE_MAX_LATER: Duration = Duration::from_millis(750);
/// How many probes go out at the first pace: longer than a burst lasts.
const PROBES_AT_FIRST_PACE: u32 = 24;
/// After so many without an answer, some 12 s, there are fewer: a link that was to retransmit may
/// hold those of the last 20 s, and all of them go before the data when it is back.
const PROBES_BEFORE_LONG: u32 = 128;
/// The time between probes then: so many times the first pace, but between these.
const LONG: u32 = 8;
const PROBE_LONG: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(500));
/// Probes remembered: those of more than a minute. The first answer after a silence, to whichever of
/// them, must be known for what it is.
const PROBES_KEPT: usize = 512;
/// Silences in a row, with nothing answered in time between them, after which that is taken
/// for the path's way.
const UNSETTLED_MAX: u32 = 3;
/// How long the oldest answer is overdue before that is a silence, in times of the first pace,
const SILENCE: u32 = 3;
/// and before the first probe goes out on a link that holds.
const PATIENCE: u32 = 8;

/// An answer, to a probe or a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// When that was sent.
    pub(crate) sent: Time,
    /// Nothing that was sent before it is unanswered, as far as that was not known already.
    pub(crate) is_oldest: bool,
    /// How long the oldest answer was overdue.
    pub(crate) overdue: Duration,
}

/// A probe that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnsweredProbe {
    /// When it was sent.
    pub(crate) sent: Time,
    pub(crate) seq: u64,
    /// No probe before it was lost.
    pub(crate) is_first: bool,
}

/// The latest answer.
#[derive(Clone, Copy, Debug)]
struct LastArrival {
    at: Time,
    /// When what it answers was sent.
    sent: Time,
}

/// The probes on their way, and the silences so far.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// Unanswered: xid, when it was sent, and its place among all that was sent.
    flying: VecDeque<(u32, Time, u64)>,
    last: Option<Time>,
    /// Since the last real reply.
    fruitless: u32,
    /// Since anything was heard.
    unheard: u32,
    heard: Option<LastArrival>,
    /// Silences delay what is sent in them and lose nothing, as far as seen.
    is_patient: bool,
    /// When the last of them ended.
    resumed: Option<Time>,
    /// When the last silence by agreement ended, if the link kept what was under way.
    kept_until: Option<Time>,
    /// Silences after which nothing was answered in time yet: perhaps the path has become long.
    unsettled: u32,
}

impl Probes {
    /// On a link that is taken to keep what it cannot deliver if it `holds`, until it is seen to lose something.
    pub(crate) fn new(holds: bool) -> Probes {
        Probes { is_patient: holds, ..Probes::default() }
    }

    /// Whether the link was seen to keep what it cannot deliver, and nothing was lost since.
    pub(crate) fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// When the last probe was sent.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// Remembers that a probe was sent.
    pub(crate) fn on_sent(&mut self, now: Time, xid: u32, seq: u64) {
        if self.flying.len() == PROBES_KEPT {
            self.flying.pop_front();
        }
        self.flying.push_back((xid, now, seq));
        self.last = Some(now);
        self.fruitless = self.fruitless.saturating_add(1);
        self.unheard = self.unheard.saturating_add(1);
    }

    /// Takes the reply to a probe: when that was sent, its place, and whether none before it was lost.
    /// The unanswered ones were, or a link had no use for them any more, on which a round trip takes `trip`.
    /// `None` if there was none with this xid.
    pub(crate) fn on_reply(&mut self, now: Time, xid: u32, trip: Duration) -> Option<AnsweredProbe> {
        let i = self.flying.iter().position(|p| p.0 == xid)?;
        let (_, sent, seq) = self.flying.get(i).copied()?;
        let is_first = self.flying.drain(..=i).take(i).all(|(_, sent, _)| now.since(sent) >= PROBE_LIFETIME + trip);
        if !is_first {
            self.on_loss();
        }
        Some(AnsweredProbe { sent, seq, is_first })
    }

    /// A request was answered.
    pub(crate) fn on_real_reply(&mut self) {
        self.fruitless = 0;
    }

    /// Something was heard. Says whether a silence ended with it that held back what was sent
    /// before its end.
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
        if !heard.is_oldest && !self.is_patient {
            self.on_loss();
            return false;
        }
        self.is_patient = true;
        self.resumed = Some(now);
        self.unsettled += 1;
        true
    }

    /// Something was lost.
    pub(crate) fn on_loss(&mut self) {
        self.is_patient = false;
    }

    /// A silence by agreement is over; `kept` if the link has kept what was under way.
    pub(crate) fn on_resume(&mut self, now: Time, kept: bool) {
        self.heard = Some(LastArrival { at: now, sent: now });
        self.kept_until = Some(now).filter(|_| kept);
    }

    /// When what was sent at `sent` set out, as far as that can be known: at the end of a silence
    /// by agreement if the link kept it until then.
    pub(crate) fn kept(&self, sent: Time) -> Time {
        self.kept_until.map_or(sent, |end| end.max(sent))
    }

    /// Whether the latest answer came at `since` or later, and is one to something sent after `sent`.
    pub(crate) fn has_heard(&self, since: Time, sent: Time) -> bool {
        self.heard.is_some_and(|last| last.at >= since && last.sent > sent)
    }

    /// The end of a silence that held back what was sent at `sent`, if one did.
    pub(crate) fn held_until(&self, sent: Time) -> Option<Time> {
        self.resumed.filter(|t| sent <= *t)
    }

    /// When the next probe is due, if one is wanted at `at`, however patient one is; further ones are sent as always.
    pub(crate) fn due_once_at(&self, at: Time, pace: Duration) -> Time {
        if self.last.is_none_or(|last| last < at) { at } else { self.due_at(at, pace) }
    }

    /// When the next probe is due, if an answer is overdue since `overdue`.
    pub(crate) fn due_at(&self, overdue: Time, pace: Duration) -> Time {
        let (first, interval) = if self.is_patient {
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

    /// The answer, at `at_ms`, to something sent `age_ms` before and overdue for as long.
    fn hear(probes: &mut Probes, at_ms: u64, age_ms: u64, is_oldest: bool) -> bool {
        let overdue = Duration::from_millis(age_ms);
        let heard = Arrival { sent: Time::from_millis(at_ms - age_ms), is_oldest, overdue };
        probes.on_heard(Time::from_millis(at_ms), heard, PACE)
    }

    /// When the first `n` probes go out, in milliseconds since the answer was due.
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
    fn a_silence_that_delayed_makes_patient_and_a_loss_does_away_with_that() {
        let mut probes = Probes::default();
        assert_eq!(schedule(&mut probes, 4), [0, 12, 24, 36]);
        let mut probes = Probes::default();
        let long = schedule(&mut probes, 200);
        assert_eq!((long[127] - long[126], long[128] - long[127], long[199] - long[198]), (100, 200, 200));
        let mut probes = Probes::default();
        assert!(hear(&mut probes, 1000, 200, true));
        let times = schedule(&mut probes, 14);
        assert_eq!(times[..6], [96, 288, 538, 788, 1038, 1288]);
        assert_eq!(times[13] - times[12], 750);
        probes.on_loss();
        assert!(!hear(&mut probes, 200_000, 200, false), "it lost something");
        assert!(!probes.is_patient);
    }

    #[test]
    fn a_link_that_is_taken_to_hold_is_asked_late_from_the_start_until_it_loses_something() {
        let mut probes = Probes::new(true);
        assert_eq!(schedule(&mut probes, 3), [96, 288, 538]);
        let mut probes = Probes::new(true);
        probes.on_loss();
        assert_eq!(schedule(&mut probes, 3), [0, 12, 24]);
    }

    #[test]
    fn of_what_was_sent_before_it_alone_an_answer_tells_that_it_is_lost() {
        let mut probes = Probes::default();
        let at = Time::from_millis;
        assert!(!probes.has_heard(Time::ZERO, Time::ZERO));
        hear(&mut probes, 1000, 200, true);
        for (since, sent, heard) in [(1000, 799, true), (1001, 799, false), (1000, 800, false), (900, 900, false)] {
            assert_eq!(probes.has_heard(at(since), at(sent)), heard, "{since} {sent}");
        }
    }

    #[test]
    fn what_is_answered_in_time_or_in_a_crowd_is_no_silence() {
        for (before, age) in [(990, 200), (500, 20)] {
            let mut probes = Probes::default();
            hear(&mut probes, before, 0, true);
            assert!(!hear(&mut probes, 1000, age, true) && !probes.is_patient, "{before} {age}");
        }
    }

    #[test]
    fn a_path_that_has_become_long_is_no_silence_for_ever() {
        let mut probes = Probes::default();
        let ends =
            |probes: &mut Probes, from: u64| (0..9).filter(|i| hear(probes, from + 600 * i, 500, true)).count() as u32;
        assert_eq!(ends(&mut probes, 1000), UNSETTLED_MAX);
        hear(&mut probes, 20_000, 0, true);
        assert_eq!(ends(&mut probes, 30_000), UNSETTLED_MAX, "after something in time it may be one again");
    }

    #[test]
    fn a_probe_passed_by_a_later_one_is_a_loss_but_for_one_that_a_link_may_have_dropped() {
        let (at, ms, trip) = (Time::from_millis, Duration::from_millis, Duration::from_millis(40));
        for (answered_at, held) in [(2100, false), (3039, false), (3040, true)] {
            let mut probes = Probes::default();
            hear(&mut probes, 1000, 200, true);
            (0..4).for_each(|xid| probes.on_sent(at(2000), xid, 10 + u64::from(xid)));
            let answered = |seq, is_first| Some(AnsweredProbe { sent: at(2000), seq, is_first });
            assert_eq!(probes.on_reply(at(2000) + ms(40), 0, trip), answered(10, true));
            assert!(probes.is_patient);
            assert_eq!(probes.on_reply(at(answered_at), 2, trip), answered(12, held));
            assert_eq!(probes.is_patient, held, "{answered_at}");
            assert!(probes.on_reply(at(answered_at), 1, trip).is_none());
            assert_eq!(probes.on_reply(at(answered_at), 3, trip), answered(13, true));
        }
    }
}
