//! Wireless cells in cells: queues that take turns, and what breakdowns add ([`remora_model::wifi`]).

use remora_model::wifi::Periods;

use super::book::Pad;
use super::expr::{Expr, when};
use super::traffic::{Moments, Traffic};

/// Good and bad periods of a station's channel.
#[derive(Clone, Debug)]
pub(super) struct Weather {
    pub(super) good: Expr,
    pub(super) bad: Expr,
    pub(super) periods: Periods,
}

impl Weather {
    /// Mean square of a bad period.
    fn bad_second(&self) -> Expr {
        let square = self.bad.powi(2);
        match self.periods {
            Periods::Exponential => 2.0 * square,
            Periods::Uniform => square * 4.0 / 3.0,
            Periods::Constant => square,
        }
    }

    /// E[exp(-s*D)] of a bad period D.
    fn bad_transform(&self, s: &Expr) -> Expr {
        let x = s * &self.bad;
        match self.periods {
            Periods::Exponential => 1.0 / (1.0 + x),
            Periods::Uniform => when(&x.lt(1e-6), 1.0 - &x, (1.0 - (0.0 - 2.0 * &x).exp()) / (2.0 * &x)),
            Periods::Constant => (0.0 - x).exp(),
        }
    }

    /// By how much bad periods stretch a round that needs the channel for a part of it, with gaps between.
    pub(super) fn stretch(&self, pad: &mut Pad<'_>, round: &Expr, on: &Expr, gaps: &Expr) -> Expr {
        let part = pad.put("part of the round that needs the channel", "", (on / round).min(1.0));
        let gap = (round - on).max(0.0) / gaps.max(1.0) / &self.bad;
        let met = when(&gap.gt(1e-9), (1.0 - (0.0 - &gap).exp()) / &gap, 1.0);
        let stretch = 1.0 + &self.bad / &self.good * (&part + (1.0 - &part) * met);
        pad.put("bad periods stretch the round by", "", when(&self.bad.gt(0.0), stretch, 1.0))
    }
}

/// A station's queue in a cell, and its other one, whose channel is bad at the same time.
pub(super) struct Station<'a> {
    pub(super) rate: &'a Expr,
    pub(super) overhead: &'a Expr,
    pub(super) weather: &'a Weather,
    /// All that is sent in the cell.
    pub(super) all: &'a Traffic,
    pub(super) queue: &'a Traffic,
    pub(super) beside: &'a Traffic,
    /// The sum over all queues of the square of each one's share of the airtime.
    pub(super) squares: &'a Expr,
}

/// What a frame waits, and what tells whether the formula holds.
pub(super) struct Delay {
    pub(super) delay: Expr,
    pub(super) load: Expr,
    pub(super) loss: Expr,
}

