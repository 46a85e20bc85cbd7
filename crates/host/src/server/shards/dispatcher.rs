//! The dispatcher: gives requests and results to the cores and passes their output on.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Time};
use remora_server::{Exports, Intake, Programs, RequestStats, Server, Stats};
use tokio::sync::Notify;
use tracing::trace;

use super::group_waiters::{AdmittedCall, GroupWaiters};
use super::reply_path::{ConnectionFates, DatagramPath, ReplyPath};
use super::shard::{CacheBudget, CacheExcess, Output, Shard, ShardState};
use crate::Clock;
use crate::server::access_sink::AccessSink;
use crate::server::admission::eviction::Candidate;
use crate::server::admission::permits::Permit;
use crate::server::executor::{CompletionSink, ExecutorQueue, JobCompletion};
use crate::server::statistics::{BudgetUse, SocketCounters};

/// The number of shards.
const SHARDS: usize = 8;

/// A request that has been admitted.
#[derive(Debug)]
pub(crate) struct AdmittedRequest {
    pub(crate) message: Bytes,
    pub(crate) permit: Permit,
}

/// The cores' part of a [`ServerSnapshot`](crate::server::ServerSnapshot).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoreTotals {
    pub(crate) stats: Stats,
    /// Requests that execute.
    pub(crate) executing: usize,
    pub(crate) memory_bytes: usize,
}

/// The cores, each behind its lock.
pub(crate) struct Dispatcher {
    pub(crate) clock: Clock,
    queue: Arc<ExecutorQueue>,
    counters: Arc<SocketCounters>,
    access_log: Option<AccessSink>,
    shards: Vec<Shard>,
    /// Assigns addresses to shards. Keyed, so that no client can choose its shard.
    hasher: RandomState,
    intake: Intake,
    groups: Option<GroupWaiters>,
    cache_budget: CacheBudget,
    /// Notified when a core's timeout becomes earlier than the armed one.
    timer: Notify,
}

impl Dispatcher {
    /// Makes the cores. `prepare` may change each of them before the first request.
    pub(crate) fn new(
        config: remora_server::Config,
        access_log: Option<AccessSink>,
        groups: Option<GroupWaiters>,
        seed: u64,
        queue: Arc<ExecutorQueue>,
        counters: Arc<SocketCounters>,
        prepare: impl Fn(&mut Server),
    ) -> Dispatcher {
        let config = remora_server::Config { access_log: access_log.is_some(), ..config };
        let clock = Clock::start();
        let cache_max = config.cache.bytes_max().unwrap_or(usize::MAX);
        let mut cores = Server::split(config, seed, clock.now(), SHARDS);
        cores.iter_mut().for_each(prepare);
        // The intakes of all cores are alike.
        let intake = cores.first().map(Server::intake).expect("one shard at least");
        Dispatcher {
            clock,
            queue,
            counters,
            access_log,
            shards: cores.into_iter().map(Shard::new).collect(),
            hasher: RandomState::new(),
            intake,
            groups,
            cache_budget: CacheBudget::new(cache_max, SHARDS),
            timer: Notify::new(),
        }
    }

    /// Takes a datagram that arrived by `path`, where `programs` are served.
    pub(crate) fn datagram(
        self: &Arc<Self>,
        from: SocketAddr,
        path: DatagramPath,
        programs: Programs,
        request: AdmittedRequest,
    ) {
        let AdmittedRequest { message, permit } = request;
        trace!(client = %from, bytes = message.len(), "call over UDP");
        let peer = Peer::datagram(from);
        let message = self.intake.read(peer, programs, message);
        let call = AdmittedCall { from: peer, path: Some(path), message, permit };
        if let Some(call) = self.with_groups(call) {
            self.take(call);
        }
    }

    /// Takes a call whose groups are known.
    fn take(&self, AdmittedCall { from, path, message, permit }: AdmittedCall) {
        self.with_core(self.shard_of(from.addr), Some(permit), |state, now| match (path, from.path) {
            (Some(path), _) => {
                state.datagram_paths.insert(from.addr, path);
                state.core.take(now, message, &());
            }
            // One that has ended meanwhile must not come to life again.
            (None, Path::Stream(id)) if state.connections.contains_key(&id) => {
                let ShardState { core, connections, .. } = state;
                core.take(now, message, &ConnectionFates(connections));
            }
            (None, _) => {}
        });
    }

