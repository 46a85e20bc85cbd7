//! The packets of a copy on a medium, and how a copy's bursts occupy it.

use super::medium::Cell;
use crate::formula::Estimate;
use crate::formulas::ethernet;
use crate::formulas::pipeline::Stop;
use crate::formulas::queue::Queue;
use crate::formulas::ring::{self, Discipline, Ring};
use crate::formulas::wifi;
use crate::network::Hop;
use crate::quantity::{Moments, Size, Traffic};
use crate::topology::Kind;

/// Bits by which each frame that arrives during a burst on an Ethernet may delay the reply, and
/// more for longer bursts: a station that lost against the burst a few times backs off long (an
/// upper limit, from simulation).
const BACKED_OFF: f64 = 20.0 * ethernet::SLOT_BITS;

/// The stops of a copy's packet on a medium.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PacketDemand {
    /// In order of the way.
    pub(crate) stops: Vec<(Stop, ServerLoad)>,
    /// The channel whose bad periods delay the whole round.
    pub(crate) channel: Option<wifi::TwoStateChannel>,
    /// Possible additional wait, in seconds.
    pub(crate) unsure_s: f64,
}

/// A medium that a copy's sender occupies with its bursts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Occupancy {
    /// Duration of a block's burst, in seconds.
    pub(crate) burst_s: f64,
    /// The factor by which others' packets stretch it.
    pub(crate) busy: f64,
    /// Whether a reply waits for one packet, not for the whole burst.
    pub(crate) turns: bool,
    /// Whether the service is gated.
    pub(crate) gated: bool,
    /// The reply's added wait for others' packets accumulated meanwhile, in seconds.
    pub(crate) gathered_s: f64,
    /// Its increase if the busiest stations stand in between.
    pub(crate) unplaced_s: f64,
    /// Its increase if all stations on the ring stand in between.
    pub(crate) all_gathered_s: f64,
    /// Possible back-off of others that collided with the burst, including the reply's sender, in
    /// seconds.
    pub(crate) backed_off_s: f64,
    /// Token rotation time, in seconds.
    pub(crate) around_s: f64,
}

/// A place as a server of a copy's packets.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ServerLoad {
    /// Share of its time used by others.
    pub(crate) open: f64,
    /// Variance of the time between packets under saturation by the copy, in seconds squared.
    pub(crate) variance: f64,
    /// Time between packets under saturation by the copy, in seconds.
    pub(crate) filled_s: f64,
}

impl Occupancy {
    /// Possible added wait of a burst's last packet, in seconds, if packets arrive every `gap_s`
    /// and take `sending_s`: under gated service those that arrive in one cycle leave in the next
    /// one, whose length is `around + cycle * sending / gap`.
    pub(crate) fn trickle_s(&self, gap_s: f64, sending_s: f64) -> f64 {
        if !self.gated || gap_s <= 0.0 {
            return 0.0;
        }
        self.around_s * self.busy / (1.0 - sending_s / gap_s).max(0.05)
    }
}

impl PacketDemand {
    /// One place: `service_s` for each packet of the copy among the packets of `queue`.
    pub(crate) fn queue(service_s: f64, queue: Queue, delay_s: f64) -> PacketDemand {
        let open = queue.utilisation();
        let left = (1.0 - open).max(1e-9);
        let square = queue.arrivals_per_s * queue.service.second;
        let stop = Stop { service_s, wait_s: square / (2.0 * left), spacing_s: service_s, between: open, delay_s };
        // The others' busy periods during this service (Takacs 1962).
        let variance = service_s * square / (left * left * left);
        let stops = vec![(stop, ServerLoad { open, variance, filled_s: service_s / left })];
        PacketDemand { stops, channel: None, unsure_s: 0.0 }
    }
}