impl Station<'_> {
    /// Mean time from a frame's arrival at its queue to its arrival at the other end.
    pub(super) fn delay(&self, pad: &mut Pad<'_>) -> Delay {
        let (rate, overhead, own) = (self.rate, self.overhead, &self.queue.pps);
        let airtime = self.queue.service(pad, "airtime", rate, overhead);
        let beside = self.beside.service(pad, "airtime of the other queue", rate, overhead);
        let others = (self.all.airtime(rate, overhead) - self.queue.airtime(rate, overhead)).max(0.0);
        let others = pad.put("airtime of all others", "", others);
        let square = (self.all.square(rate, overhead) - self.queue.square(rate, overhead)).max(0.0);
        let others_square = pad.put("others' squares", "s", square);
        let bad = self.held_up(pad, (&airtime, &beside), &others);
        let alone = Completion::put(pad, "one frame", self.weather, &airtime, &others);
        let again = pad.put("sent again", "s", (&alone.time.mean - &alone.shared.mean).max(0.0));
        let mine = pad.put("own airtime", "", own * &airtime.mean);
        let left = pad.put("airtime left", "", 1.0 - &others - &mine);
        let queue = (others_square + own * &airtime.second) / (2.0 * &left);
        let all = 1.0 - &left;
        let square = when(&all.gt(0.0), self.squares / &all, 0.0);
        let wait = queue * (&left + &mine) / (&left + square);
        let wait = pad.put("wait for the medium", "s", wait.only_if(&left.gt(0.0)));
        let delay = pad.put("delay of the queue's average frame", "s", wait + &airtime.mean + bad + again);
        let load = &others + own * &alone.time.mean * (1.0 - &others);
        let load = pad.put("load, bad periods included", "", load);
        let loss = when(&self.weather.bad.gt(0.0), 1.0 - (0.0 - &airtime.mean / &self.weather.good).exp(), 0.0);
        Delay { delay, load, loss: pad.put("chance that a frame meets a bad period", "", loss) }
    }

    /// What bad periods add to both queues of the station, and this one's part of it.
    fn held_up(&self, pad: &mut Pad<'_>, (airtime, beside): (&Moments, &Moments), others: &Expr) -> Expr {
        let (own, other) = (&self.queue.pps, &self.beside.pps);
        let rate = pad.put("both queues: frames", "1/s", own + other);
        let part = pad.put("part of the other queue", "", when(&rate.gt(0.0), other / &rate, 0.0));
        let mix = |own: &Expr, beside: &Expr| own + &part * (beside - own);
        let mean = pad.put("both queues: mean airtime", "s", mix(&airtime.mean, &beside.mean));
        let second = pad.put("both queues: mean of its square", "s2", mix(&airtime.second, &beside.second));
        let rest = pad.put("airtime of other stations", "", (others - other * &beside.mean).max(0.0));
        let both = Completion::put(pad, "both queues", self.weather, &Moments { mean, second }, &rest);
        let wait = |pad: &mut Pad<'_>, label: &str, time: &Moments| {
            let busy = &rate * &time.mean;
            let wait = &rate * &time.second / (2.0 * (1.0 - &busy));
            pad.put(label, "s", wait.only_if(&busy.lt(1.0)))
        };
        let held = wait(pad, "both queues: wait with bad periods", &both.time);
        let good = wait(pad, "both queues: wait without", &both.shared);
        let turned = self.turned(pad, &(held - good).max(0.0), (airtime, beside));
        let exceptional = exceptional(pad, &rate, self.weather);
        pad.put("what bad periods add", "s", turned + exceptional)
    }

    /// What this queue waits where both would wait `both` in the order they came: they take turns.
    fn turned(&self, pad: &mut Pad<'_>, both: &Expr, (airtime, beside): (&Moments, &Moments)) -> Expr {
        let (fewer, more) = (&self.queue.pps, &self.beside.pps);
        let own = pad.put("own airtime while the channel is good", "", fewer * &airtime.mean);
        let other = pad.put("the other queue's", "", more * &beside.mean);
        let share = |mine: &Expr, frame: &Expr, rate: &Expr| (mine + rate * frame) / (&own + &other);
        let less = share(&own, &beside.mean, fewer);
        let others = share(&other, &airtime.mean, more);
        let rest = 1.0 + (1.0 - others) * &other / &own;
        let turns = when(&fewer.le(more), less, rest);
        let turned = when(&own.gt(0.0).and(&other.gt(0.0)), both * turns, both);
        pad.put("what gathers in bad periods", "s", turned)
    }
}

/// A frame's time from its first start to its arrival (Gaver 1962, Avi-Itzhak & Naor 1963).
struct Completion {
    /// As long as the channel is good, beside the others.
    shared: Moments,
    time: Moments,
}

