//! A round of a copy, from the sending of a block until its reply, at a given rate: the stops of its
//! packets, and the resulting throughput.

use super::demand::{ChannelUse, CopyDemand, Visit, VisitLoad};
use crate::cell::{Cell, PacketDemand, ServerLoad};
use crate::formula::Estimate;
use crate::formulas::mva::Pace;
use crate::formulas::pipeline::{self, PACE, Server, Stop, burst_s};
use crate::formulas::queue::{PROCESSOR, Queue};
use crate::loads::{Loads, gateway_service};
use crate::network::{Network, Route};
use crate::quantity::{Moments, Traffic};
use crate::report::{Outcome, ResourceUse};
use crate::topology::{Copy, Gateway, Kind, Resource};

/// A copy's traffic in both directions at `blocks_per_s` blocks a second.
pub(crate) fn traffic(copy: &Copy, blocks_per_s: f64) -> (Traffic, Traffic) {
    let of = |burst: &crate::topology::Burst| Traffic::of(blocks_per_s * burst.packets, burst.size);
    (of(&copy.data), of(&copy.reply))
}

/// Upper limit of the visible share of others' delays.
pub(super) const SELDOM: f64 = 0.5;

/// A copy with its routes and the loads beside it.
pub(super) struct CopyRound<'a> {
    pub(super) network: &'a Network,
    pub(super) copy: &'a Copy,
    pub(super) ways: &'a (Route, Route),
    pub(super) loads: &'a Loads,
}

