//! The formulas, one module a subject.
//!
//! Media: shared `ethernet`, token `ring`, wireless `wifi` cell. Queues: `queue` for gateways and ports.
//! Copies: `pipeline` for a round of blocks, with `mva` for its exponential extreme. Each is independent
//! of the others but for the queues.

pub mod ethernet;
pub mod mva;
pub mod pipeline;
pub mod queue;
pub mod ring;
pub mod wifi;
