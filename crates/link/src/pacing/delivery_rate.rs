//! The rate at which a hop carries frames, from when they are sent and acknowledged: as BBR does, the most
//! that was delivered over a while (draft-cheng-iccrg-delivery-rate-estimation).

use std::time::Duration;

use remora_base::Time;

/// The learned rate has found its level when it has not grown by a quarter in this many rounds.
const LEVEL_ROUNDS: u32 = 3;
/// How long a learned maximum is believed.
const RATE_SPELL: Duration = Duration::from_secs(2);
/// Frames in a train that is cut, at least.
const CUT_FRAMES_MIN: u64 = 4;

/// The rate at which bytes arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned {
    /// The most in this spell and in the last, in bits a second.
    spells: [u64; 2],
    began: Time,
    /// The train being measured.
    train: Option<Train>,
    /// Bytes sent when we last let the medium idle: a train across that says nothing of its rate.
    paused_at: Option<u64>,
    /// Until the level is found: the rate to grow from, rounds without growth, and the bytes
    /// whose arrival ends this round.
    grown_to: u64,
    flat_rounds: u32,
    round_ends: u64,
}

/// Frames on their way one after another.
#[derive(Clone, Copy, Debug)]
struct Train {
    /// Bytes confirmed when it began, and when they were.
    first: u64,
    began: Time,
    /// When the frame before its first was sent.
    sent: Time,
    /// Bytes lost since.
    lost: u64,
    /// Whether as much was under way as may be.
    filled: bool,
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Bytes that have left by now.
    pub(crate) confirmed: u64,
    /// When the frame that was answered had been sent.
    pub(crate) sent: Time,
    /// Frames lost among the latest.
    pub(crate) lost: u64,
}

/// How trains are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// Over so many bytes,
    pub(crate) length: u64,
    /// or over this time, if it takes longer.
    pub(crate) longest: Duration,
    /// What a full frame takes.
    pub(crate) frame: u64,
}

/// A train that was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Bytes that left, less a frame, and those that arrived.
    pub(crate) left: u64,
    pub(crate) arrived: u64,
    pub(crate) time: Duration,
    /// Whether as much was under way as may be: else what there was to send may have been the limit.
    pub(crate) filled: bool,
}

impl Run {
    /// In bits a second.
    pub(crate) fn bits(&self) -> u64 {
        bits(self.left, self.time)
    }
}

/// So many bytes in that time, in bits a second.
pub(crate) fn bits(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 8_000_000_000 / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

impl Learned {
    pub(crate) fn new(now: Time) -> Learned {
        Learned { began: now, ..Learned::default() }
    }

    /// After `sent` bytes there was a pause.
    pub(crate) fn on_pause(&mut self, sent: u64) {
        self.paused_at = Some(sent);
    }

    /// As much is under way as may be.
    pub(crate) fn on_full(&mut self) {
        if let Some(train) = &mut self.train {
            train.filled = true;
        }
    }

    /// `bytes` are counted as gone, and nobody says that they arrived.
    pub(crate) fn on_passed(&mut self, bytes: u64) {
        if let Some(train) = &mut self.train {
            train.first += bytes;
        }
    }

    /// What comes next does not follow on what came last.
    pub(crate) fn end_train(&mut self) {
        self.train = None;
    }

    /// The level is to be found anew.
    pub(crate) fn restart(&mut self) {
        (self.grown_to, self.flat_rounds) = (0, 0);
    }

    /// In bits a second; 0 while nothing is known.
    pub(crate) fn best(&self) -> u64 {
        self.spells[0].max(self.spells[1])
    }

    /// Whether it has ceased to grow.
    pub(crate) fn is_level(&self) -> bool {
        self.flat_rounds >= LEVEL_ROUNDS
    }

    /// Takes what an acknowledgement told; returns the train that it was the end of.
    ///
    /// Trains are measured over a length and count one frame less than they have: a single acknowledgement
    /// may be late by a frame it had to wait for, and a rate too low costs nothing, for a few frames more
    /// than it calls for are under way. Acknowledgements that waited somewhere come all at once, and tell of
    /// no rate: so the last frame was sent after the first was answered, unless the train is cut, and what was
    /// sent more slowly than it was answered counts with the time it took to send.
    pub(crate) fn take(&mut self, now: Time, told: Told, measure: Measure) -> Option<Run> {
        let Told { confirmed, sent, lost } = told;
        let next = Train { first: confirmed, began: now, sent, lost: 0, filled: false };
        let train = self.train.get_or_insert(next);
        if self.paused_at.is_some_and(|at| (train.first..confirmed).contains(&at)) {
            *train = next;
            return None;
        }
        train.lost += lost * measure.frame;
        let bytes = confirmed.saturating_sub(train.first);
        let is_cut = now.since(train.began) > measure.longest && bytes >= CUT_FRAMES_MIN * measure.frame;
        if !is_cut && (sent < train.began || bytes < measure.length) {
            return None;
        }
        // What the air lost has left all the same. But losses may also be a queue's that
        // overflows: they count for no more than a third of what arrived.
        let arrived = bytes.saturating_sub(train.lost);
        let left = bytes.min(arrived + arrived / 3).saturating_sub(measure.frame);
        let run = Run {
            left,
            arrived,
            time: now.since(train.began).max(sent.since(train.sent)).max(Duration::from_nanos(1)),
            filled: train.filled,
        };
        *train = next;
        self.learn(now, run);
        Some(run)
    }

    /// A train that was not all that may be under way tells only that the hop carries as much as that.
    fn learn(&mut self, now: Time, run: Run) {
        if !run.filled && run.bits() <= self.best() {
            return;
        }
        if now.since(self.began) > RATE_SPELL {
            self.spells = [0, self.spells[0]];
            self.began = now;
        }
        self.spells[0] = self.spells[0].max(run.bits());
    }

    /// The same, and so much was `sent`: counts the rounds without growth. Before any train is measured there is nothing
    /// that could grow: others' few frames would make it level at nothing, and no train come to its end.
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
