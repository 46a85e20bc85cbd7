//! A wireless cell: one half-duplex medium for all stations, and for each station a two-state
//! channel, good or bad (NFS/W 95). A frame is lost if any part of it overlaps a bad period; the
//! link layer resends it in the next good one. The channel changes with time, not with traffic.
//!
//! The sender's queue to one station is an M/G/1 queue with server breakdowns. A frame's
//! *completion time* lasts from its first start to its arrival, including lost attempts and bad
//! periods (Gaver 1962; Avi-Itzhak & Naor 1963), here under "preemptive repeat": an interrupted
//! attempt restarts from the beginning. A frame that arrives at an empty queue in a bad period
//! waits for its end (an exceptional first service, Welch 1964). Exact for one station with
//! exponential good periods and any bad ones.
//!
//! Other stations' frames take their share of the airtime. In good periods all queues together wait
//! like one (Pollaczek, Khinchine); because they take turns, the wait is divided as on a 1-limited
//! ring without walk ([`crate::formulas::ring`], Boxma & Meister 1987). Bad periods add what they would add
//! to a frame stretched by `1 / (1 - others)`, the pace at which a backlog drains (the shadow
//! server of Sevcik 1977): an approximation.

use serde::Serialize;

use crate::formula::{Band, Formula, Quantity};
use crate::quantity::Moments;

/// The distribution of bad periods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Periods {
    Exponential,
    /// Uniform from 0 to twice the mean.
    Uniform,
    Constant,
}

/// A two-state channel with exponential good periods; means in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TwoStateChannel {
    /// Mean length of good periods (above 0).
    pub good_s: f64,
    /// Mean length of bad periods; 0 for none.
    pub bad_s: f64,
    pub bad: Periods,
}

impl TwoStateChannel {
    /// Mean square of a bad period.
    fn bad_second(&self) -> f64 {
        let square = self.bad_s * self.bad_s;
        match self.bad {
            Periods::Exponential => 2.0 * square,
            Periods::Uniform => square * 4.0 / 3.0,
            Periods::Constant => square,
        }
    }

    /// E[exp(-s*D)] of a bad period D.
    fn bad_transform(&self, s: f64) -> f64 {
        let x = s * self.bad_s;
        match self.bad {
            Periods::Exponential => 1.0 / (1.0 + x),
            Periods::Uniform if x < 1e-6 => 1.0 - x,
            Periods::Uniform => -(-2.0 * x).exp_m1() / (2.0 * x),
            Periods::Constant => (-x).exp(),
        }
    }

    /// Share of time that is bad.
    pub(crate) fn bad_share(&self) -> f64 {
        self.bad_s / (self.good_s + self.bad_s)
    }

    fn breaks(&self) -> bool {
        self.bad_s > 0.0
    }

    /// The factor by which bad periods stretch a round of `round_s` seconds that uses the channel
    /// for `on_s` of them, in `gaps` separate uses. A bad period that begins while the channel is
    /// unused delays the round only by its remainder; the rest of a period counts as exponential.
    pub(crate) fn stretch(&self, round_s: f64, on_s: f64, gaps: f64) -> f64 {
        if !self.breaks() || round_s <= 0.0 {
            return 1.0;
        }
        let on = (on_s / round_s).min(1.0);
        let gap = (round_s - on_s).max(0.0) / gaps.max(1.0) / self.bad_s;
        let met = if gap > 1e-9 { -(-gap).exp_m1() / gap } else { 1.0 };
        1.0 + self.bad_s / self.good_s * (on + (1.0 - on) * met)
    }
}

/// A station's queue in a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Station {
    /// Stations that send, including the base.
    pub stations: f64,
    /// Frames a second of this queue.
    pub arrivals_per_s: f64,
    /// Airtime of a frame with its overhead: gaps, back-off, acknowledgement.
    pub airtime: Moments,
    /// Share of the airtime used by all others.
    pub others: f64,
    /// Frames a second of all others times the mean square of their airtime, in seconds.
    pub others_square_s: f64,
    /// The sum over all queues, including this one, of the squared shares of airtime.
    pub squares: f64,
    /// Frames that arrive at one queue during another one's turn, the maximum over all queues; 0
    /// where all are equal.
    pub turns: f64,
    /// Frames a second of the same station's other queue, whose channel is bad at the same time;
    /// part of the others.
    pub beside_per_s: f64,
    pub beside: Moments,
    pub channel: TwoStateChannel,
}

