//! Estimates the delay of acknowledgements beyond the shortest RTT that is not caused by this end's queue.
//!
//! Where the rate is learned, the window is rate times delay, and the learned rate is window over delay. If
//! acknowledgements wait behind the peer's data or a busy machine, a window that is too short looks like a slow hop
//! and stays so. As in BBR's bandwidth probing, a trial of 3/2 the window decides: if more bytes arrive, the delay has
//! another cause, and the window grows. If only the own queue grows, the trial fails. Trials of 3/4 the window reduce
//! an extra delay that no longer exists.

use std::time::Duration;

use crate::pacing::delivery_rate::{self, MeasuredTrain};

/// Largest extra delay.
const EXTRA_MAX: Duration = Duration::from_secs(1);
/// Window of a trial, as a fraction of the steady one.
const UP: Ratio = Ratio { of: 3, parts: 2 };
const DOWN: Ratio = Ratio { of: 3, parts: 4 };
/// Least growth of the delivery rate for which a larger window is kept, and the rate above which a smaller one is
/// kept. In a shared queue a trial gains less than 4/3 once this end owns a quarter of the queue.
const UP_GAIN: Ratio = Ratio { of: 4, parts: 3 };
const DOWN_LOSS: Ratio = Ratio { of: 15, parts: 16 };
/// Trains measured in a trial, after one that began before it.
const TRIAL_TRAINS: u32 = 3;
/// Cap of the back-off: each failed trial doubles the trains until the next one.
const VAIN_MAX: u32 = 4;

/// The fraction `of / parts`.
#[derive(Clone, Copy)]
struct Ratio {
    of: u64,
    parts: u64,
}

/// Probes for a larger or smaller bandwidth-delay product.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BdpProbe {
    extra: Duration,
    /// The shortest RTT at the latest train.
    least: Duration,
    phase: Phase,
    /// Whether a train that began in this phase is being measured.
    has_begun: bool,
    /// Bytes, time and number of the trains in this phase.
    bytes: u64,
    time: Duration,
    trains: u32,
    /// Delivery rate before the trial, in bits a second.
    before: u64,
    /// Consecutive failed trials.
    vain: u32,
    /// Whether the next trial reduces the window.
    is_down_next: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Steady,
    Up,
    Down,
}

impl BdpProbe {
    /// The delay beyond the shortest RTT.
    pub(crate) fn extra(&self) -> Duration {
        self.extra
    }

    /// Whether a trial with a larger window is active.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Applies the current trial to `window`.
    pub(crate) fn tried(&self, window: u64) -> u64 {
        match self.phase {
            Phase::Steady => window,
            Phase::Up => window * UP.of / UP.parts,
            Phase::Down => window * DOWN.of / DOWN.parts,
        }
    }

    /// Restarts the measurement of this phase after a disturbance.
    pub(crate) fn disturbed(&mut self) {
        self.begin(self.phase);
    }

    /// Adds a train. `least` is the shortest RTT, `frame` the airtime of a full frame.
    pub(crate) fn take(&mut self, run: MeasuredTrain, least: Duration, frame: Duration) {
        // A longer shortest RTT includes part of the extra delay.
        self.extra = self.extra.saturating_sub(least.saturating_sub(self.least));
        self.least = least;
        // The sender had less data than the window allows.
        if !run.filled {
            return self.begin(self.phase);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        self.bytes += run.arrived;
        self.time += run.time;
        self.trains += 1;
        let arrived = delivery_rate::bits(self.bytes, self.time);
        match self.phase {
            Phase::Steady if self.trains >= 1 << self.backoff() => self.try_next(arrived),
            Phase::Up if self.trains >= TRIAL_TRAINS => self.conclude_up(arrived, least, frame),
            Phase::Down if self.trains >= TRIAL_TRAINS => self.conclude_down(arrived, least, frame),
            _ => {}
        }
    }

    /// Binary logarithm of the trains between trials. An extra delay may be the own queue, so trials come sooner.
    fn backoff(&self) -> u32 {
        if self.extra.is_zero() { self.vain } else { self.vain.min(1) }
    }

    fn begin(&mut self, phase: Phase) {
        (self.phase, self.has_begun) = (phase, false);
        (self.bytes, self.time, self.trains) = (0, Duration::ZERO, 0);
    }

    fn try_next(&mut self, arrived: u64) {
        self.before = arrived;
        let is_down = std::mem::take(&mut self.is_down_next) && !self.extra.is_zero();
        self.begin(if is_down { Phase::Down } else { Phase::Up });
    }

    /// Keeps the larger window and tries a still larger one if the delivery rate grew.
    fn conclude_up(&mut self, arrived: u64, least: Duration, frame: Duration) {
        self.is_down_next = true;
        if arrived < part(self.before, UP_GAIN) {
            self.vain = (self.vain + 1).min(VAIN_MAX);
            return self.begin(Phase::Steady);
        }
        self.vain = 0;
        self.before = arrived;
        // The spare frames of the window count, too.
        self.extra = (self.extra + (least + self.extra) / 2 + frame).min(EXTRA_MAX);
        self.begin(Phase::Up);
    }

    /// Keeps the smaller window and tries a still smaller one if the delivery rate did not fall.
    fn conclude_down(&mut self, arrived: u64, least: Duration, frame: Duration) {
        if arrived < part(self.before, DOWN_LOSS) {
            return self.begin(Phase::Steady);
        }
        self.vain = 0;
        self.extra = self.extra.saturating_sub((least + self.extra) / 4 + frame);
        self.begin(if self.extra.is_zero() { Phase::Steady } else { Phase::Down });
    }
}

fn part(bits: u64, ratio: Ratio) -> u64 {
    bits / ratio.parts * ratio.of
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const LEAST: Duration = Duration::from_millis(50);
    /// In bytes a second.
    const RATE: u64 = 250_000;

    /// The delivery rate, in bytes a second, after `trains` trains over a hop whose acknowledgements take `elsewhere`
    /// longer than the shortest RTT for reasons other than the own queue.
    fn after(probe: &mut BdpProbe, trains: u32, elsewhere: Duration) -> u64 {
        let (mut arrives, mut best) = (RATE / 10, RATE / 10);
        for _ in 0..trains {
            let window = probe.tried(best * (LEAST + probe.extra()).as_millis() as u64 / 1000 * 9 / 8 + 4500);
            let time = (LEAST + elsewhere).max(Duration::from_micros(window * 1_000_000 / RATE));
            arrives = window * 1000 / time.as_millis() as u64;
            best = best.max(arrives.min(RATE));
            probe.take(MeasuredTrain { left: window, arrived: window, time, filled: true }, LEAST, MS(6));
        }
        arrives
    }

    #[test]
    fn extra_ack_delay_elsewhere_is_found_and_forgotten() {
        let mut probe = BdpProbe::default();
        let arrives = after(&mut probe, 100, MS(250));
        assert!(arrives > RATE * 9 / 10, "{arrives} with {probe:?}");
        after(&mut probe, 100, MS(0));
        assert!(probe.extra() < MS(30), "{probe:?}");
    }

    #[test]
    fn own_queue_adds_no_extra_delay() {
        let mut probe = BdpProbe::default();
        let arrives = after(&mut probe, 200, MS(0));
        assert!(probe.extra().is_zero() && arrives > RATE * 9 / 10, "{arrives} with {probe:?}");
    }
}
