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

/// Round-trip times of file data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrips {
    /// Smoothed RTT.
    pub(crate) usual: Duration,
    pub(crate) jitter: Duration,
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
        RoundTrips { usual, jitter }: RoundTrips,
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
            delivery.sample(at, 1.0, before.pop_front().flatten(), RoundTrips { usual: MS * 20, jitter: MS * 5 });
            before.push_back(delivery.latest());
        }
        let frame = delivery.frame().unwrap();
        assert!((MS * 2 / 3..=MS).contains(&frame), "{frame:?}");
    }
}
