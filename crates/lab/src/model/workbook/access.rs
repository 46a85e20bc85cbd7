//! Shared media in cells: collisions on Ethernet round by round, token rings, and wireless cells with bad periods.

use remora_model::ethernet::{
    ATTEMPTS_MAX, BUSY_MAX, DOUBLINGS_MAX, FRAGMENT_BITS, GAP_BITS, JAM_BITS, RETRY_MAX, ROUNDS, SLOT_BITS, fitted,
};
use remora_model::ring::Discipline;
use remora_model::wifi::Periods;

use super::book::Pad;
use super::expr::{Expr, sum, when};
use super::traffic::{Moments, Port, Traffic};

pub(super) struct Sender<'a> {
    pub(super) rate: &'a Expr,
    pub(super) propagation: &'a Expr,
    pub(super) all: &'a Traffic,
    pub(super) own: &'a Traffic,
}

/// Time of a frame at the head of its station's queue. Cells are empty if the medium is overloaded.
pub(super) struct Access {
    pub(super) time: Moments,
    /// The same for a frame that waited at its own station.
    pub(super) next: Moments,
    pub(super) busy: Expr,
}

/// Cells shared by the rounds and the attempts.
struct Base {
    gap: Expr,
    collision: Expr,
    others: Expr,
    own_share: Expr,
    frame: Expr,
    met: Expr,
    own: Moments,
}

