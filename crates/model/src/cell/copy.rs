//! What a copy's packets meet on a medium, and how they keep it for themselves.

use super::Cell;
use crate::ethernet;
use crate::formula::Estimate;
use crate::network::Hop;
use crate::pipeline::Stop;
use crate::quantity::{Moments, Size, Traffic};
use crate::queue::Queue;
use crate::ring::{self, Discipline, Ring};
use crate::topology::Kind;
use crate::wifi;

/// Each frame that comes up while a burst is sent on an Ethernet may keep the reply back for so many slots, and
/// longer if the burst is: a station that has lost against the burst a few times backs off long (an upper end,
/// seen in simulation).
const BACKED_OFF: f64 = 20.0 * ethernet::SLOT_BITS;

/// What a packet of a copy meets on a medium.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Need {
    /// Places in order.
    pub(crate) stops: Vec<(Stop, Filled)>,
    /// Bad periods that hold up the whole round.
    pub(crate) weather: Option<wifi::Weather>,
    /// How much longer it may wait, in seconds.
    pub(crate) unsure_s: f64,
}

/// A medium that a copy's sender keeps for itself.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Held {
    /// For how long, for a block, in seconds.
    pub(crate) burst_s: f64,
    /// How many times as long all takes because others send in between.
    pub(crate) busy: f64,
    /// Whether a reply's turn comes after one packet, not after all of them.
    pub(crate) turns: bool,
    /// Whether only what is there when the turn comes is sent.
    pub(crate) gated: bool,
    /// How much longer the reply waits for what others have gathered meanwhile, in seconds.
    pub(crate) gathered_s: f64,
    /// How much longer still if those who have most to send stand in between.
    pub(crate) unplaced_s: f64,
    /// The same for all stations on the ring, on top of `gathered_s`.
    pub(crate) all_gathered_s: f64,
    /// For how long others that collided with it may back off behind it, the reply's sender among them, in
    /// seconds.
    pub(crate) backed_off_s: f64,
    /// How long a token takes once around, in seconds.
    pub(crate) around_s: f64,
}

/// A place as a copy's packets fill it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Filled {
    /// Share of its time that others use.
    pub(crate) open: f64,
    /// Variance of the time from packet to packet that the copy fills it with, in seconds squared.
    pub(crate) variance: f64,
    /// That time.
    pub(crate) filled_s: f64,
}

impl Held {
    /// How much longer the last packet of a burst may wait, in seconds, if packets come every `gap_s` and take
    /// `sending_s`: behind a gate those that have come in one cycle go in the next one, whose length is
    /// `around + cycle * sending / gap`.
    pub(crate) fn trickle_s(&self, gap_s: f64, sending_s: f64) -> f64 {
        if !self.gated || gap_s <= 0.0 {
            return 0.0;
        }
        self.around_s * self.busy / (1.0 - sending_s / gap_s).max(0.05)
    }
}

impl Need {
    /// One place: `service_s` for each packet of ours among the packets of `queue`, which wait for
    /// one another.
    pub(crate) fn queue(service_s: f64, queue: Queue, delay_s: f64) -> Need {
        let open = queue.utilisation();
        let left = (1.0 - open).max(1e-9);
        let square = queue.arrivals_per_s * queue.service.second;
        let stop = Stop { service_s, wait_s: square / (2.0 * left), spacing_s: service_s, between: open, delay_s };
        // The others' busy periods while ours are served (Takacs 1962).
        let variance = service_s * square / (left * left * left);
        let stops = vec![(stop, Filled { open, variance, filled_s: service_s / left })];
        Need { stops, weather: None, unsure_s: 0.0 }
    }
}

