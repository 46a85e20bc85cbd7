//! The analytic network model: what will this network do to my packets and file copies?
//!
//! Pure arithmetic: no clock, socket, thread or randomness. Every [`Formula`] says where it is
//! from and where it holds; every result ([`Estimate`]) carries the reasons to doubt it. The model
//! follows Copy 89, section 4; its own formulas, as they were, are in [`nmt1989`].

#![allow(missing_docs, reason = "used inside the workspace only")]

mod cell;
mod copying;
mod doubts;
pub mod ethernet;
mod formula;
pub mod mva;
mod network;
pub mod nmt1989;
pub mod pipeline;
mod quantity;
pub mod queue;
mod report;
pub mod ring;
mod solve;
mod topology;
mod walk;
pub mod wifi;

pub use formula::{Band, Estimate, Formula, Quantity, Reason};
pub use network::{Hop, Network, Route};
pub use quantity::{Bits, Moments, OutOfRange, PacketRate, Seconds, Size, Traffic};
pub use report::{CopyReport, FlowReport, GatewayReport, MediumReport, Outcome, Part, Place, Report};
pub use topology::{
    Burst, COPIES_MAX, Copy, Flow, Gateway, Group, Kind, Law, Medium, STATIONS_MAX, Spot, TABLES_MAX, Table, Topology,
    TopologyError,
};
