//! The caches as data structures, each by its rules, and the full one against a model.

mod bench;
mod historical;
mod model;
mod unit;
