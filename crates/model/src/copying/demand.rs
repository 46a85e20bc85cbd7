//! The demand of a copy: the servers that its blocks load, and a block's round.

use std::collections::BTreeMap;

use crate::cell::PacketDemand;
use crate::formulas::pipeline::Server;
use crate::formulas::wifi::TwoStateChannel;
use crate::topology::Resource;

/// A stop on a packet's way.
pub(super) struct Visit {
    /// The stop beside all others, including the copy's other direction.
    pub(super) need: PacketDemand,
    /// Its load as a server; `None` for a station's software, which is counted elsewhere.
    pub(super) fills: Option<VisitLoad>,
}

/// The load of packets on a server.
pub(super) struct VisitLoad {
    pub(super) resource: Resource,
    /// Whether data and replies load it together.
    pub(super) both_ways: bool,
    /// The stop beside the others alone.
    pub(super) need: PacketDemand,
}

/// The servers of a block, and its round without other blocks.
#[derive(Default)]
pub(super) struct CopyDemand {
    /// The resource of each of `servers`.
    pub(super) resources: Vec<Resource>,
    pub(super) servers: Vec<Server>,
    pub(super) alone_s: f64,
    /// Possible delay between blocks on a shared Ethernet.
    pub(super) bunched_s: f64,
    /// Cost of bad periods that the window may outlast.
    pub(super) outlasted: f64,
    /// The largest share of bad time of a wireless medium on the way.
    pub(super) bad_share: f64,
    /// Minimum time between blocks where each needs a token of its own.
    pub(super) cycle_s: f64,
    /// Token rotation time of the rings on the way.
    pub(super) around_s: f64,
    pub(super) channels: BTreeMap<usize, ChannelUse>,
}

impl CopyDemand {
    /// Adds a server of packets, of data and replies alike or of one direction.
    pub(super) fn fill(&mut self, fills: &VisitLoad, packets: f64) {
        for (stop, filled) in &fills.need.stops {
            let filled_s = packets * filled.filled_s;
            let variance = packets * filled.variance;
            let scv = |variance: f64, seconds: f64| variance / (seconds * seconds).max(1e-24);
            let demand_s = packets * stop.service_s;
            let before = self.resources.iter().position(|resource| fills.both_ways && *resource == fills.resource);
            if let Some(server) = before.and_then(|at| self.servers.get_mut(at)) {
                let both_s = server.filled_s + filled_s;
                server.scv = scv(server.scv * server.filled_s * server.filled_s + variance, both_s);
                (server.demand_s, server.filled_s) = (server.demand_s + demand_s, both_s);
            } else {
                let server = Server { demand_s, open: filled.open, filled_s, scv: scv(variance, filled_s) };
                self.server(fills.resource, server);
            }
        }
    }

    /// Adds a server of whole blocks.
    pub(super) fn server(&mut self, resource: Resource, server: Server) {
        if server.demand_s > 0.0 {
            self.resources.push(resource);
            self.servers.push(server);
        }
    }
}

/// A wireless medium on a copy's way.
pub(super) struct ChannelUse {
    pub(super) states: TwoStateChannel,
    /// Time that a block uses it, in seconds.
    pub(super) on_s: f64,
    /// Wait of a block there for others, in seconds.
    pub(super) waits_s: f64,
}
