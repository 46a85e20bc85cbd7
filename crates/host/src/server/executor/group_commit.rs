//! Group commit: jobs whose changes wait for the same flush share it.
//!
//! A flush makes every change durable that was made before it began. Jobs that arrive during a flush wait for the next
//! one, which starts when the first has ended. So one flush of an object runs at a time, and under load each serves all
//! jobs that arrived during the one before.
//!
//! Clients that get their replies together come back together, but not in the same instant. Where a flush is expensive,
//! it therefore waits briefly for as many jobs as shared the last one (as ext4's journal does). A lone client waits for
//! nobody.
//!
//! Invariant: a group that no thread flushes has a task in the schedule for each turn that has jobs in it.

use std::collections::HashMap;

use remora_vfs::FlushKey;

use super::fair_queue::Turn;

/// Objects whose last group's size is remembered.
const REMEMBERED: usize = 32;

/// Jobs by the flush that they wait for.
#[derive(Debug)]
pub(super) struct GroupCommit<P> {
    groups: HashMap<FlushKey, Group<P>>,
    /// The last flush of each slot, and how many jobs shared it.
    last: [Option<(FlushKey, usize)>; REMEMBERED],
}

#[derive(Debug)]
struct Group<P> {
    waiting: Vec<(Turn, P)>,
    /// Whether a thread flushes, or waits for jobs to join.
    is_running: bool,
}

impl<P> Default for GroupCommit<P> {
    fn default() -> GroupCommit<P> {
        GroupCommit { groups: HashMap::new(), last: [None; REMEMBERED] }
    }
}

impl<P> GroupCommit<P> {
    /// Adds a job whose change is made. Returns whether the flush needs a task in this turn.
    #[must_use]
    pub(super) fn join(&mut self, key: FlushKey, turn: Turn, job: P) -> bool {
        let new = || Group { waiting: Vec::new(), is_running: false };
        let group = self.groups.entry(key).or_insert_with(new);
        let is_first = group.waiting.iter().all(|(other, _)| *other != turn);
        group.waiting.push((turn, job));
        is_first && !group.is_running
    }

    /// Starts a flush. Returns whether the caller has to do it: jobs wait for it and no other thread does it.
    #[must_use]
    pub(super) fn begin(&mut self, key: FlushKey) -> bool {
        let group = self.groups.get_mut(&key).filter(|group| !group.is_running);
        group.map(|group| group.is_running = true).is_some()
    }

    /// The first job that waits for this flush.
    pub(super) fn first(&self, key: FlushKey) -> Option<&P> {
        Some(&self.groups.get(&key)?.waiting.first()?.1)
    }

    /// Whether fewer jobs wait than shared the last flush.
    pub(super) fn is_incomplete(&self, key: FlushKey) -> bool {
        let expected = self.last[slot(key)].filter(|(of, _)| *of == key).map_or(0, |(_, shared)| shared);
        self.groups.get(&key).is_some_and(|group| group.waiting.len() < expected)
    }

    /// Removes and returns the jobs that share the flush, which the caller does now.
    #[must_use]
    pub(super) fn take(&mut self, key: FlushKey) -> Vec<P> {
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        let jobs: Vec<P> = std::mem::take(&mut group.waiting).into_iter().map(|(_, job)| job).collect();
        self.last[slot(key)] = Some((key, jobs.len()));
        jobs
    }

    /// Ends a flush. Returns the turns in which the next one needs a task.
    #[must_use]
    pub(super) fn end(&mut self, key: FlushKey) -> Vec<Turn> {
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        group.is_running = false;
        let mut turns: Vec<Turn> = group.waiting.iter().map(|(turn, _)| *turn).collect();
        if turns.is_empty() {
            self.groups.remove(&key);
        }
        turns.sort_unstable();
        turns.dedup();
        turns
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

fn slot(key: FlushKey) -> usize {
    let object = key.object ^ (key.object >> 64) ^ u128::from(key.disk);
    (object % REMEMBERED as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(object: u128) -> FlushKey {
        FlushKey { disk: 1, object, depth: 0 }
    }

    #[test]
    fn jobs_that_arrive_during_a_flush_share_the_next() {
        let (mut g, [one, two]) = (GroupCommit::default(), [1, 2].map(Turn::test));
        assert!(g.join(key(1), one, "a") && g.begin(key(1)));
        assert_eq!(g.take(key(1)), ["a"]);
        assert!(!g.join(key(1), two, "b") && !g.join(key(1), one, "c"), "a flush runs");
        assert!(g.join(key(2), one, "other"), "another object");
        assert!(!g.begin(key(1)), "one flush at a time");
        assert_eq!(g.end(key(1)), [one, two]);
        assert!(!g.join(key(1), one, "d"), "it has a task in this turn");
        assert!(g.begin(key(1)));
        assert_eq!(g.take(key(1)), ["b", "c", "d"]);
        assert!(g.end(key(1)).is_empty() && !g.begin(key(1)), "no job waits");
    }

    #[test]
    fn flush_expects_as_many_jobs_as_shared_the_last() {
        let (mut g, turn) = (GroupCommit::default(), Turn::test(1));
        let mut flush = |jobs: &[u8]| {
            jobs.iter().for_each(|job| _ = g.join(key(1), turn, *job));
            assert!(g.begin(key(1)));
            let is_incomplete = g.is_incomplete(key(1));
            assert_eq!(g.take(key(1)), jobs);
            assert!(g.end(key(1)).is_empty());
            is_incomplete
        };
        assert!(!flush(&[1, 2]), "nothing is known yet");
        assert!(flush(&[3]));
        assert!(!flush(&[4]), "the last job was alone");
        assert!(!flush(&[5, 6]));
        assert!(!flush(&[7, 8]), "all are there");
    }
}
