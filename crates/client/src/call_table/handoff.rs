//! Hand-off: a hold during which nothing is sent.
//!
//! A link that is about to hand over to another cell loses what is sent meanwhile, and announces it (the hand-off
//! signal of NFS/W 95 and 97). During a hold the client sends nothing and no timer runs, so nothing is lost and no
//! policy backs off. Then everything unanswered is retransmitted at once, users' requests first. It fits the window.
//!
//! A link that retransmits (NFS/W 97, section 5.1) still has all that was in flight and delivers it. Retransmissions
//! would cross that link twice. Where the announcer says that the link keeps what is in flight, the client restarts its
//! timers and probes before it retransmits.

use std::time::Duration;

use remora_base::Time;

use super::client::Client;
use super::liveness::Hold;
use crate::transport::Transport;

pub(crate) const HOLD_MAX: Duration = Duration::from_secs(60);

impl Client {
    /// Starts a hold, until [`resume`](Client::resume) or `until`, at most a minute. Requests may be submitted and
    /// replies are taken. A later call replaces an earlier one.
    pub fn hold(&mut self, now: Time, until: Time) {
        self.hold_as(now, Hold { until, kept: false });
    }

    /// Starts a hold of a link that keeps what is in flight.
    pub fn hold_kept(&mut self, now: Time, until: Time) {
        self.hold_as(now, Hold { until, kept: true });
    }

    fn hold_as(&mut self, now: Time, hold: Hold) {
        self.tick(now);
        let until = hold.until.min(now + HOLD_MAX);
        self.held = Some(Hold { until, ..hold }).filter(|h| h.until > now).or(self.held);
    }

    /// Ends a hold. Over UDP everything unanswered is retransmitted at once, unless the link kept it.
    pub fn resume(&mut self, now: Time) {
        self.tick(now);
        let Some(hold) = self.held.take() else { return };
        // The silence was not the server's.
        self.last_contact.note(now);
        if self.config.transport == Transport::Udp {
            self.detector.on_resume(now, hold.kept);
            if hold.kept { self.wait_anew(now) } else { self.resend_all() }
        }
    }

    /// This machine has another address, and replies go to the old one: over UDP everything unanswered is retransmitted
    /// at once, unless a hold is on.
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