impl Sender<'_> {
    /// Follows a frame through its attempts.
    pub(super) fn settle(&self, pad: &mut Pad<'_>) -> Access {
        let base = self.base(pad);
        let (first, retry, busy) = self.rounds(pad, &base);
        let fits = busy.lt(1.0);
        let busy = pad.put("share of the time that the medium is held", "", busy.only_if(&fits));
        let time = self.attempts(pad, &base, &first, &retry, &(&base.others * &busy));
        let next = spared(pad, &base, &time);
        Access { time, next, busy }
    }

    fn base(&self, pad: &mut Pad<'_>) -> Base {
        let (rate, all, own) = (self.rate, self.all, self.own);
        let share = when(&all.bits.gt(0.0), (&own.bits / &all.bits).max(0.0).min(1.0), 0.0);
        let own_share = pad.put("share of all that this station sends", "", share);
        let others = pad.put("share of the others", "", 1.0 - &own_share);
        let gap = pad.put("gap behind a frame", "s", self.propagation + GAP_BITS / rate);
        let seen = (FRAGMENT_BITS / rate).max(self.propagation + JAM_BITS / rate);
        let collision = pad.put("a collision", "s", &gap + seen);
        let frame = all.service(pad, "a frame", rate, &Expr::from(0.0));
        let held = all.service(pad, "a frame and its gap", rate, &gap);
        let met = when(&frame.mean.gt(0.0), &held.second / &held.mean, 0.0);
        let met = pad.put("frame that is met under way", "s", met);
        // A silent station's frames are like those of the others.
        let speaks = own.pps.gt(0.0);
        let (mine, theirs) = (
            own.service(pad, "own frame until it has arrived", rate, self.propagation),
            all.service(pad, "any frame until it has arrived", rate, self.propagation),
        );
        let of = |mine: &Expr, theirs: &Expr| when(&speaks, mine, theirs);
        let mean = pad.put("this station's frame: mean", "s", of(&mine.mean, &theirs.mean));
        let second = pad.put("this station's frame: mean of the square", "s2", of(&mine.second, &theirs.second));
        Base { gap, collision, others, own_share, frame: frame.mean, met, own: Moments { mean, second } }
    }

    /// Fixed point of the collision probabilities, from zero upwards: first attempt, retries, busy medium.
    fn rounds(&self, pad: &mut Pad<'_>, base: &Base) -> (Expr, Expr, Expr) {
        let slots = self.propagation * self.rate / SLOT_BITS;
        let offered = pad.put("others' frames", "1/s", &base.others * &self.all.pps);
        let plain = pad.put("held without collisions", "", &self.all.pps * (&base.frame + &base.gap));
        let lost = pad.put("held by a collision for each frame", "", &self.all.pps * &base.collision / 2.0);
        let heard = pad.put("retry: part of the time counted as busy", "", 1.0 - fitted::RETRY_OWN * &base.own_share);
        let unheard = pad.put("first: collides unheard", "", 1.0 - (0.0 - &offered * 2.0 * self.propagation).exp());
        let again = pad.put("retry: unheard", "", fitted::RETRY_UNHEARD * slots);
        let (mut first, mut retry, mut busy) = (Expr::from(0.0), Expr::from(fitted::RETRY_IDLE), Expr::from(0.0));
        for round in 1..=ROUNDS {
            let label = |what: &str| format!("round {round}: {what}");
            busy = pad.put(&label("busy"), "", &plain + &first / (1.0 - &retry) * &lost);
            let busy_others = (&base.others * &busy).min(BUSY_MAX);
            let busy_retry = (&heard * &busy).min(BUSY_MAX);
            let joining = &offered * (&base.met * (1.0 + fitted::JOINING * &first) + &base.gap);
            let next = &busy_others * (1.0 - (0.0 - joining).exp()) + (1.0 - &busy_others) * &unheard;
            let idle = &again * (1.0 - &busy_retry);
            let retry_next = (fitted::RETRY_IDLE + idle + fitted::RETRY_BUSY * busy_retry).min(RETRY_MAX);
            first = pad.put(&label("first attempt collides"), "", next);
            retry = pad.put(&label("a later one does"), "", retry_next);
        }
        (first, retry, busy)
    }

    /// Mean and second moment of the time through all attempts.
    fn attempts(&self, pad: &mut Pad<'_>, base: &Base, first: &Expr, retry: &Expr, busy: &Expr) -> Moments {
        let slot = pad.put("slot", "s", SLOT_BITS / self.rate);
        let rest = |pad: &mut Pad<'_>, what: &str, factor: f64| {
            let wait = pad.put(&format!("{what} waits for a frame under way"), "s", factor * busy * &base.met / 2.0);
            let square = factor * busy * base.met.powi(2) / 3.0;
            let variance = (square - wait.powi(2)).max(0.0);
            (wait, pad.put(&format!("{what}: variance of that"), "s2", variance))
        };
        let (wait, variance) = rest(pad, "first attempt", fitted::FIRST_REST);
        let mean = pad.put("without collision", "s", &base.own.mean + wait);
        let variance = pad.put("without collision: variance", "s2", base.own.variance() + variance);
        let (wait, more) = rest(pad, "retry", fitted::RETRY_REST);
        let each = pad.put("cost of each collision, back-off apart", "s", &base.collision + wait);
        let chance = pad.put("ends at attempt 1: chance", "", 1.0 - first);
        let mut means = vec![&chance * &mean];
        let mut squares = vec![&chance * (mean.powi(2) + &variance)];
        let (mut collided, mut waited, mut spread) = (first.clone(), 0.0, 0.0);
        for k in 1..ATTEMPTS_MAX {
            let window = f64::from(1u32 << k.min(DOUBLINGS_MAX));
            waited += (window - 1.0) / 2.0;
            spread += (window * window - 1.0) / 12.0;
            // A frame that fails counts with its time so far.
            let ends = if k + 1 < ATTEMPTS_MAX { &collided * (1.0 - retry) } else { collided.clone() };
            let chance = pad.put(&format!("ends at attempt {}: chance", k + 1), "", ends);
            let time = &mean + f64::from(k) * &each + waited * &slot;
            let time = pad.put(&format!("ends at attempt {}: after", k + 1), "s", time);
            let square = time.powi(2) + &variance + f64::from(k) * &more + spread * slot.powi(2);
            means.push(&chance * &time);
            squares.push(&chance * square);
            collided = collided * retry;
            if k % 4 == 0 {
                collided = pad.put(&format!("collides {} times: chance", k + 1), "", collided);
            }
        }
        Moments {
            mean: pad.put("time through all attempts: mean", "s", sum(means)),
            second: pad.put("time through all attempts: mean of its square", "s2", sum(squares)),
        }
    }

    /// Mean delay from arrival at the station to delivery.
    pub(super) fn delay(&self, pad: &mut Pad<'_>, access: &Access) -> Expr {
        let (first, next, rate) = (&access.time, &access.next, &self.own.pps);
        let busy_first = pad.put("station busy with first frames", "", rate * &first.mean);
        let busy_next = pad.put("station busy with next frames", "", rate * &next.mean);
        let often = pad.put("frames of a busy period, inverse", "", 1.0 - &busy_next + &busy_first);
        let wait =
            rate * &next.second / (2.0 * (1.0 - &busy_next)) + rate * (&first.second - &next.second) / (2.0 * &often);
        let wait = pad.put("wait at the own station", "s", wait.only_if(&busy_next.lt(1.0)));
        let idle = pad.put("chance that a frame finds none before it", "", (1.0 - busy_next) / often);
        let delay = wait.max(0.0) + &idle * &first.mean + (1.0 - &idle) * &next.mean;
        pad.put("delay of the station's average frame", "s", delay)
    }
}

