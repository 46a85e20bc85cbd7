//! What the sockets have counted, and a server's whole state in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Declares the counters once, for counting and for reading.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the server was started.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct SocketStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters as they count.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl SocketStats {
            fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl Counters {
            /// Their present values.
            pub(crate) fn read(&self) -> SocketStats {
                SocketStats { $($name: self.$name.0.load(Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Datagrams received.
    datagrams_in,
    /// Datagrams sent.
    datagrams_out,
    /// Datagrams dropped because there was no room for another request.
    datagrams_dropped,
    /// Datagrams that could not be sent.
    datagram_errors,
    /// TCP connections accepted.
    accepted,
    /// TCP connections closed at once because there was no room.
    refused,
    /// Times that accepting failed, for instance for want of file descriptors.
    accept_errors,
    /// Connections ended by the client.
    closed_by_client,
    /// Connections closed for bytes that are no records, records too large, or objects that are no calls.
    closed_bad_record,
    /// Connections closed for a request that did not become complete.
    closed_partial,
    /// Connections closed for not taking their replies.
    closed_stalled,
    /// Connections closed for being idle too long, or for another client's sake.
    closed_idle,
    /// Jobs that panicked; their callers were told of a failure on the server.
    job_panics,
}

/// A number that goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A server in numbers, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// What the sockets counted.
    pub sockets: SocketStats,
    /// What the core counted.
    pub core: remora_server::Stats,
    /// TCP connections open.
    pub connections: usize,
    /// Requests under way, from admission until their reply has been sent.
    pub under_way: usize,
    /// Of these, requests being executed.
    pub executing: usize,
    /// Bytes the core holds.
    pub core_memory: usize,
}

/// The fields of that name, with their names.
macro_rules! named {
    ($from:expr, $prefix:literal: $($name:ident)*) => {
        [$((concat!($prefix, stringify!($name)), $from.$name),)*]
    };
}

impl Snapshot {
    /// Every number with its name, for operators and programs: what is there now first, then
    /// what has been counted by the sockets, by the core, and by the duplicate request cache.
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
        let counters = Counters::default();
        counters.refused.count();
        let core = remora_server::Stats { bad_handles: 7, ..Default::default() };
        let numbers =
            Snapshot { sockets: counters.read(), core, connections: 2, under_way: 0, executing: 0, core_memory: 3 };
        let named = numbers.named();
        let names: std::collections::BTreeSet<&str> = named.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), named.len());
        for want in [("connections", 2), ("refused", 1), ("bad_handles", 7), ("cache_replays", 0)] {
            assert!(named.contains(&want), "{want:?}");
        }
    }
}
