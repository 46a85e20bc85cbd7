//! The interaction of a copy's blocks and replies beyond the queueing at each place.
//!
//! Where data and replies share a medium, a burst of data occupies it, so others' packets
//! accumulate and the reply comes behind them. The known part of that enters a block's round
//! ([`CopyDemand::alone_s`]), the part with only a bound raises doubts ([`CopyDemand::bunched_s`]).

use super::demand::CopyDemand;
use super::round::{CopyRound, SELDOM};
use crate::cell::{Cell, Occupancy};
use crate::loads::gateway_queue;
use crate::network::Hop;
use crate::quantity::Moments;

/// A medium on the data's way, as seen by its packets.
struct SharedMedium<'a> {
    hop: &'a Hop,
    sending_s: f64,
    /// Packets of a block that arrive together.
    together: f64,
    /// Time between those that do not.
    gap_s: f64,
    held: Occupancy,
    /// Whether the receiver is on another medium.
    is_beyond: bool,
}

impl CopyRound<'_> {
    /// Adds all interactions of blocks.
    pub(super) fn add_interactions(&self, demand: &mut CopyDemand, cells: &[Cell<'_>]) {
        self.hold_at_the_ends(demand, cells);
        self.add_gateway_queues(demand);
        for passed in self.passes(cells) {
            self.gather(demand, &passed);
            self.take_turns(demand, cells, &passed);
            self.run_ahead(demand, cells, &passed);
        }
    }

    /// Outstanding blocks besides the one in question.
    fn more(&self) -> f64 {
        f64::from(self.copy.under_way().saturating_sub(1))
    }

    /// Time from a reply's arrival until the next block's last packet leaves the sender's software,
    /// in seconds.
    fn ready_s(&self) -> f64 {
        let sender = &self.network.topology.groups[self.ways.0.from];
        self.copy.software.get() + self.copy.data.packets * sender.cost.get()
    }

    /// Time of the receiver's disk and software between a block's last packet and its replies, in
    /// seconds.
    fn meanwhile_s(&self) -> f64 {
        let cost_s = self.network.topology.groups[self.ways.0.to].cost.get();
        self.copy.disk.get() + (1.0 + self.copy.reply.packets) * cost_s
    }

    fn hold_at_the_ends(&self, demand: &mut CopyDemand, cells: &[Cell<'_>]) {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        // The sender's flows accumulate meanwhile behind its software, leave behind the block, and
        // occupy the medium before the reply.
        let (medium, port) = self.network.group_ports[there.from];
        if cells[medium].serves_both_ways() {
            let sends = self.loads.ports[medium][port].sends;
            demand.bunched_s += self.copy.software.get() * cells[medium].share(sends);
        }
        // Arriving packets interrupt the sender.
        demand.bunched_s += self.copy.software.get() * self.interrupts(there.from);
        // Arriving packets interrupt the receiver, so that a reply waits for the blocks behind its
        // own.
        demand.bunched_s += self.more() * packets * self.network.topology.groups[there.to].cost.get();
        // Packets of flows that arrive meanwhile are handled before the reply, and before the next
        // block.
        for (group, packets) in [(there.to, packets), (there.from, self.copy.reply.packets)] {
            let (cost_s, (medium, port)) =
                (self.network.topology.groups[group].cost.get(), self.network.group_ports[group]);
            let made = self.loads.ports[medium][port].sends.packets_per_s() * cost_s;
            demand.bunched_s += (packets - 1.0).max(0.0) * cost_s * made;
        }
    }

    /// At a gateway the reply queues behind the packets that others queued behind the burst.
    fn add_gateway_queues(&self, demand: &mut CopyDemand) {
        let packets = self.copy.data.packets;
        for gateway in &self.ways.0.gateways {
            let queue = gateway_queue(&self.network.topology.gateways[*gateway], self.loads.gateways[*gateway]);
            let busy = queue.utilisation().min(1.0);
            let through_s = packets * queue.service.mean / (1.0 - busy).max(1e-9);
            demand.alone_s += self.scattered(queue.service, packets);
            demand.bunched_s += SELDOM * busy * through_s;
            if self.ready_s() < through_s {
                demand.bunched_s += self.more() * through_s;
            }
        }
    }

    /// The media on the data's way that also carry the replies. Packets that arrive slower than the
    /// medium sends them arrive separately.
    fn passes(&self, cells: &[Cell<'_>]) -> Vec<SharedMedium<'_>> {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        let mut gap_s = self.network.topology.groups[there.from].cost.get();
        let mut passes = Vec::new();
        for (at, hop) in there.hops.iter().enumerate() {
            let sending_s = cells[hop.medium].sending_s(self.copy.data.size);
            // Packets that arrive nearly as fast as they are sent queue behind others' packets.
            let slowed_s = sending_s / (1.0 - cells[hop.medium].load()).max(1e-9);
            let together = if gap_s < slowed_s { packets } else { packets.min(1.0) };
            gap_s = gap_s.max(sending_s);
            if let Some(gateway) = there.gateways.get(at) {
                gap_s = gap_s.max(self.network.topology.gateways[*gateway].cost.get());
            }
            let held = cells[hop.medium].held(hop, self.copy.data.size, together);
            let is_beyond = at + 1 < there.hops.len();
            passes.extend(held.map(|held| SharedMedium { hop, sending_s, together, gap_s, held, is_beyond }));
        }
        passes
    }

    /// The sender of data holds a ring's token as long as it has packets, so others' packets
    /// accumulate and the reply comes behind them: in a fluid model, the burst grows by `exp(load *
    /// part of the ring)`.
    fn gather(&self, demand: &mut CopyDemand, passed: &SharedMedium<'_>) {
        let held = &passed.held;
        // The ring sends the accumulated packets while the disk and the receiver are busy.
        let meanwhile_s = self.meanwhile_s();
        let replies = self.copy.reply.packets;
        let waits_s = (held.gathered_s - meanwhile_s).max(0.0) * replies.min(1.0);
        demand.alone_s += waits_s;
        if let Some(channel) = demand.channels.get_mut(&passed.hop.medium) {
            channel.waits_s += waits_s;
        }
        if meanwhile_s > 0.0 || passed.is_beyond {
            // When the reply is ready the token has moved on, to the stations behind.
            let all_s = (held.gathered_s + held.all_gathered_s - meanwhile_s).max(0.0);
            demand.bunched_s += (all_s - (held.gathered_s - meanwhile_s).max(0.0)).max(0.0);
        }
        if replies < 1.0 {
            // Without a reply the next block is ready at once, and comes behind all accumulated
            // packets.
            demand.bunched_s += (1.0 - replies) * held.all_gathered_s;
        }
        demand.bunched_s += held.backed_off_s + held.unplaced_s;
    }

    fn take_turns(&self, demand: &mut CopyDemand, cells: &[Cell<'_>], passed: &SharedMedium<'_>) {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        let held = &passed.held;
        // Packets accumulated for either end arrive at once, and interrupt it before it can send.
        let interrupts = self.interrupts(there.to) + self.interrupts(there.from);
        demand.bunched_s += interrupts * packets * passed.sending_s;
        if self.more() <= 0.0 && held.around_s > 0.0 {
            demand.cycle_s = demand.cycle_s.max(self.cycle_s(cells, passed));
        }
        if passed.together < packets {
            demand.bunched_s += held.trickle_s(passed.gap_s, passed.sending_s);
        }
        demand.around_s += held.around_s;
    }

    /// Time between two blocks in which all others on a ring send their packets, in seconds.
    fn cycle_s(&self, cells: &[Cell<'_>], passed: &SharedMedium<'_>) -> f64 {
        let packets = self.copy.data.packets;
        let tokens = if passed.held.turns { packets.max(1.0) } else { 1.0 };
        let reply_s = self.copy.reply.packets * cells[passed.hop.medium].sending_s(self.copy.reply.size);
        (packets * passed.sending_s + reply_s + tokens * passed.held.around_s) * passed.held.busy
    }

    /// If blocks reach the sender faster than it sends them, it may send its whole window before
    /// any reply; on an Ethernet, too, for a station that just sent is likely to send again.
    /// Otherwise a reply may meet the burst of one other block: blocks can fall into step so that
    /// each reply does. The number of bursts it meets is unknown, so this adds a bound and a doubt.
    fn run_ahead(&self, demand: &mut CopyDemand, cells: &[Cell<'_>], passed: &SharedMedium<'_>) {
        let packets = self.copy.data.packets;
        let (held, together) = (&passed.held, passed.together);
        // The next block is ready before the ring carries this one's reply, and precedes it.
        let ahead = self.ready_s() < self.cycle_s(cells, passed).max(packets * passed.sending_s);
        let blocks = if ahead && !(held.turns && packets > 1.0) { self.more() } else { self.more().min(1.0) };
        // Where stations take turns, and where its packets arrive separately, each reply waits for
        // one of them.
        let one_by_one = held.turns || !ahead && together < packets;
        let met = if one_by_one { self.copy.reply.packets.max(1.0).min(packets) } else { packets };
        demand.bunched_s += blocks * met * held.burst_s / together.max(1.0);
    }

    /// The share of the software of a group's stations taken by arriving flows.
    fn interrupts(&self, group: usize) -> f64 {
        let (groups, cost_s) = (&self.network.topology.groups, self.network.topology.groups[group].cost.get());
        let flows = self.network.topology.flows.iter().zip(&self.network.flows);
        let comes = flows.filter(|(_, route)| route.to == group);
        let packets_per_s: f64 =
            comes.map(|(flow, route)| flow.rate.get() * f64::from(groups[route.from].stations)).sum();
        packets_per_s / f64::from(groups[group].stations) * cost_s
    }

    /// The added queue, in seconds, of a burst at a gateway whose service time varies: the maximum
    /// of a random walk (its mean after `n` steps without drift, or ever with drift: Kingman's
    /// limit).
    fn scattered(&self, service: Moments, packets: f64) -> f64 {
        let sending = self.ways.0.hops.iter().map(|hop| self.network.topology.media[hop.medium].rate.bits() as f64);
        let spacing_s = sending.map(|rate| self.copy.data.size.mean_bits() / rate).fold(0.0, f64::max);
        let variance = (service.second - service.mean * service.mean).max(0.0);
        let steps = (packets - 1.0).max(0.0);
        let ever = variance / (2.0 * (spacing_s - service.mean).abs()).max(1e-12);
        (variance * 2.0 * steps / std::f64::consts::PI).sqrt().min(ever)
    }
}
