//! Group commit: which jobs wait for which flush.
//!
//! A flush answers every job whose change came before it began. Jobs that come while it runs
//! wait for the next one, which begins when it has ended: so one flush of a file runs at a
//! time, and under load each serves all that gathered during the one before (the idea of
//! write gathering, without its timer).
//!
//! A flush that has not begun is asked for in the [turn](Turn) of each client that waits for it, so that
//! none has to wait until it is another's turn; the first of these tasks does it for all, and the others
//! find nothing to do. When it ends it is asked for in the turns of those who came meanwhile.
//!
//! Clients that got their answers together come back together, but not all at once; the first
//! of them would be flushed by themselves, and the others wait for that and then for one of their own.
//! So a flush waits a little for as many as shared the last one (as ext4's journal does for
//! those who sync with it). Who is alone was alone the last time, too, and waits for nobody.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_vfs::FlushKey;

use super::queue::{Turn, Turns};

/// Locks that the flushes are spread over.
const SHARDS: usize = 32;

/// Jobs (`T`) by the flush they wait for. It holds no more than wait, and so needs no bound.
#[derive(Debug)]
pub(super) struct Gathering<T> {
    shards: Vec<Shard<T>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Shard<T> {
    groups: Mutex<Groups<T>>,
    /// For flushes that wait for company.
    gathered: Condvar,
}

#[derive(Debug)]
struct Groups<T> {
    by_key: HashMap<FlushKey, Group<T>>,
    /// Whose flush was the last here, and how many shared it.
    last: Option<(FlushKey, usize)>,
}

#[derive(Debug)]
struct Group<T> {
    waiting: Vec<T>,
    /// Whose turns they wait in.
    turns: Turns,
    /// The turns in which the next flush has been asked for, and nobody has come yet.
    asked: Turns,
    /// Whether somebody does the flush, or waits for company before.
    running: bool,
}

impl<T> Group<T> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.asked.is_empty() && !self.running
    }
}

impl<T> Default for Group<T> {
    fn default() -> Group<T> {
        Group { waiting: Vec::new(), turns: Turns::default(), asked: Turns::default(), running: false }
    }
}

impl<T> Groups<T> {
    /// How many shared the last flush of this, if that is still known.
    fn expected(&self, key: FlushKey) -> usize {
        self.last.filter(|(of, _)| *of == key).map_or(0, |(_, shared)| shared)
    }

    /// How many wait for this flush; `None` if there is none to wait for.
    fn waiting(&self, key: FlushKey) -> Option<usize> {
        self.by_key.get(&key).map(|group| group.waiting.len())
    }
}

impl<T> Default for Shard<T> {
    fn default() -> Shard<T> {
        Shard { groups: Mutex::new(Groups { by_key: HashMap::new(), last: None }), gathered: Condvar::new() }
    }
}

impl<T> Default for Gathering<T> {
    fn default() -> Gathering<T> {
        Gathering { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }
}

impl<T> Gathering<T> {
    /// A job has made its change. Whether a flush is to be asked for in its turn, because none is and nobody
    /// does one.
    #[must_use]
    pub(super) fn join(&self, key: FlushKey, turn: Turn, job: T) -> bool {
        let shard = self.shard(key);
        let mut groups = shard.lock();
        let expected = groups.expected(key);
        let group = groups.by_key.entry(key).or_default();
        group.waiting.push(job);
        group.turns.insert(turn);
        if group.running && group.waiting.len() == expected {
            shard.gathered.notify_all();
        }
        !group.running && group.asked.insert(turn)
    }

    /// Somebody has come for the flush that was asked for in this turn. Whether there is one to be done, and
    /// nobody else does it.
    #[must_use]
    pub(super) fn begin(&self, key: FlushKey, turn: Turn) -> bool {
        let mut groups = self.shard(key).lock();
        let Some(group) = groups.by_key.get_mut(&key) else { return false };
        group.asked.remove(turn);
        let begins = !group.running && !group.waiting.is_empty();
        group.running |= begins;
        if group.is_idle() {
            groups.by_key.remove(&key);
        }
        begins
    }

