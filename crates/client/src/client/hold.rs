//! Silence by agreement: a link that is about to hand over to another cell loses what is sent
//! meanwhile, and says so beforehand (the hand-off signal that NFS/W 95 and 97 plan for).
//!
//! While a client is held it sends nothing at all and no timer of it runs, so nothing is lost
//! and no policy backs off. Then everything unanswered goes out at once, what people wait for
//! first. That fits the window, and so whatever queue the window fits.

use std::time::Duration;

use remora_base::Time;

use super::Client;
use crate::config::Transport;

/// The longest a hold lasts, whatever its announcer says.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(60);

impl Client {
    /// The link goes away for a moment: nothing is sent until [`resume`](Client::resume), or
    /// until `until`, which may be a minute off at most. Requests may be submitted meanwhile,
    /// and what arrives is taken. A later call replaces an earlier one.
    pub fn hold(&mut self, now: Time, until: Time) {
        self.tick(now);
        self.held_until = Some(until.min(now + HOLD_MAX)).filter(|t| *t > now).or(self.held_until);
    }

    /// The link is back: over UDP everything unanswered is sent again at once. Over TCP
    /// nothing is, for the stream has it still. Harmless when nothing was held.
    pub fn resume(&mut self, now: Time) {
        self.tick(now);
        if self.held_until.take().is_none() {
            return;
        }
        // The silence was not the server's.
        self.last_heard = self.last_heard.max(now);
        if self.config.transport == Transport::Udp {
            self.adaptive.on_resume(now);
            self.resend_all();
        }
    }

    /// Whether a hold is on.
    pub fn is_held(&self) -> bool {
        self.held_until.is_some()
    }

    pub(super) fn end_hold(&mut self, now: Time) {
        if self.held_until.is_some_and(|t| t <= now) {
            self.resume(now);
        }
    }
}
