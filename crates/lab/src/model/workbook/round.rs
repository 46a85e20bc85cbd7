//! A round of a copy's packets in cells: waits, resources and the pace (the model's `cell/copy.rs` and
//! `pipeline.rs`).

use remora_model::ring::Discipline;
use remora_model::{Hop, Kind, Resource};

use super::access::{self, Ring, Sender, Weather};
use super::book::Pad;
use super::expr::{Cond, Expr, most, sum, when};
use super::traffic::{Loads, Moments, NetworkPlan, Traffic, pair};

#[derive(Clone)]
pub(super) struct Stop {
    pub(super) service: Expr,
    pub(super) wait: Expr,
    pub(super) spacing: Expr,
    pub(super) between: Expr,
    pub(super) delay: Expr,
    pub(super) open: Expr,
    /// Variance of the interval between packets at which the copy fills the resource.
    pub(super) variance: Expr,
    pub(super) filled: Expr,
}

/// Least share of a resource that a copy finds free.
pub(super) const LEFT: f64 = 1e-9;

impl Stop {
    pub(super) fn quiet(&self) -> Stop {
        let zero = Expr::from(0.0);
        Stop { wait: zero.clone(), between: zero, spacing: self.service.clone(), ..self.clone() }
    }

    /// Packets in a queue: five cells.
    pub(super) fn queue(pad: &mut Pad<'_>, what: &str, service: &Expr, arrivals: &Expr, theirs: &Moments) -> Stop {
        let open = pad.put(&format!("{what}: used by others"), "", arrivals * &theirs.mean);
        let left = pad.put(&format!("{what}: left by others"), "", (1.0 - &open).max(LEFT));
        let square = arrivals * &theirs.second;
        let wait = pad.put(&format!("{what}: wait"), "s", &square / (2.0 * &left));
        let variance = pad.put(&format!("{what}: variance if filled"), "s2", service * square / left.powi(3));
        let filled = pad.put(&format!("{what}: time if filled"), "s", service / left);
        let (service, between) = (service.clone(), open.clone());
        Stop { spacing: service.clone(), service, wait, between, delay: Expr::from(0.0), open, variance, filled }
    }
}

/// Seconds from a burst's start to its end along `stops`.
pub(super) fn burst(pad: &mut Pad<'_>, packets: &Expr, stops: &[Stop]) -> Expr {
    let first = sum(stops.iter().map(|s| &s.service + &s.wait + &s.delay));
    let first = pad.put("first packet of a block", "s", first);
    let mut spacing = Expr::from(0.0);
    for stop in stops {
        spacing = spacing.max(&stop.spacing + &stop.between * &spacing);
        spacing = pad.put("from packet to packet", "s", spacing);
    }
    let burst = packets.min(1.0) * first + (packets - 1.0).max(0.0) * spacing;
    pad.put("the block's packets, one behind the other", "s", when(&packets.gt(0.0), burst, 0.0))
}

/// A hop of a copy over a medium, beside flows.
pub(super) struct CopyHop<'a> {
    pub(super) plan: &'a NetworkPlan<'a>,
    pub(super) loads: &'a Loads,
    pub(super) all: &'a Traffic,
    pub(super) hop: &'a Hop,
    pub(super) mine: &'a Traffic,
    pub(super) bits: &'a Expr,
}

