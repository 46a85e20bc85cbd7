//! The parts that every experiment's report is made of.
//!
//! Read `statistics` (medians, intervals, percentiles) and `provenance` (who made the figures) first, then the
//! presentation: `number` and `table` for text, `plot` and `chart` for SVG, `page` for HTML.
//! `pool` runs independent jobs on all processors and `progress` shows how far they are.

pub(crate) mod chart;
pub(crate) mod error;
pub(crate) mod number;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod provenance;
pub(crate) mod statistics;
pub(crate) mod table;
