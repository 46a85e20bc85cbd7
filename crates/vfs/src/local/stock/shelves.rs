//! What is asked for, what is there, and whether it pays to make more of it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::ids::Key;
use crate::Cred;

/// Files of a kind are made ahead while so much of
const MAKING: Duration = Duration::from_millis(5);
/// a time like this goes, or would go, into making those that are asked for. Who asks for one after the other
/// and waits for each would gain little, and lose by waking the keeper.
const MOMENT: Duration = Duration::from_millis(20);
/// Files made ahead of each kind, and how many are left when the keeper is told.
const LEVEL: usize = 48;
const LOW: usize = 32;
/// Kinds at a time.
const SHELVES: usize = 8;
/// For how long one is good.
pub(super) const STALE: Duration = Duration::from_secs(1);
/// How long it takes to give one its name, before that is known.
const NAMING: Duration = Duration::from_micros(10);

/// What a file has of where, by whom and how it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Pattern {
    pub(in super::super) dir: Key,
    /// The directory's group, if it hands it down.
    pub(in super::super) group: Option<u32>,
    /// As whom the server acts.
    pub(in super::super) cred: Cred,
    pub(in super::super) mode: u32,
}

/// Files (`T`) that have no names yet.
pub(super) struct Shelves<T> {
    shelves: Vec<Shelf<T>>,
    costs: Costs,
}

/// Those of one kind.
pub(super) struct Shelf<T> {
    pattern: Pattern,
    dir: Arc<OwnedFd>,
    /// Asked for so often since then.
    asked: u32,
    since: Instant,
    /// More are made until then.
    until: Option<Instant>,
    /// With when they were made.
    made: VecDeque<(Instant, T)>,
}

/// What there is to do for the keeper.
pub(super) enum Order<T> {
    /// Make one like this in there.
    Make(Pattern, Arc<OwnedFd>),
    /// These will get no name any more.
    PutAway(Vec<T>),
}

/// How long it takes to make a file, and to give one its name: of late.
#[derive(Debug)]
struct Costs {
    making: Duration,
    naming: Duration,
}

impl Costs {
    /// Whether those who wait are better off with files that were made ahead.
    fn pays(&self) -> bool {
        self.making > 2 * self.naming
    }
}

/// Takes `sample` into account. One that is far longer says little: the processor was somebody else's.
fn learn(usual: &mut Duration, sample: Duration) {
    let sample = sample.min(2 * *usual + Duration::from_micros(1));
    *usual = (*usual * 15 + sample) / 16;
}

impl<T> Default for Shelves<T> {
    fn default() -> Shelves<T> {
        Shelves { shelves: Vec::new(), costs: Costs { making: Duration::ZERO, naming: NAMING } }
    }
}

impl<T> Shelf<T> {
    /// One more is asked for, which takes so long to make.
    fn ask(&mut self, now: Instant, making: Duration) {
        if now.saturating_duration_since(self.since) > MOMENT {
            (self.asked, self.since) = (0, now);
        }
        self.asked += 1;
        if self.asked * making >= MAKING {
            self.until = Some(now + MOMENT);
        }
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now <= until)
    }
}

impl<T> Shelves<T> {
    /// Whether it pays to ask.
    pub(super) fn are_in_use(&self) -> bool {
        self.costs.pays() || !self.is_empty()
    }

    /// Asks for a file in `dir`, and whether the keeper is to be told.
    pub(super) fn take(&mut self, now: Instant, pattern: &Pattern, dir: &Arc<OwnedFd>) -> (Option<T>, bool) {
        let (pays, making) = (self.costs.pays(), self.costs.making);
        let shelf = self.shelf(now, pattern, dir);
        shelf.ask(now, making);
        let low = shelf.made.len() <= LOW && shelf.is_busy(now);
        let fresh = |made: &(Instant, T)| now.saturating_duration_since(made.0) < STALE;
        let made = if shelf.made.front().is_some_and(fresh) { shelf.made.pop_front() } else { None };
        (made.map(|(_, file)| file), pays && low)
    }

    /// The shelf for these; if there are too many one that was not asked for anything for long makes way.
    fn shelf(&mut self, now: Instant, pattern: &Pattern, dir: &Arc<OwnedFd>) -> &mut Shelf<T> {
        let at = self.shelves.iter().position(|shelf| shelf.pattern == *pattern).unwrap_or_else(|| {
            if self.shelves.len() >= SHELVES
                && let Some(oldest) = (0..self.shelves.len()).min_by_key(|n| self.shelves[*n].since)
            {
                self.shelves.swap_remove(oldest);
            }
            let (pattern, dir) = (pattern.clone(), dir.clone());
            self.shelves.push(Shelf { pattern, dir, asked: 0, since: now, until: None, made: VecDeque::new() });
            self.shelves.len() - 1
        });
        &mut self.shelves[at]
    }