impl Completion {
    fn put(pad: &mut Pad<'_>, what: &str, weather: &Weather, airtime: &Moments, others: &Expr) -> Completion {
        let left = 1.0 - others;
        let mean = (&airtime.mean / &left).only_if(&others.lt(1.0));
        let mean = pad.put(&format!("{what}: time beside others"), "s", mean);
        let square = pad.put(&format!("{what}: mean of its square"), "s2", &airtime.second / left.powi(2));
        let shared = Moments { mean, second: square };
        let points = airtime.points(pad, what);
        let longer = pad.put(&format!("{what}: others' share"), "", &shared.mean / &airtime.mean - 1.0);
        let of = |pad: &mut Pad<'_>, which: &str, length: &Expr| {
            let own = repeat(pad, &format!("{what}, {which}"), length, weather);
            let apart = length * &longer;
            let held = &apart / &weather.good;
            let mean = &own.mean + apart + &held * &weather.bad;
            let mean = pad.put(&format!("{what}, {which}: until it has arrived"), "s", mean);
            let second = mean.powi(2) + own.variance() + held * weather.bad_second();
            let second = pad.put(&format!("{what}, {which}: mean of its square"), "s2", second);
            Moments { mean, second }
        };
        let short = of(pad, "shorter", &points.short);
        let long = of(pad, "longer", &points.long);
        let breaks = weather.bad.gt(0.0).and(&shared.mean.gt(0.0));
        let mean = when(&breaks, points.mix(&short.mean, &long.mean), &shared.mean);
        let second = when(&breaks, points.mix(&short.second, &long.second), &shared.second);
        let mean = pad.put(&format!("{what}: until arrival"), "s", mean);
        let second = pad.put(&format!("{what}: until arrival, mean of the square"), "s2", second);
        Completion { shared, time: Moments { mean, second } }
    }
}

/// Completion time of a frame of `length` that starts in a good period.
fn repeat(pad: &mut Pad<'_>, what: &str, length: &Expr, w: &Weather) -> Moments {
    let f = 1.0 / &w.good;
    let through = pad.put(&format!("{what}: gets through"), "", (0.0 - &f * length).exp());
    let cut = pad.put(&format!("{what}: is cut off"), "", 1.0 - &through);
    let few = (&f * length).lt(1e-4);
    let one = 1.0 / &f - length * &through / &cut;
    let one = pad.put(&format!("{what}: attempt that is cut off"), "s", when(&few, length / 2.0, one));
    let two = 2.0 / f.powi(2);
    let square = (&two - &through * (length.powi(2) + 2.0 * length / &f + &two)) / &cut;
    let square = when(&few, length.powi(2) / 3.0, square);
    let square = pad.put(&format!("{what}: mean of its square"), "s2", square);
    let mean = pad.put(&format!("{what}: an attempt and the bad period"), "s", &one + &w.bad);
    let variance = (square - one.powi(2) + w.bad_second() - w.bad.powi(2)).max(0.0);
    let failures = pad.put(&format!("{what}: failures"), "", &cut / &through);
    let total = length + &failures * &mean;
    let never = cut.lt(1e-12);
    let total = pad.put(&format!("{what}: time alone"), "s", when(&never, length, total));
    let second = total.powi(2) + failures * variance + &cut / through.powi(2) * mean.powi(2);
    let second = when(&never, length.powi(2), second);
    Moments { second: pad.put(&format!("{what}: time alone, mean of its square"), "s2", second), mean: total }
}

/// What frames wait because some came to an empty queue in a bad period (Welch 1964).
fn exceptional(pad: &mut Pad<'_>, l: &Expr, w: &Weather) -> Expr {
    let f = 1.0 / &w.good;
    let transform = pad.put("transform of a bad period", "", w.bad_transform(l));
    let during = 1.0 - &transform;
    let next = &f / (l + &f);
    let again = pad.put("empty again", "", 1.0 - &next * &transform);
    let z1 = &next * (&w.bad - &during / l).max(0.0) / &again;
    let z1 = pad.put("left of a bad period", "s", z1);
    let z2 = &next * (w.bad_second() - 2.0 * &w.bad / l + 2.0 * &during / l.powi(2)).max(0.0) / again;
    let z2 = pad.put("left of a bad period, mean of its square", "s2", z2);
    let all = (2.0 * &z1 + l * z2) / (2.0 * (1.0 + l * &z1));
    let rare = w.bad_second() / (2.0 * (&w.good + &w.bad));
    let wait = when(&(l * (&w.bad + &w.good)).lt(1e-3), rare, all);
    pad.put("wait for what is left of a bad period", "s", when(&w.bad.gt(0.0), wait, 0.0))
}