impl Station {
    /// A frame's time in a good period; `None` if the others leave no airtime.
    fn shared(&self) -> Option<Moments> {
        let left = 1.0 - self.others;
        let Moments { mean, second } = self.airtime;
        (left > 0.0).then(|| Moments { mean: mean / left, second: second / (left * left) })
    }

    /// Attempts until a frame arrives, each lost with the same probability.
    pub(crate) fn attempts(&self) -> f64 {
        if self.channel.breaks() { (self.airtime.mean / self.channel.good_s).exp() } else { 1.0 }
    }

    /// Both queues of the station as one, since bad periods block both.
    fn both(&self) -> Station {
        let rate = self.arrivals_per_s + self.beside_per_s;
        let part = if rate > 0.0 { self.beside_per_s / rate } else { 0.0 };
        let mix = |own: f64, beside: f64| own + part * (beside - own);
        let airtime = Moments {
            mean: mix(self.airtime.mean, self.beside.mean),
            second: mix(self.airtime.second, self.beside.second),
        };
        let others = (self.others - self.beside_per_s * self.beside.mean).max(0.0);
        Station { arrivals_per_s: rate, airtime, others, ..*self }
    }

    /// The wait of this queue when both queues of the station are backlogged and would wait
    /// `both_s` in order of arrival: they alternate until the shorter one is empty, then the longer
    /// one continues.
    fn turned(&self, both_s: f64) -> f64 {
        let (own, beside) = (self.arrivals_per_s * self.airtime.mean, self.beside_per_s * self.beside.mean);
        if own <= 0.0 || beside <= 0.0 {
            return both_s;
        }
        let share = |mine: f64, others_frame: f64, rate: f64| (mine + rate * others_frame) / (own + beside);
        if self.arrivals_per_s <= self.beside_per_s {
            both_s * share(own, self.beside.mean, self.arrivals_per_s)
        } else {
            let other = share(beside, self.airtime.mean, self.beside_per_s);
            both_s * (1.0 + (1.0 - other) * beside / own)
        }
    }

    fn load(&self) -> f64 {
        self.others + self.utilisation() * (1.0 - self.others)
    }

    fn utilisation(&self) -> f64 {
        completion(self).map_or(f64::INFINITY, |c| self.arrivals_per_s * c.mean)
    }

    fn loss(&self) -> f64 {
        if !self.channel.breaks() {
            return 0.0;
        }
        -(-self.airtime.mean / self.channel.good_s).exp_m1()
    }

    /// How much more the frames that take most of the time are lost than the average one. The
    /// longest frames' length is unknown to the model, and they are lost again and again.
    fn long_loss(&self) -> f64 {
        let both = self.both().airtime;
        if self.channel.breaks() { both.mean * (1.0 + both.scv()) * both.scv() / self.channel.good_s } else { 0.0 }
    }
}

const BANDS: &[Band<Station>] = &[
    Band { quantity: Quantity::BadShare, of: |s| s.channel.bad_share(), low: 0.0, high: 0.1 },
    Band { quantity: Quantity::Stations, of: |s| s.stations, low: 1.0, high: 10.0 },
    Band { quantity: Quantity::Load, of: Station::load, low: 0.0, high: 0.43 },
    Band { quantity: Quantity::FrameLoss, of: Station::loss, low: 0.0, high: 0.1 },
    Band { quantity: Quantity::LongLoss, of: Station::long_loss, low: 0.0, high: 0.0175 },
    Band { quantity: Quantity::Turns, of: |s| s.turns, low: 0.0, high: 0.3 },
];

/// The bands where the queue itself may be saturated: only the others' share counts.
const FRAME_BANDS: &[Band<Station>] = &[
    Band { quantity: Quantity::Stations, of: |s| s.stations, low: 1.0, high: 10.0 },
    Band { quantity: Quantity::Load, of: |s| s.others, low: 0.0, high: 0.3 },
    Band { quantity: Quantity::FrameLoss, of: Station::loss, low: 0.0, high: 0.04 },
    Band { quantity: Quantity::Turns, of: |s| s.turns, low: 0.0, high: 0.3 },
];

/// Time from a frame's first start to its arrival.
pub static COMPLETION: Formula<Station, Moments> = Formula {
    name: "two-state channel",
    source: "completion time under preemptive repeat (Gaver 1962, Avi-Itzhak & Naor 1963)",
    compute: completion,
    bands: FRAME_BANDS,
};

/// Mean time from a frame's arrival at its queue to its arrival at the far end, in seconds.
pub static DELAY: Formula<Station, f64> = Formula {
    name: "wireless delay",
    source: "M/G/1 with completion times for service and an exceptional first service (Welch 1964)",
    compute: delay,
    bands: BANDS,
};

