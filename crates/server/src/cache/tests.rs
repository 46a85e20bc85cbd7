//! Tests of the caches as data structures, and of the full one against a model.

mod bench;
mod historical;
mod model;
mod unit;
