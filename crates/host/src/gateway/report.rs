//! State and counters of a gateway.

use std::collections::BTreeMap;

use remora_atp::session::PeerId;
use remora_atp::stream::Stats;

/// State and counters of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GatewayStatus {
    pub mobiles: usize,
    /// Connections of the mobiles, or to the NFS server.
    pub connections: usize,
    /// Counters of all connections; for NFS, `sent` and `received` count replies and calls.
    pub stats: Stats,
    /// NFS calls carried.
    pub calls: u64,
    /// Mobiles refused for their key or lack of room.
    pub turned_away: u64,
    /// Mobiles disconnected for a protocol violation.
    pub violations: u64,
}

/// Adds the counters `one` to `all`.
pub(crate) fn add(all: &mut Stats, one: Stats) {
    all.asked += one.asked;
    all.refused += one.refused;
    all.done += one.done;
    all.reset += one.reset;
    all.sent += one.sent;
    all.received += one.received;
}

/// Entries by connected mobile.
pub(super) type PerMobile<T> = BTreeMap<PeerId, T>;
