//! Tasks on their way to the executor threads: first come, first served for each client, and the
//! clients take turns.
//!
//! Each task belongs to a [`Turn`], which is its client's; whoever asks for a task gets the oldest
//! of the turn that has waited longest. So a client with a thousand tasks in here keeps one with a
//! single task waiting for one of its own, and no longer. A task that has become needless while it
//! waited (others have done it along with theirs) costs its client no turn. Clients fall into [`TURNS`] turns by
//! address, with a hash that nobody can foresee; those of one turn share it. Clients whose addresses may be forged share
//! [one](Turn::FORGEABLE), so that a sender who claims many addresses gets no more.
//!
//! While there is work for everybody nobody takes a lock: the queues are lock-free ones, and the
//! lock here is only for those who have nothing to do and go to sleep, and for those who wake them.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_queue::SegQueue;
use remora_base::host_of;

/// Turns that the clients share: as many as a word has bits. One that was busy once keeps room for 31 tasks.
const TURNS: usize = u64::BITS as usize;

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Turn(usize);

impl Turn {
    /// That of all clients that have not proved their addresses.
    pub(super) const FORGEABLE: Turn = Turn(0);
}

/// Some of the turns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Turns(u64);

impl Turns {
    /// Whether it was not among them before.
    pub(super) fn insert(&mut self, Turn(turn): Turn) -> bool {
        let before = self.0;
        self.0 |= 1 << (turn % TURNS);
        self.0 != before
    }

    /// Those of `others` that were not among them before.
    pub(super) fn add(&mut self, others: Turns) -> Turns {
        let new = Turns(others.0 & !self.0);
        self.0 |= new.0;
        new
    }

    pub(super) fn remove(&mut self, Turn(turn): Turn) {
        self.0 &= !(1 << (turn % TURNS));
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Turn> {
        (0..TURNS).filter(move |turn| self.0 >> turn & 1 == 1).map(Turn)
    }
}

impl FromIterator<Turn> for Turns {
    fn from_iter<I: IntoIterator<Item = Turn>>(turns: I) -> Turns {
        let mut all = Turns::default();
        turns.into_iter().for_each(|turn| _ = all.insert(turn));
        all
    }
}

/// A queue without a bound of its own: what is in it is bounded by whoever fills it.
#[derive(Debug)]
pub(super) struct Queue<T> {
    lines: Vec<Line<T>>,
    /// The turns that have tasks, each once, but for those that somebody is taking a task from.
    order: SegQueue<Turn>,
    spread: RandomState,
    closed: AtomicBool,
    /// How many threads sleep or are about to. Changed under the lock only.
    sleepers: AtomicUsize,
    /// Whether one of them has been woken and has not come yet. Only one is at a time: threads
    /// that are awake may have done the work before it comes, and it wakes the next if not.
    /// Changed under the lock only, so that it is never left set with nobody to come.
    waking: AtomicBool,
    sleep: Mutex<()>,
    arrived: Condvar,
    /// Whether tasks have waited while no thread slept, since who looks after that last looked.
    short: AtomicBool,
    /// For who [looks after](Queue::await_shortage) it.
    shortage: Condvar,
    /// How many tasks have been taken.
    taken: AtomicUsize,
}

/// The tasks of a turn.
#[derive(Debug)]
struct Line<T> {
    tasks: SegQueue<T>,
    /// How many they are. Who makes it more than none puts the turn into the order; it leaves the
    /// order when somebody takes a task, who puts it back if there are more.
    len: AtomicUsize,
}

impl<T> Line<T> {
    /// The first task that is not needless, once begun, and whether there are more behind it; for who has
    /// taken the turn out of the order. Needless ones go, so that they cannot pile up before the others.
    fn take<U>(&self, begin: &impl Fn(T) -> Option<U>, taken: &AtomicUsize) -> (Option<U>, bool) {
        loop {
            let begun = self.tasks.pop().and_then(begin);
            taken.fetch_add(1, SeqCst);
            let more = self.len.fetch_sub(1, SeqCst) > 1;
            if begun.is_some() || !more {
                return (begun, more);
            }
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        let line = |_| Line { tasks: SegQueue::new(), len: AtomicUsize::new(0) };
        Queue {
            lines: (0..TURNS).map(line).collect(),
            order: SegQueue::new(),
            spread: RandomState::new(),
            closed: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            waking: AtomicBool::new(false),
            sleep: Mutex::new(()),
            arrived: Condvar::new(),
            short: AtomicBool::new(false),
            shortage: Condvar::new(),
            taken: AtomicUsize::new(0),
        }
    }
}

impl<T> Queue<T> {
    /// The turn of the client at this address: of its host, for IPv6.
    pub(super) fn turn_of(&self, client: SocketAddr) -> Turn {
        Turn(1 + self.spread.hash_one(host_of(client)) as usize % (TURNS - 1))
    }

