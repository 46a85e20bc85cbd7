//! Estimates the delivery rate of a hop from departures and acknowledgements: as in BBR, the windowed maximum over
//! trains (draft-cheng-iccrg-delivery-rate-estimation).

use std::time::Duration;

use remora_base::Time;

/// Rounds without growth by a quarter after which the rate counts as found, as in BBR's startup.
const LEVEL_ROUNDS: u32 = 3;
/// Half of the maximum filter's window.
const RATE_SPELL: Duration = Duration::from_secs(2);
/// Fewest frames of a train cut short.
const CUT_FRAMES_MIN: u64 = 4;

/// Windowed maximum of the delivery rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryRate {
    /// Maxima of the current and the previous half window, in bits a second.
    spells: [u64; 2],
    began: Time,
    /// The train being measured.
    train: Option<Train>,
    /// Bytes sent at the latest pause. A train across a pause does not show the rate of the medium.
    paused_at: Option<u64>,
    /// Startup: the rate to exceed, rounds without growth, and the confirmed bytes that end this round.
    grown_to: u64,
    flat_rounds: u32,
    round_ends: u64,
}

/// Frames sent back to back.
#[derive(Clone, Copy, Debug)]
struct Train {
    /// Confirmed bytes at its beginning, and its beginning.
    first: u64,
    began: Time,
    /// When the frame before its first was sent.
    sent: Time,
    /// Bytes lost since its beginning.
    lost: u64,
    /// Whether the window was full during the train.
    filled: bool,
}

/// One acknowledgement, as the estimator sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    /// Bytes of DATA known to have left.
    pub(crate) confirmed: u64,
    /// When the acknowledged frame was sent.
    pub(crate) sent: Time,
    /// Frames newly found lost.
    pub(crate) lost: u64,
}

/// The length of trains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainLimits {
    /// Shortest length in bytes.
    pub(crate) length: u64,
    /// Longest duration, after which a train of at least [`CUT_FRAMES_MIN`] frames is cut.
    pub(crate) longest: Duration,
    /// Cost of a full frame in bytes.
    pub(crate) frame: u64,
}

/// A measured train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredTrain {
    /// Bytes that left, less a frame, and bytes that arrived.
    pub(crate) left: u64,
    pub(crate) arrived: u64,
    pub(crate) time: Duration,
    /// Whether the window was full. Otherwise the sender may have had too little data.
    pub(crate) filled: bool,
}

impl MeasuredTrain {
    /// The rate in bits a second.
    pub(crate) fn bits(&self) -> u64 {
        bits(self.left, self.time)
    }
}

/// The rate of `bytes` in `time`, in bits a second.
pub(crate) fn bits(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 8_000_000_000 / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

impl DeliveryRate {
    pub(crate) fn new(now: Time) -> DeliveryRate {
        DeliveryRate { began: now, ..DeliveryRate::default() }
    }

    /// Records a pause after `sent` bytes.
    pub(crate) fn on_pause(&mut self, sent: u64) {
        self.paused_at = Some(sent);
    }

    /// Records that the window is full.
    pub(crate) fn on_full(&mut self) {
        if let Some(train) = &mut self.train {
            train.filled = true;
        }
    }

    /// Discounts `bytes` that count as departed without an acknowledgement.
    pub(crate) fn on_passed(&mut self, bytes: u64) {
        if let Some(train) = &mut self.train {
            train.first += bytes;
        }
    }

    /// Ends the current train without a measurement.
    pub(crate) fn end_train(&mut self) {
        self.train = None;
    }

    /// Starts the search for the rate anew.
    pub(crate) fn restart(&mut self) {
        (self.grown_to, self.flat_rounds) = (0, 0);
    }

    /// The estimate in bits a second; 0 before the first train.
    pub(crate) fn best(&self) -> u64 {
        self.spells[0].max(self.spells[1])
    }

    /// Whether the rate has stopped growing.
    pub(crate) fn is_level(&self) -> bool {
        self.flat_rounds >= LEVEL_ROUNDS
    }

    /// Handles an acknowledgement; returns the train that it completes.
    ///
    /// A train has a minimum length and counts one frame less: a single acknowledgement may be a frame late. An
    /// estimate that is too low costs nothing, because the window has spare frames. Acknowledgements delayed elsewhere
    /// arrive together and show no rate. So the last frame of a train must have been sent after the first
    /// acknowledgement, unless the train is cut. A train lasts at least as long as its transmission.
    pub(crate) fn take(&mut self, now: Time, ack: AckSample, limits: TrainLimits) -> Option<MeasuredTrain> {
        let AckSample { confirmed, sent, lost } = ack;
        let next = Train { first: confirmed, began: now, sent, lost: 0, filled: false };
        let train = self.train.get_or_insert(next);
        if self.paused_at.is_some_and(|at| (train.first..confirmed).contains(&at)) {
            *train = next;
            return None;
        }
        train.lost += lost * limits.frame;
        let bytes = confirmed.saturating_sub(train.first);
        let is_cut = now.since(train.began) > limits.longest && bytes >= CUT_FRAMES_MIN * limits.frame;
        if !is_cut && (sent < train.began || bytes < limits.length) {
            return None;
        }
        // Lost frames used airtime, too. But losses may also come from an overflowing queue, so they count for at most
        // a third of the arrived bytes.
        let arrived = bytes.saturating_sub(train.lost);
        let left = bytes.min(arrived + arrived / 3).saturating_sub(limits.frame);
        let run = MeasuredTrain {
            left,
            arrived,
            time: now.since(train.began).max(sent.since(train.sent)).max(Duration::from_nanos(1)),
            filled: train.filled,
        };
        *train = next;
        self.learn(now, run);
        Some(run)
    }

    /// A train with a window that was not full gives only a lower bound of the rate.
    fn learn(&mut self, now: Time, run: MeasuredTrain) {
        if !run.filled && run.bits() <= self.best() {
            return;
        }
        if now.since(self.began) > RATE_SPELL {
            self.spells = [0, self.spells[0]];
            self.began = now;
        }
        self.spells[0] = self.spells[0].max(run.bits());
    }

    /// Counts rounds without growth, where `sent` bytes were sent and `confirmed` have left. Before the first train
    /// there is no rate: small frames of other destinations would end the search at once.
    pub(crate) fn round(&mut self, confirmed: u64, sent: u64) {
        if confirmed < self.round_ends || self.best() == 0 {
            return;
        }
        self.round_ends = sent;
        if self.best() > self.grown_to.saturating_add(self.grown_to / 4) {
            self.grown_to = self.best();
            self.flat_rounds = 0;
        } else {
            self.flat_rounds = self.flat_rounds.saturating_add(1);
        }
    }
}
