//! What the sockets of a server share: the way to the cores, admission, and the count of connections.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_base::{Peer, host_of};
use remora_server::Exports;
use tokio::time::sleep;
use tracing::debug;

use crate::server::admission::eviction::{self, Holder};
use crate::server::admission::permits::{Admission, ConnectionShare};
use crate::server::options::ServeLimits;
use crate::server::shards::dispatcher::Dispatcher;
use crate::server::shards::reply_path::ReplyPath;
use crate::server::statistics::{BudgetUse, Budgets, ServerMetrics, ServerSnapshot, SocketCounters};

/// Longest stall of a connection while its host holds more than its share.
const STALL_MAX_OVER: Duration = Duration::from_secs(2);
/// The same while room is short, while another address of the host waits, and for a peer that may use no export.
const STALL_MAX_SHORT: Duration = Duration::from_secs(5);
/// The same while the connections of its address hold nearly all that they may: they may be one machine's, behind a link
/// with an outage.
const STALL_MAX_CROWDED: Duration = Duration::from_secs(30);
/// Pause between two looks whether a connection's calls are answered. It doubles each time.
const ANSWERED_POLL: Range<Duration> = Duration::from_millis(5)..Duration::from_millis(100);

/// Why a client's connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionEnd {
    /// The client sends no more, but may still read replies.
    Closed,
    /// Reset, or a reply could not be sent.
    Broken,
    /// A record is malformed or too long.
    BadRecord,
    /// A request did not arrive completely in time.
    Partial,
    /// The client reads no replies.
    Stalled,
    /// Idle for too long, or evicted.
    Idle,
    /// The server stops it.
    Stopped,
}

/// The context of all sockets.
pub(crate) struct NetContext {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) admission: Admission,
    pub(crate) counters: Arc<SocketCounters>,
    pub(crate) limits: ServeLimits,
    pub(crate) core_limits: remora_server::Limits,
    exports: Mutex<Arc<Exports>>,
    connections: AtomicUsize,
    connections_max: AtomicUsize,
    next_connection: AtomicU64,
}

