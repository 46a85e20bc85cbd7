//! Decides what an executor thread does next. A state machine without locks, threads and clocks.

use remora_vfs::FlushKey;

use super::fair_queue::{FairQueue, Turn};
use super::group_commit::GroupCommit;
use super::serial_queues::{SerialKey, SerialQueues};

/// Jobs (`J`), and jobs that wait for flushes (`P`). It holds at most as many as the core has in flight.
#[derive(Debug)]
pub(super) struct Schedule<J, P> {
    tasks: FairQueue<Task<J>>,
    serial: SerialQueues<J>,
    pub(super) groups: GroupCommit<P>,
}

#[derive(Debug)]
enum Task<J> {
    Job(J),
    /// Run this queue, unless it is empty or runs.
    Serial(SerialKey),
    /// Flush, unless no job waits for it or it runs.
    Flush(FlushKey),
}

/// What a thread has to do.
#[derive(Debug)]
pub(super) enum Assignment<J> {
    Job(J),
    /// Run the jobs of this queue, beginning with `first`.
    Serial {
        key: SerialKey,
        first: J,
    },
    Flush(FlushKey),
}

impl<J, P> Default for Schedule<J, P> {
    fn default() -> Schedule<J, P> {
        Schedule { tasks: FairQueue::default(), serial: SerialQueues::default(), groups: GroupCommit::default() }
    }
}

impl<J, P> Schedule<J, P> {
    /// Adds a job, to this serial queue if any.
    pub(super) fn push(&mut self, turn: Turn, key: Option<SerialKey>, job: J) {
        match key {
            None => _ = self.tasks.push(turn, Task::Job(job)),
            Some(key) if self.serial.push(key, turn, job) => _ = self.tasks.push(turn, Task::Serial(key)),
            Some(_) => {}
        }
    }

    /// Assigns the oldest task of the next turn.
    pub(super) fn assign(&mut self) -> Option<Assignment<J>> {
        let Schedule { tasks, serial, groups } = self;
        tasks.pop_map(|task| match task {
            Task::Job(job) => Some(Assignment::Job(job)),
            Task::Serial(key) => serial.begin(key).map(|first| Assignment::Serial { key, first }),
            Task::Flush(key) => groups.begin(key).then_some(Assignment::Flush(key)),
        })
    }

    /// The next job for the thread that runs the queue; `None` ends the run.
    pub(super) fn next_serial(&mut self, key: SerialKey) -> Option<J> {
        self.serial.next(key)
    }

    /// Ends the run of a serial queue before it is empty.
    pub(super) fn leave_serial(&mut self, key: SerialKey) {
        self.serial.leave(key).into_iter().for_each(|turn| _ = self.tasks.push(turn, Task::Serial(key)));
    }

    /// Adds a job that waits for a flush.
    pub(super) fn park(&mut self, turn: Turn, key: FlushKey, job: P) {
        if self.groups.join(key, turn, job) {
            self.tasks.push(turn, Task::Flush(key));
        }
    }

    pub(super) fn end_flush(&mut self, key: FlushKey) {
        self.groups.end(key).into_iter().for_each(|turn| _ = self.tasks.push(turn, Task::Flush(key)));
    }

