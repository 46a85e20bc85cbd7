//! The sessions with one other end: the one in use, the one before it and the one to come.
//!
//! Keys are renewed while the old ones work. The end that asked for new keys uses them at
//! once; the other goes on with the old ones until it hears the new ones used, because only
//! then does it know that its answer arrived.

use std::time::Duration;

use remora_base::Time;

use super::session::{NotOpened, Opened, Session};

/// How long the keys before the present ones still open messages.
const PREVIOUS_FOR: Duration = Duration::from_secs(30);
/// Keys older than this are not used at all.
const LIFETIME_MAX: Duration = Duration::from_secs(2 * 3600);

/// Sessions with one other end.
#[derive(Default)]
pub(super) struct Sessions {
    current: Option<Session>,
    previous: Option<(Session, Time)>,
    next: Option<Session>,
}

/// In which session a message was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum In {
    /// The one in use.
    Current,
    /// The one before it: its sender had not yet heard of the change.
    Previous,
    /// A new one, which is in use from now on.
    New(Change),
}

/// What a new session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The first: the link comes up with it.
    Up,
    /// New keys.
    Renewed,
    /// New keys with an end that has begun another life.
    Restarted,
}

impl Sessions {
    /// The session in use.
    pub(super) fn current(&self) -> Option<&Session> {
        self.current.as_ref()
    }

    /// Seals a message in the session in use.
    pub(super) fn seal(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        self.current.as_mut()?.seal(plain)
    }

    /// Uses `session` from now on. What the other end sealed in an earlier life of its is not
    /// opened any more.
    pub(super) fn switch(&mut self, now: Time, session: Session) -> Change {
        let life = session.life;
        match self.current.replace(session) {
            None => Change::Up,
            Some(old) if old.life == life => {
                self.previous = Some((old, now));
                Change::Renewed
            }
            Some(_) => {
                self.previous = None;
                Change::Restarted
            }
        }
    }

    /// Uses `session` as soon as something comes in it.
    pub(super) fn prepare(&mut self, session: Session) {
        self.next = Some(session);
    }

    /// Opens a message for session index `ours`.
    pub(super) fn open(
        &mut self,
        now: Time,
        ours: u32,
        rest: &[u8],
        plain: &mut [u8],
    ) -> Result<(In, Opened), NotOpened> {
        if let Some(s) = self.current.as_mut().filter(|s| s.ours == ours) {
            return Ok((In::Current, s.open(rest, plain)?));
        }
        if let Some((s, _)) = self.previous.as_mut().filter(|(s, _)| s.ours == ours) {
            // Its sender has gone on to the present one, and counts anew: how late this is nobody can tell.
            if self.current.as_ref().is_some_and(Session::has_heard) {
                return Err(NotOpened::Replayed);
            }
            return Ok((In::Previous, s.open(rest, plain)?));
        }
        let Some(mut s) = self.next.take_if(|s| s.ours == ours) else { return Err(NotOpened::Forged) };
        match s.open(rest, plain) {
            Ok(opened) => {
                let change = self.switch(now, s);
                Ok((In::New(change), opened))
            }
            Err(e) => {
                self.next = Some(s);
                Err(e)
            }
        }
    }

    /// The indices under which messages may come.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        let previous = self.previous.as_ref().map(|(s, _)| s);
        [self.current.as_ref(), previous, self.next.as_ref()].into_iter().flatten().map(|s| s.ours)
    }

    /// Lets go of what is too old; true if that was the session in use.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        self.previous.take_if(|(_, since)| now.since(*since) >= PREVIOUS_FOR);
        self.next.take_if(|s| now.since(s.born) >= PREVIOUS_FOR);
        self.current.take_if(|s| now.since(s.born) >= LIFETIME_MAX).is_some()
    }

    /// When [`Sessions::expire`] has something to do.
    pub(super) fn expiry(&self) -> Option<Time> {
        let previous = self.previous.as_ref().map(|(_, since)| *since + PREVIOUS_FOR);
        let next = self.next.as_ref().map(|s| s.born + PREVIOUS_FOR);
        let current = self.current.as_ref().map(|s| s.born + LIFETIME_MAX);
        [previous, next, current].into_iter().flatten().min()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Sessions::default();
    }
}