impl NetContext {
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        counters: Arc<SocketCounters>,
        limits: ServeLimits,
        core_limits: remora_server::Limits,
        exports: Arc<Exports>,
    ) -> NetContext {
        NetContext {
            dispatcher,
            admission: Admission::new(&core_limits, limits.receive_bytes_max),
            counters,
            limits,
            core_limits,
            exports: Mutex::new(exports),
            connections: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(limits.connections_max),
            next_connection: AtomicU64::new(0),
        }
    }

    /// Registers a connection from `addr`, which `make` returns for its number and its share.
    pub(crate) fn connect<P: ReplyPath + 'static>(
        &self,
        addr: SocketAddr,
        make: impl FnOnce(u64, ConnectionShare) -> P,
    ) -> Arc<P> {
        let id = self.next_connection.fetch_add(1, Relaxed);
        debug!(client = %addr, id, "client connected");
        let share = || self.admission.join(addr, self.is_stranger(addr), self.limits.connection_bytes_max);
        let connection = self.dispatcher.register(addr, || make(id, share()));
        self.counters.accepted.count();
        self.connections.fetch_add(1, Relaxed);
        connection
    }

    /// Removes a connection that has ended. `is_delivered`: the client is known to have received everything.
    pub(crate) fn disconnect(&self, path: &impl ReplyPath, end: ConnectionEnd, is_delivered: bool) {
        let (id, peer) = (path.id(), path.peer());
        debug!(client = %peer.addr, id, ?end, "client disconnected");
        match end {
            ConnectionEnd::Closed | ConnectionEnd::Broken => self.counters.closed_by_client.count(),
            ConnectionEnd::BadRecord => self.counters.closed_bad_record.count(),
            ConnectionEnd::Partial => self.counters.closed_partial.count(),
            ConnectionEnd::Stalled => self.counters.closed_stalled.count(),
            ConnectionEnd::Idle => self.counters.closed_idle.count(),
            ConnectionEnd::Stopped => {}
        }
        if self.dispatcher.unregister(id, peer, is_delivered) {
            self.connections.fetch_sub(1, Relaxed);
        }
    }

    /// Waits until all calls of the connection `peer` are answered and `are_sent` returns true. A call that also came on
    /// another connection is answered here, but holds that one's permit.
    pub(crate) async fn all_answered(&self, peer: Peer, share: &ConnectionShare, are_sent: impl Fn() -> bool) {
        share.room.all_free().await;
        let mut pause = ANSWERED_POLL.start;
        // In this order: a reply that the core no longer owes has been announced to the connection.
        while self.dispatcher.owes(peer) || !are_sent() {
            sleep(pause).await;
            pause = (2 * pause).min(ANSWERED_POLL.end);
        }
    }

    /// Replaces the exports. Ends the connections of peers that may use their first export now, or none any more: their
    /// shares and buffers are the wrong ones.
    pub(crate) fn set_exports(&self, exports: &Arc<Exports>) {
        let last = std::mem::replace(&mut *self.lock_exports(), exports.clone());
        let has_changed = |path: &dyn ReplyPath| path.share().is_stranger() != self.is_stranger(path.peer().addr);
        self.dispatcher.set_exports(exports, has_changed);
        drop(last);
    }

    /// Whether the peer at this address may use no export.
    pub(crate) fn is_stranger(&self, addr: SocketAddr) -> bool {
        !self.exports().any_allows(addr)
    }

    pub(crate) fn exports(&self) -> Arc<Exports> {
        self.lock_exports().clone()
    }

    fn lock_exports(&self) -> MutexGuard<'_, Arc<Exports>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections open, over TCP and ATP.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Relaxed)
    }

    /// Takes as many connections as the limits and `fitting` allow.
    pub(crate) fn set_connections_fitting(&self, fitting: usize) {
        self.connections_max.store(self.limits.connections_max.min(fitting), Relaxed);
    }

    /// Evicts a connection in favour of one from `newcomer`. Returns false if none can be evicted.
    pub(crate) fn evict_for(&self, newcomer: SocketAddr) -> bool {
        let newcomer = Holder { host: host_of(newcomer), is_stranger: self.is_stranger(newcomer) };
        let candidates = self.dispatcher.eviction_candidates();
        eviction::choose(candidates, newcomer, self.limits.evict_min).inspect(|path| path.evict()).is_some()
    }

    /// Evicts the connection that has been idle longest, if that is [`ServeLimits::evict_min`] at least.
    pub(crate) fn evict_idle(&self) {
        let evict_min = Some(self.limits.evict_min);
        let candidates = self.dispatcher.eviction_candidates().into_iter();
        let longest = candidates.filter(|c| c.occupant.idle >= evict_min).max_by_key(|c| c.occupant.idle);
        longest.inspect(|candidate| candidate.connection.evict());
    }

    /// How long a connection with this share may leave replies unread.
    pub(crate) fn stall_max(&self, share: &ConnectionShare) -> Duration {
        self.limits.stall_max.min(match () {
            () if self.admission.is_over(share) => STALL_MAX_OVER,
            () if self.admission.is_short() || share.is_stranger() || share.keeps_others_waiting() => STALL_MAX_SHORT,
            () if self.admission.is_crowded(share) => STALL_MAX_CROWDED,
            () => Duration::MAX,
        })
    }

    pub(crate) fn snapshot(&self) -> ServerSnapshot {
        let totals = self.dispatcher.totals();
        ServerSnapshot {
            sockets: self.counters.read(),
            core: totals.stats,
            connections: self.connections(),
            under_way: self.admission.under_way(),
            executing: totals.executing,
            core_memory: totals.memory_bytes,
        }
    }

    pub(crate) fn metrics(&self) -> ServerMetrics {
        let budgets = Budgets {
            connections: BudgetUse { used: self.connections(), max: self.connections_max() },
            requests: self.admission.request_count(),
            request_bytes: self.admission.request_bytes(),
            receive_bytes: self.admission.receive_bytes(),
            cache_bytes: self.dispatcher.cache_budget(),
        };
        ServerMetrics { snapshot: self.snapshot(), requests: self.dispatcher.requests(), budgets }
    }
}
