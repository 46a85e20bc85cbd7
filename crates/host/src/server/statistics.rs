//! Counters of the sockets, and a snapshot of a server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use remora_server::RequestStats;

/// Declares the counters once, for counting and for reading.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the server started.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct SocketStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct SocketCounters {
            $(pub(crate) $name: Counter,)*
        }

        impl SocketStats {
            fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl SocketCounters {
            pub(crate) fn read(&self) -> SocketStats {
                SocketStats { $($name: self.$name.0.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Datagrams received, admitted or not.
    datagrams_in,
    /// Datagrams sent as replies.
    datagrams_out,
    /// Datagrams dropped because no request could be admitted.
    datagrams_dropped,
    /// Datagrams that could not be sent.
    datagram_errors,
    /// Connections accepted, over TCP and ATP.
    accepted,
    /// TCP connections closed at once because none could be evicted.
    refused,
    /// Failures of accept, for instance for lack of descriptors.
    accept_errors,
    /// Connections ended by the client.
    closed_by_client,
    /// Connections closed for malformed or overlong records, or for objects that are not calls.
    closed_bad_record,
    /// Connections closed because a request did not arrive completely in time.
    closed_partial,
    /// Connections closed because the client did not read its replies.
    closed_stalled,
    /// Connections closed because they were idle, or evicted for another client.
    closed_idle,
    /// Jobs that panicked. Their callers got an error.
    job_panics,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A server's state and counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerSnapshot {
    pub sockets: SocketStats,
    pub core: remora_server::Stats,
    /// Connections open, over TCP and ATP.
    pub connections: usize,
    /// Requests admitted whose replies have not been sent.
    pub under_way: usize,
    /// Those of them that execute.
    pub executing: usize,
    /// Bytes held by the cores.
    pub core_memory: usize,
}

/// What is held of a bounded resource, and the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BudgetUse {
    pub used: usize,
    /// `usize::MAX` is no bound.
    pub max: usize,
}

/// The resources that all clients of a server share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Budgets {
    /// Connections over TCP and ATP; the bound is of TCP.
    pub connections: BudgetUse,
    /// Requests admitted whose replies have not been sent.
    pub requests: BudgetUse,
    /// Bytes of those requests and of unsent replies.
    pub request_bytes: BudgetUse,
    /// Bytes of half-received requests.
    pub receive_bytes: BudgetUse,
    /// Bytes of the duplicate request cache.
    pub cache_bytes: BudgetUse,
}

/// A snapshot with what only monitoring reads: requests by procedure and the use of budgets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerMetrics {
    pub snapshot: ServerSnapshot,
    pub requests: RequestStats,
    pub budgets: Budgets,
}

/// The fields of these names, with their names.
macro_rules! named {
    ($from:expr, $prefix:literal: $($name:ident)*) => {
        [$((concat!($prefix, stringify!($name)), $from.$name),)*]
    };
}

impl ServerSnapshot {
    /// All numbers with their names: first the present state, then the counters of the sockets, the cores and the
    /// duplicate request cache.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let now = [
            ("connections", self.connections),
            ("under_way", self.under_way),
            ("executing", self.executing),
            ("core_memory_bytes", self.core_memory),
        ];
        let mut all: Vec<(&'static str, u64)> = now.map(|(name, n)| (name, n as u64)).into();
        all.extend(self.sockets.named());
        all.extend(named!(self.core, "":
            messages replies nfs_calls nfs2_calls portmap_calls mount_calls executed failed
            not_calls bad_rpc_version bad_auth bad_program bad_procedure bad_arguments
            denied bad_handles overload_dropped overload_deferred unvalidated_cut unvalidated_dropped unreachable stray_answers));
        all.extend(named!(self.core.cache, "cache_":
            requests in_progress_dropped in_progress_parked throwaway_dropped replays from_new_port
            executed_again evictions expirations uncached));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_of_its_own() {
        let counters = SocketCounters::default();
        counters.refused.count();
        let core = remora_server::Stats { bad_handles: 7, ..Default::default() };
        let numbers = ServerSnapshot {
            sockets: counters.read(),
            core,
            connections: 2,
            under_way: 0,
            executing: 0,
            core_memory: 3,
        };
        let named = numbers.named();
        let names: std::collections::BTreeSet<&str> = named.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), named.len());
        for want in [("connections", 2), ("refused", 1), ("bad_handles", 7), ("cache_replays", 0)] {
            assert!(named.contains(&want), "{want:?}");
        }
    }
}
