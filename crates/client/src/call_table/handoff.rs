//! Silence by agreement: a link that is about to hand over to another cell loses what is sent
//! meanwhile, and says so beforehand (the hand-off signal that NFS/W 95 and 97 plan for).
//!
//! While a client is held it sends nothing at all and no timer of it runs, so nothing is lost
//! and no policy backs off. Then everything unanswered goes out at once, what people wait for
//! first. That fits the window, and so whatever queue the window fits.
//!
//! A link that sends again what is lost (link-level retransmission, NFS/W 97, section 5.1) has it
//! all still, and delivers it now. What the client sends again goes over that link twice. So
//! where the announcer says that it keeps what is under way, the client goes on as if no time had
//! passed: its timers begin anew, and it asks before it sends again.

use std::time::Duration;

use remora_base::Time;

use super::client::Client;
use super::liveness::Hold;
use crate::transport::Transport;

/// The longest a hold lasts, whatever its announcer says.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(60);

impl Client {
    /// The link goes away for a moment: nothing is sent until [`resume`](Client::resume), or
    /// until `until`, which may be a minute off at most. Requests may be submitted meanwhile,
    /// and what arrives is taken. A later call replaces an earlier one.
    pub fn hold(&mut self, now: Time, until: Time) {
        self.hold_as(now, Hold { until, kept: false });
    }

    /// The same by a link that keeps what is under way and delivers it afterwards.
    pub fn hold_kept(&mut self, now: Time, until: Time) {
        self.hold_as(now, Hold { until, kept: true });
    }

    fn hold_as(&mut self, now: Time, hold: Hold) {
        self.tick(now);
        let until = hold.until.min(now + HOLD_MAX);
        self.held = Some(Hold { until, ..hold }).filter(|h| h.until > now).or(self.held);
    }

    /// The link is back: over UDP everything unanswered is sent again at once, unless the link
    /// has kept it. Over TCP nothing is, for the stream has it still. Harmless when nothing was
    /// held.
    pub fn resume(&mut self, now: Time) {
        self.tick(now);
        let Some(hold) = self.held.take() else { return };
        // The silence was not the server's.
        self.signs.note(now);
        if self.config.transport == Transport::Udp {
            self.detector.on_resume(now, hold.kept);
            if hold.kept { self.wait_anew(now) } else { self.resend_all() }
        }
    }

    /// This machine has another address, and what is under way would be answered at the old one: over UDP
    /// it is sent again at once. Not while a hold is on, for it says when to send.
    pub fn moved(&mut self, now: Time) {
        self.tick(now);
        if self.held.is_none() && self.config.transport == Transport::Udp {
            self.detector.on_resume(now, false);
            self.resend_all();
        }
    }

    /// Whether a hold is on.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn end_hold(&mut self, now: Time) {
        if self.held.is_some_and(|h| h.until <= now) {
            self.resume(now);
        }
    }
}