    /// Whose flush it is that has begun. Waits for company, but no longer than `patience` has the first of
    /// them wait.
    #[must_use]
    pub(super) fn gather(&self, key: FlushKey, patience: impl FnOnce(&T) -> Duration) -> Vec<T> {
        let shard = self.shard(key);
        let groups = shard.lock();
        let patience = groups.by_key.get(&key).and_then(|group| group.waiting.first()).map_or(Duration::ZERO, patience);
        let are_missing = |groups: &mut Groups<T>| groups.waiting(key).is_some_and(|n| n < groups.expected(key));
        let waited = shard.gathered.wait_timeout_while(groups, patience, are_missing);
        let (mut groups, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(group) = groups.by_key.get_mut(&key) else { return Vec::new() };
        group.turns = Turns::default();
        let jobs = std::mem::take(&mut group.waiting);
        groups.last = Some((key, jobs.len()));
        jobs
    }

    /// The flush has ended. The turns in which another is to be asked for, for those who came meanwhile.
    #[must_use]
    pub(super) fn end(&self, key: FlushKey) -> Turns {
        let mut groups = self.shard(key).lock();
        let Some(group) = groups.by_key.get_mut(&key) else { return Turns::default() };
        group.running = false;
        let ask = group.asked.add(group.turns);
        if group.is_idle() {
            groups.by_key.remove(&key);
        }
        ask
    }

    /// Drops everything that waits.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let dropped = std::mem::take(&mut shard.lock().by_key);
            drop(dropped);
        }
    }

