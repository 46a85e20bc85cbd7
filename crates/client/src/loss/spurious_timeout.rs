//! Servers that need longer for each request than it is left alone for. Then everything is sent again, for nothing, no
//! answer is to what was sent once, and how long the server takes would never be known. Two things tell:
//!
//! * Each transmission is answered: the first answer is the first one's.
//! * A server with a duplicate request cache answers once. There nothing is answered before it was sent again, three times in
//!   a row, though no probe is lost meanwhile.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::loss::detector::LossDetector;
use crate::request::CallClass;
use crate::transport::block_size::frames;

/// From so many requests in a row on, each transmission of which was answered, a round trip is longer than it is taken for.
const ALL_ANSWERED: u32 = 2;
/// The same where each was sent again and answered once, and no round trip is known at all. Where one is, so many
/// may as well have been lost.
const AGAIN: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpuriousTimeouts {
    pub(crate) rows: [ResendRun; CallClass::ALL.len()],
    lost_probe: Option<Time>,
}

/// Requests of one kind in a row that were sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResendRun {
    pub(crate) all_answered: u32,
    again: u32,
    /// When the first of `again` was sent for the first time.
    since: Time,
}

impl SpuriousTimeouts {
    pub(crate) fn on_probe_lost(&mut self, now: Time) {
        self.lost_probe = Some(now);
    }

    /// Something of this kind was answered that had been sent once.
    pub(crate) fn end(&mut self, class: CallClass) {
        self.rows[class as usize] = ResendRun::default();
    }

    /// How many of this kind in a row were sent again, with one that was answered now.
    pub(crate) fn note_again(&mut self, class: CallClass, sent: Transmission) -> u32 {
        let row = &mut self.rows[class as usize];
        if row.again == 0 {
            row.since = sent.first;
        }
        row.again += 1;
        if self.lost_probe.is_some_and(|t| t >= row.since) {
            row.again = 0;
        }
        row.again
    }
}

impl LossDetector {
    /// `call`, of file data, was answered after it had been sent again.
    pub(crate) fn on_again(&mut self, now: Time, call: &PendingCall, sent: Transmission) {
        let row = self.always.note_again(call.class, sent);
        if row >= AGAIN && self.shortest(call).is_none() {
            self.learn(now, call.class, call.bytes(), now.since(sent.first));
        }
    }

    /// Each transmission of a request of `bytes` bytes was answered, the first, at the time `first`, after `trip`.
    pub(crate) fn on_all_answered(&mut self, now: Time, class: CallClass, bytes: u32, (first, trip): (Time, Duration)) {
        let is_held = self.probes.held_until(first).is_some() || self.probes.kept(first) > first;
        if is_held {
            return;
        }
        let row = &mut self.always.rows[class as usize];
        row.all_answered += 1;
        if row.all_answered >= ALL_ANSWERED {
            self.learn(now, class, bytes, trip);
        }
    }

    pub(crate) fn learn(&mut self, now: Time, class: CallClass, bytes: u32, trip: Duration) {
        self.rtt[class as usize].sample(now, trip);
        if class.is_bulk() {
            self.base.sample(now, trip, frames(bytes), self.frame_time().unwrap_or_default());
        }
    }
}
