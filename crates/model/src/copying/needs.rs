//! What a copy needs: the places that its blocks fill, and how long one's round is.

use std::collections::BTreeMap;

use super::weather::Channel;
use crate::cell::Need;
use crate::pipeline::Server;
use crate::topology::Spot;

/// A place on a packet's way.
pub(super) struct Met {
    /// What the packet meets there beside all others, the copy's other direction included.
    pub(super) need: Need,
    /// How it fills the place; what does is counted elsewhere for a station's software.
    pub(super) fills: Option<Fills>,
}

/// How packets fill a place.
pub(super) struct Fills {
    pub(super) spot: Spot,
    /// Whether data and replies fill it together.
    pub(super) both_ways: bool,
    /// What a packet meets there beside the others alone.
    pub(super) need: Need,
}

/// Where a block queues, and how long its round is without other blocks.
#[derive(Default)]
pub(super) struct Needs {
    /// Of each of `servers`.
    pub(super) spots: Vec<Spot>,
    pub(super) servers: Vec<Server>,
    pub(super) alone_s: f64,
    /// What blocks may add to one another's round on a shared Ethernet.
    pub(super) bunched_s: f64,
    /// What bad periods cost that the window may outlast.
    pub(super) outlasted: f64,
    /// The largest share of its time that a wireless medium on the way is bad.
    pub(super) bad_share: f64,
    /// The least time from block to block where each needs a token of its own.
    pub(super) cycle_s: f64,
    /// Once around the rings on the way.
    pub(super) around_s: f64,
    /// Wireless media on the way.
    pub(super) channels: BTreeMap<usize, Channel>,
}

impl Needs {
    /// A place that serves packets one by one, data and replies alike or those of one direction.
    pub(super) fn fill(&mut self, fills: &Fills, packets: f64) {
        for (stop, filled) in &fills.need.stops {
            let filled_s = packets * filled.filled_s;
            let variance = packets * filled.variance;
            let scv = |variance: f64, seconds: f64| variance / (seconds * seconds).max(1e-24);
            let demand_s = packets * stop.service_s;
            let before = self.spots.iter().position(|spot| fills.both_ways && *spot == fills.spot);
            if let Some(server) = before.and_then(|at| self.servers.get_mut(at)) {
                let both_s = server.filled_s + filled_s;
                server.scv = scv(server.scv * server.filled_s * server.filled_s + variance, both_s);
                (server.demand_s, server.filled_s) = (server.demand_s + demand_s, both_s);
            } else {
                let server = Server { demand_s, open: filled.open, filled_s, scv: scv(variance, filled_s) };
                self.server(fills.spot, server);
            }
        }
    }

    /// A place that serves whole blocks.
    pub(super) fn server(&mut self, spot: Spot, server: Server) {
        if server.demand_s > 0.0 {
            self.spots.push(spot);
            self.servers.push(server);
        }
    }
}
