//! Solves a network: adds the loads along the routes, then evaluates each medium, gateway and
//! route.

use crate::cell::{Cell, Spacing};
use crate::copying;
use crate::formula::{Estimate, Reason};
use crate::formulas::queue::{BEHIND, BURSTS, GG1_WAIT, MG1_WAIT, MM1_P95, PROCESSOR, Queue, SPACED, Tandem};
use crate::interference::Interference;
use crate::loads::{Loads, gateway_queue};
use crate::network::{Hop, Network};
use crate::quantity::Traffic;
use crate::report::{CopyReport, FlowReport, GatewayReport, MediumReport, Part, Report};
use crate::topology::{Gateway, Law};

impl Network {
    /// Solves the network: every flow and copy beside all others.
    pub fn solve(&self) -> Report {
        let flows = Loads::of_flows(self);
        let solved = copying::solve(self, &flows);
        let mut loads = flows.clone();
        for (i, (there, back)) in self.copies.iter().enumerate() {
            let (data, reply) = copying::traffic(&self.topology.copies[i], solved.rates[i]);
            loads.add(self, there, data);
            loads.add(self, back, reply);
        }
        loads.settle_regularity(self);
        let cells = loads.cells(self);
        let gateways = vec![WaitDeviation::default(); self.topology.gateways.len()];
        let mut observed = Observations { media: vec![None; cells.len()], gateways };
        let flow_reports: Vec<FlowReport> =
            (0..self.flows.len()).map(|i| self.flow(i, &loads, &cells, &mut observed)).collect();
        let media = cells.iter().zip(observed.media).zip(&self.topology.media);
        let media = media.map(|((cell, observed), medium)| medium_report(&medium.name, cell, observed)).collect();
        let gateways =
            self.topology.gateways.iter().zip(loads.gateways.iter().zip(&loads.regular)).zip(observed.gateways);
        let gateways = gateways
            .map(|((gateway, (load, regular)), behind)| gateway_report(gateway, *load, *regular, behind))
            .collect();
        let rates = solved.rates.clone();
        let copies = self.copy_reports(solved);
        let report = Report { stations: self.stations(), media, gateways, flows: flow_reports, copies };
        let mut report = Interference { network: self, rates: &rates, with: &loads, without: &flows }.of(report);
        for flow in &mut report.flows {
            let carries = flow.delay_s.value().is_some() && !flow.delay_s.outside().contains(&Reason::Starved);
            flow.carried_packets_per_s = carries.then_some(flow.packets_per_s);
        }
        report.set_intervals();
        report
    }