    /// Adds one; it comes back if nobody asks for its kind.
    pub(super) fn put(&mut self, now: Instant, pattern: &Pattern, file: T) -> Option<T> {
        match self.shelves.iter_mut().find(|shelf| shelf.pattern == *pattern) {
            Some(shelf) => {
                shelf.made.push_back((now, file));
                None
            }
            None => Some(file),
        }
    }

    /// One was made, in so long.
    pub(super) fn made(&mut self, took: Duration) {
        learn(&mut self.costs.making, took);
    }

    /// One got its name, in so long.
    pub(super) fn named(&mut self, took: Duration) {
        learn(&mut self.costs.naming, took);
    }

    /// Such files cannot be made now.
    pub(super) fn give_up(&mut self, pattern: &Pattern) {
        for shelf in self.shelves.iter_mut().filter(|shelf| shelf.pattern == *pattern) {
            (shelf.until, shelf.asked) = (None, 0);
        }
    }

    /// What the keeper is to do next.
    pub(super) fn next_order(&mut self, now: Instant) -> Option<Order<T>> {
        let short = |shelf: &&Shelf<T>| shelf.is_busy(now) && shelf.made.len() < LEVEL;
        if self.costs.pays()
            && let Some(shelf) = self.shelves.iter().find(short)
        {
            return Some(Order::Make(shelf.pattern.clone(), shelf.dir.clone()));
        }
        let mut stale = Vec::new();
        for shelf in &mut self.shelves {
            let fresh = shelf.made.partition_point(|(since, _)| now.saturating_duration_since(*since) >= STALE);
            stale.extend(shelf.made.drain(..fresh).map(|(_, file)| file));
        }
        (!stale.is_empty()).then_some(Order::PutAway(stale))
    }

    /// Nothing is to be made in that directory any more; what was.
    pub(super) fn remove(&mut self, dir: Key) -> Vec<T> {
        let gone = self.shelves.extract_if(.., |shelf| shelf.pattern.dir == dir);
        gone.flat_map(|shelf| shelf.made).map(|(_, file)| file).collect()
    }

    /// Nothing will be made in directories that are no more, as their `links` tell. Their shelves, to be closed.
    pub(super) fn take_removed(&mut self, links: impl Fn(&OwnedFd) -> rustix::io::Result<u32>) -> Vec<Shelf<T>> {
        let is_gone = |shelf: &mut Shelf<T>| links(&shelf.dir) == Ok(0);
        self.shelves.extract_if(.., is_gone).collect()
    }

    /// Takes all.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.shelves.drain(..).flat_map(|shelf| shelf.made).map(|(_, file)| file).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.made.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shelves.iter().all(|shelf| shelf.made.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// Asked for at once, they are many where making one takes 40 us or more.
    const MANY: usize = 130;

    fn pattern(dir: u64) -> Pattern {
        let cred = Cred { uid: 1, gid: 2, gids: vec![3] };
        Pattern { dir: Key { ino: dir, born_ns: 0 }, group: None, cred, mode: 0o644 }
    }

    struct Test {
        shelves: Shelves<u32>,
        dir: Arc<OwnedFd>,
        now: Instant,
    }

    impl Test {
        /// Where making a file takes as long as this.
        fn new(making: Duration) -> Test {
            let mut shelves = Shelves::default();
            (0..200).for_each(|_| shelves.made(making));
            Test { shelves, dir: Arc::new(std::fs::File::open("/").unwrap().into()), now: Instant::now() }
        }

        fn take(&mut self, pattern: &Pattern) -> (Option<u32>, bool) {
            self.shelves.take(self.now, pattern, &self.dir)
        }

        /// Asks for many; whether the keeper was told.
        fn take_many(&mut self, pattern: &Pattern) -> bool {
            (0..MANY).fold(false, |told, _| self.take(pattern).1 || told)
        }