impl CopyRound<'_> {
    /// The demand of the copy at `rate` blocks a second, and the resulting throughput.
    pub(super) fn pace(&self, cells: &[Cell<'_>], rate: f64) -> Estimate<(CopyDemand, Pace)> {
        let (there, back) = self.ways;
        let (data, reply) = traffic(self.copy, rate);
        let (software, disk) = (self.copy.software.get(), self.copy.disk.get());
        let mut demand = CopyDemand { alone_s: software + disk + self.copy.think.get(), ..CopyDemand::default() };
        self.processor(&mut demand, there.from, software);
        self.processor(&mut demand, there.to, 0.0);
        demand.server(Resource::Disk(there.to), Server { demand_s: disk, open: 0.0, filled_s: disk, scv: 0.0 });
        let demand = self.way(Estimate::given(demand), cells, there, data, reply, self.copy.data.packets);
        let demand = self.way(demand, cells, back, reply, data, self.copy.reply.packets);
        let think_s = self.copy.think.get();
        let demand = demand.map(|mut demand| {
            self.add_interactions(&mut demand, cells);
            self.wait_no_longer(&mut demand, cells);
            demand.alone_s = demand.alone_s.max(demand.cycle_s);
            self.outlast(&mut demand);
            demand
        });
        let pace = match demand.value() {
            Some(n) => PACE.at(&pipeline::Round {
                window: self.copy.under_way(),
                alone_s: n.alone_s,
                think_s,
                bunched_s: n.bunched_s,
                outlasted: n.outlasted,
                bad_share: n.bad_share,
                around_s: n.around_s,
                servers: n.servers.clone(),
            }),
            None => PACE.at(&pipeline::Round {
                window: 1,
                alone_s: 0.0,
                think_s,
                bunched_s: 0.0,
                outlasted: 0.0,
                bad_share: 0.0,
                around_s: 0.0,
                servers: Vec::new(),
            }),
        };
        demand.with(self.senders(), |n, ()| n).with(pace, |n, p| {
            let stretch = self.stretch(&n, p.requests_per_s);
            (n, p.slower(stretch, think_s))
        })
    }

    /// Whether the flows' stations can send them: otherwise they load the route less than they
    /// state.
    fn senders(&self) -> Estimate<()> {
        let groups = self.network.topology.groups.iter().zip(&self.loads.handled);
        PROCESSOR.at(&groups.map(|(group, handled)| handled * group.cost.get()).fold(0.0, f64::max))
    }

    /// A station's software handles all packets of a block, and takes `more_s` seconds on top.
    fn processor(&self, demand: &mut CopyDemand, group: usize, more_s: f64) {
        let cost = self.network.topology.groups[group].cost.get();
        let demand_s = (self.copy.data.packets + self.copy.reply.packets) * cost + more_s;
        let open = self.loads.handled[group] * cost;
        let filled_s = demand_s / (1.0 - open).max(1e-9);
        demand.server(Resource::Software(group), Server { demand_s, open, filled_s, scv: 0.0 });
    }

    /// The stop of a packet in a station's software.
    fn handled(&self, group: usize) -> PacketDemand {
        let cost = self.network.topology.groups[group].cost.get();
        let queue = Queue { arrivals_per_s: self.loads.handled[group], service: Moments::constant(cost) };
        PacketDemand::queue(cost, queue, 0.0)
    }

    fn way(
        &self,
        demand: Estimate<CopyDemand>,
        cells: &[Cell<'_>],
        route: &Route,
        mine: Traffic,
        other: Traffic,
        packets: f64,
    ) -> Estimate<CopyDemand> {
        if packets <= 0.0 {
            return demand;
        }
        // With one outstanding block data and replies alternate and never meet.
        let other = other.times(1.0 - 1.0 / f64::from(self.copy.under_way().max(1)));
        // Stops in order; the stations' software counts as a server elsewhere, both directions
        // together.
        let mut met = Estimate::given(vec![Visit { need: self.handled(route.from), fills: None }]);
        for (at, hop) in route.hops.iter().enumerate() {
            let cell = &cells[hop.medium];
            let resource = Resource::Medium(hop.medium);
            let need = cell.with(mine.plus(other), hop).need(hop, mine);
            let alone = cell.with(mine, hop).need(hop, mine).value().cloned();
            met = met.with(need, |mut met, need| {
                let fills = VisitLoad {
                    resource,
                    both_ways: cell.serves_both_ways(),
                    need: alone.unwrap_or_else(|| need.clone()),
                };
                met.push(Visit { need, fills: Some(fills) });
                met
            });
            if let Some(gateway) = route.gateways.get(at) {
                let about = &self.network.topology.gateways[*gateway];
                let others = self.loads.gateways[*gateway].packets_per_s();
                let need = gateway_need(about, others + other.packets_per_s());
                let fills = VisitLoad {
                    resource: Resource::Gateway(*gateway),
                    both_ways: true,
                    need: gateway_need(about, others),
                };
                met = met.map(|mut met| {
                    met.push(Visit { need, fills: Some(fills) });
                    met
                });
            }
        }
        demand.with(met, |mut demand, mut met| {
            met.push(Visit { need: self.handled(route.to), fills: None });
            let stops: Vec<Stop> = met.iter().flat_map(|m| m.need.stops.iter().map(|(stop, _)| *stop)).collect();
            let way_s = burst_s(packets, &stops);
            demand.alone_s += way_s;
            // The delay by its own earlier packets persists where the queue takes longer than a
            // round to drain.
            let own = |stop: &Stop| mine.packets_per_s() * stop.service_s;
            let back = |(stop, filled): &(Stop, ServerLoad)| {
                stop.wait_s * (own(stop) / (1.0 - filled.open - own(stop)).max(1e-9)).min(1.0)
            };
            demand.bunched_s += met.iter().flat_map(|m| &m.need.stops).map(back).sum::<f64>();
            demand.bunched_s += packets.min(1.0) * met.iter().map(|m| m.need.unsure_s).sum::<f64>();
            // Packets that waited for one another do so less at the next stop; each stop counts
            // all.
            let most = stops.iter().map(|stop| stop.wait_s).fold(0.0, f64::max);
            demand.bunched_s += SELDOM * (stops.iter().map(|stop| stop.wait_s).sum::<f64>() - most);
            self.channels(&mut demand, route, packets, &met, way_s);
            met.iter().filter_map(|m| m.fills.as_ref()).for_each(|fills| demand.fill(fills, packets));
            demand
        })
    }

    /// Adds the use and wait of `packets` of a block, which take `way_s`, on the wireless media of
    /// their route.
    fn channels(&self, demand: &mut CopyDemand, route: &Route, packets: f64, met: &[Visit], way_s: f64) {
        let quiet_at = |quiet: usize| -> Vec<Stop> {
            let places = met.iter().enumerate();
            places
                .flat_map(|(at, m)| m.need.stops.iter().map(move |(s, _)| if at == quiet { s.quiet() } else { *s }))
                .collect()
        };
        let wireless =
            met.iter().enumerate().filter_map(|(at, m)| Some((at, m.need.channel?, m.need.stops.first()?.0)));
        let media = route.hops.iter().map(|hop| hop.medium).filter(|medium| self.wireless(*medium));
        for (medium, (at, channel, stop)) in media.zip(wireless) {
            let channel =
                demand.channels.entry(medium).or_insert(ChannelUse { states: channel, on_s: 0.0, waits_s: 0.0 });
            channel.on_s += packets * stop.spacing_s;
            channel.waits_s += way_s - burst_s(packets, &quiet_at(at));
        }
    }

    fn wireless(&self, medium: usize) -> bool {
        matches!(self.network.topology.media[medium].kind, Kind::Wifi { .. })
    }

    fn name(&self, resource: Resource) -> String {
        let topology = &self.network.topology;
        match resource {
            Resource::Medium(i) => topology.media[i].name.clone(),
            Resource::Gateway(i) => topology.gateways[i].name.clone(),
            Resource::Software(group) => format!("{} software", topology.groups[group].name),
            Resource::Disk(group) => format!("{} disk", topology.groups[group].name),
        }
    }

    pub(super) fn outcome(&self, rate: f64, demand: CopyDemand, pace: Pace) -> Outcome {
        let blocks = self.copy.file_bytes as f64 / self.copy.block_bytes as f64;
        let places = demand.resources.into_iter().zip(&demand.servers).zip(pace.busy.iter().zip(&pace.queued));
        let place = |((resource, server), (busy, queued)): ((Resource, &Server), (&f64, &f64))| ResourceUse {
            name: self.name(resource),
            demand_s: server.demand_s,
            busy: *busy,
            queued: *queued,
        };
        Outcome {
            // A file that fits into the window takes a full round, though its last block is not
            // full.
            seconds: blocks.max(f64::from(self.copy.under_way())) / rate,
            bits_per_s: rate * self.copy.block_bytes as f64 * 8.0,
            response_s: pace.response_s,
            places: places.map(place).collect(),
        }
    }
}

fn gateway_need(gateway: &Gateway, packets_per_s: f64) -> PacketDemand {
    let service = gateway_service(gateway);
    let queue = Queue { arrivals_per_s: packets_per_s, service };
    let mut need = PacketDemand::queue(service.mean, queue, 0.0);
    let variance = service.second - service.mean * service.mean;
    need.stops.iter_mut().for_each(|(_, filled)| filled.variance += variance);
    need
}

impl CopyRound<'_> {
    /// Limits the waits. Each wait is calculated as if the others' queues had no memory, but all
    /// together cannot exceed what the others send in one round. For one queue served at a time:
    /// with the wait `x` and the rest of the round `r`, the others send for `load * (r + x)`, part
    /// of it while the copy is elsewhere. Each medium uses the unbounded round, so their order does
    /// not matter.
    pub(super) fn wait_no_longer(&self, demand: &mut CopyDemand, cells: &[Cell<'_>]) {
        let beyond_s = |(medium, channel): (&usize, &ChannelUse)| {
            let cell = &cells[*medium];
            // Packets that arrive in bad periods are sent in good ones.
            let later = channel.states.bad_s / channel.states.good_s;
            let load = cell.share(cell.all()) * (1.0 + later);
            let rest_s = demand.alone_s - channel.waits_s;
            let most_s = rest_s * load / (1.0 - load).max(1e-9);
            (channel.waits_s - most_s).max(0.0)
        };
        demand.alone_s -= demand.channels.iter().map(beyond_s).sum::<f64>();
    }

    /// Where the channel is not the bottleneck, a window may outlast a bad period, wholly or in
    /// part: a doubt about the whole cost of bad periods. Where much of the time is bad, others'
    /// packets accumulate until the end of each period.
    pub(super) fn outlast(&self, demand: &mut CopyDemand) {
        let busiest = demand.servers.iter().map(|s| s.filled_s).fold(0.0, f64::max);
        for ChannelUse { states: channel, on_s, .. } in demand.channels.values() {
            demand.bad_share = demand.bad_share.max(channel.bad_share());
            if self.copy.under_way() > 1 && *on_s < busiest {
                demand.outlasted += channel.bad_s / channel.good_s;
            }
        }
    }

    /// The factor by which bad periods stretch the time between blocks. They depend on time and
    /// delay the whole window: meanwhile the rest has little to do.
    pub(super) fn stretch(&self, demand: &CopyDemand, blocks_per_s: f64) -> f64 {
        let window = f64::from(self.copy.under_way());
        // Data and replies, of each outstanding block.
        let of = |c: &ChannelUse| c.states.stretch(window / blocks_per_s, c.on_s * window, 2.0 * window);
        demand.channels.values().map(of).product()
    }
}