    /// A flow's delay; adds what it reveals about each medium and gateway to `observed`.
    fn flow(&self, i: usize, loads: &Loads, cells: &[Cell<'_>], observed: &mut Observations) -> FlowReport {
        let (flow, route) = (&self.topology.flows[i], &self.flows[i]);
        let packets_per_s = flow.rate.get() * f64::from(self.topology.groups[route.from].stations);
        let mut progress = FlowProgress::new(route.from, packets_per_s, flow.size.mean_bits());
        let group = &self.topology.groups[route.from];
        if group.stations == 1 {
            // The processor spaces the group's packets.
            progress.spacing.least_s = group.cost.get();
        }
        for (at, hop) in route.hops.iter().enumerate() {
            self.medium_on_way(&mut progress, hop, cells, observed);
            if let Some(gateway) = route.gateways.get(at) {
                let slowest_s = route.gateways[at..].iter().map(|g| self.topology.gateways[*g].cost.get());
                progress.slowest_s = slowest_s.fold(0.0, f64::max);
                self.gateway_on_way(&mut progress, hop, *gateway, loads, cells, observed);
            }
        }
        let processor = PROCESSOR.at(&(loads.handled[route.from] * self.topology.groups[route.from].cost.get()));
        let (total, parts) = progress.doubted();
        let delay_s = total.with(processor, |total, ()| total);
        let (from, to) = (flow.from.clone(), flow.to.clone());
        FlowReport { from, to, packets_per_s, carried_packets_per_s: None, delay_s, parts }
    }

    fn medium_on_way(&self, progress: &mut FlowProgress, hop: &Hop, cells: &[Cell<'_>], observed: &mut Observations) {
        let (cell, first) = (&cells[hop.medium], progress.parts.is_empty());
        let delay = cell.delay(hop, progress.bits, !first);
        progress.here_s = delay.value().copied();
        let deviation_s = progress
            .here_s
            .filter(|_| !first)
            .map_or(0.0, |d| cell.deviation(hop, &progress.spacing, d, progress.bits));
        progress.deviation_s += deviation_s;
        progress.spacing.bit_s = progress.spacing.bit_s.max(cell.bit_s());
        progress.spacing.least_s = progress.spacing.least_s.max(cell.token_s(hop));
        let packets_per_s = progress.packets_per_s;
        if packets_per_s > 0.0 {
            let part = progress.here_s.map_or(0.0, |d| deviation_s / d.max(1e-12));
            let here = delay.clone().map(|d| (packets_per_s, packets_per_s * d));
            let here = here.with(BEHIND.at(&part), |here, ()| here);
            let slot = &mut observed.media[hop.medium];
            *slot = Some(match slot.take() {
                Some(before) => before.with(here, |a, b| (a.0 + b.0, a.1 + b.1)),
                None => here,
            });
        }
        progress.add(&self.topology.media[hop.medium].name, delay);
    }

    /// Crosses the gateway behind `hop`.
    fn gateway_on_way(
        &self,
        progress: &mut FlowProgress,
        hop: &Hop,
        gateway: usize,
        loads: &Loads,
        cells: &[Cell<'_>],
        observed: &mut Observations,
    ) {
        let (about, arrives, cell) = (&self.topology.gateways[gateway], loads.gateways[gateway], &cells[hop.medium]);
        let bunched = progress.here_s.map_or(0.0, |delay_s| cell.bunched(hop, delay_s, progress.bits));
        progress.bursts_s += bunched * progress.slowest_s;
        let saved_s = loads.saved(self, progress.from, gateway);
        progress.spaced_s += saved_s;
        let arrivals =
            GatewayArrivals { regular: loads.regular[gateway], longer_s: cell.longer(hop, progress.bits), saved_s };
        let through = gateway_delay(about, arrives, &arrivals);
        let queue = gateway_queue(about, arrives);
        let waits_s = through.value().map_or(0.0, |through_s| through_s - about.cost.get());
        let poisson_s = MG1_WAIT.at(&queue).value().copied().unwrap_or(0.0);
        let off_s = |saved: f64| (poisson_s * (1.0 - saved) - waits_s).abs();
        let (saved, part) = cell.saved_in_sequence(hop.to, &progress.spacing, &queue, arrives);
        let deviation_s = off_s(part * saved).max(off_s(self.saved_at_gateway(gateway, &queue, arrives, cells)));
        // While a long packet arrived over the slowest medium nothing arrived behind it, and the
        // queue here shrank.
        let longer_s = (progress.bits - arrives.mean_bits()) * progress.spacing.bit_s;
        let gone_s = (longer_s - arrivals.longer_s).abs() * queue.utilisation();
        let deviation_s = deviation_s + gone_s.min(waits_s);
        progress.deviation_s += deviation_s;
        // Packets of a burst stay together at the gateways that follow.
        progress.together += bunched;
        observed.gateways[gateway].add(progress.packets_per_s, deviation_s, progress.together * about.cost.get());
        if about.law == Law::Constant {
            progress.spacing.least_s = progress.spacing.least_s.max(about.cost.get());
        }
        progress.add(&about.name, through);
    }

    /// The share of the Poisson wait saved at a gateway because packets of each medium arrive in
    /// sequence.
    fn saved_at_gateway(&self, gateway: usize, queue: &Queue, arrives: Traffic, cells: &[Cell<'_>]) -> f64 {
        let of = |(medium, port): &(usize, usize)| {
            let spacing = Spacing { bit_s: cells[*medium].bit_s(), least_s: 0.0 };
            let (saved, part) = cells[*medium].saved_in_sequence(*port, &spacing, queue, arrives);
            part * part * saved
        };
        self.attached[gateway].iter().map(of).sum()
    }

    fn copy_reports(&self, solved: copying::Solved) -> Vec<CopyReport> {
        let settled = solved.settled;
        let reports = self.topology.copies.iter().zip(solved.outcomes).map(|(copy, outcome)| CopyReport {
            from: copy.from.clone(),
            to: copy.to.clone(),
            window: copy.window,
            outcome: if settled { outcome } else { outcome.doubt(Reason::Unsettled) },
        });
        reports.collect()
    }
}

fn medium_report(name: &str, cell: &Cell<'_>, observed: Option<Estimate<(f64, f64)>>) -> MediumReport {
    let offered = cell.all().packets_per_s();
    let busy = cell.busy();
    MediumReport {
        name: name.to_owned(),
        load: cell.load(),
        busy,
        offered_packets_per_s: offered,
        carried_packets_per_s: if busy.is_some() { Some(offered) } else { cell.capacity().map(|c| c.min(offered)) },
        mean_bits: cell.all().mean_bits(),
        delay_s: observed.map(|sums| sums.map(|(packets, weighted)| weighted / packets)),
    }
}

/// The arrivals of a flow at a gateway.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct GatewayArrivals {
    /// Regularity of all arrivals.
    regular: f64,
    /// How much longer than the average packet these take to arrive, in seconds: meanwhile no later
    /// packet arrives, and the queue shrinks.
    longer_s: f64,
    /// The wait saved for packets of the same station, in seconds.
    saved_s: f64,
}

fn gateway_delay(gateway: &Gateway, load: Traffic, arrivals: &GatewayArrivals) -> Estimate<f64> {
    let tandem = Tandem { queue: gateway_queue(gateway, load), regular: arrivals.regular };
    let busy = tandem.queue.utilisation();
    let poisson = MG1_WAIT.at(&tandem.queue).value().copied().unwrap_or(0.0);
    GG1_WAIT.at(&tandem).map(|wait| {
        let wait = wait.min((poisson - arrivals.saved_s).max(0.0));
        let left = if wait > 0.0 { (-arrivals.longer_s * busy / wait).exp() } else { 1.0 };
        wait * left.min(2.0) + gateway.cost.get()
    })
}

fn gateway_report(gateway: &Gateway, load: Traffic, regular: f64, behind: WaitDeviation) -> GatewayReport {
    let queue = gateway_queue(gateway, load);
    let delay = gateway_delay(gateway, load, &GatewayArrivals { regular, ..GatewayArrivals::default() });
    let delay = behind.doubted(delay);
    GatewayReport {
        name: gateway.name.clone(),
        utilisation: queue.utilisation(),
        packets_per_s: load.packets_per_s(),
        carried_packets_per_s: delay.value().map(|_| load.packets_per_s()),
        delay_s: delay,
        p95_s: (gateway.law == Law::Exponential).then(|| MM1_P95.at(&queue)),
    }
}

/// What the flows reveal about media and gateways.
pub(crate) struct Observations {
    /// By medium: packets a second, and packets a second times delay.
    pub(crate) media: Vec<Option<Estimate<(f64, f64)>>>,
    /// By gateway: possible errors of the wait.
    pub(crate) gateways: Vec<WaitDeviation>,
}

/// A gateway's deviation from the Poisson wait: sums weighted by packets a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct WaitDeviation {
    packets: f64,
    deviation_s: f64,
    bursts_s: f64,
}

impl WaitDeviation {
    pub(crate) fn add(&mut self, packets_per_s: f64, deviation_s: f64, bursts_s: f64) {
        self.packets += packets_per_s;
        self.deviation_s += packets_per_s * deviation_s;
        self.bursts_s += packets_per_s * bursts_s;
    }

    /// A gateway's delay with the resulting reasons.
    pub(crate) fn doubted(&self, delay: Estimate<f64>) -> Estimate<f64> {
        let part = |sum_s: f64| delay.value().map_or(0.0, |d| sum_s / self.packets.max(1e-300) / d.max(1e-12));
        let (deviation, bursts) = (BEHIND.at(&part(self.deviation_s)), BURSTS.at(&part(self.bursts_s)));
        delay.with(deviation, |delay, ()| delay).with(bursts, |delay, ()| delay)
    }
}

/// A flow's packets at one point of the route.
pub(crate) struct FlowProgress {
    /// The sender's group.
    pub(crate) from: usize,
    pub(crate) packets_per_s: f64,
    /// Their mean size.
    pub(crate) bits: f64,
    /// Their spacing so far.
    pub(crate) spacing: Spacing,
    /// Mean delay of the last medium, in seconds.
    pub(crate) here_s: Option<f64>,
    /// The longest service of the gateways ahead, in seconds.
    pub(crate) slowest_s: f64,
    /// Burst size out of the shared media so far, in packets.
    pub(crate) together: f64,
    /// Possible delay by these bursts at gateways, in seconds.
    pub(crate) bursts_s: f64,
    /// The wait saved at gateways by a processor's spacing, in seconds.
    pub(crate) spaced_s: f64,
    /// Possible deviation of the wait because packets arrive in sequence, in seconds.
    pub(crate) deviation_s: f64,
    pub(crate) parts: Vec<Part>,
    total: Estimate<f64>,
}

impl FlowProgress {
    pub(crate) fn new(from: usize, packets_per_s: f64, bits: f64) -> FlowProgress {
        FlowProgress {
            from,
            packets_per_s,
            bits,
            spacing: Spacing::default(),
            here_s: None,
            slowest_s: 0.0,
            together: 0.0,
            bursts_s: 0.0,
            spaced_s: 0.0,
            deviation_s: 0.0,
            parts: Vec::new(),
            total: Estimate::given(0.0),
        }
    }

    /// Appends a medium or gateway.
    pub(crate) fn add(&mut self, name: &str, delay: Estimate<f64>) {
        self.parts.push(Part { name: name.to_owned(), delay_s: delay.value().copied() });
        self.total = std::mem::replace(&mut self.total, Estimate::given(0.0)).plus(delay);
    }

    /// The whole delay with its reasons, and its parts.
    pub(crate) fn doubted(self) -> (Estimate<f64>, Vec<Part>) {
        let FlowProgress { total, parts, deviation_s, bursts_s, spaced_s, .. } = self;
        let part = |seconds: f64| total.value().map_or(0.0, |total_s| seconds / total_s.max(1e-12));
        let (deviation, bursts, spaced) =
            (BEHIND.at(&part(deviation_s)), BURSTS.at(&part(bursts_s)), SPACED.at(&part(spaced_s)));
        let total = total.with(deviation, |total, ()| total).with(bursts, |total, ()| total);
        (total.with(spaced, |total, ()| total), parts)
    }
}