impl CopyHop<'_> {
    fn rate(&self) -> Expr {
        self.plan.medium(self.hop.medium, "rate")
    }

    fn kind(&self) -> &Kind {
        self.plan.kind(self.hop.medium)
    }

    fn sending(&self) -> Expr {
        self.bits / self.rate()
    }

    /// Whether one server sends data and replies.
    pub(super) fn both_ways(&self) -> bool {
        match self.kind() {
            Kind::Ethernet { .. } | Kind::Wifi { .. } => true,
            Kind::Ring { discipline, .. } => *discipline != Discipline::OneLimited,
            Kind::Switch { .. } => false,
        }
    }

    /// Resources that a packet meets while the copy sends `other` in the opposite direction.
    pub(super) fn stops(&self, pad: &mut Pad<'_>, other: &Traffic) -> Vec<Stop> {
        match self.kind() {
            Kind::Switch { .. } => self.switch(pad),
            Kind::Ring { discipline, .. } => vec![self.ring(pad, *discipline, other)],
            Kind::Ethernet { .. } => vec![self.ethernet(pad, other)],
            Kind::Wifi { channel: weather, .. } => {
                let get = |key| self.plan.medium(self.hop.medium, key);
                let weather = Weather { good: get("good"), bad: get("bad"), periods: weather.bad };
                vec![self.wifi(pad, &weather, other)]
            }
        }
    }

    fn switch(&self, pad: &mut Pad<'_>) -> Vec<Stop> {
        let (ports, streams) = (&self.loads.ports[self.hop.medium], &self.loads.streams[self.hop.medium]);
        let (zero, rate) = (Expr::from(0.0), self.rate());
        let (from, to) = (&ports[self.hop.from].sends, &ports[self.hop.to].receives);
        let mut stop = |what: &str, traffic: &Traffic| {
            let theirs = traffic.service(pad, what, &rate, &zero);
            Stop::queue(pad, what, &self.sending(), &traffic.pps, &theirs)
        };
        let out = stop("line to the switch", from);
        let all = stop("line from the switch", to);
        // A station's own packets never come between on its own line.
        let others = to.less(&pair(ports, streams, self.hop.from, self.hop.to));
        let first = stop("line from the switch, others", &others);
        let into = Stop { open: all.open, variance: all.variance, filled: all.filled, ..first };
        vec![Stop { delay: self.plan.medium(self.hop.medium, "latency"), ..out }, into]
    }

    fn ring(&self, pad: &mut Pad<'_>, discipline: Discipline, other: &Traffic) -> Stop {
        let (ports, rate) = (&self.loads.ports[self.hop.medium], self.rate());
        let walk = self.plan.medium(self.hop.medium, "walk");
        let ring = Ring::put(pad, discipline, &walk, &rate, ports);
        let load = self.all.plus(other).put(pad, "others on the ring");
        let service = load.service(pad, "others' packet", &rate, &Expr::from(0.0));
        let own = &ports[self.hop.from].sends;
        let wait = ring.wait(pad, &load, &service, own);
        let way = pad.put("part of the ring on the way", "", access::way(ports, self.hop.from, self.hop.to));
        let mut stop = Stop::queue(pad, "ring", &self.sending(), &load.pps, &service);
        (stop.wait, stop.delay) = (wait.wait, way * &ring.around);
        if discipline == Discipline::OneLimited {
            let others = (1.0 - &wait.busy + &wait.own_busy).max(LEFT);
            let others = pad.put("left by other stations", "", others);
            let taken = (&own.pps * &ring.around + &wait.own_busy) / &others;
            let around = pad.put("from token to token", "s", (self.sending() + &ring.around) / others);
            let filled = pad.put("from token to token of the copy", "s", &around / (1.0 - taken).max(LEFT));
            (stop.spacing, stop.between, stop.filled) = (around, Expr::from(0.0), filled);
        }
        stop
    }

    fn ethernet(&self, pad: &mut Pad<'_>, other: &Traffic) -> Stop {
        let (rate, propagation) = (self.rate(), self.plan.medium(self.hop.medium, "propagation"));
        let sends = &self.loads.ports[self.hop.medium][self.hop.from].sends;
        let all = self.all.plus(self.mine).plus(other).put(pad, "all on the Ethernet");
        let own = sends.plus(self.mine).put(pad, "sender and copy");
        let access = Sender { rate: &rate, propagation: &propagation, all: &all, own: &own }.settle(pad);
        let longer = pad.put("copy's packets longer by", "s", (self.bits - own.mean_bits()) / &rate);
        let shorter = (sends.mean_bits() - own.mean_bits()) / &rate;
        let mean = pad.put("the sender's own frames: mean", "s", (&access.time.mean + shorter).max(0.0));
        let second = pad.put("the sender's own frames: square", "s2", access.time.variance() + mean.powi(2));
        let service = pad.put("one that has waited for the one before", "s", &access.next.mean + &longer);
        let mut stop = Stop::queue(pad, "Ethernet", &service, &sends.pps, &Moments { mean, second });
        stop.service = pad.put("copy's packet: time through all attempts", "s", &access.time.mean + longer);
        stop.variance = pad.put("with its own contention", "s2", &stop.variance + access.next.variance());
        stop
    }

    fn wifi(&self, pad: &mut Pad<'_>, weather: &Weather, other: &Traffic) -> Stop {
        let (rate, overhead) = (self.rate(), self.plan.medium(self.hop.medium, "overhead"));
        let (ports, streams) = (&self.loads.ports[self.hop.medium], &self.loads.streams[self.hop.medium]);
        let background = pair(ports, streams, self.hop.from, self.hop.to).put(pad, "the same way");
        let back = pair(ports, streams, self.hop.to, self.hop.from).airtime(&rate, &overhead);
        // Packets queued in bad periods are sent in good ones.
        let later = pad.put("bad periods over good ones", "", &weather.bad / &weather.good);
        let airtime = pad.put("airtime", "s", self.sending() + &overhead);
        let others = self.all.plus(other).airtime(&rate, &overhead) - background.airtime(&rate, &overhead);
        let others = pad.put("airtime of all others", "", others.max(0.0) + &later * back);
        let queue = background.plus(self.mine).service(pad, "frame", &rate, &overhead);
        let square = self.all.plus(other).square(&rate, &overhead) - background.square(&rate, &overhead);
        let square = pad.put("others' squares", "s", square.max(0.0));
        let background = background.times(&(1.0 + later)).put(pad, "the same way, with what bad periods kept");
        let square = pad.put("with the squares of those before", "s", square + background.square(&rate, &overhead));
        let left = pad.put("airtime left", "", (1.0 - &others).max(LEFT).only_if(&others.lt(1.0)));
        let used = pad.put("airtime of those before", "", background.airtime(&rate, &overhead));
        let rest = pad.put("airtime for the copy", "", (&left - &used).max(LEFT));
        let attempts = when(&weather.bad.gt(0.0), (&queue.mean / &weather.good).exp(), 1.0);
        let attempts = pad.put("sent so often", "", attempts);
        let open = pad.put("used by those before", "", &used / &left);
        let filled = &airtime * attempts / &left / (1.0 - &open).max(LEFT);
        Stop {
            service: airtime.clone(),
            wait: pad.put("wait", "s", &square / (2.0 * &rest)),
            spacing: pad.put("from frame to frame", "s", &airtime / &left),
            between: used,
            delay: Expr::from(0.0),
            variance: pad.put("variance if filled", "s2", &airtime * square / rest.powi(3)),
            filled: pad.put("time if filled", "s", filled),
            open,
        }
    }

    /// Extra wait of a reply for packets that others gathered while `packets` were sent, on media with turns or a
    /// token; and the shortest block interval of a window of one on a ring, whose replies take `reply` seconds. Zero
    /// on other media.
    pub(super) fn held(&self, pad: &mut Pad<'_>, packets: &Expr, gap: &Expr, reply: &Expr) -> Option<(Expr, Expr)> {
        let rate = self.rate();
        let sending = pad.put("a packet", "s", self.sending());
        // Packets that arrive nearly at the sending rate catch up with others and queue.
        let slowed = &sending / (1.0 - &self.all.bits / &rate).max(LEFT);
        let slowed = pad.put("a packet beside others", "s", slowed);
        let together = when(&gap.lt(&slowed), packets, packets.min(1.0));
        let together = pad.put("packets that come together", "", together);
        match self.kind() {
            Kind::Ethernet { .. } | Kind::Switch { .. } => None,
            Kind::Wifi { .. } => {
                let overhead = self.plan.medium(self.hop.medium, "overhead");
                let airtime = together.min(1.0) * (sending + &overhead);
                let gathered = airtime * self.all.airtime(&rate, &overhead);
                Some((pad.put("gathered meanwhile", "s", gathered), Expr::from(0.0)))
            }
            Kind::Ring { discipline, .. } => {
                let turns = *discipline == Discipline::OneLimited;
                let at_once = if turns { together.min(1.0) } else { together };
                let passed = self.passed(&rate, *discipline == Discipline::Exhaustive);
                let passed = pad.put("load of the stations on the way", "", passed);
                let gathered = pad.put("gathered meanwhile", "s", at_once * &sending * passed.exp_m1());
                let stations = sum(self.loads.ports[self.hop.medium].iter().map(|p| p.stations.clone()));
                let around = pad.put("once around", "s", self.plan.medium(self.hop.medium, "walk") * stations);
                let tokens = if turns { packets.max(1.0) } else { Expr::from(1.0) };
                let left = (1.0 - &self.all.bits / &rate).max(LEFT);
                let cycle = (packets * sending + reply + tokens * &around) / left;
                Some((gathered, pad.put("from block to block", "s", when(&around.gt(0.0), cycle, 0.0))))
            }
        }
    }

    /// Load of the stations between sender and receiver, half of that beside them, the receiver's, and the sender's if
    /// it sends until its queue is empty (`all`).
    fn passed(&self, rate: &Expr, all: bool) -> Expr {
        let (ports, from, to) = (&self.loads.ports[self.hop.medium], self.hop.from, self.hop.to);
        let own = |port: usize| &ports[port].sends.bits / rate;
        let others = |port: usize| (&ports[port].stations - 1.0) * own(port);
        let between = (1..ports.len()).map(|i| (from + i) % ports.len()).take_while(|port| *port != to);
        let between = sum(between.map(|port| own(port) + others(port)));
        let first = if all { own(from) } else { Expr::from(0.0) };
        between + (others(from) + others(to)) / 2.0 + first + own(to)
    }
}