        /// Does what there is to do; how many were made, and put away.
        fn keep(&mut self) -> (usize, usize) {
            let (mut made, mut away) = (0, 0);
            while let Some(order) = self.shelves.next_order(self.now) {
                match order {
                    Order::Make(pattern, _) => {
                        made += 1;
                        assert_eq!(self.shelves.put(self.now, &pattern, made as u32), None);
                    }
                    Order::PutAway(files) => away += files.len(),
                }
                assert!(made <= SHELVES * LEVEL);
            }
            (made, away)
        }
    }

    #[test]
    fn files_are_made_ahead_while_many_are_asked_for_and_making_one_takes_long() {
        for (making, pays) in [(8, false), (2 * 10, false), (40, true)] {
            let mut t = Test::new(Duration::from_micros(making));
            assert_eq!(t.take_many(&pattern(1)), pays, "{making} us");
            assert_eq!(t.keep(), (if pays { LEVEL } else { 0 }, 0), "{making} us");
        }
        let mut t = Test::new(MS);
        for _ in 0..10 * MANY {
            assert_eq!(t.take(&pattern(1)), (None, false), "one after the other is not many");
            t.now += 6 * MS;
        }
        assert!(t.take_many(&pattern(1)));
        assert_eq!(t.keep(), (LEVEL, 0));
        assert_eq!(t.take(&pattern(1)), (Some(1), false), "the oldest, and there are enough");
        assert_eq!(t.take(&pattern(2)).0, None, "that is another kind");
        for _ in 1..LEVEL - LOW {
            t.take(&pattern(1));
        }
        assert!(t.take(&pattern(1)).1, "few are left");
        assert_eq!(t.keep().0 + LOW, LEVEL + 1);
        t.now += 2 * MOMENT;
        assert_eq!(t.take(&pattern(1)), (Some(18), false), "what is there is taken");
        assert_eq!(t.keep().0, 0, "and nothing more is made");
        // Naming has become as slow as making.
        (0..200).for_each(|_| t.shelves.named(MS));
        assert!(!t.take_many(&pattern(1)));
        assert_eq!(t.keep().0, 0);
    }

    #[test]
    fn what_nobody_takes_is_put_away_and_never_given_out() {
        let mut t = Test::new(MS);
        t.take_many(&pattern(1));
        assert_eq!(t.keep(), (LEVEL, 0));
        t.now += STALE;
        assert_eq!(t.take(&pattern(1)).0, None);
        assert_eq!(t.keep(), (0, LEVEL));
        assert!(t.shelves.is_empty());
    }

    #[test]
    fn what_cannot_be_made_is_not_tried_again_at_once() {
        let mut t = Test::new(MS);
        t.take_many(&pattern(1));
        assert!(matches!(t.shelves.next_order(t.now), Some(Order::Make(..))));
        t.shelves.give_up(&pattern(1));
        assert!(t.shelves.next_order(t.now).is_none() && !t.take(&pattern(1)).1);
        assert!(t.take_many(&pattern(1)));
    }

    #[test]
    fn kinds_are_few_and_go_with_their_directory() {
        let mut t = Test::new(MS);
        for dir in 0..2 * SHELVES as u64 {
            t.now += Duration::from_micros(1);
            t.take_many(&pattern(dir));
            t.keep();
        }
        assert_eq!((t.shelves.shelves.len(), t.shelves.len()), (SHELVES, SHELVES * LEVEL));
        let last = pattern(2 * SHELVES as u64 - 1);
        assert_eq!(t.shelves.remove(last.dir).len(), LEVEL);
        assert_eq!(t.shelves.put(t.now, &last, 7), Some(7), "nobody asks for it");
        assert_eq!(t.shelves.clear().len(), (SHELVES - 1) * LEVEL);
        assert!(t.shelves.is_empty() && t.shelves.next_order(t.now).is_none());
    }

    #[test]
    fn nothing_is_kept_of_a_directory_that_somebody_else_removed() {
        let mut t = Test::new(MS);
        t.take_many(&pattern(1));
        t.keep();
        assert!(t.shelves.take_removed(|_| Err(rustix::io::Errno::IO)).is_empty());
        drop(t.shelves.take_removed(|_| Ok(0)));
        assert_eq!(Arc::strong_count(&t.dir), 1);
        assert!(t.shelves.is_empty());
    }

    #[test]
    fn one_hold_up_is_not_what_it_usually_takes() {
        let mut t = Test::new(Duration::from_micros(8));
        t.shelves.made(Duration::from_secs(1));
        assert!(!t.shelves.costs.pays());
        (0..60).for_each(|_| t.shelves.made(Duration::from_micros(50)));
        assert!(t.shelves.costs.pays(), "that goes on");
    }
}
