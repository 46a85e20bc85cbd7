//! A shard: the core of some of the clients, behind a lock.
//!
//! All requests from one address belong to one shard, so clients of other shards never wait for its lock. What is bounded
//! for all clients together is bounded elsewhere: requests by [admission](crate::server::admission), the duplicate
//! request caches by the [`CacheBudget`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use remora_base::{Core, Path, Time, Transmit};
use remora_server::{AccessRecord, Server};

use super::reply_path::{DatagramPath, DatagramPaths, Reply, ReplyPath};
use crate::server::admission::permits::Permit;
use crate::server::executor::Submission;
use crate::server::statistics::BudgetUse;

pub(super) struct Shard(Mutex<ShardState>);

/// A core and its clients' reply paths.
pub(super) struct ShardState {
    pub(super) core: Server,
    pub(super) datagram_paths: DatagramPaths,
    pub(super) connections: HashMap<u64, Arc<dyn ReplyPath>>,
    /// The core's timeout that the timer task waits for.
    pub(super) armed: Time,
}

/// The output of a core, to be passed on without its lock.
#[derive(Default)]
pub(super) struct Output {
    /// The path is `None` if it is forgotten.
    pub(super) datagrams: Vec<(SocketAddr, Option<DatagramPath>, Bytes)>,
    /// By connection, in order.
    pub(super) streams: Vec<(Arc<dyn ReplyPath>, Vec<Reply>)>,
    pub(super) jobs: Vec<Submission>,
    pub(super) accesses: Vec<AccessRecord>,
}

impl Shard {
    pub(super) fn new(core: Server) -> Shard {
        let (datagram_paths, connections) = (DatagramPaths::default(), HashMap::new());
        Shard(Mutex::new(ShardState { core, datagram_paths, connections, armed: Time::MAX }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ShardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardState {
    /// Moves the output of the core, which is shard `shard`'s, to `output`. The permit goes to the first job, or else to
    /// the first reply; without either it is given back.
    pub(super) fn drain(&mut self, shard: usize, now: Time, mut permit: Option<Permit>, output: &mut Output) {
        while let Some(execute) = self.core.poll_event() {
            output.jobs.push(Submission { shard, execute, permit: permit.take() });
        }
        output.accesses.extend(std::iter::from_fn(|| self.core.poll_access()));
        while let Some(Transmit { to, payload }) = self.core.poll_transmit(now) {
            match to.path {
                Path::Datagram => {
                    output.datagrams.push((to.addr, self.datagram_paths.get(&to.addr).cloned(), payload));
                }
                Path::Stream(id) => {
                    let mut permit = permit.take();
                    if let Some(permit) = &mut permit {
                        permit.settle(payload.len());
                    }
                    let reply = Reply { payload, permit };
                    match output.streams.iter_mut().find(|(path, _)| path.id() == id) {
                        Some((_, replies)) => replies.push(reply),
                        None => output.streams.extend(self.connections.get(&id).map(|path| {
                            path.expect();
                            (path.clone(), vec![reply])
                        })),
                    }
                }
            }
        }
    }
}

/// The bound on the duplicate request caches of all shards together. When it is exceeded, the client that holds most in
/// any shard gives up replies, so that a flood costs the flooder as if there were one cache.
#[derive(Debug)]
pub(super) struct CacheBudget {
    bytes_max: usize,
    bytes: AtomicUsize,
    shards: Vec<CacheUse>,
}

#[derive(Debug, Default)]
struct CacheUse {
    bytes: AtomicUsize,
    /// Held by the client that holds most.
    largest: AtomicUsize,
}

/// The shard whose cache has to shrink, and by how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CacheExcess {
    pub(super) shard: usize,
    pub(super) bytes: usize,
}

impl CacheBudget {
    pub(super) fn new(bytes_max: usize, shards: usize) -> CacheBudget {
        let shards = (0..shards).map(|_| CacheUse::default()).collect();
        CacheBudget { bytes_max, bytes: AtomicUsize::new(0), shards }
    }

    pub(super) fn budget_use(&self) -> BudgetUse {
        BudgetUse { used: self.bytes.load(Relaxed), max: self.bytes_max }
    }

    /// Notes what shard `shard`, whose lock the caller holds, uses. Returns the excess, if any.
    pub(super) fn update(&self, shard: usize, core: &Server) -> Option<CacheExcess> {
        let used = self.shards.get(shard)?;
        let now = core.cache_bytes();
        let before = used.bytes.swap(now, Relaxed);
        used.largest.store(core.cache_largest(), Relaxed);
        // Wraps where it shrinks, and so comes out right.
        let change = now.wrapping_sub(before);
        let all = self.bytes.fetch_add(change, Relaxed).wrapping_add(change);
        let bytes = all.checked_sub(self.bytes_max).filter(|excess| *excess > 0)?;
        let largest = |shard: &usize| self.shards.get(*shard).map(|used| used.largest.load(Relaxed));
        (0..self.shards.len()).max_by_key(largest).map(|shard| CacheExcess { shard, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_server::{Config, Exports};

    #[test]
    fn shard_of_the_largest_client_shrinks() {
        let exports = Arc::new(Exports::new(Vec::new(), &[7; 16]).unwrap());
        let empty = Server::new(Config::new(exports), 1, Time::ZERO);
        let budget = CacheBudget::new(1000, 3);
        for (shard, (bytes, largest)) in [(500, 300), (600, 400), (100, 100)].into_iter().enumerate() {
            budget.shards[shard].bytes.store(bytes, Relaxed);
            budget.shards[shard].largest.store(largest, Relaxed);
        }
        budget.bytes.store(1200, Relaxed);
        assert_eq!(budget.update(2, &empty), Some(CacheExcess { shard: 1, bytes: 100 }), "shard 2 is empty now");
        assert_eq!(budget.update(1, &empty), None);
        assert_eq!(budget.bytes.load(Relaxed), 500);
    }
}
