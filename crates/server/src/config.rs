//! The server's configuration.

use std::sync::Arc;

use crate::{Durability, Exports, Limits, cache};

/// What a server serves, and its limits.
#[derive(Clone, Debug)]
pub struct Config {
    pub exports: Arc<Exports>,
    /// The duplicate request cache.
    pub cache: cache::Config,
    pub limits: Limits,
    /// What is stable before the reply is sent.
    pub durability: Durability,
    /// Whether an address must prove that it receives before it gets large replies by datagram. Default false.
    pub address_validation: bool,
    /// Whether the server makes a record of each answered call; see
    /// [`Server::poll_access`](crate::Server::poll_access). The host sets it. Default false.
    pub access_log: bool,
}

impl Config {
    /// The defaults for `exports`: the full cache and strict durability.
    pub fn new(exports: Arc<Exports>) -> Config {
        let (cache, limits) = (cache::Config::full(), Limits::default());
        let (address_validation, access_log) = (false, false);
        Config { exports, cache, limits, durability: Durability::Strict, address_validation, access_log }
    }
}
