//! Jitter of the path, and the delivery rate in spite of it.
//!
//! On some paths each packet takes a time of its own. Where blocks are short, that jitter exceeds the time of several
//! blocks on the slowest hop. Then no single RTT shows a queue, and the spacing of two replies says nothing of the
//! bottleneck bandwidth: a client that relied on it would take the path for slower, send less, and find it slower
//! still. So the window allows for jitter, and the pace comes from all that is answered within a round trip (as the
//! delivery rate of BBR).
//!
//! A queue of this client's own causes jitter, too. Jitter counts as the path's only where replies overtake one
//! another, which a queue does not do, or where frames are lost independently: there blocks are short and no RTT
//! includes more than a few of them.

use std::time::Duration;

use remora_base::Time;

/// Mean deviations that count as jitter.
const DEVIATIONS: u32 = 2;
/// Samples in a mean.
const SAMPLES: u32 = 16;
/// Samples before jitter is known.
const SAMPLES_MIN: u32 = 4;
/// Replies over which the share of overtaken ones is smoothed.
const ANSWERS: f64 = 32.0;
/// Share of overtaken replies from which the path reorders.
const OVERTAKEN_MIN: f64 = 0.05;

/// Jitter of the RTT of file data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jitter {
    mean: Option<Duration>,
    /// Deviation that the airtime of a request does not explain.
    differ: Duration,
    samples: u32,
    /// The latest answered transmission.
    latest: u64,
    /// Share of replies that come after one to a later transmission.
    overtaken: f64,
}

impl Jitter {
    /// Transmission `nth` of file data was answered after `rtt`; the slowest hop needs `airtime` for it.
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

    /// Whether replies overtake one another.
    pub(crate) fn overtakes(&self) -> bool {
        self.overtaken > OVERTAKEN_MIN
    }

    pub(crate) fn value(&self) -> Duration {
        if self.samples < SAMPLES_MIN { Duration::ZERO } else { self.differ }
    }
}

/// Round-trip times of file data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrips {
    pub(crate) usual: Duration,
    pub(crate) jitter: Duration,
}

/// Frames answered by a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    frames: f64,
    at: Time,
}

/// Frames before which a rate is unknown.
const FRAMES_MIN: f64 = 3.0;
/// Smoothed RTTs for which a rate is valid.
const LIFE: u32 = 10;
/// A rate is measured over at least this many times the jitter.
const LEAST: u32 = 3;

/// Delivery rate over a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryRate {
    latest: Option<Delivered>,
    /// Shortest time of a frame in this period and in the last.
    best: [Option<Duration>; 2],
    spell_began: Time,
}

impl DeliveryRate {
    /// Frames answered so far.
    pub(crate) fn latest(&self) -> Option<Delivered> {
        self.latest
    }

    /// The reply to a request that was sent after `before` brings `frames` more frames.
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

    /// Shortest time of a frame lately.
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
        // Every other reply is late, and overtaken.
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
