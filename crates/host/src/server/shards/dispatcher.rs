//! Where everything meets: the cores behind their locks, and who takes what comes out of them.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Time, host_of};
use remora_server::{Exports, Intake, Programs, Server, Stats};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, trace};

use crate::Clock;
use crate::server::admission::eviction::{self, Held, Holder};
use crate::server::admission::permits::{Admission, Permit, Share};
use crate::server::executor::{Completion, CompletionSink, ExecutorQueue, Queueing};
use crate::server::lifecycle::descriptors::Descriptors;
use crate::server::net::udp::DatagramSocket;
use crate::server::net::udp_routes::Route;
use crate::server::options::Limits;
use crate::server::shards::reply_path::{ReplyPath, ReplyPaths};
use crate::server::shards::shard::{Ledger, Shard, State, Work};
use crate::server::statistics::{Counters, Snapshot};

/// Stalled connections are given this long at most while their host holds more than its share.
const STALL_MAX_OVER: Duration = Duration::from_secs(2);
/// This long while room is short or another address of their host waits, and if they may use no export.
const STALL_MAX_SHORT: Duration = Duration::from_secs(5);
/// And this long while those of one address have taken what that may have: longer, for they may be one
/// machine's, and its link away for a moment.
const STALL_MAX_CROWDED: Duration = Duration::from_secs(30);

/// How often it is looked whether what is left to answer has been answered: less and less often.
const ASK_EVERY: Range<Duration> = Duration::from_millis(5)..Duration::from_millis(100);

/// Parts that the clients fall into.
const SHARDS: usize = 8;

/// What all tasks and threads of a server share.
pub(crate) struct Dispatcher {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) core_limits: remora_server::Limits,
    pub(crate) admission: Admission,
    pub(crate) counters: Counters,
    pub(crate) jobs: Arc<ExecutorQueue>,
    pub(crate) sockets: Vec<DatagramSocket>,
    shards: Vec<Shard>,
    /// Which address belongs to which shard. Nobody can choose whom to share one with.
    spread: RandomState,
    intake: Intake,
    /// Those that the cores have, for who looks after them.
    exports: Mutex<Arc<Exports>>,
    ledger: Ledger,
    connections: AtomicUsize,
    /// Most of them.
    connections_max: AtomicUsize,
    next_connection: AtomicU64,
    /// Told when a core's next timeout is earlier than the one waited for.
    timer: Notify,
}

impl Dispatcher {
    /// Around fresh cores, each of which `prepare` may change before anything comes in.
    pub(crate) fn new(
        core: remora_server::Config,
        seed: u64,
        (limits, queueing): (Limits, Queueing),
        sockets: Vec<DatagramSocket>,
        prepare: impl Fn(&mut Server),
    ) -> Dispatcher {
        let clock = Clock::start();
        let (core_limits, cache_max) = (core.limits, core.cache.bytes_max().unwrap_or(usize::MAX));
        let exports = Mutex::new(core.exports.clone());
        let mut cores = Server::split(core, seed, clock.now(), SHARDS);
        cores.iter_mut().for_each(prepare);
        // All of them read alike.
        let intake = cores.first().map(Server::intake).expect("one shard at least");
        Dispatcher {
            clock,
            limits,
            core_limits,
            admission: Admission::new(&core_limits, limits.receive_bytes_max),
            counters: Counters::default(),
            jobs: Arc::new(ExecutorQueue::new(queueing)),
            sockets,
            shards: cores.into_iter().map(Shard::new).collect(),
            spread: RandomState::new(),
            intake,
            exports,
            ledger: Ledger::new(cache_max, SHARDS),
            connections: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(limits.connections_max),
            next_connection: AtomicU64::new(0),
            timer: Notify::new(),
        }
    }

    /// A datagram came in by `route`, where these programs are answered.
    pub(crate) fn datagram(
        &self,
        from: SocketAddr,
        (route, programs): (Route, Programs),
        message: Bytes,
        permit: Permit,
    ) {
        trace!(client = %from, bytes = message.len(), "call over UDP");
        let read = self.intake.read(Peer::datagram(from), programs, message);
        self.with_core(self.shard_of(from), Some(permit), |state, now| {
            state.routes.heard(from, route);
            state.core.take(now, read, &());
        });
    }

    /// Records came in, one behind the other, where these programs are answered. Their jobs are handed on
    /// together.
    pub(crate) fn records(&self, from: Peer, programs: Programs, records: impl IntoIterator<Item = (Bytes, Permit)>) {
        let read = |(message, permit): (Bytes, Permit)| {
            trace!(client = %from.addr, bytes = message.len(), "call");
            (self.intake.read(from, programs, message), permit)
        };
        let read: Vec<_> = records.into_iter().map(read).collect();
        let shard = self.shard_of(from.addr);
        let mut work = Work::default();
        let mut state = self.lock(shard);
        let now = self.clock.now();
        for (message, permit) in read {
            let State { core, connections, .. } = &mut *state;
            core.take(now, message, &ReplyPaths(connections));
            state.drain(shard, now, Some(permit), &mut work);
        }
        self.release(shard, state, work);
    }

