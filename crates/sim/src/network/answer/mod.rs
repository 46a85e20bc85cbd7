//! Figures that formulas do not give, by simulation: what they depend on runs in several
//! independent replications, until each figure's interval is narrow or the budget of events is
//! used.
//!
//! Read `replication` (one run that can go on), `interval` (the statistics), `overload`
//! (copies that have no figure), `figures` (what the
//! replications say together), `completion` (the report with all figures), then
//! `trial`.

mod completion;
mod figures;
mod interval;
mod overload;
mod replication;
mod trial;

pub use figures::{Figure, Figures};
pub use interval::Interval;
pub use replication::Replication;
pub use trial::{Goal, LONGER, Trial};