impl Cell<'_> {
    /// The stops of a copy's packet. `mine` is the copy's own traffic in this direction; it is part
    /// of this cell, but not of its ports.
    pub(crate) fn need(&self, hop: &Hop, mine: Traffic) -> Estimate<PacketDemand> {
        match self.medium.kind {
            Kind::Ethernet { propagation } => self.ethernet_need(hop, mine, propagation.get()),
            Kind::Ring { walk, discipline } => {
                let sending = mine.mean_bits() / self.rate;
                let others = self.all.less(mine);
                let mut ring = self.ring(walk.get(), discipline, others, self.ports[hop.from].sends);
                ring.turns = ring.turns.max(self.most_packets() * (sending + ring.around_s()));
                ring::TOKEN.at(&ring).map(|wait| ring_need(&ring, wait, sending, self.way(hop)))
            }
            Kind::Switch { latency } => Estimate::given(self.switch_need(hop, mine, latency.get())),
            Kind::Wifi { overhead, channel } => self.wifi_need(hop, mine, overhead.get(), channel),
        }
    }

    fn ethernet_need(&self, hop: &Hop, mine: Traffic, propagation: f64) -> Estimate<PacketDemand> {
        let from = &self.ports[hop.from];
        let own = from.sends.plus(mine);
        let longer = (mine.mean_bits() - own.mean_bits()) / self.rate;
        let access = ethernet::ACCESS.at(&self.sender(propagation, own));
        access.map(|a| {
            // The same access, with the length of the station's other packets.
            let shorter = (from.sends.mean_bits() - own.mean_bits()) / self.rate;
            let mean = (a.time.mean + shorter).max(0.0);
            let second = (a.time.second - a.time.mean * a.time.mean).max(0.0) + mean * mean;
            let service = Moments { mean, second };
            let queue = Queue { arrivals_per_s: from.sends.packets_per_s(), service };
            // Packets of a burst waited for one another.
            let mut need = PacketDemand::queue(a.next.mean + longer, queue, 0.0);
            let variance = (a.next.second - a.next.mean * a.next.mean).max(0.0);
            need.stops.iter_mut().for_each(|(stop, filled)| {
                stop.service_s = a.time.mean + longer;
                filled.variance += variance;
            });
            need
        })
    }

    fn switch_need(&self, hop: &Hop, mine: Traffic, latency: f64) -> PacketDemand {
        let (from, to) = (&self.ports[hop.from], &self.ports[hop.to]);
        let sending = mine.mean_bits() / self.rate;
        let mut need = PacketDemand::queue(sending, self.link(from.sends), latency);
        // The same station's other packets precede or follow on its own line, never in between.
        let others = self.link(to.receives.less(self.pair(hop.from, hop.to)));
        let first = PacketDemand::queue(sending, others, 0.0).stops;
        let all = PacketDemand::queue(sending, self.link(to.receives), 0.0).stops;
        let longer =
            |(all, first): (&(Stop, ServerLoad), &(Stop, ServerLoad))| (all.0.wait_s - first.0.wait_s).max(0.0);
        // Unless others delay them at the receiver's port.
        need.unsure_s = others.utilisation() * all.iter().zip(&first).map(longer).sum::<f64>();
        need.stops.extend(first.into_iter().zip(all).map(|((stop, _), (_, filled))| (stop, filled)));
        need
    }

    fn wifi_need(
        &self,
        hop: &Hop,
        mine: Traffic,
        overhead: f64,
        channel: wifi::TwoStateChannel,
    ) -> Estimate<PacketDemand> {
        let sending = mine.mean_bits() / self.rate;
        let background = self.pair(hop.from, hop.to);
        let airtime = sending + overhead;
        let turns = self.most_packets() * airtime;
        let station = self.station(background.plus(mine), overhead, channel);
        // Packets that arrive for the same channel in bad periods are sent in good ones.
        let later = channel.bad_s / channel.good_s;
        let others = station.others + later * self.airtime(self.pair(hop.to, hop.from), overhead);
        let station = wifi::Station { turns, others, ..station };
        let background = background.times(1.0 + later);
        let service = background.service(self.rate, overhead);
        let queue = Queue { arrivals_per_s: background.packets_per_s(), service };
        wifi::COMPLETION.at(&station).map(|_| {
            let left = (1.0 - station.others).max(1e-9);
            let open = queue.utilisation() / left;
            let square = station.others_square_s + queue.arrivals_per_s * queue.service.second;
            let stop = Stop {
                service_s: airtime,
                wait_s: square / (2.0 * (left - queue.utilisation()).max(1e-9)),
                spacing_s: airtime / left,
                between: queue.utilisation(),
                delay_s: 0.0,
            };
            // Bad periods stretch the whole round; here they only cause retransmissions.
            let filled_s = airtime * station.attempts() / left / (1.0 - open).max(1e-9);
            let variance = airtime * square / (left - queue.utilisation()).max(1e-9).powi(3);
            let stops = vec![(stop, ServerLoad { open, variance, filled_s })];
            PacketDemand { stops, channel: Some(channel), unsure_s: 0.0 }
        })
    }

    /// Whether one server sends all packets of both directions in sequence. On a 1-limited ring
    /// each station's packets wait for tokens of their own.
    pub(crate) fn serves_both_ways(&self) -> bool {
        match self.medium.kind {
            Kind::Ethernet { .. } | Kind::Wifi { .. } => true,
            Kind::Ring { discipline, .. } => discipline != Discipline::OneLimited,
            Kind::Switch { .. } => false,
        }
    }

    /// How a copy's data, sent over `hop` in bursts of `packets`, occupies this medium; `None`
    /// where data and replies never meet.
    pub(crate) fn held(&self, hop: &Hop, size: Size, packets: f64) -> Option<Occupancy> {
        let sending_s = size.mean_bits() / self.rate;
        let load = self.all.bits_per_s() / self.rate;
        let busy = 1.0 / (1.0 - load).max(1e-9);
        let burst_s = packets * sending_s * busy;
        match self.medium.kind {
            Kind::Ring { discipline, walk } => {
                let around_s = walk.get() * self.ports.iter().map(|p| p.stations).sum::<f64>();
                let turns = discipline == Discipline::OneLimited;
                // A station that takes turns sends one packet, then others send theirs.
                let at_once = if turns { packets.min(1.0) } else { packets };
                let (passed, unplaced) = self.passed(hop, discipline == Discipline::Exhaustive);
                let gathered_s = at_once * sending_s * passed.exp_m1();
                let unplaced_s = at_once * sending_s * (passed + unplaced).exp_m1() - gathered_s;
                let all_gathered_s = at_once * sending_s * load.exp_m1() - gathered_s;
                let gated = discipline == Discipline::Gated;
                Some(Occupancy {
                    burst_s,
                    busy,
                    turns,
                    gated,
                    gathered_s,
                    unplaced_s,
                    all_gathered_s,
                    around_s,
                    ..Occupancy::default()
                })
            }
            Kind::Ethernet { .. } => {
                // Back-off doubles: its remainder is about as long as it has lasted.
                let each_s = (BACKED_OFF / self.rate).max(burst_s / 4.0);
                let backed_off_s = self.all.packets_per_s() * burst_s * each_s;
                Some(Occupancy { burst_s, busy, backed_off_s, ..Occupancy::default() })
            }
            Kind::Wifi { overhead, .. } => {
                let airtime = sending_s + overhead.get();
                // During a frame of the copy, packets of other stations accumulate. Each queue sends one of
                // them before the reply to the copy's block.
                let gathered_s = packets.min(1.0) * airtime * self.airtime(self.all, overhead.get());
                Some(Occupancy { burst_s: packets * airtime, busy, turns: true, gathered_s, ..Occupancy::default() })
            }
            Kind::Switch { .. } => None,
        }
    }

    /// Transmission time of a packet, in seconds.
    pub(crate) fn sending_s(&self, size: Size) -> f64 {
        size.mean_bits() / self.rate
    }
}

/// A copy's packet on a ring beside the others' load. A burst goes with one token, or packet by
/// packet.
fn ring_need(ring: &Ring, wait_s: f64, sending: f64, way: f64) -> PacketDemand {
    let queue = Queue { arrivals_per_s: ring.arrivals_per_s, service: ring.service };
    let mut need = PacketDemand::queue(sending, queue, way * ring.around_s());
    for (stop, filled) in &mut need.stops {
        stop.wait_s = wait_s;
        if ring.discipline == Discipline::OneLimited {
            // The station's own other packets take some of the tokens; those that arrive during a
            // burst are behind it.
            let others = (1.0 - ring.utilisation() + ring.own_utilisation).max(1e-9);
            let own = (ring.own_arrivals_per_s * ring.around_s() + ring.own_utilisation) / others;
            let around = (sending + ring.around_s()) / others;
            (stop.spacing_s, stop.between, filled.filled_s) = (around, 0.0, around / (1.0 - own).max(1e-9));
        }
    }
    need
}