    /// A connection from `addr` is there: `make` gets its number and its share.
    pub(crate) fn connect<C>(&self, addr: SocketAddr, make: impl FnOnce(u64, Share) -> C) -> Arc<C>
    where
        ReplyPath: From<Arc<C>>,
    {
        let id = self.next_connection.fetch_add(1, Relaxed);
        debug!(client = %addr, id, "client connected");
        let mut state = self.lock(self.shard_of(addr));
        // Under the lock: either this sees new exports, or who changes them sees the connection.
        let share = self.admission.join(addr, self.is_stranger(addr), self.limits.connection_bytes_max);
        let connection = Arc::new(make(id, share));
        state.connections.insert(id, connection.clone().into());
        drop(state);
        self.connections.fetch_add(1, Relaxed);
        connection
    }

    /// A connection is gone; `arrived` says whether it is known that all that was sent on it has
    /// arrived.
    pub(crate) fn disconnect(&self, id: u64, peer: Peer, arrived: bool) {
        debug!(client = %peer.addr, id, "client disconnected");
        self.with_core(self.shard_of(peer.addr), None, |state, _| {
            if state.connections.remove(&id).is_some() {
                self.connections.fetch_sub(1, Relaxed);
            }
            match arrived {
                true => state.core.ended(peer),
                false => state.core.disconnected(peer),
            }
        });
    }

    /// Whether a call is being executed whose reply is to go to the connection `peer`.
    pub(crate) fn owes(&self, peer: Peer) -> bool {
        self.lock(self.shard_of(peer.addr)).core.owes(peer)
    }

    /// Waits until all calls of the connection `peer` are answered, and `are_out` says of the answers that they have gone
    /// out. Those to calls that also came on another connection before do so under that one's permits.
    pub(crate) async fn all_answered(&self, peer: Peer, share: &Share, are_out: impl Fn() -> bool) {
        share.room.all_free().await;
        let mut pause = ASK_EVERY.start;
        // In this order: what is owed no more has come to the connection by now, or is expected there.
        while self.owes(peer) || !are_out() {
            sleep(pause).await;
            pause = (2 * pause).min(ASK_EVERY.end);
        }
    }

    /// Gives the cores other exports; see [`Server::set_exports`]. A connection whose peer may use an export now and
    /// might not before, or the other way round, ends: its share and its buffers are the wrong ones.
    pub(crate) fn set_exports(&self, exports: &Arc<Exports>) {
        let last = std::mem::replace(&mut *self.lock_exports(), exports.clone());
        for shard in 0..self.shards.len() {
            let mut old = None;
            self.with_core(shard, None, |state, _| old = Some(state.core.set_exports(exports.clone())));
            // Here, without the core's lock: it may close many files.
            drop(old);
            let has_changed = |(peer, share): (Peer, &Share)| share.is_stranger() != self.is_stranger(peer.addr);
            self.lock(shard).connections.values().filter(|way| has_changed(way.share())).for_each(ReplyPath::stop);
        }
        drop(last);
    }

    /// Whether the peer at this address may use no export.
    pub(crate) fn is_stranger(&self, addr: SocketAddr) -> bool {
        !self.exports().any_allows(addr)
    }

