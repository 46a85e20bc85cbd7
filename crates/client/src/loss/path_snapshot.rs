//! What is known of the path, for when something else has filled it.
//!
//! While connections beside it carry the file data, what little a client still sends waits behind theirs, and is dropped
//! where they overflow a queue. What it learns from that says nothing of the path once they are gone, but that everything
//! takes long and is lost in bursts.

use std::time::Duration;

use remora_base::Time;

use super::disk_latency::DiskLatency;
use super::reordering_window::ReorderingWindow;
use crate::congestion::rtt::{BaseRtt, MeanDuration, Rtt};
use crate::loss::detector::LossDetector;
use crate::loss::loss_rate::LossMeter;
use crate::request::CallClass;

/// For how long the path stays what it was.
const KEEPS: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct PathSnapshot {
    at: Time,
    rtt: [Rtt; CallClass::ALL.len()],
    base: BaseRtt,
    null_rtt: Rtt,
    behind: DiskLatency,
    frame_time: MeanDuration,
    frame_guess: Option<Duration>,
    burst_interval: MeanDuration,
    reorder: ReorderingWindow,
    loss: LossMeter,
}

impl LossDetector {
    /// From now on one thing more fills the path than the `others` that do already.
    pub(crate) fn set_aside(&mut self, now: Time, others: usize) {
        if others > 0 && self.aside.is_some() {
            return;
        }
        self.aside = Some(PathSnapshot {
            at: now,
            rtt: self.rtt.clone(),
            base: self.base.clone(),
            null_rtt: self.null_rtt.clone(),
            behind: self.behind.clone(),
            frame_time: self.frame_time,
            frame_guess: self.frame_guess,
            burst_interval: self.burst_interval,
            reorder: self.reorder.clone(),
            loss: self.loss.clone(),
        });
    }

    /// It does not any more.
    pub(crate) fn recall(&mut self, now: Time) {
        let Some(aside) = self.aside.take().filter(|aside| now.since(aside.at) < KEEPS) else { return };
        let PathSnapshot { at: _, rtt, base, null_rtt, behind, frame_time, frame_guess, burst_interval, reorder, loss } =
            aside;
        (self.rtt, self.base, self.null_rtt, self.behind) = (rtt, base, null_rtt, behind);
        (self.frame_time, self.frame_guess, self.burst_interval) = (frame_time, frame_guess, burst_interval);
        (self.reorder, self.loss) = (reorder, loss);
        // The fates of what was on its way are not to be learned any more.
        self.loss.forget_flying();
        // There was a queue then, of this client's own.
        for class in [CallClass::Read, CallClass::Write] {
            self.rtt[class as usize].forget_usual();
        }
        // What the others held up, the path did not.
        self.probes.on_loss();
    }
}
