//! The hand-off signal (planned in NFS/W 95 and NFS/W 97): an end that is about to switch
//! cells says so, and both hold what they would send into the gap.

use std::time::Duration;

use remora_base::Time;
use remora_wire::link::{Announcement, HandOff};

use crate::HandOffPhase;

/// Between two repetitions of a signal nobody has acknowledged: at first, and at most.
const REPEAT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// At most, where nothing tells what they take.
const REPEAT_CAREFUL: Duration = Duration::from_secs(1);
/// Repetitions to all peers together take at most one part in this of the medium.
const AIRTIME_PART: u32 = 8;
/// The longest switch believed in.
const EXPECTED_MAX: Duration = Duration::from_secs(60);

/// How long a switch may hold sending: twice what was expected, and a second.
fn hold(expected: Duration) -> Duration {
    expected.min(EXPECTED_MAX) * 2 + Duration::from_secs(1)
}

/// Hand-offs between this end and one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandOffs {
    /// What this end has to say.
    saying: Option<Saying>,
    /// Until when this end's own switch holds sending.
    own_until: Option<Time>,
    /// Until when the peer's does.
    peer_until: Option<Time>,
    /// The latest signal acted on; repetitions are only acknowledged.
    heard: Option<Announcement>,
    owed: Option<Announcement>,
    last_id: u16,
    /// When a switch last began or ended.
    changed_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Saying {
    name: Announcement,
    since: Time,
    /// How long the switch is to take, if this says that it begins.
    expected: Option<Duration>,
    repeat_at: Time,
    gap: Duration,
    give_up_at: Time,
}

impl Saying {
    /// What is said at `now`. Whoever hears only this repetition is to hold no longer than this end, so half of
    /// what has passed is taken off what is to be doubled.
    fn signal(&self, now: Time) -> HandOff {
        let left = self.expected.map(|expected| expected.saturating_sub(now.since(self.since) / 2));
        let expected_ms = left.map(|left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
        HandOff { announcement: self.name, expected_ms }
    }
}

/// A switch that has taken too long: sending is held for it no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The peer's.
    PeerOverdue,
    /// This end's own.
    OwnOverdue,
}

impl HandOffs {
    /// Whether nothing may be sent.
    pub(crate) fn holds(&self) -> bool {
        self.own_until.is_some() || self.peer_until.is_some()
    }

    /// Whether a switch may have held back the answer to what was sent at that time.
    pub(crate) fn has_changed_since(&self, sent: Time) -> bool {
        sent < self.changed_at
    }

    /// This end begins or ends a switch.
    pub(crate) fn announce(&mut self, now: Time, epoch: u16, phase: HandOffPhase) {
        self.changed_at = now;
        self.last_id = self.last_id.wrapping_add(1);
        let (expected, persist) = match phase {
            HandOffPhase::Begin { expected } => {
                let expected = expected.min(EXPECTED_MAX);
                self.own_until = Some(now + hold(expected));
                // Heard later it would make the peer hold when this end does no more.
                (Some(expected), expected * 2)
            }
            HandOffPhase::End => {
                self.own_until = None;
                (None, hold(EXPECTED_MAX))
            }
        };
        let name = Announcement { epoch, id: self.last_id };
        let give_up_at = now + persist;
        self.saying = Some(Saying { name, since: now, expected, repeat_at: now, gap: REPEAT.0, give_up_at });
    }

    /// Takes the peer's signal; an older one than the latest only is acknowledged.
    pub(crate) fn heard(&mut self, now: Time, signal: HandOff) -> Option<HandOffPhase> {
        let name = signal.announcement;
        self.owed = Some(name);
        let is_old = |last: Announcement| last.epoch == name.epoch && name.id.wrapping_sub(last.id) as i16 <= 0;
        if self.heard.is_some_and(is_old) {
            return None;
        }
        self.heard = Some(name);
        self.changed_at = now;
        match signal.expected_ms {
            Some(ms) => {
                let expected = Duration::from_millis(ms.into()).min(EXPECTED_MAX);
                self.peer_until = Some(now + hold(expected));
                Some(HandOffPhase::Begin { expected })
            }
            None => {
                self.peer_until = None;
                Some(HandOffPhase::End)
            }
        }
    }

    /// The peer lives its life `epoch`, or another if that is not known: what an earlier one
    /// announced is over. True if it held sending.
    pub(crate) fn peer_lives(&mut self, epoch: Option<u16>) -> bool {
        if epoch.is_some() && self.heard.is_none_or(|last| Some(last.epoch) == epoch) {
            return false;
        }
        (self.heard, self.owed) = (None, None);
        self.peer_until.take().is_some()
    }

    /// The peer has heard that signal.
    pub(crate) fn acknowledged(&mut self, name: Announcement) {
        if self.saying.is_some_and(|s| s.name == name) {
            self.saying = None;
        }
    }

    /// Whether an acknowledgement is owed to the peer.
    pub(crate) fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// The acknowledgement owed to the peer.
    pub(crate) fn take_owed(&mut self) -> Option<Announcement> {
        self.owed.take()
    }

    /// Whether there is something to say that the peer has not acknowledged.
    pub(crate) fn is_saying(&self) -> bool {
        self.saying.is_some()
    }

    /// The signal to send now, if one is due. `airtime`: what it takes with one to each other peer that is to be
    /// told, if that is known.
    pub(crate) fn take_due(&mut self, now: Time, airtime: Option<Duration>) -> Option<HandOff> {
        self.saying.take_if(|saying| saying.give_up_at < now);
        let saying = self.saying.as_mut().filter(|s| s.repeat_at <= now)?;
        saying.repeat_at = now + saying.gap.max(airtime.unwrap_or_default() * AIRTIME_PART);
        saying.gap = (saying.gap * 2).min(if airtime.is_some() { REPEAT.1 } else { REPEAT_CAREFUL });
        Some(saying.signal(now))
    }

    /// Ends what is overdue; call again until it is `None`.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<Change> {
        let overdue = |until: &mut Option<Time>| until.take_if(|at| *at <= now).is_some();
        let change = if overdue(&mut self.own_until) {
            Change::OwnOverdue
        } else if overdue(&mut self.peer_until) {
            Change::PeerOverdue
        } else {
            return None;
        };
        self.changed_at = now;
        Some(change)
    }

    /// When something is due.
    pub(crate) fn timeout(&self) -> Option<Time> {
        [self.saying.map(|s| s.repeat_at), self.own_until, self.peer_until].into_iter().flatten().min()
    }
}
