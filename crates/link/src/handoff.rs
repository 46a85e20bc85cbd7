//! The handoff signal (planned in NFS/W 95 and NFS/W 97): an end announces that it is about to switch cells, and both
//! ends hold their frames until the end of the handoff.

use std::time::Duration;

use remora_base::Time;
use remora_wire::link::{Announcement, HandOff};

use crate::HandOffPhase;

/// First and longest interval between repetitions of an unacknowledged signal.
const REPEAT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// Longest interval while the rate is unknown.
const REPEAT_CAREFUL: Duration = Duration::from_secs(1);
/// Largest share of the medium for the repetitions to all peers together: 1/8.
const AIRTIME_PART: u32 = 8;
/// Longest handoff duration accepted.
const EXPECTED_MAX: Duration = Duration::from_secs(60);

/// How long a handoff may hold frames: twice the expected time and a second.
fn hold(expected: Duration) -> Duration {
    expected.min(EXPECTED_MAX) * 2 + Duration::from_secs(1)
}

/// Handoffs between this end and one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandOffs {
    /// The signal that the peer has not acknowledged.
    pending: Option<PendingSignal>,
    /// Until when this end's own handoff holds frames.
    own_until: Option<Time>,
    /// Until when the peer's handoff holds frames.
    peer_until: Option<Time>,
    /// The latest signal handled. Repetitions are only acknowledged.
    heard: Option<Announcement>,
    owed: Option<Announcement>,
    last_id: u16,
    /// When a handoff last began or ended.
    changed_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct PendingSignal {
    name: Announcement,
    since: Time,
    /// Expected duration of the handoff; `None` announces its end.
    expected: Option<Duration>,
    repeat_at: Time,
    gap: Duration,
    give_up_at: Time,
}

impl PendingSignal {
    /// The signal at `now`. A peer that receives only this repetition must not hold longer than this end. It doubles
    /// the expected time, so half of the elapsed time is subtracted.
    fn signal(&self, now: Time) -> HandOff {
        let left = self.expected.map(|expected| expected.saturating_sub(now.since(self.since) / 2));
        let expected_ms = left.map(|left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
        HandOff { announcement: self.name, expected_ms }
    }
}

/// A handoff that took too long. It no longer holds frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OverdueHandoff {
    PeerOverdue,
    OwnOverdue,
}

impl HandOffs {
    /// Whether no DATA may be sent.
    pub(crate) fn holds(&self) -> bool {
        self.own_until.is_some() || self.peer_until.is_some()
    }

    /// Whether a handoff may have delayed the acknowledgement of a frame sent at `sent`.
    pub(crate) fn has_changed_since(&self, sent: Time) -> bool {
        sent < self.changed_at
    }

    /// Announces the beginning or end of this end's handoff.
    pub(crate) fn announce(&mut self, now: Time, epoch: u16, phase: HandOffPhase) {
        self.changed_at = now;
        self.last_id = self.last_id.wrapping_add(1);
        let (expected, persist) = match phase {
            HandOffPhase::Begin { expected } => {
                let expected = expected.min(EXPECTED_MAX);
                self.own_until = Some(now + hold(expected));
                // Received later, the signal would hold the peer longer than this end.
                (Some(expected), expected * 2)
            }
            HandOffPhase::End => {
                self.own_until = None;
                (None, hold(EXPECTED_MAX))
            }
        };
        let name = Announcement { epoch, id: self.last_id };
        let give_up_at = now + persist;
        self.pending = Some(PendingSignal { name, since: now, expected, repeat_at: now, gap: REPEAT.0, give_up_at });
    }

    /// Handles the peer's signal. One older than the latest is only acknowledged.
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

    /// Ends a handoff announced in an epoch of the peer other than `epoch`, or in any if that is `None`. True if it
    /// held frames.
    pub(crate) fn peer_epoch_is(&mut self, epoch: Option<u16>) -> bool {
        if epoch.is_some() && self.heard.is_none_or(|last| Some(last.epoch) == epoch) {
            return false;
        }
        (self.heard, self.owed) = (None, None);
        self.peer_until.take().is_some()
    }

    /// Handles the peer's acknowledgement of a signal.
    pub(crate) fn acknowledged(&mut self, name: Announcement) {
        if self.pending.is_some_and(|s| s.name == name) {
            self.pending = None;
        }
    }

    /// Whether the peer's signal awaits its acknowledgement.
    pub(crate) fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// The pending acknowledgement of the peer's signal.
    pub(crate) fn take_owed(&mut self) -> Option<Announcement> {
        self.owed.take()
    }

    /// Whether a signal awaits the peer's acknowledgement.
    pub(crate) fn is_signal_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The signal to send now, if one is due. `airtime` is the airtime of the signals to all peers with one pending,
    /// if the rate is known.
    pub(crate) fn take_due(&mut self, now: Time, airtime: Option<Duration>) -> Option<HandOff> {
        self.pending.take_if(|pending| pending.give_up_at < now);
        let pending = self.pending.as_mut().filter(|s| s.repeat_at <= now)?;
        pending.repeat_at = now + pending.gap.max(airtime.unwrap_or_default() * AIRTIME_PART);
        pending.gap = (pending.gap * 2).min(if airtime.is_some() { REPEAT.1 } else { REPEAT_CAREFUL });
        Some(pending.signal(now))
    }

    /// Ends one overdue handoff. Call again until the result is `None`.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<OverdueHandoff> {
        let overdue = |until: &mut Option<Time>| until.take_if(|at| *at <= now).is_some();
        let overdue = if overdue(&mut self.own_until) {
            OverdueHandoff::OwnOverdue
        } else if overdue(&mut self.peer_until) {
            OverdueHandoff::PeerOverdue
        } else {
            return None;
        };
        self.changed_at = now;
        Some(overdue)
    }

    /// When the next signal or timeout is due.
    pub(crate) fn timeout(&self) -> Option<Time> {
        [self.pending.map(|s| s.repeat_at), self.own_until, self.peer_until].into_iter().flatten().min()
    }
}
