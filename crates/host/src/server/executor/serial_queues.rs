//! Serial queues: jobs that exclude each other run one after the other, on one thread at a time.
//!
//! WRITEs to one file exclude each other in the kernel, and so do changes of names in one directory. Threads that
//! execute them side by side spend their time on sleeping and waking. A serial queue only saves time: what must not run
//! at the same time is locked where it runs. Within a queue, too, clients take turns.
//!
//! Invariant: a queue that no thread runs has a task in the schedule for each turn that has jobs in it. So a client
//! never waits for another client's turn, and no job is left behind.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use remora_server::Job;
use remora_wire::nfs3::{Call, Fh};

use super::fair_queue::{FairQueue, Turn};

/// How jobs that exclude each other wait, WRITEs to one file for instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queueing {
    /// In a serial queue: in the order of arrival, on one thread at a time.
    Serial,
    /// Each on a thread of its own, in the file system, where they overtake one another, as the daemons (nfsd) of DRC 89
    /// do. For experiments.
    Daemons,
}

/// A serial queue's key: a hash of the file handle. Two files may share a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SerialKey(pub(super) u64);

impl SerialKey {
    /// The key of the queue that `job` belongs to, if any.
    pub(super) fn of(job: &Job, hasher: &RandomState) -> Option<SerialKey> {
        let fh: &Fh = match job.nfs_call()? {
            Call::Write(args) => &args.fh,
            call => call.changes_names_in()?,
        };
        Some(SerialKey(hasher.hash_one(&fh.0)))
    }
}

/// All serial queues that have jobs or a thread.
#[derive(Debug)]
pub(super) struct SerialQueues<J>(HashMap<SerialKey, SerialQueue<J>>);

#[derive(Debug)]
struct SerialQueue<J> {
    jobs: FairQueue<J>,
    /// Whether a thread runs it.
    is_running: bool,
}

impl<J> Default for SerialQueues<J> {
    fn default() -> SerialQueues<J> {
        SerialQueues(HashMap::new())
    }
}

impl<J> SerialQueues<J> {
    /// Adds a job. Returns whether the queue needs a task in this turn.
    #[must_use]
    pub(super) fn push(&mut self, key: SerialKey, turn: Turn, job: J) -> bool {
        let new = || SerialQueue { jobs: FairQueue::default(), is_running: false };
        let queue = self.0.entry(key).or_insert_with(new);
        queue.jobs.push(turn, job) && !queue.is_running
    }

    /// Starts to run a queue. Returns its first job, or `None` if it is empty or another thread runs it.
    pub(super) fn begin(&mut self, key: SerialKey) -> Option<J> {
        let queue = self.0.get_mut(&key).filter(|queue| !queue.is_running)?;
        queue.is_running = true;
        queue.jobs.pop()
    }

    /// The next job for the thread that runs the queue. `None` ends the run.
    pub(super) fn next(&mut self, key: SerialKey) -> Option<J> {
        let job = self.0.get_mut(&key)?.jobs.pop();
        if job.is_none() {
            self.0.remove(&key);
        }
        job
    }

    /// Ends a run early. Returns the turns in which the queue needs a task.
    #[must_use]
    pub(super) fn leave(&mut self, key: SerialKey) -> Vec<Turn> {
        let Some(queue) = self.0.get_mut(&key) else { return Vec::new() };
        queue.is_running = false;
        let turns: Vec<Turn> = queue.jobs.turns().collect();
        if turns.is_empty() {
            self.0.remove(&key);
        }
        turns
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SerialKey = SerialKey(1);

    #[test]
    fn serial_queue_has_one_thread_and_keeps_its_order() {
        let (mut queues, turn) = (SerialQueues::default(), Turn::test(1));
        assert!(queues.push(KEY, turn, 1), "no thread runs it");
        assert!(!queues.push(KEY, turn, 2), "it has a task in this turn");
        assert_eq!(queues.begin(KEY), Some(1));
        assert!(!queues.push(KEY, turn, 3), "a thread runs it");
        assert!(queues.push(SerialKey(2), turn, 4), "another queue");
        assert_eq!(queues.begin(KEY), None, "one thread at a time");
        assert_eq!([queues.next(KEY), queues.next(KEY), queues.next(KEY)], [Some(2), Some(3), None]);
        assert!(queues.push(KEY, turn, 5), "the run has ended");
    }

    #[test]
    fn left_serial_queue_needs_a_task_in_every_waiting_turn() {
        let (mut queues, [one, two, three]) = (SerialQueues::default(), [1, 2, 3].map(Turn::test));
        assert!(queues.push(KEY, one, 1) && queues.push(KEY, two, 2) && !queues.push(KEY, two, 3));
        assert_eq!(queues.begin(KEY), Some(1));
        assert!(!queues.push(KEY, three, 4), "a thread runs it");
        assert_eq!(queues.leave(KEY), [two, three]);
        assert_eq!(
            [queues.begin(KEY), queues.next(KEY), queues.next(KEY)],
            [Some(2), Some(4), Some(3)],
            "turns alternate"
        );
        assert!(queues.leave(KEY).is_empty() && queues.is_empty());
    }
}