    pub(super) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The number of tasks that wait for a thread.
    pub(super) fn waiting(&self) -> usize {
        self.tasks.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct TestJob {
        turn: u8,
        key: Option<u64>,
        flush: Option<u8>,
        /// When the job was added, and later when its change was made.
        time: usize,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { turn: u8, key: Option<u64>, flush: Option<u8> },
        Assign,
        Advance { thread: usize },
        Leave { thread: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        use proptest::option::of;
        prop_oneof![
            3 => (0u8..4, of(0u64..3), of(0u8..3)).prop_map(|(turn, key, flush)| Step::Push { turn, key, flush }),
            3 => Just(Step::Assign),
            3 => any::<usize>().prop_map(|thread| Step::Advance { thread }),
            1 => any::<usize>().prop_map(|thread| Step::Leave { thread }),
        ]
    }

    /// A thread's work, in the middle.
    #[derive(Debug)]
    enum Thread {
        Serial(SerialKey),
        /// A flush that has not begun, or began at this time for these jobs.
        Flush(FlushKey, Option<(usize, Vec<TestJob>)>),
    }

    /// Threads that take, continue and leave work in any order.
    #[derive(Default)]
    struct Model {
        schedule: Schedule<TestJob, TestJob>,
        now: usize,
        threads: Vec<Thread>,
        pushed: usize,
        answered: usize,
        /// The last job that started, by queue and turn.
        started: std::collections::BTreeMap<(u64, u8), usize>,
    }

    impl Model {
        fn apply(&mut self, step: &Step) {
            self.now += 1;
            match *step {
                Step::Push { turn, key, flush } => {
                    self.pushed += 1;
                    let job = TestJob { turn, key, flush, time: self.now };
                    self.schedule.push(Turn::test(turn), key.map(SerialKey), job);
                }
                Step::Assign => match self.schedule.assign() {
                    None => {}
                    Some(Assignment::Job(job)) => self.run(job),
                    Some(Assignment::Serial { key, first }) => {
                        let is_same = |t: &Thread| matches!(t, Thread::Serial(k) if *k == key);
                        assert!(!self.threads.iter().any(is_same), "two threads run {key:?}");
                        self.threads.push(Thread::Serial(key));
                        self.run(first);
                    }
                    Some(Assignment::Flush(key)) => {
                        let is_same = |t: &Thread| matches!(t, Thread::Flush(k, _) if *k == key);
                        assert!(!self.threads.iter().any(is_same), "two flushes of {key:?}");
                        assert!(self.schedule.groups.first(key).is_some(), "no job waits for {key:?}");
                        self.threads.push(Thread::Flush(key, None));
                    }
                },
                Step::Advance { thread } if !self.threads.is_empty() => {
                    let thread = self.threads.swap_remove(thread % self.threads.len());
                    self.advance(thread);
                }
                Step::Leave { thread } if !self.threads.is_empty() => {
                    let thread = thread % self.threads.len();
                    if let Thread::Serial(key) = self.threads[thread] {
                        self.threads.swap_remove(thread);
                        self.schedule.leave_serial(key);
                    }
                }
                Step::Advance { .. } | Step::Leave { .. } => {}
            }
        }

        fn advance(&mut self, thread: Thread) {
            match thread {
                Thread::Serial(key) => {
                    if let Some(job) = self.schedule.next_serial(key) {
                        self.threads.push(Thread::Serial(key));
                        self.run(job);
                    }
                }
                Thread::Flush(key, None) => {
                    let jobs = self.schedule.groups.take(key);
                    self.threads.push(Thread::Flush(key, Some((self.now, jobs))));
                }
                Thread::Flush(key, Some((began, jobs))) => {
                    assert!(
                        jobs.iter().all(|job| job.time < began),
                        "{jobs:?} changed after the flush began at {began}"
                    );
                    self.answered += jobs.len();
                    self.schedule.end_flush(key);
                }
            }
        }

        fn run(&mut self, job: TestJob) {
            if let Some(key) = job.key {
                let last = self.started.insert((key, job.turn), job.time);
                assert!(last < Some(job.time), "{job:?} overtook an older job of its client");
            }
            match job.flush {
                None => self.answered += 1,
                Some(object) => {
                    let key = FlushKey { disk: 1, object: object.into(), depth: 0 };
                    self.schedule.park(Turn::test(job.turn), key, TestJob { time: self.now, ..job });
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_job_is_answered_in_order_and_after_its_flush(steps in proptest::collection::vec(step(), 0..300)) {
            let mut model = Model::default();
            steps.iter().for_each(|step| model.apply(step));
            while model.schedule.has_tasks() || !model.threads.is_empty() {
                model.apply(&Step::Assign);
                model.apply(&Step::Advance { thread: 0 });
            }
            prop_assert_eq!(model.answered, model.pushed);
            prop_assert!(model.schedule.serial.is_empty() && model.schedule.groups.is_empty(), "nothing is kept");
        }
    }
}