    /// Adds a task; after [`close`](Queue::close) nobody will take it.
    pub(super) fn push(&self, turn: Turn, task: T) {
        self.push_all([(turn, task)]);
    }

    /// Adds tasks, and wakes somebody for them if there are any.
    pub(super) fn push_all(&self, tasks: impl IntoIterator<Item = (Turn, T)>) {
        if tasks.into_iter().map(|(turn, task)| self.push_mine(turn, task)).count() > 0 {
            self.wake();
        }
    }

    /// Adds a task without waking anybody: for a thread that [works](Queue::work_while) here, and takes what is next or
    /// wakes who does.
    pub(super) fn push_mine(&self, turn: Turn, task: T) {
        if !self.closed.load(SeqCst) {
            let line = self.line(turn);
            line.tasks.push(task);
            if line.len.fetch_add(1, SeqCst) == 0 {
                self.order.push(turn);
            }
        }
    }

    /// What `begin` makes of the next task, when there is one; `None` when there will be none, or has been
    /// none for so long. `begin` makes nothing of a needless one, and is quick: others of its turn wait.
    pub(super) fn pop_within<U>(&self, patience: Duration, begin: impl Fn(T) -> Option<U>) -> Option<U> {
        let mut tired = false;
        loop {
            if self.closed.load(SeqCst) {
                return None;
            }
            if let Some(begun) = self.take(&begin) {
                self.wake_for_the_rest();
                return Some(begun);
            }
            if tired {
                return None;
            }
            tired = self.doze(patience);
        }
    }

    /// Finishes one task after the other, as `next` takes them from here, until it takes none or the thread is not to
    /// stay. What it leaves, which it may have [added](Queue::push_mine), is somebody else's.
    pub(super) fn work_while<U>(&self, may_stay: impl Fn() -> bool, next: impl Fn() -> Option<U>, finish: impl Fn(U)) {
        while let Some(begun) = may_stay().then(&next).flatten() {
            finish(begun);
        }
        self.wake_for_the_rest();
    }

    /// Drops what waits and sends the threads home.
    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
        while self.take(&Some).is_some() {}
        drop(self.lock());
        self.arrived.notify_all();
        self.shortage.notify_all();
    }

    /// Waits until tasks wait and every thread is at work. `false` once the queue is closed.
    pub(super) fn await_shortage(&self) -> bool {
        let is_well = |_: &mut ()| !self.short.load(SeqCst) && !self.closed.load(SeqCst);
        drop(self.shortage.wait_while(self.lock(), is_well).unwrap_or_else(PoisonError::into_inner));
        !self.closed.load(SeqCst)
    }

    /// Waits for so long. `false` once the queue is closed.
    pub(super) fn rest(&self, pause: Duration) -> bool {
        let is_open = |_: &mut ()| !self.closed.load(SeqCst);
        drop(self.shortage.wait_timeout_while(self.lock(), pause, is_open).unwrap_or_else(PoisonError::into_inner));
        !self.closed.load(SeqCst)
    }

    /// Whether tasks wait and every thread is at work. If not, the next time is [noticed](Queue::await_shortage).
    pub(super) fn is_short(&self) -> bool {
        self.short.store(false, SeqCst);
        let short = !self.order.is_empty() && self.sleepers.load(SeqCst) == 0;
        if short {
            self.short.store(true, SeqCst);
        }
        short
    }

    /// How many tasks wait.
    pub(super) fn waiting(&self) -> usize {
        self.lines.iter().map(|line| line.len.load(SeqCst)).sum()
    }

    /// How many tasks have been taken so far.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(SeqCst)
    }

    /// The oldest task of the turn that is next, once begun.
    fn take<U>(&self, begin: &impl Fn(T) -> Option<U>) -> Option<U> {
        loop {
            let turn = self.order.pop()?;
            // Until the turn is back in the order nobody else takes from its line.
            let (begun, more) = self.line(turn).take(begin, &self.taken);
            if more {
                self.order.push(turn);
            }
            if begun.is_some() {
                return begun;
            }
        }
    }

    fn line(&self, Turn(turn): Turn) -> &Line<T> {
        &self.lines[turn % TURNS]
    }

