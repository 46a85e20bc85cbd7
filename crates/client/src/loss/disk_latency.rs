//! Disk latency: how much later than later requests changes are answered, because they wait for a disk. COMMIT may wait
//! for much data, so it is measured apart.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::congestion::rtt::RttEstimator;

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
