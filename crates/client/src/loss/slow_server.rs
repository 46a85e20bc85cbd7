//! Servers that answer late: the disk latency of changes, and response times above the retransmission timeout.
//!
//! Changes wait for a disk, and are answered later than later requests. COMMIT may wait for much data, so it is measured
//! apart.
//!
//! A server that is slower than the retransmission timeout gets every request again. No reply then belongs to a request that was sent once, so its response time
//! would never be measured. Two patterns show it:
//!
//! * Each transmission is answered. The first reply then belongs to the first transmission.
//! * The server has a duplicate request cache and replies once. Three requests in a row are answered only after a
//!   retransmission, although no probe is lost meanwhile.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::congestion::rtt::RttEstimator;
use crate::request::CallClass;

/// Extra latency of changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskLatency {
    commits: ExtraLatency,
    others: ExtraLatency,
}

#[derive(Clone, Debug, Default)]
struct ExtraLatency {
    rtt: RttEstimator,
    /// The last one answered had been retransmitted.
    was_again: bool,
}

impl DiskLatency {
    /// Extra latency that nearly all calls like `call` stay below.
    pub(crate) fn usual(&self, call: &PendingCall) -> Duration {
        usual(if call.is_commit() { &self.commits.rtt } else { &self.others.rtt })
    }

    /// `call` was answered, last sent as `sent`; `loses` if anything else was lost meanwhile.
    ///
    /// A change that was retransmitted may have been lost, or the server is slow. It is slow if two in a row are
    /// retransmitted and nothing else is lost.
    pub(crate) fn sample(&mut self, now: Time, call: &PendingCall, sent: Transmission, loses: bool) {
        let late = if call.is_commit() { &mut self.commits } else { &mut self.others };
        let was_again = std::mem::replace(&mut late.was_again, sent.retries > 0);
        if sent.retries == 0 || was_again && !loses {
            let passed = sent.overtaken.or(sent.passed);
            late.rtt.sample(now, passed.map_or(Duration::ZERO, |t| now.since(t)));
        }
    }
}

/// Smoothed RTT and four deviations.
pub(crate) fn usual(rtt: &RttEstimator) -> Duration {
    rtt.smoothed().map_or(Duration::ZERO, |(mean, deviation)| mean + deviation * 4)
}

/// Requests in a row, each transmission of which was answered.
const ALL_ANSWERED_MIN: u32 = 2;
/// Requests in a row that were answered once, after a retransmission.
const RETRANSMITTED_MIN: u32 = 3;

/// Runs of retransmitted requests, by class.
#[derive(Debug, Default)]
pub(crate) struct SpuriousTimeouts {
    runs: [ResendRun; CallClass::ALL.len()],
    lost_probe: Option<Time>,
}

/// Retransmitted requests in a row.
#[derive(Clone, Copy, Debug, Default)]
struct ResendRun {
    all_answered: u32,
    retransmitted: u32,
    /// First transmission of the first of `retransmitted`.
    since: Time,
}

impl SpuriousTimeouts {
    pub(crate) fn on_probe_lost(&mut self, now: Time) {
        self.lost_probe = Some(now);
    }

    /// A request that was sent once was answered: ends the run.
    pub(crate) fn on_answered_once(&mut self, class: CallClass) {
        self.runs[class as usize] = ResendRun::default();
    }

    /// A retransmitted request, first sent at `first`, was answered. Returns whether the server is taken to be slow if
    /// no RTT is known; where one is, the requests may have been lost.
    pub(crate) fn on_retransmitted(&mut self, class: CallClass, first: Time) -> bool {
        let run = &mut self.runs[class as usize];
        if run.retransmitted == 0 {
            run.since = first;
        }
        run.retransmitted += 1;
        if self.lost_probe.is_some_and(|t| t >= run.since) {
            run.retransmitted = 0;
        }
        run.retransmitted >= RETRANSMITTED_MIN
    }

    /// Each transmission of a request was answered. Returns whether the server is slow.
    pub(crate) fn on_all_answered(&mut self, class: CallClass) -> bool {
        let run = &mut self.runs[class as usize];
        run.all_answered += 1;
        run.all_answered >= ALL_ANSWERED_MIN
    }
}
