//! How long what is under way takes to be answered, beyond the shortest round trip.
//!
//! Where the rate is learned the window is rate times that time, and the rate learned is the window over
//! it: if answers wait behind what the other end sends, or for a busy machine, too short a window passes for
//! a slow hop and stays. That a longer time is not a queue of ours is told by trial: with half as much
//! again under way more arrives then, as in the probing of BBR. If a queue of ours is all that grows, the
//! trial was in vain, and less is tried where some of the time was found so.

use std::time::Duration;

use crate::pacing::delivery_rate::{self, Run};

/// No more is believed to be others' doing.
const EXTRA_MAX: Duration = Duration::from_secs(1);
/// A trial has half as much again under way, or a quarter less.
const UP: (u64, u64) = (3, 2);
const DOWN: (u64, u64) = (3, 4);
/// It goes on if so much more arrives, or so much at least. Of a queue that we share with others half as much again
/// gains less than that, once a quarter of it is ours.
const UP_GAIN: (u64, u64) = (4, 3);
const DOWN_LOSS: (u64, u64) = (15, 16);
/// Trains that show what a trial makes of it, after one that began before.
const TRIAL_TRAINS: u32 = 3;
/// Trains between trials are doubled for each of so many in vain.
const VAIN_MAX: u32 = 4;

/// The time, and what is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    extra: Duration,
    /// The shortest round trip as it was last.
    least: Duration,
    phase: Phase,
    /// Whether the next train is the first that the phase has to itself.
    has_begun: bool,
    /// What arrived in this phase, and how many trains of it.
    bytes: u64,
    time: Duration,
    trains: u32,
    /// What arrived before the trial, in bits a second.
    before: u64,
    /// Trials in vain since the last that was not.
    vain: u32,
    /// Whether the next trial is one with less.
    is_down_next: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Steady,
    Up,
    Down,
}

impl Span {
    /// The time beyond the shortest round trip.
    pub(crate) fn extra(&self) -> Duration {
        self.extra
    }

    /// Whether more is under way than usual.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// What may be under way now, where it were `window` without a trial.
    pub(crate) fn tried(&self, window: u64) -> u64 {
        match self.phase {
            Phase::Steady => window,
            Phase::Up => window * UP.0 / UP.1,
            Phase::Down => window * DOWN.0 / DOWN.1,
        }
    }

    /// Something else was the matter: this phase is to be measured anew.
    pub(crate) fn disturbed(&mut self) {
        self.begin(self.phase);
    }

    /// Takes a train; `least` is the shortest round trip, `frame` what a full frame takes.
    pub(crate) fn take(&mut self, run: Run, least: Duration, frame: Duration) {
        // What is no more beyond it.
        self.extra = self.extra.saturating_sub(least.saturating_sub(self.least));
        self.least = least;
        // What there is to send is the limit.
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
            Phase::Steady if self.trains >= 1 << self.patience() => self.try_next(arrived),
            Phase::Up if self.trains >= TRIAL_TRAINS => self.conclude_up(arrived, least, frame),
            Phase::Down if self.trains >= TRIAL_TRAINS => self.conclude_down(arrived, least, frame),
            _ => {}
        }
    }

    /// How many times the trains between trials are doubled: with a time that may be a queue of ours, it is to be
    /// found out soon.
    fn patience(&self) -> u32 {
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

    /// More still, if that much arrived.
    fn conclude_up(&mut self, arrived: u64, least: Duration, frame: Duration) {
        self.is_down_next = true;
        if arrived < part(self.before, UP_GAIN) {
            self.vain = (self.vain + 1).min(VAIN_MAX);
            return self.begin(Phase::Steady);
        }
        self.vain = 0;
        self.before = arrived;
        // The few spare frames count, too.
        self.extra = (self.extra + (least + self.extra) / 2 + frame).min(EXTRA_MAX);
        self.begin(Phase::Up);
    }

    /// Less still, if no less arrived.
    fn conclude_down(&mut self, arrived: u64, least: Duration, frame: Duration) {
        if arrived < part(self.before, DOWN_LOSS) {
            return self.begin(Phase::Steady);
        }
        self.vain = 0;
        self.extra = self.extra.saturating_sub((least + self.extra) / 4 + frame);
        self.begin(if self.extra.is_zero() { Phase::Steady } else { Phase::Down });
    }
}

fn part(bits: u64, (of, parts): (u64, u64)) -> u64 {
    bits / parts * of
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const LEAST: Duration = Duration::from_millis(50);
    /// Bytes a second.
    const RATE: u64 = 250_000;

    /// What arrives in a second after so many trains, of a hop whose answers take `elsewhere` longer than the
    /// shortest round trip, where they do not wait for ours.
    fn after(span: &mut Span, trains: u32, elsewhere: Duration) -> u64 {
        let (mut arrives, mut best) = (RATE / 10, RATE / 10);
        for _ in 0..trains {
            let window = span.tried(best * (LEAST + span.extra()).as_millis() as u64 / 1000 * 9 / 8 + 4500);
            let time = (LEAST + elsewhere).max(Duration::from_micros(window * 1_000_000 / RATE));
            arrives = window * 1000 / time.as_millis() as u64;
            best = best.max(arrives.min(RATE));
            span.take(Run { left: window, arrived: window, time, filled: true }, LEAST, MS(6));
        }
        arrives
    }

    #[test]
    fn a_time_that_answers_spend_elsewhere_is_found_and_forgotten() {
        let mut span = Span::default();
        let arrives = after(&mut span, 100, MS(250));
        assert!(arrives > RATE * 9 / 10, "{arrives} with {span:?}");
        after(&mut span, 100, MS(0));
        assert!(span.extra() < MS(30), "{span:?}");
    }

    #[test]
    fn a_queue_of_our_own_is_none() {
        let mut span = Span::default();
        let arrives = after(&mut span, 200, MS(0));
        assert!(span.extra().is_zero() && arrives > RATE * 9 / 10, "{arrives} with {span:?}");
    }
}
