//! The results of solving a network.

use serde::Serialize;

use crate::formula::{Estimate, Reason};

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Stations of all groups.
    pub stations: u64,
    pub media: Vec<MediumReport>,
    pub gateways: Vec<GatewayReport>,
    /// Each flow, from end to end.
    pub flows: Vec<FlowReport>,
    pub copies: Vec<CopyReport>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MediumReport {
    pub name: String,
    /// Offered share of the bit rate; on a switch, of its busiest direction.
    pub load: f64,
    /// Share of time that it is busy, including gaps, collisions and overheads; `None` under
    /// overload.
    pub busy: Option<f64>,
    pub offered_packets_per_s: f64,
    /// Carried packets a second: the offered load, or the capacity if less and known; `None` if
    /// unknown.
    pub carried_packets_per_s: Option<f64>,
    /// Mean packet in bits.
    pub mean_bits: f64,
    /// Mean time across it in seconds, over the packets of all flows; `None` without flows.
    pub delay_s: Option<Estimate<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GatewayReport {
    pub name: String,
    /// Share of time that it is busy (above 1: overload).
    pub utilisation: f64,
    /// Offered packets a second.
    pub packets_per_s: f64,
    /// Carried packets a second; `None` if unknown.
    pub carried_packets_per_s: Option<f64>,
    /// Mean time in it, in seconds.
    pub delay_s: Estimate<f64>,
    /// The 95th percentile, in seconds; known for exponential service only.
    pub p95_s: Option<Estimate<f64>>,
}

impl Report {
    /// Gives each figure within its formula's band its interval.
    pub(crate) fn set_intervals(&mut self) {
        let seconds = |seconds: &f64| *seconds;
        self.media.iter_mut().filter_map(|m| m.delay_s.as_mut()).for_each(|d| d.set_interval(seconds));
        for gateway in &mut self.gateways {
            gateway.delay_s.set_interval(seconds);
            gateway.p95_s.iter_mut().for_each(|p95| p95.set_interval(seconds));
        }
        self.flows.iter_mut().for_each(|f| f.delay_s.set_interval(seconds));
        self.copies.iter_mut().for_each(|c| c.outcome.set_interval(|outcome| outcome.seconds));
    }
}

impl GatewayReport {
    /// Adds a reason to all results that include its waits.
    pub(crate) fn suspect(&mut self, reason: &Reason) {
        self.delay_s.suspect(reason.clone());
        if let Some(p95_s) = &mut self.p95_s {
            p95_s.suspect(reason.clone());
        }
    }
}

/// A flow, from end to end.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowReport {
    pub from: String,
    pub to: String,
    /// Offered packets a second of all senders.
    pub packets_per_s: f64,
    /// Packets a second that arrive; `None` if unknown.
    pub carried_packets_per_s: Option<f64>,
    /// Mean delay of a packet in seconds, without the stations' software.
    pub delay_s: Estimate<f64>,
    /// The delay by media and gateways, in order.
    pub parts: Vec<Part>,
}

/// The delay at one medium or gateway of a route.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    pub name: String,
    /// Mean delay, in seconds; `None` where queues grow without bound.
    pub delay_s: Option<f64>,
}

/// A file copy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CopyReport {
    pub from: String,
    pub to: String,
    pub window: u32,
    pub outcome: Estimate<Outcome>,
}

/// The performance of a copy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Time of the whole file, in seconds: at least that of one block and its reply.
    pub seconds: f64,
    /// The file's bits a second.
    pub bits_per_s: f64,
    /// Response time of a block, in seconds.
    pub response_s: f64,
    /// The resources: processors of both stations and the disk, then media and gateways in the order in
    /// which a block and its reply pass them.
    pub places: Vec<ResourceUse>,
}

impl Outcome {
    /// The busiest resource, which limits the copy.
    pub fn bottleneck(&self) -> Option<&ResourceUse> {
        self.places.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))
    }
}

/// A resource at which a copy's blocks queue.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResourceUse {
    pub name: String,
    /// Service demand of a block, in seconds.
    pub demand_s: f64,
    /// Utilisation by the copy and others.
    pub busy: f64,
    /// Blocks there on average.
    pub queued: f64,
}