    /// Gives the call the groups of its user, or has it wait for them.
    fn with_groups(self: &Arc<Self>, call: AdmittedCall) -> Option<AdmittedCall> {
        let Some(groups) = &self.groups else { return Some(call) };
        let dispatcher = self.clone();
        groups.find(self.clock, call, move |call| dispatcher.take(call))
    }

    /// Takes the records of a stream, where `programs` are served, in order. Their jobs are submitted together.
    pub(crate) fn records(
        self: &Arc<Self>,
        from: Peer,
        programs: Programs,
        records: impl IntoIterator<Item = AdmittedRequest>,
    ) {
        let read = |AdmittedRequest { message, permit }| {
            trace!(client = %from.addr, bytes = message.len(), "call");
            let message = self.intake.read(from, programs, message);
            self.with_groups(AdmittedCall { from, path: None, message, permit })
        };
        let read: Vec<_> = records.into_iter().filter_map(read).collect();
        let shard = self.shard_of(from.addr);
        let mut output = Output::default();
        let mut state = self.lock(shard);
        let now = self.clock.now();
        for AdmittedCall { message, permit, .. } in read {
            let ShardState { core, connections, .. } = &mut *state;
            core.take(now, message, &ConnectionFates(connections));
            state.drain(shard, now, Some(permit), &mut output);
        }
        self.release(shard, state, output);
    }