    fn shard(&self, key: FlushKey) -> &Shard<T> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl<T> Shard<T> {
    fn lock(&self) -> MutexGuard<'_, Groups<T>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        Change(u8, usize),
        Begin(usize),
        Gather(usize),
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..4, 0usize..3).prop_map(|(object, turn)| Step::Change(object, turn)),
            any::<usize>().prop_map(Step::Begin),
            any::<usize>().prop_map(Step::Gather),
            any::<usize>().prop_map(Step::End)
        ]
    }

    /// A flush under way: of what, since when, for whom (nobody while it waits for company).
    struct Running {
        object: u8,
        began: usize,
        jobs: Vec<(u8, usize)>,
    }

    impl Running {
        fn gather(&mut self, gathering: &Gathering<(u8, usize)>, now: usize) {
            if self.jobs.is_empty() {
                (self.began, self.jobs) = (now, gathering.gather(key(self.object), |_| Duration::ZERO));
                assert!(!self.jobs.is_empty(), "a flush for nobody");
            }
        }
    }

    /// An executor that begins and ends flushes whenever chance has it.
    #[derive(Default)]
    struct Model {
        gathering: Gathering<(u8, usize)>,
        now: usize,
        asked: Vec<(u8, usize)>,
        running: Vec<Running>,
        changes: usize,
        answered: usize,
    }

    impl Model {
        fn apply(&mut self, step: &Step) {
            self.now += 1;
            match step {
                Step::Change(object, turn) => {
                    self.changes += 1;
                    let asks = self.gathering.join(key(*object), Turn::test(*turn), (*object, self.now));
                    let is_running = self.running.iter().any(|r| r.object == *object);
                    let is_asked = self.asked.contains(&(*object, *turn));
                    assert_eq!(asks, !is_running && !is_asked, "asked once in each turn, and in none while one runs");
                    self.asked.extend(asks.then_some((*object, *turn)));
                }
                Step::Begin(which) if !self.asked.is_empty() => {
                    let (object, turn) = self.asked.remove(which % self.asked.len());
                    if self.gathering.begin(key(object), Turn::test(turn)) {
                        assert!(self.running.iter().all(|r| r.object != object), "two flushes of one object at once");
                        self.running.push(Running { object, began: 0, jobs: Vec::new() });
                    }
                }
                Step::Gather(which) if !self.running.is_empty() => {
                    let which = which % self.running.len();
                    self.running[which].gather(&self.gathering, self.now);
                }
                Step::End(which) if !self.running.is_empty() => {
                    let mut running = self.running.remove(which % self.running.len());
                    running.gather(&self.gathering, self.now);
                    let Running { object, began, jobs } = running;
                    for (of, changed) in jobs {
                        assert_eq!(of, object);
                        assert!(changed < began, "changed at {changed}, flushed from {began}");
                        self.answered += 1;
                    }
                    for turn in self.gathering.end(key(object)).iter().map(Turn::index) {
                        assert!(!self.asked.contains(&(object, turn)), "asked once in each turn");
                        self.asked.push((object, turn));
                    }
                }
                Step::Begin(_) | Step::Gather(_) | Step::End(_) => {}
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
            prop_assert!(model.gathering.shards.iter().all(|s| s.lock().by_key.is_empty()), "nothing is kept of objects that nobody waits for");
        }
    }

    #[test]
    fn those_who_come_while_a_flush_runs_share_the_next() {
        let (g, one) = (Gathering::default(), Turn::test(1));
        assert!(g.join(key(1), one, "a"));
        assert!(g.begin(key(1), one));
        assert_eq!(g.gather(key(1), |_| LONG), ["a"]);
        assert!(!g.join(key(1), one, "b") && !g.join(key(1), one, "c"), "one is running");
        assert!(g.join(key(2), one, "other"), "that one serves another object");
        assert!(g.end(key(1)).iter().eq([one]));
        assert!(!g.join(key(1), one, "d"), "it has been asked for");
        assert!(g.begin(key(1), one));
        assert_eq!(g.gather(key(1), |_| LONG), ["b", "c", "d"]);
        assert!(g.end(key(1)).is_empty());
        assert!(g.join(key(1), one, "e"));
        g.clear();
        assert!(g.join(key(1), one, "f") && g.join(key(2), one, "g"), "nothing is left");
    }

    #[test]
    fn a_flush_is_asked_for_in_the_turn_of_each_who_waits_for_it_and_begins_once() {
        let (g, [one, two, three]) = (Gathering::default(), [1, 2, 3].map(Turn::test));
        assert!(g.join(key(1), one, "a") && g.join(key(1), two, "b") && !g.join(key(1), two, "c"));
        assert!(g.begin(key(1), two));
        assert!(!g.join(key(1), three, "d"), "it waits for company, and this is some");
        assert_eq!(g.gather(key(1), |_| Duration::ZERO), ["a", "b", "c", "d"]);
        assert!(!g.begin(key(1), one), "it is running");
        assert!(!g.join(key(1), one, "e") && !g.join(key(1), three, "f"));
        assert!(g.end(key(1)).iter().eq([one, three]));
        assert!(g.begin(key(1), three));
        assert_eq!(g.gather(key(1), |_| Duration::ZERO), ["e", "f"]);
        assert!(g.end(key(1)).is_empty());
        assert!(!g.begin(key(1), one), "nobody waits any more");
        assert!(g.shards.iter().all(|s| s.lock().by_key.is_empty()), "nothing is kept");
    }

    /// No test waits for so long.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_flush_waits_for_as_many_as_shared_the_last_one() {
        let (g, one) = (Gathering::default(), Turn::test(1));
        let flush = |patience| {
            assert!(g.begin(key(1), one));
            let jobs = g.gather(key(1), |_| patience);
            assert!(g.end(key(1)).is_empty());
            jobs
        };
        assert!(g.join(key(1), one, 1) && !g.join(key(1), one, 2));
        assert_eq!(flush(LONG), [1, 2], "nothing is known yet: nobody is waited for");
        std::thread::scope(|scope| {
            assert!(g.join(key(1), one, 3));
            let both = scope.spawn(|| flush(LONG));
            std::thread::sleep(Duration::from_millis(2));
            assert!(!g.join(key(1), one, 4));
            assert_eq!(both.join().unwrap(), [3, 4]);
        });
        assert!(g.join(key(1), one, 5));
        let began = std::time::Instant::now();
        assert_eq!(flush(Duration::from_millis(2)), [5], "and not for ever");
        assert!(began.elapsed() >= Duration::from_millis(2));
        assert!(g.join(key(1), one, 6));
        assert_eq!(flush(LONG), [6], "who was alone the last time");
    }
}
