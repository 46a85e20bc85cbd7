//! How much later than what was sent after them the answers to changes come, as they wait for a disk. COMMIT may wait for
//! much of one, so what it takes says nothing of the others.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::congestion::rtt::RttEstimator;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskLatency {
    commits: ExtraLatency,
    others: ExtraLatency,
}

#[derive(Clone, Debug, Default)]
struct ExtraLatency {
    rtt: RttEstimator,
    /// The last one answered had been sent again.
    was_again: bool,
}

impl DiskLatency {
    /// How much later nearly all like `call` come.
    pub(crate) fn usual(&self, call: &PendingCall) -> Duration {
        usual(if call.is_commit() { &self.commits.rtt } else { &self.others.rtt })
    }

    /// `call` was answered, last sent as `sent`; whether the path `loses` things meanwhile.
    ///
    /// A change that was sent again may have been lost, or the server is slow. If that befalls
    /// two in a row and nothing else is lost meanwhile it is slow.
    pub(crate) fn sample(&mut self, now: Time, call: &PendingCall, sent: Transmission, loses: bool) {
        let late = if call.is_commit() { &mut self.commits } else { &mut self.others };
        let was_again = std::mem::replace(&mut late.was_again, sent.retries > 0);
        if sent.retries == 0 || was_again && !loses {
            let passed = sent.overtaken.or(sent.passed);
            late.rtt.sample(now, passed.map_or(Duration::ZERO, |t| now.since(t)));
        }
    }
}

/// What nearly all take.
pub(crate) fn usual(rtt: &RttEstimator) -> Duration {
    rtt.smoothed().map_or(Duration::ZERO, |(mean, deviation)| mean + deviation * 4)
}