/// Extra queueing time of a burst at a gateway with varying service times (Kingman's limit).
pub(super) fn scattered(pad: &mut Pad<'_>, spacings: Vec<Expr>, service: &Moments, packets: &Expr) -> Expr {
    let spacing = pad.put("packets come every", "s", most(spacings));
    let variance = pad.put("variance of the gateway's time", "s2", service.variance());
    let steps = (packets - 1.0).max(0.0);
    let ever = &variance / (2.0 * (spacing - &service.mean).abs()).max(1e-12);
    let walk = (variance * 2.0 * steps / std::f64::consts::PI).sqrt();
    pad.put("queued there by chance", "s", walk.min(ever))
}

/// Windows up to this size fit into a sheet.
pub(super) const WINDOW_ROWS: u32 = 256;
/// Fewest rows of the analysis, so that the window can be widened.
const ROWS_MIN: u32 = 32;
/// Above this variation the service time is a guess.
const SURELY_VARIES: f64 = 0.1;

#[derive(Clone)]
pub(super) struct BlockServer {
    pub(super) spot: Resource,
    pub(super) name: String,
    pub(super) demand: Expr,
    pub(super) open: Expr,
    /// Block interval if the copy uses all that others leave.
    pub(super) filled: Expr,
    pub(super) variance: Expr,
}

