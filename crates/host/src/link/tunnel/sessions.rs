//! The current, previous and next session with a peer.
//!
//! Rekeying happens while the old keys work. The initiator uses the new keys immediately. The responder uses the old
//! ones until it receives a message under the new ones, which proves that its response arrived.

use std::time::Duration;

use remora_base::Time;

use super::session::{OpenError, OpenedMessage, TunnelSession};

/// How long the previous keys still decrypt messages.
const PREVIOUS_FOR: Duration = Duration::from_secs(30);
/// Age at which keys are no longer used.
const LIFETIME_MAX: Duration = Duration::from_secs(2 * 3600);

/// The sessions with one peer.
#[derive(Default)]
pub(super) struct PeerSessions {
    current: Option<TunnelSession>,
    previous: Option<(TunnelSession, Time)>,
    next: Option<TunnelSession>,
}

/// The session under which a message was decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionAge {
    Current,
    /// The previous session: the peer had not yet heard of the change.
    Previous,
    /// A new session, which is the current one from now on.
    New(SessionChange),
}

/// The role of a new session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionChange {
    /// The first session: the link comes up.
    Up,
    /// New keys for the same epoch of the peer.
    Renewed,
    /// New keys after a restart of the peer.
    Restarted,
}

impl PeerSessions {
    pub(super) fn current(&self) -> Option<&TunnelSession> {
        self.current.as_ref()
    }

    /// Encrypts a message in the current session.
    pub(super) fn seal(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        self.current.as_mut()?.seal(plain)
    }

    /// Makes `session` the current one. Messages of an earlier epoch of the peer are no longer decrypted.
    pub(super) fn switch(&mut self, now: Time, session: TunnelSession) -> SessionChange {
        let epoch = session.epoch;
        match self.current.replace(session) {
            None => SessionChange::Up,
            Some(old) if old.epoch == epoch => {
                self.previous = Some((old, now));
                SessionChange::Renewed
            }
            Some(_) => {
                self.previous = None;
                SessionChange::Restarted
            }
        }
    }

    /// Makes `session` the current one when a message arrives in it.
    pub(super) fn prepare(&mut self, session: TunnelSession) {
        self.next = Some(session);
    }

    /// Decrypts a message for session index `ours`.
    pub(super) fn open(
        &mut self,
        now: Time,
        ours: u32,
        rest: &[u8],
        plain: &mut [u8],
    ) -> Result<(SessionAge, OpenedMessage), OpenError> {
        if let Some(s) = self.current.as_mut().filter(|s| s.ours == ours) {
            return Ok((SessionAge::Current, s.open(rest, plain)?));
        }
        if let Some((s, _)) = self.previous.as_mut().filter(|(s, _)| s.ours == ours) {
            // The sender uses the current session with a new counter, so the delay of this message is unknown.
            if self.current.as_ref().is_some_and(TunnelSession::has_heard) {
                return Err(OpenError::Replayed);
            }
            return Ok((SessionAge::Previous, s.open(rest, plain)?));
        }
        let Some(mut s) = self.next.take_if(|s| s.ours == ours) else { return Err(OpenError::Forged) };
        match s.open(rest, plain) {
            Ok(opened) => {
                let change = self.switch(now, s);
                Ok((SessionAge::New(change), opened))
            }
            Err(e) => {
                self.next = Some(s);
                Err(e)
            }
        }
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        let previous = self.previous.as_ref().map(|(s, _)| s);
        [self.current.as_ref(), previous, self.next.as_ref()].into_iter().flatten().map(|s| s.ours)
    }

    /// Removes expired sessions; true if the current one expired.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        self.previous.take_if(|(_, since)| now.since(*since) >= PREVIOUS_FOR);
        self.next.take_if(|s| now.since(s.born) >= PREVIOUS_FOR);
        self.current.take_if(|s| now.since(s.born) >= LIFETIME_MAX).is_some()
    }

    /// When [`PeerSessions::expire`] is due.
    pub(super) fn expiry(&self) -> Option<Time> {
        let previous = self.previous.as_ref().map(|(_, since)| *since + PREVIOUS_FOR);
        let next = self.next.as_ref().map(|s| s.born + PREVIOUS_FOR);
        let current = self.current.as_ref().map(|s| s.born + LIFETIME_MAX);
        [previous, next, current].into_iter().flatten().min()
    }

    pub(super) fn clear(&mut self) {
        *self = PeerSessions::default();
    }
}
