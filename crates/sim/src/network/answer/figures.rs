//! What the replications say together about media, gateways, flows and copies.

use std::collections::BTreeMap;

use remora_model::queue::PROCESSOR;
use remora_model::ring::Discipline;
use remora_model::{Kind, Network, Reason, Report, Route};

use super::super::selection::Wanted;
use super::interval::Interval;
use super::overload::endless_copies;
use super::replication::{Replication, SteadyPart, Window};

/// A queue grows if at least this share of the packets that enter it stays there.
const GROWTH: f64 = 0.02;
/// And by more than this multiple of the standard error.
const GROWTH_SURE: f64 = 2.0;
/// Packets below which growth is chance.
const GROWTH_PACKETS: u64 = 4000;
/// A medium that gives up more than this share of a flow's packets is saturated.
const LOST: f64 = 0.05;
/// A delay with a wider interval, as a share of it, does not settle: beside more traffic than can be
/// carried, its queue grows too slowly to be seen.
const UNSETTLED: f64 = 0.1;
/// A figure with a wider interval, as a share of it, is simulated for longer while its queues fill.
const SHORT: f64 = 0.05;
/// A copy whose rate falls below this share in a run twice as long has no steady rate.
const RATE_KEPT: f64 = 0.75;

/// The mean of a delay or of the time between blocks, if there is one.
#[derive(Clone, PartialEq, Debug)]
pub enum Figure {
    /// A mean in seconds.
    Steady(Interval),
    /// A queue grows without limit. Carried packets a second; for copies blocks.
    Saturated(Interval),
    Unknown,
}

/// What formulas say of a network.
pub(super) struct Reports<'a> {
    pub(super) all: &'a Report,
    /// Without its copies: they take what is left of a queue, and never fill it.
    pub(super) open: Report,
    /// Copies that flows alone leave without end.
    pub(super) endless: Vec<bool>,
}

impl<'a> Reports<'a> {
    pub(super) fn of(network: &Network, all: &'a Report) -> Reports<'a> {
        let mut topology = network.topology().clone();
        if topology.copies.is_empty() {
            return Reports { all, open: all.clone(), endless: Vec::new() };
        }
        topology.copies.clear();
        let open = Network::new(topology).map_or_else(|_| all.clone(), |network| network.solve());
        Reports { all, endless: endless_copies(network, &open), open }
    }
}

/// The figures of all replications of a network.
pub struct Figures<'a> {
    network: &'a Network,
    reports: &'a Reports<'a>,
    replications: &'a [Replication<'a>],
    /// The simulated rates of flows that are raised.
    raised: &'a BTreeMap<usize, f64>,
    windows: Vec<Window>,
    /// By flow, then by element of its route, 0 being the processor: whether its queue grows.
    growing: Vec<Vec<bool>>,
    /// Whether any flow's queue grows at each medium and gateway.
    media_growing: Vec<bool>,
    gateways_growing: Vec<bool>,
}

