//! A part of the clients: their core, behind a lock of its own.
//!
//! All that comes from one address belongs to one shard, and what one client does keeps none
//! of the others' waiting. What is bounded for all of them together is bounded elsewhere:
//! requests and their bytes by [admission](crate::server::admission::permits), the duplicate request caches by
//! the [`Ledger`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use remora_base::{Core, Path, Time, Transmit};
use remora_server::Server;

use crate::server::admission::permits::Permit;
use crate::server::executor::Submission;
use crate::server::net::reply_queue::Reply;
use crate::server::net::udp_routes::{Route, Routes};
use crate::server::shards::reply_path::ReplyPath;

/// A core and what belongs to its clients.
pub(crate) struct Shard {
    state: Mutex<State>,
}

/// What a shard's lock guards.
pub(crate) struct State {
    pub(crate) core: Server,
    pub(crate) routes: Routes,
    pub(crate) connections: HashMap<u64, ReplyPath>,
    /// The timeout that is waited for.
    pub(crate) armed: Time,
}

/// What came out of a core, to be done without its lock.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) datagrams: Vec<(SocketAddr, Route, Bytes)>,
    /// By connection, in the order of its replies.
    pub(crate) streams: Vec<(ReplyPath, Vec<Reply>)>,
    pub(crate) jobs: Vec<Submission>,
}

impl Shard {
    pub(crate) fn new(core: Server) -> Shard {
        let state = State { core, routes: Routes::default(), connections: HashMap::new(), armed: Time::MAX };
        Shard { state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds what comes out of the core, which is shard `shard`'s, to `work`. The permit goes
    /// to the first job, or else to the first reply; if nothing comes out it is given back.
    pub(crate) fn drain(&mut self, shard: usize, now: Time, mut permit: Option<Permit>, work: &mut Work) {
        while let Some(execute) = self.core.poll_event() {
            work.jobs.push(Submission { shard, execute, permit: permit.take() });
        }
        while let Some(Transmit { to, payload }) = self.core.poll_transmit(now) {
            match to.path {
                Path::Datagram => work.datagrams.push((to.addr, self.routes.to(&to.addr), payload)),
                Path::Stream(id) => {
                    let mut permit = permit.take();
                    if let Some(permit) = &mut permit {
                        permit.settle(payload.len());
                    }
                    let reply = Reply { payload, permit };
                    match work.streams.iter_mut().find(|(connection, _)| connection.id() == id) {
                        Some((_, replies)) => replies.push(reply),
                        None => work.streams.extend(self.connections.get(&id).map(|c| (c.expecting(), vec![reply]))),
                    }
                }
            }
        }
    }
}

/// What the duplicate request caches of all shards hold together, which is bounded. Beyond,
/// the client gives something up that has the most anywhere, so that a flood costs the flooder
/// as if there were one cache.
#[derive(Debug)]
pub(crate) struct Ledger {
    max: usize,
    held: AtomicUsize,
    shards: Vec<Account>,
}

/// Of a shard.
#[derive(Debug, Default)]
struct Account {
    held: AtomicUsize,
    /// By the client that has the most.
    largest: AtomicUsize,
}

impl Ledger {
    /// At most `max` bytes in `shards` caches.
    pub(crate) fn new(max: usize, shards: usize) -> Ledger {
        Ledger { max, held: AtomicUsize::new(0), shards: (0..shards).map(|_| Account::default()).collect() }
    }

    /// Notes what shard `shard` holds. Must be called with its lock held. Which shard, if any,
    /// is to give up how much.
    pub(crate) fn note(&self, shard: usize, core: &Server) -> Option<(usize, usize)> {
        let account = self.shards.get(shard)?;
        let now = core.cache_bytes();
        let before = account.held.swap(now, Relaxed);
        account.largest.store(core.cache_largest(), Relaxed);
        // Wraps where it shrinks, and so comes out right.
        let held = self.held.fetch_add(now.wrapping_sub(before), Relaxed).wrapping_add(now.wrapping_sub(before));
        let over = held.checked_sub(self.max).filter(|over| *over > 0)?;
        let largest = |shard: &usize| self.shards.get(*shard).map(|a| a.largest.load(Relaxed));
        (0..self.shards.len()).max_by_key(largest).map(|shard| (shard, over))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use remora_server::{Config, Exports};

    #[test]
    fn who_holds_most_gives_up_what_is_too_much() {
        let exports = Arc::new(Exports::new(Vec::new(), &[7; 16]).unwrap());
        let config = Config::new(exports);
        let empty = Server::new(config, 1, Time::ZERO);
        let ledger = Ledger::new(1000, 3);
        for (shard, (held, largest)) in [(500, 300), (600, 400), (100, 100)].into_iter().enumerate() {
            ledger.shards[shard].held.store(held, Relaxed);
            ledger.shards[shard].largest.store(largest, Relaxed);
        }
        ledger.held.store(1200, Relaxed);
        assert_eq!(ledger.note(2, &empty), Some((1, 100)), "the other one is too much still");
        assert_eq!(ledger.note(1, &empty), None);
        assert_eq!(ledger.held.load(Relaxed), 500);
    }
}