    /// Registers the connection from `addr` that `make` returns. `make` runs under the lock of the shard: either it sees
    /// new exports, or [`set_exports`](Dispatcher::set_exports) sees the connection.
    pub(crate) fn register<P: ReplyPath + 'static>(&self, addr: SocketAddr, make: impl FnOnce() -> P) -> Arc<P> {
        let mut state = self.lock(self.shard_of(addr));
        let path = Arc::new(make());
        state.connections.insert(path.id(), path.clone());
        path
    }

    /// Removes a connection that has ended. `is_delivered`: the client is known to have received everything. Returns
    /// whether the connection was registered.
    pub(crate) fn unregister(&self, id: u64, peer: Peer, is_delivered: bool) -> bool {
        let mut was_registered = false;
        self.with_core(self.shard_of(peer.addr), None, |state, _| {
            was_registered = state.connections.remove(&id).is_some();
            match is_delivered {
                true => state.core.ended(peer),
                false => state.core.disconnected(peer),
            }
        });
        was_registered
    }

    /// Whether a call executes whose reply goes to the connection `peer`.
    pub(crate) fn owes(&self, peer: Peer) -> bool {
        self.lock(self.shard_of(peer.addr)).core.owes(peer)
    }

    /// Gives the cores other exports; see [`Server::set_exports`]. Stops the connections for which `must_end` holds.
    pub(crate) fn set_exports(&self, exports: &Arc<Exports>, must_end: impl Fn(&dyn ReplyPath) -> bool) {
        if let Some(groups) = &self.groups {
            groups.expire();
        }
        for shard in 0..self.shards.len() {
            let mut old = None;
            self.with_core(shard, None, |state, _| old = Some(state.core.set_exports(exports.clone())));
            // Dropped without the core's lock: it may close many files.
            drop(old);
            let state = self.lock(shard);
            state.connections.values().filter(|path| must_end(&***path)).for_each(|path| path.stop());
        }
    }

    /// Ends every connection once its requests are answered.
    pub(crate) fn stop_connections(&self) {
        for shard in &self.shards {
            shard.lock().connections.values().for_each(|path| path.stop());
        }
    }

    /// The connections that can be evicted, or could if they were idle.
    pub(crate) fn eviction_candidates(&self) -> Vec<Candidate<Arc<dyn ReplyPath>>> {
        let now = self.clock.now();
        let of_shard = |shard: &Shard| {
            let state = shard.lock();
            let owed: BTreeSet<Peer> = state.core.owed().collect();
            let candidate = |path: &Arc<dyn ReplyPath>| {
                path.occupant(now, &owed).map(|occupant| Candidate { occupant, connection: path.clone() })
            };
            state.connections.values().filter_map(candidate).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    pub(crate) fn totals(&self) -> CoreTotals {
        self.shards.iter().fold(CoreTotals::default(), |all, shard| {
            let state = shard.lock();
            CoreTotals {
                stats: all.stats.and(state.core.stats()),
                executing: all.executing + state.core.in_flight(),
                memory_bytes: all.memory_bytes + state.core.memory(),
            }
        })
    }

    /// The requests that the cores answered.
    pub(crate) fn requests(&self) -> RequestStats {
        let mut all = RequestStats::default();
        self.shards.iter().for_each(|shard| all.add(shard.lock().core.requests()));
        all
    }

    /// What the duplicate request caches hold together.
    pub(crate) fn cache_budget(&self) -> BudgetUse {
        self.cache_budget.budget_use()
    }

    /// Handles the cores' timeouts, for ever.
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
                () = tokio::time::sleep_until(self.clock.instant(due).into()) => self.handle_timeouts(),
            }
        }
    }

    fn handle_timeouts(&self) {
        for shard in 0..self.shards.len() {
            self.with_core(shard, None, |state, now| {
                if state.core.poll_timeout().is_some_and(|due| due <= now) {
                    state.core.handle_timeout(now);
                }
            });
        }
    }

    fn shard_of(&self, client: SocketAddr) -> usize {
        self.hasher.hash_one(client.ip().to_canonical()) as usize % SHARDS
    }

    /// Lets `act` change a core and passes its output on; for the permit see [`ShardState::drain`].
    fn with_core(&self, shard: usize, permit: Option<Permit>, act: impl FnOnce(&mut ShardState, Time)) {
        let mut output = Output::default();
        let mut state = self.lock(shard);
        // Read under the lock, so that the core's time never goes backwards.
        let now = self.clock.now();
        act(&mut state, now);
        state.drain(shard, now, permit, &mut output);
        self.release(shard, state, output);
    }

    /// Releases the lock of a core and passes its output on.
    fn release(&self, shard: usize, mut state: MutexGuard<'_, ShardState>, output: Output) {
        if state.core.poll_timeout().is_some_and(|due| due < state.armed) {
            self.timer.notify_one();
        }
        let elsewhere = self.shrink_cache(shard, &mut state);
        drop(state);
        if let Some(shard) = elsewhere {
            let mut state = self.lock(shard);
            self.shrink_cache(shard, &mut state);
        }
        self.queue.submit(output.jobs);
        for (path, replies) in output.streams {
            path.send(replies);
        }
        for (to, path, payload) in output.datagrams {
            match path.map(|path| path.socket.send(to, path.local, &payload)) {
                Some(Ok(())) => self.counters.datagrams_out.count(),
                Some(Err(_)) | None => self.counters.datagram_errors.count(),
            }
        }
        if let Some(sink) = self.access_log.as_ref().filter(|_| !output.accesses.is_empty()) {
            sink.take(&output.accesses);
        }
    }

    /// Shrinks this shard's cache if the budget is exceeded. Returns the other shard whose cache has to shrink, if any. Two
    /// threads that see the same excess give up one reply more than they must.
    fn shrink_cache(&self, shard: usize, state: &mut ShardState) -> Option<usize> {
        let CacheExcess { shard: whose, bytes } = self.cache_budget.update(shard, &state.core)?;
        if whose != shard {
            return Some(whose);
        }
        state.core.shrink_cache(state.core.cache_bytes().saturating_sub(bytes));
        self.cache_budget.update(shard, &state.core).map(|excess| excess.shard).filter(|whose| *whose != shard)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, ShardState> {
        self.shards[shard].lock()
    }
}

impl CompletionSink for Dispatcher {
    fn complete(&self, batch: Vec<JobCompletion>) {
        let mut batch = batch.into_iter().peekable();
        while let Some(shard) = batch.peek().map(|done| done.shard) {
            let mut output = Output::default();
            let mut state = self.lock(shard);
            let now = self.clock.now();
            while let Some(JobCompletion { ticket, answer, permit, .. }) = batch.next_if(|done| done.shard == shard) {
                state.core.complete(now, ticket, answer);
                state.drain(shard, now, permit, &mut output);
            }
            self.release(shard, state, output);
        }
    }

    fn count_panic(&self) {
        self.counters.job_panics.count();
    }
}
