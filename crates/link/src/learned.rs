//! The rate at which a hop carries frames, from when they are acknowledged: as BBR does, the most that
//! was delivered over a while.

use std::time::Duration;

use remora_base::Time;

/// The learned rate has found its level when it has not grown by a quarter in this many rounds.
const LEVEL_ROUNDS: u32 = 3;
/// How long a learned maximum is believed.
const RATE_SPELL: Duration = Duration::from_secs(2);

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
    /// Bytes lost since.
    lost: u64,
}

impl Learned {
    pub(crate) fn new(now: Time) -> Learned {
        Learned { began: now, ..Learned::default() }
    }

    /// After `sent` bytes there was a pause.
    pub(crate) fn on_pause(&mut self, sent: u64) {
        self.paused_at = Some(sent);
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

    /// `confirmed` bytes have left by now, with `lost` frames lost among the latest. Trains are
    /// measured over at least `length` bytes and count one `frame` less than they have: a
    /// single acknowledgement may be late by a frame it had to wait for, and a rate too low
    /// costs nothing, for a few frames more than it calls for are under way.
    pub(crate) fn take(&mut self, now: Time, confirmed: u64, lost: u64, length: u64, frame: u64) {
        let Some(train) = &mut self.train else {
            self.train = Some(Train { first: confirmed, began: now, lost: 0 });
            return;
        };
        if self.paused_at.is_some_and(|at| (train.first..confirmed).contains(&at)) {
            *train = Train { first: confirmed, began: now, lost: 0 };
            return;
        }
        train.lost += lost * frame;
        let bytes = confirmed.saturating_sub(train.first);
        if bytes < length {
            return;
        }
        // What the air lost has left all the same. But losses may also be a queue's that
        // overflows: they count for no more than a third of what arrived.
        let arrived = bytes.saturating_sub(train.lost);
        let left = bytes.min(arrived + arrived / 3).saturating_sub(frame);
        let nanos = now.since(train.began).as_nanos().max(1);
        self.train = Some(Train { first: confirmed, began: now, lost: 0 });
        let bits = u64::try_from(u128::from(left) * 8_000_000_000 / nanos).unwrap_or(u64::MAX);
        if now.since(self.began) > RATE_SPELL {
            self.spells = [0, self.spells[0]];
            self.began = now;
        }
        self.spells[0] = self.spells[0].max(bits);
    }

    /// The same, and so much was `sent`: counts the rounds without growth.
    pub(crate) fn round(&mut self, confirmed: u64, sent: u64) {
        if confirmed < self.round_ends {
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
