//! What solving a network tells.

use serde::Serialize;

use crate::formula::{Estimate, Reason};

/// Everything.
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
    /// Share of the bit rate that packets ask for; on a switch, of its busiest direction.
    pub load: f64,
    /// Share of the time that it is taken, with gaps, collisions and overheads; `None` when
    /// more is asked for than it can carry.
    pub busy: Option<f64>,
    /// Packets a second that are offered to it.
    pub offered_packets_per_s: f64,
    /// Packets a second that it carries: what is offered, or what it can where that is less and
    /// known; `None` where that is not known.
    pub carried_packets_per_s: Option<f64>,
    /// Mean packet in bits.
    pub mean_bits: f64,
    /// Mean time across it in seconds, over the packets of all flows; `None` without flows.
    pub delay_s: Option<Estimate<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GatewayReport {
    pub name: String,
    /// Share of the time that it is busy (above 1: it can't keep up).
    pub utilisation: f64,
    /// Packets a second.
    pub packets_per_s: f64,
    /// Mean time in it, in seconds.
    pub delay_s: Estimate<f64>,
    /// What 95 % stay below, in seconds; only exponential service has an honest one.
    pub p95_s: Option<Estimate<f64>>,
}

impl GatewayReport {
    /// Another doubt of all that waits are part of.
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
    /// The group that sends.
    pub from: String,
    /// The group that receives.
    pub to: String,
    /// Packets a second of all senders.
    pub packets_per_s: f64,
    /// Mean time of a packet on its way, in seconds, the stations' software not included.
    pub delay_s: Estimate<f64>,
    /// The same in its parts: media and gateways in order.
    pub parts: Vec<Part>,
}

/// A part of a way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    /// A medium or a gateway.
    pub name: String,
    /// Mean time there, in seconds; `None` where queues grow without end.
    pub delay_s: Option<f64>,
}

/// A file copy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CopyReport {
    /// The sender's group.
    pub from: String,
    /// The receiver's group.
    pub to: String,
    /// Blocks under way.
    pub window: u32,
    /// What comes of it.
    pub outcome: Estimate<Outcome>,
}

/// How a copy goes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The whole file, in seconds; a round at least, whatever part of its last block there is.
    pub seconds: f64,
    /// The file's bits a second.
    pub bits_per_s: f64,
    /// From a block's start to its reply, in seconds.
    pub response_s: f64,
    /// Where blocks queue, in order of the round.
    pub places: Vec<Place>,
}

impl Outcome {
    /// The place that is busiest: what to make faster first.
    pub fn bottleneck(&self) -> Option<&Place> {
        self.places.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))
    }
}

/// Where blocks of a copy queue.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Place {
    /// What it is.
    pub name: String,
    /// Time that a block needs there without queueing, in seconds.
    pub demand_s: f64,
    /// Share of its time that it spends on the copy and others.
    pub busy: f64,
    /// Blocks there on average.
    pub queued: f64,
}