/// Time of a frame that waited for another frame of its station: less contention.
fn spared(pad: &mut Pad<'_>, base: &Base, time: &Moments) -> Moments {
    let alone = pad.put("variance without others", "s2", base.own.variance());
    let contention = (&time.second - time.mean.powi(2) - &alone).max(0.0);
    let left = 1.0 - fitted::SPARED;
    let mean = &base.own.mean + &base.gap + left * (&time.mean - &base.own.mean);
    let mean = pad.put("time of one that has waited: mean", "s", mean);
    let second = mean.powi(2) + alone + left * left * contention;
    let second = pad.put("time of one that has waited: mean of its square", "s2", second);
    Moments { mean, second }
}

/// Saturation throughput in frames per second (Metcalfe & Boggs 1976).
pub(super) fn capacity(rate: &Expr, propagation: &Expr, stations: &Expr, frame: &Expr) -> Expr {
    let n = stations.max(1.0);
    let success = when(&n.gt(1.0), (1.0 - 1.0 / &n).power(&(&n - 1.0)), 1.0);
    let contention = (1.0 - &success) / &success * (SLOT_BITS / rate);
    1.0 / (frame + propagation + GAP_BITS / rate + contention)
}

/// A ring and the load of the other stations.
pub(super) struct Ring<'a> {
    pub(super) discipline: Discipline,
    pub(super) rate: &'a Expr,
    pub(super) around: Expr,
    stations: Expr,
    walk: Expr,
    squares: Expr,
    met_squares: Expr,
}

impl<'a> Ring<'a> {
    pub(super) fn put(
        pad: &mut Pad<'_>,
        discipline: Discipline,
        walk: &Expr,
        rate: &'a Expr,
        ports: &[Port],
    ) -> Ring<'a> {
        let stations = pad.put("stations on the ring", "", sum(ports.iter().map(|p| p.stations.clone())).max(1.0));
        let around = pad.put("token's way once around", "s", &stations * walk);
        let square = |p: &Port| &p.stations * (&p.sends.bits / rate).powi(2);
        let squares = pad.put("squares of the stations' loads", "", sum(ports.iter().map(square)));
        let all = sum(ports.iter().map(|p| &p.stations * &p.sends.bits2));
        let of = sum(ports.iter().map(|p| &p.stations * (&p.sends.bits / rate) * &p.sends.bits2));
        let met = when(&all.gt(0.0), of / all, 0.0);
        let met_squares = pad.put("the same, by the work under way", "", met);
        Ring { discipline, rate, around, stations, walk: walk.clone(), squares, met_squares }
    }

    /// Mean wait of a station that sends `own` beside `load`, with transmission time `service`.
    pub(super) fn wait(&self, pad: &mut Pad<'_>, load: &Traffic, service: &Moments, own: &Traffic) -> Wait {
        let busy = pad.put("ring's utilisation", "", &load.pps * &service.mean);
        let left = 1.0 - &busy;
        let own_busy = pad.put("station's load", "", &own.bits / self.rate);
        let met = when(&load.pps.gt(0.0), &own.bits2 / load.bits2.max(1e-300), 0.0);
        let met = pad.put("station's part of the work under way", "", met);
        let one_by_one = self.discipline == Discipline::OneLimited;
        let limit = if one_by_one { own.pps.clone() } else { Expr::from(0.0) };
        let own_left = pad.put("station's tokens left", "", &left - limit * &self.around);
        let walks = &self.walk * load.pps.max(&own.pps * &self.stations);
        let share = if one_by_one { &busy + walks } else { busy.clone() };
        let share = pad.put("share of what the ring can carry", "", share);
        let square = pad.put("squares, over the load", "", when(&busy.gt(0.0), &self.squares / &busy, 0.0));
        let queue = &load.pps * &service.second / (2.0 * &left);
        let queue = pad.put("wait in one queue of all", "s", queue);
        let walking = pad.put("half a cycle", "s", &self.around / (2.0 * &left));
        let part = pad.put("station's part of the wait", "", &left * &busy * met + &busy * &own_busy);
        let parts = pad.put("all stations' parts", "", &left * &self.met_squares + &busy * &square);
        let wait = match self.discipline {
            Discipline::Exhaustive => queue * (1.0 - part) / (1.0 - parts) + walking * (1.0 - &own_busy),
            Discipline::Gated => queue * (1.0 + part) / (1.0 + parts) + walking * (1.0 + &own_busy),
            Discipline::OneLimited => {
                let law = queue + &self.around / 2.0 + walking * (&busy + &square);
                law * (&left + &own_busy) / &own_left * &left / (&left + square)
            }
        };
        let fits = busy.lt(1.0).and(&share.lt(1.0)).and(&own_left.gt(0.0));
        let wait = pad.put("wait for the token", "s", wait.only_if(&fits));
        Wait { wait, busy, share, own_busy }
    }
}