    /// Sleeps unless there is something to do: a task that was added before the sleeper was
    /// counted is seen here, and who adds one later, or puts a turn back, sees the sleeper. Whether it
    /// slept for all of `patience`.
    fn doze(&self, patience: Duration) -> bool {
        let mut lock = self.lock();
        self.sleepers.fetch_add(1, SeqCst);
        let mut tired = false;
        if self.order.is_empty() && !self.closed.load(SeqCst) {
            let (held, timeout) = self.arrived.wait_timeout(lock, patience).unwrap_or_else(PoisonError::into_inner);
            (lock, tired) = (held, timeout.timed_out());
        }
        self.sleepers.fetch_sub(1, SeqCst);
        self.waking.store(false, SeqCst);
        drop(lock);
        tired
    }

    fn wake_for_the_rest(&self) {
        if !self.order.is_empty() {
            self.wake();
        }
    }

    /// Wakes a thread, if one sleeps and none is on its way. If none sleeps, who looks after that hears of it.
    fn wake(&self) {
        if self.sleepers.load(SeqCst) == 0 {
            return self.call_for_more();
        }
        if self.waking.load(SeqCst) {
            return;
        }
        let lock = self.lock();
        let wake = self.sleepers.load(SeqCst) > 0 && !self.waking.swap(true, SeqCst);
        drop(lock);
        if wake {
            self.arrived.notify_one();
        }
    }

    fn call_for_more(&self) {
        if !self.short.load(SeqCst) && !self.short.swap(true, SeqCst) {
            drop(self.lock());
            self.shortage.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Turn {
    /// One for tests: numbers below [`TURNS`] are different turns.
    pub(super) fn test(turn: usize) -> Turn {
        Turn(turn)
    }

    pub(super) fn index(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    impl<T> Queue<T> {
        fn pop(&self) -> Option<T> {
            self.pop_within(Duration::MAX, Some)
        }
    }

    const ONE: Turn = Turn(0);

    #[test]
    fn a_client_with_little_to_do_does_not_wait_for_one_with_much() {
        let queue = Queue::default();
        let (busy, modest) = (Turn(1), Turn(2));
        (0..1024).for_each(|n| queue.push(busy, ("busy", n)));
        queue.push(modest, ("modest", 0));
        assert_eq!(queue.pop(), Some(("busy", 0)));
        assert_eq!(queue.pop(), Some(("modest", 0)), "behind one task of the other's, not 1024");
        queue.push(modest, ("modest", 1));
        assert_eq!(queue.pop(), Some(("busy", 1)), "and it does not come first either");
        assert_eq!(queue.pop(), Some(("modest", 1)));
        assert!((2..1024).all(|n| queue.pop() == Some(("busy", n))), "each one's own stay in order");
    }

    #[test]
    fn what_has_become_needless_costs_no_turn_and_goes() {
        let queue = Queue::default();
        let (a, b) = (Turn(1), Turn(2));
        (0..8).for_each(|n| queue.push(a, n));
        queue.push(b, 8);
        let needed = |n| Some(n).filter(|n| ![0, 1, 3, 7].contains(n));
        let next = || queue.pop_within(Duration::ZERO, needed);
        assert_eq!([next(), next(), next()], [Some(2), Some(8), Some(4)], "one of each");
        assert_eq!([next(), next(), next()], [Some(5), Some(6), None]);
        assert!(queue.lines.iter().all(|line| line.tasks.is_empty()) && queue.order.is_empty());
        queue.push(a, 9);
        assert_eq!(next(), Some(9), "the turn comes again");
    }

    #[test]
    fn turns_are_a_set() {
        let mut turns = Turns::default();
        assert!(turns.insert(Turn(0)) && turns.insert(Turn(63)) && !turns.insert(Turn(0)));
        assert_eq!(turns.iter().collect::<Vec<_>>(), [Turn(0), Turn(63)]);
        turns.remove(Turn(0));
        turns.remove(Turn(5));
        assert!(!turns.is_empty());
        turns.remove(Turn(63));
        assert!(turns.is_empty());
        let (mut some, others): (Turns, Turns) = ([Turn(1), Turn(2)].into_iter().collect(), Turns(0b1100));
        assert_eq!((some.add(others), some), (Turns(0b1000), Turns(0b1110)));
    }

    #[test]
    fn addresses_of_one_host_share_a_turn() {
        let queue = Queue::<()>::default();
        let turn = |addr: &str| queue.turn_of(addr.parse().unwrap());
        assert_eq!(turn("10.0.0.1:700"), turn("[::ffff:10.0.0.1]:701"));
        assert_eq!(turn("[2001:db8::1]:700"), turn("[2001:db8::2]:701"));
        assert!((0..100).any(|n| turn(&format!("10.0.0.{n}:1")) != turn("10.0.0.1:1")));
    }

    proptest! {
        /// `Some(turn)`: a task for it; `None`: one is taken.
        #[test]
        fn turns_go_round(steps in proptest::collection::vec(proptest::option::of(0usize..4), 0..200)) {
            let queue = Queue::default();
            let mut lines = vec![VecDeque::new(); 4];
            let mut order = VecDeque::new();
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Some(turn) => {
                        if lines[turn].is_empty() {
                            order.push_back(turn);
                        }
                        lines[turn].push_back(n);
                        queue.push(Turn(turn), n);
                    }
                    None => {
                        let next = order.pop_front();
                        let want = next.and_then(|turn: usize| lines[turn].pop_front());
                        order.extend(next.filter(|turn| !lines[*turn].is_empty()));
                        prop_assert_eq!(queue.take(&Some), want);
                    }
                }
            }
        }
    }

    /// A wake-up that got lost would leave a task in the queue for ever.
    #[test]
    fn every_task_finds_a_thread_however_they_meet() {
        const TASKS: usize = 20_000;
        let queue = Arc::new(Queue::default());
        let (done, results) = mpsc::channel();
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let (queue, done) = (queue.clone(), done.clone());
                std::thread::spawn(move || {
                    while let Some(task) = queue.pop() {
                        done.send(task).unwrap();
                    }
                })
            })
            .collect();
        let mut seen = vec![false; TASKS];
        for n in 0..TASKS {
            queue.push(Turn(n % 3), n);
            // One at a time at first: everybody is asleep again each time. Then in a rush.
            if n < TASKS / 4 || n % 64 == 63 {
                let before = if n < TASKS / 4 { 1 } else { seen[TASKS / 4..=n].iter().filter(|seen| !**seen).count() };
                for _ in 0..before {
                    seen[results.recv_timeout(Duration::from_secs(20)).expect("a task was left behind")] = true;
                }
            }
        }
        while seen.iter().any(|seen| !seen) {
            seen[results.recv_timeout(Duration::from_secs(20)).expect("a task was left behind")] = true;
        }
        queue.close();
        queue.push(ONE, 0);
        takers.into_iter().for_each(|t| t.join().unwrap());
        assert!(queue.pop().is_none() && queue.take(&Some).is_none(), "nothing comes after the end");
    }

