//! Jobs that would only wait for one another, one behind the other.
//!
//! Writes to one file exclude each other, here and in the kernel, and so do changes of names in
//! one directory. Threads that do them side by side spend their time going to sleep and being
//! woken. So they queue up in a lane, which one thread at a time works off; what belongs to no
//! lane, or to others, goes on beside it. A lane is a hint for speed only: whatever must not
//! happen at once is locked where it happens. In a lane, too, clients take [turns](Turn).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remora_server::Job;
use remora_wire::nfs3::{Call, Fh};

use super::queue::Turn;

/// Locks that the lanes are spread over.
const SHARDS: usize = 32;

/// A lane. Two files may have to share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lane(u64);

/// The lanes that are being worked off, and what waits in them.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    shards: Vec<Mutex<HashMap<Lane, Line<T>>>>,
    hasher: RandomState,
}

/// What waits in a lane.
#[derive(Debug)]
struct Line<T> {
    items: HashMap<Turn, VecDeque<T>>,
    /// The turns that have items, each once.
    order: VecDeque<Turn>,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { items: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Line<T> {
    fn push(&mut self, turn: Turn, item: T) {
        let mine = self.items.entry(turn).or_default();
        if mine.is_empty() {
            self.order.push_back(turn);
        }
        mine.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        let turn = self.order.pop_front()?;
        let mine = self.items.get_mut(&turn)?;
        let item = mine.pop_front();
        if !mine.is_empty() {
            self.order.push_back(turn);
        }
        item
    }
}

impl<T> Default for Lanes<T> {
    fn default() -> Lanes<T> {
        Lanes { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl<T> Lanes<T> {
    /// The lane that a job belongs to, if to any.
    pub(super) fn of(&self, job: &Job) -> Option<Lane> {
        let fh = excludes_others(job.nfs_call()?)?;
        Some(Lane(self.hasher.hash_one(&fh.0)))
    }

    /// Adds `item` for the client whose turn this is. Whether the lane is to be given to a thread,
    /// because nobody has it.
    #[must_use]
    pub(super) fn join(&self, lane: Lane, turn: Turn, item: T) -> bool {
        let mut shard = self.shard(lane);
        let fresh = !shard.contains_key(&lane);
        shard.entry(lane).or_default().push(turn, item);
        fresh
    }

    /// The next of a lane. `None`: there is nothing in it, and it is nobody's any more.
    pub(super) fn next(&self, lane: Lane) -> Option<T> {
        let mut shard = self.shard(lane);
        let next = shard.get_mut(&lane)?.pop();
        if next.is_none() {
            shard.remove(&lane);
        }
        next
    }

    /// Forgets everything that waits.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let dropped = std::mem::take(&mut *lock(shard));
            drop(dropped);
        }
    }

    fn shard(&self, Lane(hash): Lane) -> MutexGuard<'_, HashMap<Lane, Line<T>>> {
        lock(&self.shards[hash as usize % SHARDS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `call` has for itself while it is executed.
fn excludes_others(call: &Call) -> Option<&Fh> {
    match call {
        Call::Write(a) => Some(&a.fh),
        call => call.changes_names_in(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_one_worker_at_a_time_and_keeps_its_order() {
        let lanes = Lanes::default();
        let (a, b, one) = (Lane(1), Lane(2), Turn::test(0));
        assert!(lanes.join(a, one, 1), "nobody has it");
        assert!(!lanes.join(a, one, 2) && !lanes.join(a, one, 3), "somebody has");
        assert!(lanes.join(b, one, 4), "that is another one");
        assert_eq!([lanes.next(a), lanes.next(a)], [Some(1), Some(2)]);
        assert!(!lanes.join(a, one, 5), "still somebody's");
        assert_eq!([lanes.next(a), lanes.next(a), lanes.next(a)], [Some(3), Some(5), None]);
        assert!(lanes.join(a, one, 6), "it had come to its end");
        lanes.clear();
        assert_eq!([lanes.next(a), lanes.next(b)], [None, None]);
        assert!(lanes.shards.iter().all(|shard| lock(shard).is_empty()), "nothing is kept of idle lanes");
    }

    #[test]
    fn in_a_lane_a_client_with_little_to_do_does_not_wait_for_one_with_much() {
        let (lanes, lane) = (Lanes::default(), Lane(1));
        let (busy, modest) = (Turn::test(1), Turn::test(2));
        for n in 0..1024 {
            assert_eq!(lanes.join(lane, busy, ("busy", n)), n == 0);
        }
        assert!(!lanes.join(lane, modest, ("modest", 0)));
        assert_eq!([lanes.next(lane), lanes.next(lane)], [Some(("busy", 0)), Some(("modest", 0))]);
        assert!((1..1024).all(|n| lanes.next(lane) == Some(("busy", n))));
        assert_eq!(lanes.next(lane), None);
    }
}
