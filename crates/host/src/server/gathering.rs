//! Group commit: which jobs wait for which flush.
//!
//! A flush answers every job whose change came before it began. Jobs that come while it runs
//! wait for the next one, which begins when it has ended: so one flush of a file runs at a
//! time, and under load each serves all that gathered during the one before (the idea of
//! write gathering, without its timer).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remora_vfs::FlushKey;

/// Locks that the flushes are spread over.
const SHARDS: usize = 32;

/// Jobs (`T`) by the flush they wait for. It holds no more than wait, and so needs no bound.
#[derive(Debug)]
pub(super) struct Gathering<T> {
    shards: Vec<Mutex<Groups<T>>>,
    hasher: RandomState,
}

type Groups<T> = HashMap<FlushKey, Group<T>>;

#[derive(Debug)]
struct Group<T> {
    waiting: Vec<T>,
    running: bool,
}

impl<T> Default for Gathering<T> {
    fn default() -> Gathering<T> {
        Gathering { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl<T> Gathering<T> {
    /// A job has made its change. Whether a flush is to be asked for, because none is.
    #[must_use]
    pub(super) fn join(&self, key: FlushKey, job: T) -> bool {
        let mut groups = self.shard(key);
        let fresh = !groups.contains_key(&key);
        groups.entry(key).or_insert(Group { waiting: Vec::new(), running: false }).waiting.push(job);
        fresh
    }

    /// The flush that was asked for begins: it is these jobs'.
    #[must_use]
    pub(super) fn begin(&self, key: FlushKey) -> Vec<T> {
        let mut groups = self.shard(key);
        let Some(group) = groups.get_mut(&key).filter(|group| !group.running) else { return Vec::new() };
        group.running = true;
        std::mem::take(&mut group.waiting)
    }

    /// The flush has ended. Whether another is to be asked for, for those who came meanwhile.
    #[must_use]
    pub(super) fn end(&self, key: FlushKey) -> bool {
        let mut groups = self.shard(key);
        let Some(group) = groups.get_mut(&key) else { return false };
        group.running = false;
        let more = !group.waiting.is_empty();
        if !more {
            groups.remove(&key);
        }
        more
    }

    /// Drops everything that waits.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let dropped = std::mem::take(&mut *lock(shard));
            drop(dropped);
        }
    }

    fn shard(&self, key: FlushKey) -> MutexGuard<'_, Groups<T>> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(object: u8) -> FlushKey {
        FlushKey { disk: 1, object: object.into(), depth: 0 }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Change(u8),
        Begin(usize),
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..4).prop_map(Step::Change),
            any::<usize>().prop_map(Step::Begin),
            any::<usize>().prop_map(Step::End)
        ]
    }

    /// A flush under way: of what, since when, for whom.
    struct Running {
        object: u8,
        began: usize,
        jobs: Vec<(u8, usize)>,
    }

    /// An executor that begins and ends flushes whenever chance has it.
    #[derive(Default)]
    struct Model {
        gathering: Gathering<(u8, usize)>,
        now: usize,
        asked: Vec<u8>,
        running: Vec<Running>,
        changes: usize,
        answered: usize,
    }

    impl Model {
        fn apply(&mut self, step: &Step) {
            self.now += 1;
            match step {
                Step::Change(object) => {
                    self.changes += 1;
                    if self.gathering.join(key(*object), (*object, self.now)) {
                        self.asked.push(*object);
                    }
                }
                Step::Begin(which) if !self.asked.is_empty() => {
                    let object = self.asked.remove(which % self.asked.len());
                    assert!(self.running.iter().all(|r| r.object != object), "two flushes of one object at once");
                    let jobs = self.gathering.begin(key(object));
                    assert!(!jobs.is_empty(), "a flush for nobody");
                    self.running.push(Running { object, began: self.now, jobs });
                }
                Step::End(which) if !self.running.is_empty() => {
                    let Running { object, began, jobs } = self.running.remove(which % self.running.len());
                    for (of, changed) in jobs {
                        assert_eq!(of, object);
                        assert!(changed < began, "changed at {changed}, flushed from {began}");
                        self.answered += 1;
                    }
                    if self.gathering.end(key(object)) {
                        self.asked.push(object);
                    }
                }
                Step::Begin(_) | Step::End(_) => {}
            }
        }
    }

    proptest! {
        #[test]
        fn nobody_is_answered_by_a_flush_that_began_before_the_change_and_all_are_answered(
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let mut model = Model::default();
            steps.iter().for_each(|s| model.apply(s));
            while !(model.asked.is_empty() && model.running.is_empty()) {
                model.apply(&Step::Begin(0));
                model.apply(&Step::End(0));
            }
            prop_assert_eq!(model.answered, model.changes);
            prop_assert!(model.gathering.shards.iter().all(|s| lock(s).is_empty()), "nothing is kept of objects that nobody waits for");
        }
    }

    #[test]
    fn those_who_come_while_a_flush_runs_share_the_next() {
        let g = Gathering::default();
        assert!(g.join(key(1), "a"));
        assert_eq!(g.begin(key(1)), ["a"]);
        assert!(!g.join(key(1), "b") && !g.join(key(1), "c"), "one is running");
        assert!(g.join(key(2), "other"), "that one serves another object");
        assert!(g.end(key(1)));
        assert!(!g.join(key(1), "d"), "it has been asked for");
        assert_eq!(g.begin(key(1)), ["b", "c", "d"]);
        assert!(!g.end(key(1)));
        assert!(g.join(key(1), "e"));
        g.clear();
        assert!(g.join(key(1), "f") && g.join(key(2), "g"), "nothing is left");
    }
}