/// A station's wait and its components.
pub(super) struct Wait {
    pub(super) wait: Expr,
    pub(super) busy: Expr,
    pub(super) share: Expr,
    pub(super) own_busy: Expr,
}

/// Mean distance between stations behind two ports, as a fraction of the ring. Stations are in the order of their
/// groups, then gateways.
pub(super) fn way(ports: &[Port], from: usize, to: usize) -> Expr {
    let all = sum(ports.iter().map(|p| p.stations.clone()));
    if from == to {
        return Expr::from(0.5);
    }
    let middle = |port: usize| {
        let before = sum(ports.iter().take(port).map(|p| p.stations.clone()));
        before + ports.get(port).map_or(Expr::from(0.0), |p| &p.stations / 2.0)
    };
    // Stations before the sender are reached last.
    let once = if to > from { Expr::from(0.0) } else { all.clone() };
    (middle(to) - middle(from) + once) / all
}

#[derive(Clone, Debug)]
pub(super) struct Weather {
    pub(super) good: Expr,
    pub(super) bad: Expr,
    pub(super) periods: Periods,
}

impl Weather {
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

    /// Stretch of a round by bad periods, if it needs the channel for part of the time.
    pub(super) fn stretch(&self, pad: &mut Pad<'_>, round: &Expr, on: &Expr, gaps: &Expr) -> Expr {
        let part = pad.put("part of the round that needs the channel", "", (on / round).min(1.0));
        let gap = (round - on).max(0.0) / gaps.max(1.0) / &self.bad;
        let met = when(&gap.gt(1e-9), (1.0 - (0.0 - &gap).exp()) / &gap, 1.0);
        let stretch = 1.0 + &self.bad / &self.good * (&part + (1.0 - &part) * met);
        pad.put("bad periods stretch the round by", "", when(&self.bad.gt(0.0), stretch, 1.0))
    }
}

/// A queue of a station and the opposite one, which shares the bad periods.
pub(super) struct StationQueue<'a> {
    pub(super) rate: &'a Expr,
    pub(super) overhead: &'a Expr,
    pub(super) weather: &'a Weather,
    /// Traffic of the whole wireless cell.
    pub(super) all: &'a Traffic,
    pub(super) queue: &'a Traffic,
    pub(super) beside: &'a Traffic,
    /// Sum of the squared shares of airtime over all queues.
    pub(super) squares: &'a Expr,
}

/// A frame's wait, and whether the formula holds.
pub(super) struct Delay {
    pub(super) delay: Expr,
    pub(super) load: Expr,
    pub(super) loss: Expr,
}

impl StationQueue<'_> {
    /// Mean delay from arrival at the queue to delivery.
    pub(super) fn delay(&self, pad: &mut Pad<'_>) -> Delay {
        let (rate, overhead, own) = (self.rate, self.overhead, &self.queue.pps);
        let airtime = self.queue.service(pad, "airtime", rate, overhead);
        let beside = self.beside.service(pad, "airtime of the other queue", rate, overhead);
        let others = (self.all.airtime(rate, overhead) - self.queue.airtime(rate, overhead)).max(0.0);
        let others = pad.put("airtime of all others", "", others);
        let square = (self.all.square(rate, overhead) - self.queue.square(rate, overhead)).max(0.0);
        let others_square = pad.put("others' squares", "s", square);
        let bad = self.held_up(pad, &airtime, &beside, &others);
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

    /// Wait that bad periods add to both queues, and this queue's part.
    fn held_up(&self, pad: &mut Pad<'_>, airtime: &Moments, beside: &Moments, others: &Expr) -> Expr {
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
        let turned = self.turned(pad, &(held - good).max(0.0), airtime, beside);
        let exceptional = exceptional(pad, &rate, self.weather);
        pad.put("what bad periods add", "s", turned + exceptional)
    }

    /// Wait of this queue if both together would wait `both` in order of arrival: the queues alternate.
    fn turned(&self, pad: &mut Pad<'_>, both: &Expr, airtime: &Moments, beside: &Moments) -> Expr {
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

/// Completion time of a frame, from its first start to delivery (Gaver 1962, Avi-Itzhak & Naor 1963).
struct Completion {
    /// Transmission time in good periods beside other stations.
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

/// Wait caused by frames that arrived at an empty queue in a bad period (Welch 1964).
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