    /// From now on it takes as many connections as fit.
    pub(crate) fn fit_connections(&self, descriptors: Descriptors) {
        self.connections_max.store(self.limits.connections_max.min(descriptors.connections_at_least()), Relaxed);
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Relaxed)
    }

    /// What is exported.
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

    /// Tells every connection to end when its requests are answered.
    pub(crate) fn stop_connections(&self) {
        for shard in &self.shards {
            shard.lock().connections.values().for_each(|c| c.stop());
        }
    }

    /// Tells a connection to end whose place one more from `newcomer` is to have; whether there was one.
    pub(crate) fn make_room(&self, newcomer: SocketAddr) -> bool {
        let newcomer = Holder { host: host_of(newcomer), is_stranger: self.is_stranger(newcomer) };
        let found = eviction::candidate(self.held(), newcomer, self.limits.evict_min);
        found.inspect(|c| c.evict()).is_some()
    }

    /// Tells the connection that has been idle longest to end, if it has been so for
    /// [`Limits::evict_min`].
    pub(crate) fn evict_idle(&self) {
        let evict_min = Some(self.limits.evict_min);
        let longest = self.held().into_iter().filter(|c| c.quiet >= evict_min).max_by_key(|c| c.quiet);
        longest.inspect(|c| c.connection.evict());
    }

    /// The places that are held.
    fn held(&self) -> Vec<Held<ReplyPath>> {
        let now = self.clock.now();
        let held = |shard: &Shard| {
            let state = shard.lock();
            let owed: BTreeSet<Peer> = state.core.owed().collect();
            state.connections.values().filter_map(|c| c.held(now, &owed)).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(held).collect()
    }

    /// How long a connection with this share may leave replies waiting.
    pub(crate) fn stall_max(&self, share: &Share) -> Duration {
        self.limits.stall_max.min(match () {
            () if self.admission.is_over(share) => STALL_MAX_OVER,
            () if self.admission.is_short() || share.is_stranger() || share.keeps_others_waiting() => STALL_MAX_SHORT,
            () if self.admission.is_crowded(share) => STALL_MAX_CROWDED,
            () => Duration::MAX,
        })
    }

    /// Everything in numbers.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot {
            sockets: self.counters.read(),
            core: Stats::default(),
            connections: self.connections(),
            under_way: self.admission.under_way(),
            executing: 0,
            core_memory: 0,
        };
        for shard in &self.shards {
            let state = shard.lock();
            all.core = all.core.and(state.core.stats());
            all.executing += state.core.in_flight();
            all.core_memory += state.core.memory();
        }
        all
    }

    /// Acts on the cores' timeouts, for ever.
    pub(crate) async fn run_timer(&self) {
        loop {
            let arm = |shard: &Shard| {
                let mut state = shard.lock();
                state.armed = state.core.poll_timeout().unwrap_or(Time::MAX);
                state.armed
            };
            let due = self.shards.iter().map(arm).min().unwrap_or(Time::MAX);
            // A millisecond at least, so that a timeout that stays due cannot spin.
            let due = due.max(self.clock.now() + Duration::from_millis(1));
            tokio::select! {
                () = self.timer.notified() => {}
                () = tokio::time::sleep_until(self.clock.instant(due).into()) => {
                    for shard in 0..self.shards.len() {
                        self.with_core(shard, None, |state, now| {
                            if state.core.poll_timeout().is_some_and(|due| due <= now) {
                                state.core.handle_timeout(now);
                            }
                        });
                    }
                }
            }
        }
    }

    /// Which shard a client belongs to.
    fn shard_of(&self, client: SocketAddr) -> usize {
        self.spread.hash_one(client.ip().to_canonical()) as usize % SHARDS
    }

    /// Lets `act` change a core, then takes what comes out. The permit goes with it: to the
    /// job, or else to the first reply; if nothing comes out it is given back.
    fn with_core(&self, shard: usize, permit: Option<Permit>, act: impl FnOnce(&mut State, Time)) {
        let mut work = Work::default();
        let mut state = self.lock(shard);
        // Read under the lock: time never goes backwards for the core.
        let now = self.clock.now();
        act(&mut state, now);
        state.drain(shard, now, permit, &mut work);
        self.release(shard, state, work);
    }

    /// Gives a core back and does what came out of it.
    fn release(&self, shard: usize, mut state: MutexGuard<'_, State>, work: Work) {
        if state.core.poll_timeout().is_some_and(|t| t < state.armed) {
            self.timer.notify_one();
        }
        let elsewhere = self.keep_bound(shard, &mut state);
        drop(state);
        if let Some(shard) = elsewhere {
            let mut state = self.lock(shard);
            self.keep_bound(shard, &mut state);
        }
        self.jobs.submit(work.jobs);
        for (connection, replies) in work.streams {
            connection.send(replies);
        }
        for (to, route, payload) in work.datagrams {
            let sent = self.sockets.get(route.socket).map(|s| s.send(to, route.local, &payload));
            match sent {
                Some(Ok(())) => self.counters.datagrams_out.count(),
                Some(Err(_)) | None => self.counters.datagram_errors.count(),
            }
        }
    }

    /// Sees to it that the caches hold no more than they may, as far as this shard can; which
    /// other one is to give something up. Two threads may see the same excess, and give up a
    /// reply more than they must.
    fn keep_bound(&self, shard: usize, state: &mut State) -> Option<usize> {
        let (whose, over) = self.ledger.note(shard, &state.core)?;
        if whose != shard {
            return Some(whose);
        }
        state.core.shrink_cache(state.core.cache_bytes().saturating_sub(over));
        self.ledger.note(shard, &state.core).map(|(whose, _)| whose).filter(|whose| *whose != shard)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, State> {
        self.shards[shard].lock()
    }
}

impl CompletionSink for Dispatcher {
    fn complete(&self, batch: Vec<Completion>) {
        let mut batch = batch.into_iter().peekable();
        while let Some(shard) = batch.peek().map(|done| done.shard) {
            let mut work = Work::default();
            let mut state = self.lock(shard);
            let now = self.clock.now();
            while let Some(Completion { ticket, answer, permit, .. }) = batch.next_if(|done| done.shard == shard) {
                state.core.complete(now, ticket, answer);
                state.drain(shard, now, permit, &mut work);
            }
            self.release(shard, state, work);
        }
    }

    fn count_panic(&self) {
        self.counters.job_panics.count();
    }
}
