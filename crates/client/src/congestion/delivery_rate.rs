//! Paths on which each packet takes a time of its own: how much of a round trip is neither the way nor a queue.
//!
//! Where blocks are short, that is more than several of them take on the slowest hop. Then no single round trip tells
//! whether anything is queued there, and the spacing of two answers says nothing of the hop's pace: who went by that
//! would take the path for slower, send less, and find it slower still. So what round trips differ by is allowed for,
//! and the pace is reckoned from all that is answered within a round trip, as BBR does with its delivery rate.
//!
//! A queue of this client's own makes round trips differ, too. It is believed to be the path only where answers
//! overtake one another, which no queue lets them do, or frames are lost one by one, where blocks are short and
//! no round trip waits for more than a few of them.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::loss::detector::LossDetector;
use crate::transport::block_size::Shared;
use crate::transport::block_size::frames;

/// So many mean deviations are allowed for.
const DEVIATIONS: u32 = 2;
/// Samples that the means are of.
const SAMPLES: u32 = 16;
/// Samples before which nothing is known.
const SAMPLES_MIN: u32 = 4;
/// The answers of which the share is reckoned that others have overtaken.
const ANSWERS: f64 = 32.0;
/// The share from which on a path lets them do that.
const OVERTAKEN_MIN: f64 = 0.05;
/// So many requests' time round trips may differ by through a queue of few.
const QUEUE_REQUESTS: u32 = 4;

/// How round trips of file data differ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jitter {
    mean: Option<Duration>,
    /// What they differ by that a request's own time on the slowest hop does not explain.
    differ: Duration,
    samples: u32,
    /// The latest transmission that was answered.
    latest: u64,
    /// The share of answers that come after those to later transmissions.
    overtaken: f64,
}

impl Jitter {
    /// The `nth` transmission of file data was answered after `rtt`; the slowest hop needs `airtime` for it.
    pub(crate) fn sample(&mut self, nth: u64, rtt: Duration, airtime: Duration) {
        let overtaken = f64::from(u8::from(nth < self.latest));
        self.latest = self.latest.max(nth);
        self.overtaken += (overtaken - self.overtaken) / ANSWERS;
        let mean = self.mean.unwrap_or(rtt);
        self.mean = Some((mean * (SAMPLES - 1) + rtt) / SAMPLES);
        let differ = (mean.abs_diff(rtt) * DEVIATIONS).saturating_sub(airtime);
        self.samples = (self.samples + 1).min(SAMPLES);
        self.differ = (self.differ * (self.samples - 1) + differ) / self.samples;
    }

    /// Whether answers overtake one another.
    pub(crate) fn overtakes(&self) -> bool {
        self.overtaken > OVERTAKEN_MIN
    }

    /// What round trips differ by.
    pub(crate) fn value(&self) -> Duration {
        if self.samples < SAMPLES_MIN { Duration::ZERO } else { self.differ }
    }
}

/// So many frames were answered until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    frames: f64,
    at: Time,
}

/// Frames answered in less than this many say nothing of a pace.
const FRAMES_MIN: f64 = 3.0;
/// How many usual round trips a pace is believed.
const LIFE: u32 = 10;
/// So many times longer than what round trips differ by is the least time that a pace is reckoned over.
const LEAST: u32 = 3;

/// The pace of answers: over a round trip, and from an answer to an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryRate {
    latest: Option<Delivered>,
    /// The least time for a frame in this spell and in the last.
    best: [Option<Duration>; 2],
    spell_began: Time,
}

impl DeliveryRate {
    /// What was answered so far.
    pub(crate) fn latest(&self) -> Option<Delivered> {
        self.latest
    }