    #[test]
    fn it_is_noticed_when_tasks_wait_and_every_thread_is_at_work() {
        let queue = Arc::new(Queue::default());
        let taker = std::thread::spawn({
            let queue = queue.clone();
            move || queue.pop()
        });
        while queue.sleepers.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        queue.push(ONE, 0);
        assert_eq!(taker.join().unwrap(), Some(0));
        assert!(!queue.is_short() && queue.waiting() == 0, "there was somebody for it");
        queue.push(ONE, 1);
        queue.push(ONE, 2);
        assert!(queue.await_shortage() && queue.is_short(), "nobody is left who could come");
        assert_eq!((queue.waiting(), queue.taken()), (2, 1));
        assert!(queue.pop().is_some() && queue.pop().is_some());
        assert!(!queue.is_short());
        let watcher = std::thread::spawn({
            let queue = queue.clone();
            move || queue.await_shortage()
        });
        queue.close();
        assert!(!watcher.join().unwrap() && !queue.rest(Duration::MAX), "nothing is waited for any more");
    }

    #[test]
    fn who_goes_leaves_what_it_has_added_to_somebody_else() {
        let queue = Arc::new(Queue::default());
        let (done, results) = mpsc::channel();
        let stays = std::thread::spawn({
            let queue = queue.clone();
            move || queue.work_while(|| true, || queue.pop(), |task| done.send(task).unwrap())
        });
        while queue.sleepers.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        queue.push_mine(ONE, "a write");
        let goes = AtomicBool::new(false);
        let finish = |task| {
            assert_eq!(task, "a write");
            queue.push_mine(ONE, "its flush");
            goes.store(true, SeqCst);
        };
        queue.work_while(|| !goes.load(SeqCst), || queue.pop(), finish);
        assert_eq!(results.recv_timeout(Duration::from_secs(20)), Ok("its flush"));
        queue.close();
        stays.join().unwrap();
    }

    #[test]
    fn who_adds_without_waking_anybody_finds_it_next() {
        let queue = Queue::default();
        queue.push(ONE, 3);
        let mut seen = Vec::new();
        while let Some(task) = queue.pop() {
            seen.push(task);
            match task {
                0 => queue.close(),
                left => queue.push_mine(ONE, left - 1),
            }
        }
        assert_eq!(seen, [3, 2, 1, 0]);
        queue.push_mine(ONE, 0);
        assert!(queue.pop().is_none() && queue.take(&Some).is_none(), "nothing comes after the end");
    }
}