/// Share of the airtime that delivers frames under saturation, after bad periods and interrupted
/// attempts.
pub static SHARE: Formula<Station, f64> = Formula {
    name: "channel's share",
    source: "mean airtime over mean completion time",
    compute: |s| Some(s.shared()?.mean / completion(s)?.mean),
    bands: FRAME_BANDS,
};

fn completion(s: &Station) -> Option<Moments> {
    let time = s.shared()?;
    if !s.channel.breaks() || time.mean <= 0.0 {
        return Some(time);
    }
    let of = |length: f64| {
        let own = repeat(length, &s.channel);
        // While others hold the medium a bad period delays the frame, but loses nothing.
        let shared = length * (time.mean / s.airtime.mean - 1.0);
        let held = shared / s.channel.good_s;
        let mean = own.mean + shared + held * s.channel.bad_s;
        let variance = (own.second - own.mean * own.mean).max(0.0) + held * s.channel.bad_second();
        Moments { mean, second: mean * mean + variance }
    };
    let mixed = Moments { mean: s.airtime.mean_of(|l| of(l).mean), second: s.airtime.mean_of(|l| of(l).second) };
    // A frame longer than any good period never arrives.
    (mixed.mean.is_finite() && mixed.second.is_finite()).then_some(mixed)
}

/// Completion time of a frame of `length` seconds that starts in a good period.
fn repeat(length: f64, w: &TwoStateChannel) -> Moments {
    let f = 1.0 / w.good_s;
    let through = (-f * length).exp();
    let cut = -(-f * length).exp_m1();
    if cut < 1e-12 {
        return Moments::constant(length);
    }
    // An interrupted attempt: its conditional length, and the bad period that follows.
    let t1 = 1.0 / f - length * through / cut;
    let t2 = (2.0 / (f * f) - through * (length * length + 2.0 * length / f + 2.0 / (f * f))) / cut;
    // Where frames are far shorter than good periods the differences above cancel.
    let (t1, t2) = if f * length < 1e-4 { (length / 2.0, length * length / 3.0) } else { (t1, t2) };
    let mean = t1 + w.bad_s;
    let variance = (t2 - t1 * t1 + w.bad_second() - w.bad_s * w.bad_s).max(0.0);
    let (failures, failures_variance) = (cut / through, cut / (through * through));
    let total = length + failures * mean;
    Moments { mean: total, second: total * total + failures * variance + failures_variance * mean * mean }
}

fn delay(s: &Station) -> Option<f64> {
    let both = s.both();
    let (held, good) = (wait(both.arrivals_per_s, completion(&both)?)?, wait(both.arrivals_per_s, both.shared()?)?);
    let bad_s = s.turned((held - good).max(0.0)) + exceptional(both.arrivals_per_s, &s.channel);
    let again_s = (completion(s)?.mean - s.shared()?.mean).max(0.0);
    let left = 1.0 - s.others - s.arrivals_per_s * s.airtime.mean;
    if left <= 0.0 {
        return None;
    }
    let queue = (s.others_square_s + s.arrivals_per_s * s.airtime.second) / (2.0 * left);
    // Queues take turns, so a queue with little traffic waits less.
    let (own, all) = (s.arrivals_per_s * s.airtime.mean, 1.0 - left);
    let square = if all > 0.0 { s.squares / all } else { 0.0 };
    let wait = queue * (left + own) / (left + square);
    Some(wait + s.airtime.mean + bad_s + again_s)
}

/// Wait in an M/G/1 queue, in seconds.
fn wait(arrivals_per_s: f64, service: Moments) -> Option<f64> {
    let rho = arrivals_per_s * service.mean;
    (rho < 1.0).then(|| arrivals_per_s * service.second / (2.0 * (1.0 - rho)))
}

