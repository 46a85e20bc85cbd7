//! The call table: every request from its submission to its one event.
//!
//! Read [`client`] first, which has the table; [`queues`] and [`liveness`] are parts of its state. [`transmission`] sends,
//! retransmits and probes; [`connection`], [`handoff`] and [`give_up`] are about connections, hand-offs and outages.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod give_up;
pub(crate) mod handoff;
pub(crate) mod liveness;
pub(crate) mod queues;
pub(crate) mod transmission;
