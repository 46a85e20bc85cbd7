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
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
        }

        impl Counters {
            /// Their present values.
            pub(super) fn read(&self) -> SocketStats {
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
    /// Connections closed for bytes that are no records, or records too large.
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
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(super) fn count(&self) {
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
