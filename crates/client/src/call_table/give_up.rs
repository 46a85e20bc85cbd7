//! Giving up: how long the server may be silent.
//!
//! Any message of the server shows that the link is there. But a server may answer probes for ever and a request never,
//! if its disk hangs or long messages are dropped. So of the probes between two replies only the first restarts the
//! time: it may have ended an outage.

use std::time::Duration;

use remora_base::Time;

use super::client::{Client, ClientEvent};
use crate::congestion::window::InFlight;
use crate::request::CallFailure;

/// Largest reply to NULL: 24 bytes and a verifier.
const NULL_REPLY_MAX: usize = 256;

impl Client {
    /// A reply to a request, or a part of one, arrived.
    pub fn heard(&mut self, now: Time) {
        self.tick(now);
        self.judge_stream(now);
        self.last_contact.note(now);
    }

    /// The first `bytes` bytes of a message arrived. A few may be the reply to [`ask`](Client::ask).
    pub fn heard_part(&mut self, now: Time, bytes: usize) {
        self.tick(now);
        if bytes > NULL_REPLY_MAX { self.heard(now) } else { self.heard_probe(now) }
    }

    /// A reply to NULL arrived.
    pub(super) fn heard_probe(&mut self, now: Time) {
        self.last_contact.note_probe(now);
    }

    /// How long the server has owed a reply: since the last one, or the first reply to a probe after that.
    pub fn silence(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.last_contact.patient_since) }
    }

    /// How long nothing at all has arrived while requests were unanswered.
    pub fn quiet(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.last_contact.last) }
    }

    /// When all requests fail unless the server answers before ([`ClientConfig::give_up`]); `None` for never.
    ///
    /// [`ClientConfig::give_up`]: crate::ClientConfig::give_up
    pub fn give_up_at(&self) -> Option<Time> {
        let patience = self.config.give_up?;
        let queues = [&self.waiting.foreground, &self.waiting.bulk];
        let waiting = queues.into_iter().filter_map(|q| q.front()).map(|c| c.submitted);
        let oldest = self.in_flight.values().map(|c| c.submitted).chain(waiting).min()?;
        Some(oldest.max(self.last_contact.patient_since) + patience)
    }

    pub(super) fn give_up(&mut self, now: Time) {
        if self.give_up_at().is_none_or(|t| t > now) {
            return;
        }
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        let all = in_flight.chain(self.waiting.foreground.drain(..)).chain(self.waiting.bulk.drain(..));
        self.events.extend(all.map(|c| ClientEvent::Done { id: c.id, result: Err(CallFailure::TimedOut) }));
        (self.bulk_in_flight, self.bulk_waiting) = (InFlight::default(), InFlight::default());
        self.timers.clear();
        self.resend.clear();
    }
}
