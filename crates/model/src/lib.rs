//! The analytic network model: predicted delay, utilisation and copy time of a network.
//!
//! Pure arithmetic: no clock, socket, thread or randomness. Every [`Formula`] states its source and
//! its band of validity; every result ([`Estimate`]) carries the [`Reason`]s to doubt it. The model
//! follows Copy 89, section 4; that paper's own formulas are in [`nmt1989`].
//!
//! Read `topology` (the input), `network` (routes), the formulas (`queue`, `ethernet`, `ring`,
//! `wifi`, `mva`, `pipeline`), `cell` (one medium under load), `copying` (file copies), then
//! `solve`.

#![allow(missing_docs, reason = "used inside the workspace only")]

mod cell;
mod copying;
mod formula;
mod formulas;
mod interference;
mod loads;
mod network;
pub mod nmt1989;
mod quantity;
mod report;
mod solve;
mod topology;

pub use formula::{Band, Estimate, Formula, NEAR, Origin, Quantity, Reason};
pub use formulas::{ethernet, mva, pipeline, queue, ring, wifi};
pub use network::{Hop, Network, Route};
pub use quantity::{Bits, Moments, OutOfRange, PacketRate, Seconds, Size, Traffic};
pub use report::{CopyReport, FlowReport, GatewayReport, MediumReport, Outcome, Part, Report, ResourceUse};
pub use topology::{
    Burst, COPIES_MAX, Copy, Flow, Gateway, Group, Kind, Law, Medium, Resource, STATIONS_MAX, TABLES_MAX, Table,
    Topology, TopologyError,
};