impl<'a> Figures<'a> {
    /// The figures of `replications` of a network with these reports by formulas.
    pub(super) fn of(
        network: &'a Network,
        reports: &'a Reports<'a>,
        replications: &'a [Replication<'a>],
        raised: &'a BTreeMap<usize, f64>,
    ) -> Figures<'a> {
        let windows: Vec<Window> = replications.iter().map(|r| r.window()).collect();
        let topology = network.topology();
        let mut figures = Figures {
            network,
            reports,
            replications,
            raised,
            windows,
            growing: Vec::new(),
            media_growing: vec![false; topology.media.len()],
            gateways_growing: vec![false; topology.gateways.len()],
        };
        figures.growing = (0..reports.all.flows.len()).map(|flow| figures.growth(flow)).collect();
        figures.note_growing();
        figures
    }

    fn growth(&self, flow: usize) -> Vec<bool> {
        let route = &self.network.flow_routes()[flow];
        (0..=route.hops.len() + route.gateways.len())
            .map(|element| match self.is_full(flow, element) {
                Some(is_full) => is_full,
                None => self.grows(flow, element),
            })
            .collect()
    }

    /// Whether simulated packets gather at an element of a flow's route, or are lost there.
    fn grows(&self, flow: usize, element: usize) -> bool {
        let (mut growth, mut entered, mut lost) = (Vec::new(), 0, 0);
        for Window { from, to } in &self.windows {
            let (from, to) = (&from.passages[flow], &to.passages[flow]);
            let enters = match element.checked_sub(1) {
                None => to.generated - from.generated,
                Some(before) => to.passed[before].packets - from.passed[before].packets,
            };
            let left = to.passed[element].packets - from.passed[element].packets;
            let lost_here = to.passed[element].lost - from.passed[element].lost;
            growth.push(enters as f64 - (left + lost_here) as f64);
            entered += enters;
            lost += lost_here;
        }
        if entered < GROWTH_PACKETS {
            return false;
        }
        let n = growth.len() as f64;
        let mean = growth.iter().sum::<f64>() / n;
        let error = (growth.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / (n * (n - 1.0).max(1.0))).sqrt();
        let grows = mean * n > GROWTH * entered as f64 && mean > GROWTH_SURE * error;
        grows || lost as f64 > LOST * entered as f64
    }

    /// Whether each queue of an element grows, where the offered load alone decides that.
    fn is_full(&self, flow: usize, element: usize) -> Option<bool> {
        let Some(part) = element.checked_sub(1) else {
            let full = Reason::Saturated { formula: PROCESSOR.name };
            return Some(self.reports.open.flows[flow].delay_s.outside().contains(&full));
        };
        let full = self.has_no_delay(flow, part);
        let Some(hop) = self.network.flow_routes()[flow].hops.get(part / 2).filter(|_| part % 2 == 0) else {
            return Some(full);
        };
        match self.network.topology().media[hop.medium].kind {
            Kind::Switch { .. } => Some(full),
            Kind::Ring { discipline, .. } if discipline != Discipline::OneLimited => Some(full),
            // Queues with little traffic do not grow, and the capacity is not exactly known.
            Kind::Ethernet { .. } | Kind::Ring { .. } | Kind::Wifi { .. } => None,
        }
    }

    /// Whether a part of a flow's route has more traffic than it can carry, by its formula.
    fn has_no_delay(&self, flow: usize, part: usize) -> bool {
        let about = &self.reports.open.flows[flow];
        about.packets_per_s > 0.0 && about.parts.get(part).is_some_and(|part| part.delay_s.is_none())
    }

    fn carried(&self, count: impl Fn(&Window) -> u64) -> Interval {
        let rates: Vec<f64> =
            self.windows.iter().filter(|w| w.seconds() > 0.0).map(|w| count(w) as f64 / w.seconds()).collect();
        Interval::of_values(&rates)
    }

    /// A flow's delay.
    pub fn flow(&self, flow: usize) -> Figure {
        if self.growing[flow].contains(&true) {
            return Figure::Saturated(self.flow_carried(flow));
        }
        let figure = steady(self.replications.iter().filter_map(|r| r.flow(flow)).collect());
        let parts = self.reports.open.flows[flow].parts.len();
        let settles = matches!(figure, Figure::Steady(interval) if interval.relative() <= UNSETTLED);
        if !settles && (0..parts).any(|part| self.has_no_delay(flow, part)) {
            return Figure::Saturated(self.flow_carried(flow));
        }
        figure
    }

    /// Whether a flow's queues grow though its formulas have a delay: they may still fill.
    fn may_fill(&self, flow: usize) -> bool {
        let parts = self.reports.open.flows[flow].parts.len();
        self.growing[flow].contains(&true) && !(0..parts).any(|part| self.has_no_delay(flow, part))
    }

    /// Whether the runs are too short for a wanted figure, because queues still fill.
    pub(super) fn are_short(&self, wanted: &Wanted) -> bool {
        let is_short = |figure: Figure| match figure {
            Figure::Steady(interval) => interval.is_short && interval.relative() > SHORT,
            Figure::Saturated(_) | Figure::Unknown => false,
        };
        wanted.flows.iter().any(|flow| self.may_fill(*flow) || is_short(self.flow(*flow)))
            || wanted.media.iter().any(|medium| is_short(self.medium(*medium)))
            || wanted.gateways.iter().any(|gateway| is_short(self.gateway(*gateway)))
            || wanted.copies.iter().any(|copy| is_short(self.copy(*copy)))
    }

    /// The packets a second of a flow that arrive.
    pub fn flow_carried(&self, flow: usize) -> Interval {
        self.carried(|w| {
            let last = |p: &super::super::run::Passage| p.passed.last().map_or(0, |passed| passed.packets);
            last(&w.to.passages[flow]) - last(&w.from.passages[flow])
        })
    }

    /// The mean delay at each medium and gateway of a flow; `None` where the queue grows.
    pub fn parts(&self, flow: usize) -> Vec<Option<f64>> {
        let mut sums = vec![(0, 0.0); self.growing[flow].len()];
        for passage in self.replications.iter().map(|r| &r.passages()[flow]) {
            for (sum, passed) in sums.iter_mut().zip(&passage.passed) {
                *sum = (sum.0 + passed.packets, sum.1 + passed.sum_s);
            }
        }
        let parts = sums.iter().zip(&self.growing[flow]).skip(1);
        parts.map(|((packets, sum_s), grows)| (!grows && *packets > 0).then(|| sum_s / *packets as f64)).collect()
    }

    /// Notes the media and gateways at which any flow's queue grows.
    fn note_growing(&mut self) {
        for (route, growing) in self.network.flow_routes().iter().zip(&self.growing) {
            for (at, hop) in route.hops.iter().enumerate() {
                self.media_growing[hop.medium] |= growing[2 * at + 1];
            }
            for (at, gateway) in route.gateways.iter().enumerate() {
                self.gateways_growing[*gateway] |= growing[2 * at + 2];
            }
        }
    }

    /// The mean time of all flows' packets across a medium.
    pub fn medium(&self, medium: usize) -> Figure {
        if self.media_growing[medium] {
            return Figure::Saturated(self.medium_carried(medium));
        }
        let on_route = |route: &Route| route.hops.iter().position(|hop| hop.medium == medium).map(|at| 2 * at + 1);
        self.weighted(on_route)
            .unwrap_or_else(|| steady(self.replications.iter().filter_map(|r| r.medium(medium)).collect()))
    }

    /// The mean time of all flows' packets at an element that a raised flow crosses, each flow with its own rate;
    /// `None` without such a flow. `on_route` is the element's place on a route.
    fn weighted(&self, on_route: impl Fn(&Route) -> Option<usize>) -> Option<Figure> {
        let routes = self.network.flow_routes().iter().enumerate();
        let flows: Vec<(usize, usize)> =
            routes.filter_map(|(flow, route)| on_route(route).map(|element| (flow, element))).collect();
        if !flows.iter().any(|(flow, _)| self.raised.contains_key(flow)) {
            return None;
        }
        let means = |runs: &[SteadyPart]| -> Vec<Option<f64>> {
            let mean = |(flow, element): &(usize, usize)| {
                let (packets, sum_s) = runs
                    .iter()
                    .map(|run| run.passed(*flow, *element))
                    .fold((0_u64, 0.0_f64), |all, run| (all.0 + run.0, all.1 + run.1));
                (packets > 0).then(|| sum_s / packets as f64)
            };
            flows.iter().map(mean).collect()
        };
        let runs: Vec<SteadyPart> = self.replications.iter().map(Replication::steady_part).collect();
        let all = means(&runs);
        // A flow without packets in one run has its mean of all runs there.
        let of_run = |run: &SteadyPart| {
            let (mut rates, mut sum) = (0.0, 0.0);
            for (((flow, _), mean), all) in flows.iter().zip(means(std::slice::from_ref(run))).zip(&all) {
                let Some(mean) = mean.or(*all) else { continue };
                let rate = self.reports.all.flows[*flow].packets_per_s;
                (rates, sum) = (rates + rate, sum + rate * mean);
            }
            (rates > 0.0).then(|| sum / rates)
        };
        let values: Option<Vec<f64>> = runs.iter().map(of_run).collect();
        Some(values.map_or(Figure::Unknown, |values| Figure::Steady(Interval::of_values(&values))))
    }

    /// Packets a second out of a medium.
    pub fn medium_carried(&self, medium: usize) -> Interval {
        self.carried(|w| w.to.crossed[medium] - w.from.crossed[medium])
    }

    /// Share of time that a medium is busy; for a switch the sum of its ports.
    pub fn medium_busy(&self, medium: usize) -> f64 {
        let seconds: f64 = self.windows.iter().map(Window::seconds).sum();
        self.windows.iter().map(|w| w.to.held_s[medium] - w.from.held_s[medium]).sum::<f64>() / seconds.max(1e-300)
    }

    /// The mean time in a gateway.
    pub fn gateway(&self, gateway: usize) -> Figure {
        if self.gateways_growing[gateway] {
            return Figure::Saturated(self.gateway_carried(gateway));
        }
        let on_route = |route: &Route| route.gateways.iter().position(|g| *g == gateway).map(|at| 2 * at + 2);
        self.weighted(on_route)
            .unwrap_or_else(|| steady(self.replications.iter().filter_map(|r| r.gateway(gateway)).collect()))
    }

    /// Packets a second out of a gateway.
    pub fn gateway_carried(&self, gateway: usize) -> Interval {
        self.carried(|w| w.to.forwarded[gateway] - w.from.forwarded[gateway])
    }

    /// The 95th percentile of the time in a gateway, in seconds.
    pub fn gateway_p95(&self, gateway: usize) -> Option<Interval> {
        let values: Vec<f64> = self.replications.iter().filter_map(|r| r.gateway_p95(gateway)).collect();
        (!values.is_empty()).then(|| Interval::of_values(&values))
    }

    /// The time between a copy's blocks.
    pub fn copy(&self, copy: usize) -> Figure {
        let blocks = self.carried(|w| w.to.blocks[copy] - w.from.blocks[copy]);
        let has_rate = self.reports.all.copies[copy].outcome.value().is_some();
        if self.reports.endless[copy] || !has_rate && self.slows_down(copy) {
            return Figure::Saturated(blocks);
        }
        steady(self.replications.iter().filter_map(|r| r.copy(copy).map(|[intervals, _]| intervals)).collect())
    }

    /// Whether a copy's blocks come ever slower.
    fn slows_down(&self, copy: usize) -> bool {
        let rate = |blocks: u64, seconds: f64| blocks as f64 / seconds.max(1e-300);
        let before: f64 = self.windows.iter().map(|w| rate(w.from.blocks[copy], w.from.seconds)).sum();
        let after: f64 = self.windows.iter().map(|w| rate(w.to.blocks[copy] - w.from.blocks[copy], w.seconds())).sum();
        after <= RATE_KEPT * before
    }

    /// A block's mean response time, in seconds.
    pub fn response(&self, copy: usize) -> Option<Interval> {
        let tails: Vec<_> =
            self.replications.iter().filter_map(|r| r.copy(copy).map(|[_, responses]| responses)).collect();
        Interval::of_tails(&tails)
    }
}

fn steady(tails: Vec<[super::super::series::Tail; 2]>) -> Figure {
    Interval::of_tails(&tails).map_or(Figure::Unknown, Figure::Steady)
}