pub(super) struct Round<'a> {
    pub(super) window: &'a Expr,
    /// The file's window, which gives the number of rows.
    pub(super) window_now: u32,
    pub(super) think: &'a Expr,
    /// Round time of a block that is alone.
    pub(super) alone: &'a Expr,
    pub(super) servers: &'a [BlockServer],
}

pub(super) struct Paced {
    pub(super) rate: Expr,
    pub(super) fullest: Expr,
    /// Slowdown by random variation.
    pub(super) chance: Expr,
}

impl Round<'_> {
    /// Blocks per second; no value if a resource is saturated.
    pub(super) fn rate(&self, pad: &mut Pad<'_>) -> Paced {
        let servers = self.servers;
        let busiest = pad.put("busiest place", "s", most(servers.iter().map(|s| s.filled.clone())));
        let pace = self.window / self.alone;
        let constant = when(&busiest.gt(0.0), pace.min(1.0 / &busiest), &pace);
        let constant = pad.put("pace with constant service", "1/s", constant);
        let all = pad.put("all places", "s", sum(servers.iter().map(|s| s.filled.clone())));
        let inside = (self.alone - self.think).max(0.0);
        let share = when(&all.gt(0.0), (inside / &all).min(1.0), 0.0);
        let share = pad.put("their part of the round", "", share);
        let outside = pad.put("rest of the round", "s", self.alone - &share * all);
        let exponential = self.analysis(pad, &busiest, &share, &outside);
        let square = |s: &BlockServer| s.filled.powi(2);
        let squares = pad.put("squares of the places' times", "s2", sum(servers.iter().map(square)));
        let vary = servers.iter().map(|s| square(s) * (&s.variance / square(s).max(1e-24)).min(1.0));
        let variation = when(&squares.gt(0.0), (sum(vary) / &squares).sqrt(), 0.0);
        let variation = pad.put("how near to exponential service", "", variation);
        let rate = &constant + (&exponential - &constant) * &variation;
        let full = |s: &BlockServer| when(&s.demand.gt(0.0), &s.open, 0.0);
        let fullest = pad.put("most used by others", "", most(servers.iter().map(full)));
        let fits: Cond = fullest.lt(1.0).and(&self.alone.gt(0.0)).and(&self.window.le(f64::from(self.rows())));
        let chance = (1.0 - exponential / constant) * (variation / SURELY_VARIES).min(1.0);
        let chance = pad.put("what chance may cost", "", chance);
        Paced { rate: pad.put("pace of all places", "1/s", rate.only_if(&fits)), fullest, chance }
    }

    /// The largest window that fits in the rows.
    pub(super) fn rows(&self) -> u32 {
        self.window_now.next_power_of_two().clamp(ROWS_MIN, WINDOW_ROWS)
    }

    /// Rate by mean-value analysis, one step for each block of the window.
    fn analysis(&self, pad: &mut Pad<'_>, busiest: &Expr, share: &Expr, outside: &Expr) -> Expr {
        let mut queued = vec![Expr::from(0.0); self.servers.len()];
        let mut last = Expr::from(0.0);
        for n in 1..=self.rows() {
            let wait = sum(self.servers.iter().zip(&queued).map(|(s, q)| &s.filled * (share + q)));
            let rate = f64::from(n) / (outside + wait);
            let rate = when(&busiest.gt(0.0), rate.min(1.0 / busiest), rate);
            let rate = pad.put(&format!("{n} under way: pace"), "1/s", rate);
            for (q, s) in queued.iter_mut().zip(self.servers) {
                *q = pad.put(&format!("{n} under way: at {}", s.name), "", &rate * &s.filled * (share + &*q));
            }
            last = when(&self.window.lt(f64::from(n)), &last, &rate);
            last = pad.put(&format!("{n} under way, or the window: pace"), "1/s", last);
        }
        last
    }
}
