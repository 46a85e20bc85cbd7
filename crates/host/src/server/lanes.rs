//! Jobs that would only wait for one another, one behind the other.
//!
//! Writes to one file exclude each other, here and in the kernel, and so do changes of names in
//! one directory. Threads that do them side by side spend their time going to sleep and being
//! woken. So they queue up in a lane, which one thread at a time works off; what belongs to no
//! lane, or to others, goes on beside it. A lane is a hint for speed only: whatever must not
//! happen at once is locked where it happens. In a lane, too, clients take [turns](Turn).
//!
//! A lane that nobody works off is asked for in the turn of each client that waits in it, so that none
//! has to wait until it is another's turn. Whoever comes first works it off for all of them, and
//! who comes then, or finds nothing left, has nothing to do there. Who leaves it before its end asks anew.
//! So nothing is left behind: where nobody is at work, every turn that has something waiting has been asked
//! in, and nobody has come for that yet.

use std::collections::hash_map::{Entry, OccupiedEntry};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remora_server::Job;
use remora_wire::nfs3::{Call, Fh};

use super::queue::{Turn, Turns};

/// Locks that the lanes are spread over.
const SHARDS: usize = 32;

/// A lane. Two files may have to share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lane(u64);

/// The lanes that are being worked off or asked for, and what waits in them.
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
    /// Whether somebody works it off.
    running: bool,
    /// The turns in which it has been asked for, and nobody has come yet.
    asked: Turns,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { items: HashMap::new(), order: VecDeque::new(), running: false, asked: Turns::default() }
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

    /// Adds `item` for the client whose turn this is. Whether the lane is to be asked for in that turn,
    /// because nobody has it and it has not been yet.
    #[must_use]
    pub(super) fn join(&self, lane: Lane, turn: Turn, item: T) -> bool {
        let mut shard = self.shard(lane);
        let line = shard.entry(lane).or_default();
        line.push(turn, item);
        !line.running && line.asked.insert(turn)
    }

    /// Somebody has come for a lane that was asked for in this turn: what is to be done there first.
    /// `None`: nothing, or somebody else has it.
    pub(super) fn begin(&self, lane: Lane, turn: Turn) -> Option<T> {
        let mut shard = self.shard(lane);
        let Entry::Occupied(mut line) = shard.entry(lane) else { return None };
        line.get_mut().asked.remove(turn);
        if line.get().running { None } else { advance(line) }
    }

    /// The next for who has begun. `None`: there is nothing in it, and it is nobody's any more.
    pub(super) fn next(&self, lane: Lane) -> Option<T> {
        match self.shard(lane).entry(lane) {
            Entry::Occupied(line) => advance(line),
            Entry::Vacant(_) => None,
        }
    }

    /// Who has begun goes on elsewhere. The turns in which it is to be asked for, for what is left.
    #[must_use]
    pub(super) fn leave(&self, lane: Lane) -> Turns {
        let mut shard = self.shard(lane);
        let Entry::Occupied(mut entry) = shard.entry(lane) else { return Turns::default() };
        let line = entry.get_mut();
        line.running = false;
        let ask = line.asked.add(line.order.iter().copied().collect());
        forget_if_idle(entry);
        ask
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

/// Takes the next of a lane, which is somebody's until there is none.
fn advance<T>(mut entry: OccupiedEntry<'_, Lane, Line<T>>) -> Option<T> {
    let line = entry.get_mut();
    let next = line.pop();
    line.running = next.is_some();
    if next.is_none() {
        // It may stay for as long as somebody has been asked to come.
        *line = Line { asked: line.asked, ..Line::default() };
        forget_if_idle(entry);
    }
    next
}

fn forget_if_idle<T>(entry: OccupiedEntry<'_, Lane, Line<T>>) {
    let Line { order, running, asked, .. } = entry.get();
    if order.is_empty() && !running && asked.is_empty() {
        entry.remove();
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lane_has_one_worker_at_a_time_and_keeps_its_order() {
        let lanes = Lanes::default();
        let (a, b, one) = (Lane(1), Lane(2), Turn::test(0));
        assert!(lanes.join(a, one, 1), "nobody has it");
        assert!(!lanes.join(a, one, 2), "it has been asked for");
        assert_eq!(lanes.begin(a, one), Some(1));
        assert!(!lanes.join(a, one, 3), "somebody has it");
        assert!(lanes.join(b, one, 4), "that is another one");
        assert_eq!(lanes.begin(a, one), None, "one worker is enough");
        assert_eq!(lanes.next(a), Some(2));
        assert!(!lanes.join(a, one, 5), "still somebody's");
        assert_eq!([lanes.next(a), lanes.next(a), lanes.next(a)], [Some(3), Some(5), None]);
        assert!(lanes.join(a, one, 6), "it had come to its end");
        lanes.clear();
        assert_eq!([lanes.begin(a, one), lanes.begin(b, one)], [None, None]);
        assert!(lanes.is_idle(), "nothing is kept of idle lanes");
    }

    #[test]
    fn in_a_lane_a_client_with_little_to_do_does_not_wait_for_one_with_much() {
        let (lanes, lane) = (Lanes::default(), Lane(1));
        let (busy, modest) = (Turn::test(1), Turn::test(2));
        for n in 0..1024 {
            assert_eq!(lanes.join(lane, busy, ("busy", n)), n == 0);
        }
        assert!(
            lanes.join(lane, modest, ("modest", 0)),
            "it is not to wait for what the other one has waiting besides"
        );
        assert_eq!([lanes.begin(lane, busy), lanes.next(lane)], [Some(("busy", 0)), Some(("modest", 0))]);
        assert!((1..1024).all(|n| lanes.next(lane) == Some(("busy", n))));
        assert_eq!(lanes.next(lane), None);
        assert!(!lanes.join(lane, modest, ("modest", 1)), "whoever was asked to come for it is still to come");
        assert_eq!([lanes.begin(lane, modest), lanes.next(lane)], [Some(("modest", 1)), None]);
        assert!(lanes.is_idle());
    }

    #[test]
    fn who_leaves_a_lane_asks_for_it_in_the_turn_of_each_who_waits() {
        let (lanes, lane) = (Lanes::default(), Lane(1));
        let [one, two, three] = [1, 2, 3].map(Turn::test);
        assert!(lanes.join(lane, one, 1) && lanes.join(lane, two, 2));
        assert_eq!(lanes.begin(lane, one), Some(1));
        assert!(!lanes.join(lane, three, 3), "somebody has it");
        assert_eq!(lanes.leave(lane).iter().collect::<Vec<_>>(), [three], "in the other one's it has been already");
        assert!(!lanes.join(lane, three, 4) && lanes.join(lane, one, 5));
        assert_eq!([lanes.begin(lane, three), lanes.next(lane), lanes.next(lane)], [Some(2), Some(3), Some(5)]);
        assert!(lanes.leave(lane).iter().eq([three]));
    }

    impl<T> Lanes<T> {
        fn is_idle(&self) -> bool {
            self.shards.iter().all(|shard| lock(shard).is_empty())
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join { lane: u64, turn: usize },
        Come { task: usize },
        Next { worker: usize },
        Leave { worker: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u64..3, 0usize..4).prop_map(|(lane, turn)| Step::Join { lane, turn }),
            2 => any::<usize>().prop_map(|task| Step::Come { task }),
            2 => any::<usize>().prop_map(|worker| Step::Next { worker }),
            1 => any::<usize>().prop_map(|worker| Step::Leave { worker }),
        ]
    }

    /// Threads that come, go on and leave whenever chance has it.
    #[derive(Default)]
    struct Model {
        lanes: Lanes<(usize, usize)>,
        joined: usize,
        /// What waits, by lane and turn.
        waiting: HashMap<(u64, usize), VecDeque<usize>>,
        tasks: Vec<(u64, usize)>,
        working: Vec<u64>,
    }

    impl Model {
        fn apply(&mut self, step: &Step) {
            match *step {
                Step::Join { lane, turn } => {
                    self.joined += 1;
                    self.waiting.entry((lane, turn)).or_default().push_back(self.joined);
                    if self.lanes.join(Lane(lane), Turn::test(turn), (turn, self.joined)) {
                        self.ask(lane, turn);
                    }
                }
                Step::Come { task } if !self.tasks.is_empty() => {
                    let (lane, turn) = self.tasks.remove(task % self.tasks.len());
                    if let Some(item) = self.lanes.begin(Lane(lane), Turn::test(turn)) {
                        assert!(!self.working.contains(&lane), "two at work in one lane");
                        self.working.push(lane);
                        self.done(lane, item);
                    }
                }
                Step::Next { worker } if !self.working.is_empty() => {
                    let worker = worker % self.working.len();
                    let lane = self.working[worker];
                    match self.lanes.next(Lane(lane)) {
                        Some(item) => self.done(lane, item),
                        None => _ = self.working.remove(worker),
                    }
                }
                Step::Leave { worker } if !self.working.is_empty() => {
                    let lane = self.working.remove(worker % self.working.len());
                    for turn in self.lanes.leave(Lane(lane)).iter().map(Turn::index) {
                        self.ask(lane, turn);
                    }
                }
                Step::Come { .. } | Step::Next { .. } | Step::Leave { .. } => {}
            }
            self.check();
        }

        fn ask(&mut self, lane: u64, turn: usize) {
            assert!(!self.tasks.contains(&(lane, turn)), "two tasks for one lane in one turn");
            self.tasks.push((lane, turn));
        }

        fn done(&mut self, lane: u64, (turn, item): (usize, usize)) {
            let oldest = self.waiting.get_mut(&(lane, turn)).and_then(VecDeque::pop_front);
            assert_eq!(oldest, Some(item), "each client's own stay in order, and nothing is done twice");
        }

        fn check(&self) {
            for (at, items) in &self.waiting {
                let is_cared_for = items.is_empty() || self.working.contains(&at.0) || self.tasks.contains(at);
                assert!(is_cared_for, "nobody comes for {items:?} in {at:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_left_behind(steps in proptest::collection::vec(step(), 0..200)) {
            let mut model = Model::default();
            steps.iter().for_each(|step| model.apply(step));
            while !(model.tasks.is_empty() && model.working.is_empty()) {
                model.apply(&Step::Come { task: 0 });
                model.apply(&Step::Next { worker: 0 });
            }
            prop_assert!(model.waiting.values().all(VecDeque::is_empty));
            prop_assert!(model.lanes.is_idle(), "nothing is kept of idle lanes");
        }
    }
}
