//! What a server is made with.

use std::sync::Arc;

use crate::{Durability, Exports, Limits, cache};

/// What a server serves and within which bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is exported.
    pub exports: Arc<Exports>,
    /// Which duplicate request cache.
    pub cache: cache::Config,
    /// Bounds.
    pub limits: Limits,
    /// What is stable before a reply says so.
    pub durability: Durability,
    /// Whether an address must prove that it receives before it gets large replies by datagram. Default no.
    pub address_validation: bool,
}

impl Config {
    /// The defaults, for `exports`: the full cache, and nothing acknowledged before it is stable.
    pub fn new(exports: Arc<Exports>) -> Config {
        let (cache, limits) = (cache::Config::full(), Limits::default());
        Config { exports, cache, limits, durability: Durability::Strict, address_validation: false }
    }
}
