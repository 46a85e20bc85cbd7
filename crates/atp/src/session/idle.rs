//! When a connection without objects is ended, and how one that has nothing to say stays alive.

use std::time::Duration;

use remora_base::Time;

/// A later answer is one of a peer that was out of reach.
const PROMPT: Duration = Duration::from_secs(10);

/// When objects last moved, and how far the end of the connection is.
///
/// A peer that does not answer is not idle but out of reach, and may have objects for us: it is
/// held as all such are. So before an idle connection is ended, the peer is asked whether it is
/// there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    active: Time,
    farewell: Farewell,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Farewell {
    Not,
    /// Asked whether it is there.
    Asked(Time),
    /// It is, and has nothing for us.
    Due,
}

impl Idle {
    pub(super) fn new(now: Time) -> Idle {
        Idle { active: now, farewell: Farewell::Not }
    }

    /// An object moves.
    pub(super) fn touch(&mut self, now: Time) {
        *self = Idle::new(now);
    }

    /// When a connection that has no objects is to be asked for, after `patience`.
    pub(super) fn ask_at(&self, patience: Duration) -> Option<Time> {
        (self.farewell == Farewell::Not).then_some(self.active + patience)
    }

    /// The peer is asked whether it is there.
    pub(super) fn ask(&mut self, now: Time) {
        self.farewell = Farewell::Asked(now);
    }

    /// The peer acknowledged something that left at `sent`. After an outage it may be about to send what waited for the
    /// end of it: then the connection is idle from now on.
    pub(super) fn answered(&mut self, now: Time, sent: Time) {
        match self.farewell {
            Farewell::Asked(at) if sent >= at && now > at + PROMPT => self.touch(now),
            Farewell::Asked(at) if sent >= at => self.farewell = Farewell::Due,
            _ => {}
        }
    }

    /// Whether the peer was asked, and is there.
    pub(super) fn is_over(&self) -> bool {
        self.farewell == Farewell::Due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_first_and_only_a_later_packet_s_acknowledgement_is_an_answer() {
        let at = Time::from_secs;
        let mut idle = Idle::new(at(1));
        assert_eq!(idle.ask_at(Duration::from_secs(9)), Some(at(10)));
        idle.answered(at(10), at(10));
        idle.ask(at(10));
        assert_eq!(idle.ask_at(Duration::from_secs(9)), None);
        idle.answered(at(11), at(9));
        assert!(!idle.is_over());
        idle.answered(at(11), at(10));
        assert!(idle.is_over());
        idle.touch(at(11));
        assert_eq!((idle.is_over(), idle.ask_at(Duration::from_secs(9))), (false, Some(at(20))));
    }

    #[test]
    fn peer_that_answers_after_an_outage_is_not_idle_yet() {
        let at = Time::from_secs;
        let mut idle = Idle::new(at(0));
        idle.ask(at(10));
        idle.answered(at(3600), at(3590));
        assert_eq!((idle.is_over(), idle.ask_at(Duration::from_secs(9))), (false, Some(at(3609))));
    }
}
