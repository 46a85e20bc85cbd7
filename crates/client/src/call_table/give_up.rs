//! How long the server is waited for.
//!
//! Whatever comes from it shows that the link is there, the answer to a probe, too. But a server may
//! answer probes for ever and a request never: its disk hangs, or what is long does not get through. So of
//! the probes between two answers the first only renews the patience: it may have ended an outage.

use std::time::Duration;

use remora_base::Time;

use super::client::{Client, Event};
use crate::congestion::window::InFlight;
use crate::request::Failure;

/// The answer to a NULL call is 24 bytes, and more where its verifier has some.
const NULL_REPLY_MAX: usize = 256;

impl Client {
    /// A sign of life that is as good as the answer to a request, be it not a whole message yet.
    pub fn heard(&mut self, now: Time) {
        self.tick(now);
        self.judge_stream(now);
        self.signs.note(now);
    }

    /// The first `bytes` bytes of a message are here. A few may be of the answer to [`ask`](Client::ask).
    pub fn heard_part(&mut self, now: Time, bytes: usize) {
        self.tick(now);
        if bytes > NULL_REPLY_MAX { self.heard(now) } else { self.heard_probe(now) }
    }

    /// The answer to a NULL call.
    pub(super) fn heard_probe(&mut self, now: Time) {
        self.signs.note_probe(now);
    }

    /// How long the server has owed an answer: since its last one, or the first to a probe after that.
    pub fn silence(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.signs.patient_since) }
    }

    /// How long nothing at all has come while requests were unanswered, be it the answer to a probe.
    pub fn quiet(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.signs.last) }
    }

    /// When every request fails unless the server answers before ([`Config::give_up`]); `None` for
    /// never, or while there is none.
    ///
    /// [`Config::give_up`]: crate::Config::give_up
    pub fn give_up_at(&self) -> Option<Time> {
        let patience = self.config.give_up?;
        let queues = [&self.waiting.foreground, &self.waiting.bulk];
        let waiting = queues.into_iter().filter_map(|q| q.front()).map(|c| c.submitted);
        let oldest = self.flying.values().map(|c| c.submitted).chain(waiting).min()?;
        Some(oldest.max(self.signs.patient_since) + patience)
    }

    pub(super) fn give_up(&mut self, now: Time) {
        if self.give_up_at().is_none_or(|t| t > now) {
            return;
        }
        let flying = std::mem::take(&mut self.flying).into_values();
        let all = flying.chain(self.waiting.foreground.drain(..)).chain(self.waiting.bulk.drain(..));
        self.events.extend(all.map(|c| Event::Done { id: c.id, result: Err(Failure::TimedOut) }));
        (self.flight, self.queued) = (InFlight::default(), InFlight::default());
        self.timers.clear();
        self.resend.clear();
    }
}