/// Mean wait, in seconds, caused by arrivals at an empty queue in a bad period.
fn exceptional(l: f64, w: &TwoStateChannel) -> f64 {
    if !w.breaks() {
        return 0.0;
    }
    let f = 1.0 / w.good_s;
    if l * (w.bad_s + w.good_s) < 1e-3 {
        // So rare that each arrival finds the channel in its stationary state; below, differences
        // would cancel.
        return w.bad_second() / (2.0 * (w.good_s + w.bad_s));
    }
    let during = 1.0 - w.bad_transform(l);
    let next = f / (l + f);
    let again = 1.0 - next * w.bad_transform(l);
    let z1 = next * (w.bad_s - during / l).max(0.0) / again;
    let z2 = next * (w.bad_second() - 2.0 * w.bad_s / l + 2.0 * during / (l * l)).max(0.0) / again;
    (2.0 * z1 + l * z2) / (2.0 * (1.0 + l * z1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use remora_base::Rng;
    use std::time::Duration;

    const ALL: [Periods; 3] = [Periods::Exponential, Periods::Uniform, Periods::Constant];

    /// One queue alone.
    fn station(arrivals_per_s: f64, bad_s: f64, bad: Periods) -> Station {
        let channel = TwoStateChannel { good_s: 1.0, bad_s, bad };
        let airtime = Moments::constant(0.012);
        Station {
            stations: 2.0,
            arrivals_per_s,
            airtime,
            others: 0.0,
            others_square_s: 0.0,
            squares: (arrivals_per_s * 0.012f64).powi(2),
            turns: 0.0,
            beside_per_s: 0.0,
            beside: Moments::constant(0.0),
            channel,
        }
    }

    #[test]
    fn channel_without_bad_periods_is_an_mg1_queue() {
        let got = DELAY.at(&station(30.0, 0.0, Periods::Uniform));
        assert!((got.value().unwrap() - 0.012 * (1.0 + 0.36 / 1.28)).abs() < 1e-12, "{got:?}");
        assert!(got.outside().is_empty(), "{got:?}");
        // The others share one queue: 25 frames a second of this station, 25 of others.
        let both = Station {
            others: 0.3,
            others_square_s: 0.3 * 0.012,
            squares: 2.0 * 0.3 * 0.3,
            ..station(25.0, 0.0, Periods::Uniform)
        };
        assert!((DELAY.at(&both).value().unwrap() - 0.012 * (1.0 + 0.6 / 0.8)).abs() < 1e-12);
    }

    #[test]
    fn rare_frame_waits_for_residual_bad_period() {
        for bad in ALL {
            let near = DELAY.at(&station(1e-3, 0.08, bad)).value().copied().unwrap();
            let rare = DELAY.at(&station(1e-9, 0.08, bad)).value().copied().unwrap();
            assert!((near / rare - 1.0).abs() < 2e-3, "{bad:?}: {near} {rare}");
        }
    }

    #[test]
    fn share_excludes_bad_periods_and_interrupted_frames() {
        // (exp(f*s) - 1) * (1/f + B) for a frame of s: by hand for 12 ms, 1 s and 80 ms.
        let got = SHARE.at(&station(0.0, 0.08, Periods::Exponential));
        let expected = 0.012 / (0.012f64.exp_m1() * 1.08);
        assert!((got.value().unwrap() - expected).abs() < 1e-9, "{got:?}");
    }

    /// Mean delay in seconds of frames sent in order over good and bad periods, by simulation.
    fn simulated(s: &Station, frames: usize) -> f64 {
        let mut rng = Rng::stream(3, "weather");
        let mut draw = |mean: f64| rng.exponential(Duration::from_secs(1)).as_secs_f64() * mean;
        let (mut arrival, mut free, mut good_until, mut good_from) = (0.0f64, 0.0f64, draw(1.0), 0.0);
        let mut sum = 0.0;
        for _ in 0..frames {
            arrival += draw(1.0 / s.arrivals_per_s);
            let mut start = free.max(arrival);
            loop {
                start = start.max(good_from);
                if start + s.airtime.mean <= good_until {
                    break;
                }
                good_from = good_until + draw(s.channel.bad_s);
                good_until = good_from + draw(s.channel.good_s);
            }
            free = start + s.airtime.mean;
            sum += free - arrival;
        }
        sum / frames as f64
    }

    #[test]
    fn delay_equals_that_of_a_simulation() {
        for (rate, bad) in [(5.0, 0.16), (30.0, 0.08), (50.0, 0.16), (20.0, 0.5)] {
            let s = station(rate, bad, Periods::Exponential);
            let (model, run) = (*DELAY.at(&s).value().unwrap(), simulated(&s, 400_000));
            assert!((model / run - 1.0).abs() < 0.05, "{rate} {bad}: {model} {run}");
        }
    }

    proptest! {
        #[test]
        fn delay_grows_with_load_and_bad_periods(
            kind in 0usize..3, l in 0.1f64..40.0, more in 0.0f64..10.0, bad in 0.001f64..0.3, worse in 0.0f64..0.2,
        ) {
            let delay = |l, bad| DELAY.at(&station(l, bad, ALL[kind])).value().copied().unwrap_or(f64::INFINITY);
            prop_assert!(delay(l, bad) <= delay(l + more, bad) * (1.0 + 1e-9));
            prop_assert!(delay(l, bad) <= delay(l, bad + worse) * (1.0 + 1e-9));
        }
    }
}