    /// `frames` more are answered at `now`, by the answer to what was sent after `before`. Round trips take `usual`
    /// and differ by `jitter`.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        frames: f64,
        before: Option<Delivered>,
        (usual, jitter): (Duration, Duration),
    ) {
        let total = self.latest.map_or(0.0, |p| p.frames) + frames;
        self.latest = Some(Delivered { frames: total, at: now });
        let Some((took, frames)) = before.map(|p| (now.since(p.at), total - p.frames)) else { return };
        if took < jitter * LEAST || frames < FRAMES_MIN {
            return;
        }
        if now.since(self.spell_began) > usual * LIFE {
            (self.best, self.spell_began) = ([None, self.best[0]], now);
        }
        let each = took.div_f64(frames);
        self.best[0] = Some(self.best[0].map_or(each, |best| best.min(each)));
    }

    /// The least time that a frame was seen to take of late.
    pub(crate) fn frame(&self) -> Option<Duration> {
        self.best.into_iter().flatten().min()
    }
}

impl LossDetector {
    /// What the answer to `call` says of the path's jitter, and of its pace in spite of that.
    pub(crate) fn sample_delivery(&mut self, now: Time, call: &PendingCall, sent: Transmission, rtt: Option<Duration>) {
        if self.is_stream {
            return;
        }
        let usual = self.rtt(call.class).smoothed().map_or(now.since(sent.at), |(mean, _)| mean);
        self.delivery.sample(now, frames(call.bytes()), sent.before, (usual, self.jitter(Duration::ZERO)));
        if let Some(rtt) = rtt {
            self.jitter.sample(sent.nth, rtt, self.airtime(call.bytes()).unwrap_or(rtt));
        }
    }

    /// What round trips differ by if that is the path's doing, and more than the slowest hop needs for a few messages
    /// that take `airtime` each. Where nothing overtakes it may be a queue after all, which is longer than one of them.
    pub(crate) fn jitter(&self, airtime: Duration) -> Duration {
        let value = self.jitter.value();
        let is_path = match self.jitter.overtakes() {
            true => value > airtime,
            false => value > airtime * QUEUE_REQUESTS && self.loss().is_some_and(|loss| loss > 0.0),
        };
        if is_path { value } else { Duration::ZERO }
    }

    /// What of it the window is to allow for, by requests that take `spacing`. Where somebody waits for something
    /// small only what is certainly no queue.
    pub(crate) fn tolerance(&self, now: Time, spacing: Option<Duration>) -> Duration {
        let is_sure = self.jitter.overtakes() || self.shared(now) != Shared::Now;
        spacing.filter(|_| is_sure).map_or(Duration::ZERO, |spacing| self.jitter(spacing))
    }

    /// What was answered so far.
    pub(crate) fn progress(&self) -> Option<Delivered> {
        self.delivery.latest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    pub(crate) fn a_steady_path_has_none_and_what_differs_is_found_soon() {
        let mut jitter = Jitter::default();
        (0..100).for_each(|nth| jitter.sample(nth, MS * 80, MS));
        assert_eq!((jitter.value(), jitter.overtakes()), (Duration::ZERO, false));
        // ExtraLatency by turns, and each second one is overtaken.
        (0..50u32).for_each(|n| jitter.sample(u64::from(100 + (n ^ 1)), MS * (80 + 20 * (n % 2)), MS));
        assert!((MS * 10..MS * 25).contains(&jitter.value()), "{:?}", jitter.value());
        assert!(jitter.overtakes());
    }

    #[test]
    pub(crate) fn the_pace_is_that_of_a_round_trip_whatever_comes_together() {
        let mut delivery = DeliveryRate::default();
        let mut before = std::collections::VecDeque::from([None; 20]);
        // A frame a millisecond, of which ten come together.
        for ms in 1..=300u64 {
            let at = Time::from_millis(ms.next_multiple_of(10));
            delivery.sample(at, 1.0, before.pop_front().flatten(), (MS * 20, MS * 5));
            before.push_back(delivery.latest());
        }
        let frame = delivery.frame().unwrap();
        assert!((MS * 2 / 3..=MS).contains(&frame), "{frame:?}");
    }
}
