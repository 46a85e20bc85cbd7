//! What blocks do to one another, and to their replies, on top of what they meet at each place.
//!
//! Where data and replies share a medium, a burst of data keeps it, so that others' packets gather and the
//! reply comes behind them. What is known of that goes into a block's round ([`Needs::alone_s`]), what is only
//! bounded into its doubts ([`Needs::bunched_s`]).

use super::needs::Needs;
use super::{Round, SELDOM};
use crate::cell::{Cell, Held};
use crate::network::Hop;
use crate::quantity::Moments;
use crate::solve::gateway_queue;

/// A medium on the data's way, as its packets come to it.
struct Passed<'a> {
    hop: &'a Hop,
    sending_s: f64,
    /// Packets of a block that come at once.
    together: f64,
    /// The time between those that do not.
    gap_s: f64,
    held: Held,
    /// Whether the receiver is on another medium.
    is_beyond: bool,
}

impl Round<'_> {
    /// All that blocks do to one another.
    pub(super) fn hold(&self, needs: &mut Needs, cells: &[Cell<'_>]) {
        self.hold_at_the_ends(needs, cells);
        self.hold_at_gateways(needs);
        for passed in self.passes(cells) {
            self.gather(needs, &passed);
            self.take_turns(needs, cells, &passed);
            self.run_ahead(needs, cells, &passed);
        }
    }

    /// Blocks under way besides the one that is looked at.
    fn more(&self) -> f64 {
        f64::from(self.copy.under_way().saturating_sub(1))
    }

    /// From a reply's arrival to the last packet of the next block leaving the sender's software, in seconds.
    fn ready_s(&self) -> f64 {
        let sender = &self.network.topology.groups[self.ways.0.from];
        self.copy.software.get() + self.copy.data.packets * sender.cost.get()
    }

    /// Behind the last packet of a block the receiver's disk and software take so long before its replies are
    /// out, in seconds.
    fn meanwhile_s(&self) -> f64 {
        let cost_s = self.network.topology.groups[self.ways.0.to].cost.get();
        self.copy.disk.get() + (1.0 + self.copy.reply.packets) * cost_s
    }

    fn hold_at_the_ends(&self, needs: &mut Needs, cells: &[Cell<'_>]) {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        // What the sender's flows make meanwhile waits for its software, goes out behind the block, and keeps
        // the medium from the reply.
        let (medium, port) = self.network.group_ports[there.from];
        if cells[medium].serves_both_ways() {
            let sends = self.loads.ports[medium][port].sends;
            needs.bunched_s += self.copy.software.get() * cells[medium].share(sends);
        }
        // What comes in interrupts the sender.
        needs.bunched_s += self.copy.software.get() * self.interrupts(there.from);
        // What comes in interrupts the receiver, so that a reply waits for the blocks behind its own.
        needs.bunched_s += self.more() * packets * self.network.topology.groups[there.to].cost.get();
        // What flows make meanwhile is handled before the reply, and before the next block.
        for (group, packets) in [(there.to, packets), (there.from, self.copy.reply.packets)] {
            let (cost_s, (medium, port)) =
                (self.network.topology.groups[group].cost.get(), self.network.group_ports[group]);
            let made = self.loads.ports[medium][port].sends.packets_per_s() * cost_s;
            needs.bunched_s += (packets - 1.0).max(0.0) * cost_s * made;
        }
    }

    /// At a gateway the reply comes behind what others have queued behind the burst.
    fn hold_at_gateways(&self, needs: &mut Needs) {
        let packets = self.copy.data.packets;
        for gateway in &self.ways.0.gateways {
            let queue = gateway_queue(&self.network.topology.gateways[*gateway], self.loads.gateways[*gateway]);
            let busy = queue.utilisation().min(1.0);
            let through_s = packets * queue.service.mean / (1.0 - busy).max(1e-9);
            needs.alone_s += self.scattered(queue.service, packets);
            needs.bunched_s += SELDOM * busy * through_s;
            if self.ready_s() < through_s {
                needs.bunched_s += self.more() * through_s;
            }
        }
    }

    /// The media on the data's way that carry the replies, too. Packets that come slower than they are sent
    /// come one by one.
    fn passes(&self, cells: &[Cell<'_>]) -> Vec<Passed<'_>> {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        let mut gap_s = self.network.topology.groups[there.from].cost.get();
        let mut passes = Vec::new();
        for (at, hop) in there.hops.iter().enumerate() {
            let sending_s = cells[hop.medium].sending_s(self.copy.data.size);
            // Those that come nearly as fast as they are sent catch up with others' packets, and queue.
            let slowed_s = sending_s / (1.0 - cells[hop.medium].load()).max(1e-9);
            let together = if gap_s < slowed_s { packets } else { packets.min(1.0) };
            gap_s = gap_s.max(sending_s);
            if let Some(gateway) = there.gateways.get(at) {
                gap_s = gap_s.max(self.network.topology.gateways[*gateway].cost.get());
            }
            let held = cells[hop.medium].held(hop, self.copy.data.size, together);
            let is_beyond = at + 1 < there.hops.len();
            passes.extend(held.map(|held| Passed { hop, sending_s, together, gap_s, held, is_beyond }));
        }
        passes
    }

    /// The sender of data keeps a ring's token as long as it has some, so others' packets gather and the reply
    /// comes behind them: in a fluid, `exp(load * part of the ring)` grows from the burst.
    fn gather(&self, needs: &mut Needs, passed: &Passed<'_>) {
        let held = &passed.held;
        // As long as the disk takes for the block and the receiver for its replies, what has gathered is sent.
        let meanwhile_s = self.meanwhile_s();
        let replies = self.copy.reply.packets;
        let waits_s = (held.gathered_s - meanwhile_s).max(0.0) * replies.min(1.0);
        needs.alone_s += waits_s;
        if let Some(channel) = needs.channels.get_mut(&passed.hop.medium) {
            channel.waits_s += waits_s;
        }
        if meanwhile_s > 0.0 || passed.is_beyond {
            // The token has gone on by the time that the reply is ready, to those behind.
            let all_s = (held.gathered_s + held.all_gathered_s - meanwhile_s).max(0.0);
            needs.bunched_s += (all_s - (held.gathered_s - meanwhile_s).max(0.0)).max(0.0);
        }
        if replies < 1.0 {
            // Without a reply the next block is there at once, and comes behind all that has gathered.
            needs.bunched_s += (1.0 - replies) * held.all_gathered_s;
        }
        needs.bunched_s += held.backed_off_s + held.unplaced_s;
    }

    fn take_turns(&self, needs: &mut Needs, cells: &[Cell<'_>], passed: &Passed<'_>) {
        let there = &self.ways.0;
        let packets = self.copy.data.packets;
        let held = &passed.held;
        // What has gathered for either end comes at once, and interrupts it before it can send.
        let interrupts = self.interrupts(there.to) + self.interrupts(there.from);
        needs.bunched_s += interrupts * packets * passed.sending_s;
        if self.more() <= 0.0 && held.around_s > 0.0 {
            needs.cycle_s = needs.cycle_s.max(self.cycle_s(cells, passed));
        }
        if passed.together < packets {
            needs.bunched_s += held.trickle_s(passed.gap_s, passed.sending_s);
        }
        needs.around_s += held.around_s;
    }

    /// Between two blocks all the others on a ring send what they have: so long it takes, in seconds.
    fn cycle_s(&self, cells: &[Cell<'_>], passed: &Passed<'_>) -> f64 {
        let packets = self.copy.data.packets;
        let tokens = if passed.held.turns { packets.max(1.0) } else { 1.0 };
        let reply_s = self.copy.reply.packets * cells[passed.hop.medium].sending_s(self.copy.reply.size);
        (packets * passed.sending_s + reply_s + tokens * passed.held.around_s) * passed.held.busy
    }

    /// If blocks come to the sender faster than it sends them, it may send all of the window before any reply;
    /// on an Ethernet, too, for who has just sent is likely to send again. Otherwise a reply may meet the burst of
    /// one other block: blocks can fall into step so that each reply does. How many it meets is not known: a bound,
    /// and a doubt.
    fn run_ahead(&self, needs: &mut Needs, cells: &[Cell<'_>], passed: &Passed<'_>) {
        let packets = self.copy.data.packets;
        let (held, together) = (&passed.held, passed.together);
        // The next block is ready before the ring has brought this one's reply, and goes out ahead of that.
        let ahead = self.ready_s() < self.cycle_s(cells, passed).max(packets * passed.sending_s);
        let blocks = if ahead && !(held.turns && packets > 1.0) { self.more() } else { self.more().min(1.0) };
        // Where stations take turns, and where its packets come one by one, each reply waits for one of them.
        let one_by_one = held.turns || !ahead && together < packets;
        let met = if one_by_one { self.copy.reply.packets.max(1.0).min(packets) } else { packets };
        needs.bunched_s += blocks * met * held.burst_s / together.max(1.0);
    }

    /// The share of the software of a group's stations that what flows send to them takes.
    fn interrupts(&self, group: usize) -> f64 {
        let (groups, cost_s) = (&self.network.topology.groups, self.network.topology.groups[group].cost.get());
        let flows = self.network.topology.flows.iter().zip(&self.network.flows);
        let comes = flows.filter(|(_, route)| route.to == group);
        let packets_per_s: f64 =
            comes.map(|(flow, route)| flow.rate.get() * f64::from(groups[route.from].stations)).sum();
        packets_per_s / f64::from(groups[group].stations) * cost_s
    }

    /// What the packets of a burst queue at a gateway whose times vary, on top, in seconds: the highest point of a
    /// random walk (its mean after `n` steps without a drift, or ever with one: Kingman's limit).
    fn scattered(&self, service: Moments, packets: f64) -> f64 {
        let sending = self.ways.0.hops.iter().map(|hop| self.network.topology.media[hop.medium].rate.bits() as f64);
        let spacing_s = sending.map(|rate| self.copy.data.size.mean_bits() / rate).fold(0.0, f64::max);
        let variance = (service.second - service.mean * service.mean).max(0.0);
        let steps = (packets - 1.0).max(0.0);
        let ever = variance / (2.0 * (spacing_s - service.mean).abs()).max(1e-12);
        (variance * 2.0 * steps / std::f64::consts::PI).sqrt().min(ever)
    }
}