impl Cell<'_> {
    /// What a copy's packet meets here. `mine` is what the copy itself sends in this direction;
    /// it is part of this cell, but not of its ports.
    pub(crate) fn need(&self, hop: &Hop, mine: Traffic) -> Estimate<Need> {
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
            Kind::Wifi { overhead, weather } => self.wifi_need(hop, mine, overhead.get(), weather),
        }
    }

    fn ethernet_need(&self, hop: &Hop, mine: Traffic, propagation: f64) -> Estimate<Need> {
        let from = &self.ports[hop.from];
        let own = from.sends.plus(mine);
        let longer = (mine.mean_bits() - own.mean_bits()) / self.rate;
        let access = ethernet::ACCESS.at(&self.sender(propagation, own));
        access.map(|a| {
            // The same way through, with the length of what the station sends beside the copy.
            let shorter = (from.sends.mean_bits() - own.mean_bits()) / self.rate;
            let mean = (a.time.mean + shorter).max(0.0);
            let second = (a.time.second - a.time.mean * a.time.mean).max(0.0) + mean * mean;
            let service = Moments { mean, second };
            let queue = Queue { arrivals_per_s: from.sends.packets_per_s(), service };
            // Packets of a burst have waited for one another.
            let mut need = Need::queue(a.next.mean + longer, queue, 0.0);
            let variance = (a.next.second - a.next.mean * a.next.mean).max(0.0);
            need.stops.iter_mut().for_each(|(stop, filled)| {
                stop.service_s = a.time.mean + longer;
                filled.variance += variance;
            });
            need
        })
    }

    fn switch_need(&self, hop: &Hop, mine: Traffic, latency: f64) -> Need {
        let (from, to) = (&self.ports[hop.from], &self.ports[hop.to]);
        let sending = mine.mean_bits() / self.rate;
        let mut need = Need::queue(sending, self.link(from.sends), latency);
        // What the same station sends there comes before or behind on its own line, never in between.
        let others = self.link(to.receives.less(self.pair((hop.from, hop.to))));
        let first = Need::queue(sending, others, 0.0).stops;
        let all = Need::queue(sending, self.link(to.receives), 0.0).stops;
        let longer = |(all, first): (&(Stop, Filled), &(Stop, Filled))| (all.0.wait_s - first.0.wait_s).max(0.0);
        // Unless others hold that up at the receiver's port.
        need.unsure_s = others.utilisation() * all.iter().zip(&first).map(longer).sum::<f64>();
        need.stops.extend(first.into_iter().zip(all).map(|((stop, _), (_, filled))| (stop, filled)));
        need
    }

    fn wifi_need(&self, hop: &Hop, mine: Traffic, overhead: f64, weather: wifi::Weather) -> Estimate<Need> {
        let sending = mine.mean_bits() / self.rate;
        let background = self.pair((hop.from, hop.to));
        let airtime = sending + overhead;
        let turns = self.most_packets() * airtime;
        let station = self.station(background.plus(mine), overhead, weather);
        // What comes up for the same channel in bad periods is sent in good ones.
        let later = weather.bad_s / weather.good_s;
        let others = station.others + later * self.airtime(self.pair((hop.to, hop.from)), overhead);
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
            // Bad periods stretch the whole round; here they only make frames be sent again.
            let filled_s = airtime * station.attempts() / left / (1.0 - open).max(1e-9);
            let variance = airtime * square / (left - queue.utilisation()).max(1e-9).powi(3);
            let stops = vec![(stop, Filled { open, variance, filled_s })];
            Need { stops, weather: Some(weather), unsure_s: 0.0 }
        })
    }

    /// Whether all packets, whichever way they go, are sent one after the other by one server. On a 1-limited
    /// ring each station's packets wait for tokens of their own.
    pub(crate) fn serves_both_ways(&self) -> bool {
        match self.medium.kind {
            Kind::Ethernet { .. } | Kind::Wifi { .. } => true,
            Kind::Ring { discipline, .. } => discipline != Discipline::OneLimited,
            Kind::Switch { .. } => false,
        }
    }

    /// How a copy keeps this medium for its data, which goes by `hop`, `packets` of them at once; `None` where data
    /// and replies never meet.
    pub(crate) fn held(&self, hop: &Hop, size: Size, packets: f64) -> Option<Held> {
        let sending_s = size.mean_bits() / self.rate;
        let load = self.all.bits_per_s() / self.rate;
        let busy = 1.0 / (1.0 - load).max(1e-9);
        let burst_s = packets * sending_s * busy;
        match self.medium.kind {
            Kind::Ring { discipline, walk } => {
                let around_s = walk.get() * self.ports.iter().map(|p| p.stations).sum::<f64>();
                let turns = discipline == Discipline::OneLimited;
                // Who takes turns sends one packet, then others have theirs.
                let at_once = if turns { packets.min(1.0) } else { packets };
                let (passed, unplaced) = self.passed(hop, discipline == Discipline::Exhaustive);
                let gathered_s = at_once * sending_s * passed.exp_m1();
                let unplaced_s = at_once * sending_s * (passed + unplaced).exp_m1() - gathered_s;
                let all_gathered_s = at_once * sending_s * load.exp_m1() - gathered_s;
                let gated = discipline == Discipline::Gated;
                Some(Held {
                    burst_s,
                    busy,
                    turns,
                    gated,
                    gathered_s,
                    unplaced_s,
                    all_gathered_s,
                    around_s,
                    ..Held::default()
                })
            }
            Kind::Ethernet { .. } => {
                // Back-off doubles: what is left of it at the end is about as long as it has lasted.
                let each_s = (BACKED_OFF / self.rate).max(burst_s / 4.0);
                let backed_off_s = self.all.packets_per_s() * burst_s * each_s;
                Some(Held { burst_s, busy, backed_off_s, ..Held::default() })
            }
            Kind::Wifi { overhead, .. } => {
                let airtime = sending_s + overhead.get();
                // While a frame is sent others gather, of which each queue sends one before the reply.
                let gathered_s = packets.min(1.0) * airtime * self.airtime(self.all, overhead.get());
                Some(Held { burst_s: packets * airtime, busy, turns: true, gathered_s, ..Held::default() })
            }
            Kind::Switch { .. } => None,
        }
    }

    /// Seconds that the medium takes for a packet of that size.
    pub(crate) fn sending_s(&self, size: Size) -> f64 {
        size.mean_bits() / self.rate
    }
}

/// A copy's packets on a ring beside the others' load. A burst goes with the token, or one packet at
/// a time.
fn ring_need(ring: &Ring, wait_s: f64, sending: f64, way: f64) -> Need {
    let queue = Queue { arrivals_per_s: ring.arrivals_per_s, service: ring.service };
    let mut need = Need::queue(sending, queue, way * ring.around_s());
    for (stop, filled) in &mut need.stops {
        stop.wait_s = wait_s;
        if ring.discipline == Discipline::OneLimited {
            // Of the tokens that come some take the station's own other packets; but those that come while a
            // burst is sent are behind it.
            let others = (1.0 - ring.utilisation() + ring.own_utilisation).max(1e-9);
            let own = (ring.own_arrivals_per_s * ring.around_s() + ring.own_utilisation) / others;
            let around = (sending + ring.around_s()) / others;
            (stop.spacing_s, stop.between, filled.filled_s) = (around, 0.0, around / (1.0 - own).max(1e-9));
        }
    }
    need
}
