//! The threads that wait for disks.
//!
//! Clients take [turns](super::queue::Turn), whatever each of them asks for.
//!
//! A job that would only wait for others of its [lane](super::lanes) is worked off behind them
//! by the thread that has that lane, and their replies go out together.
//!
//! A job that owes a flush gives its thread back: it is parked with the others that wait for
//! the same flush ([`Gathering`]). The flush goes to the end of the line like any job of each client
//! for whom it is asked for, so what was waiting then has a chance to share it, and with an empty
//! queue it begins at once. The changes of a lane are parked some at a time, as long as there are more:
//! while one lot is flushed the next one is made.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use remora_server::{Answer, Execute, Job, Started, Ticket, Unflushed};
use remora_vfs::local::Devoted;
use remora_vfs::{Flush, FlushKey};
use remora_wire::nfs3::Status;

use super::admission::Permit;
use super::crew::Crew;
use super::gathering::Gathering;
use super::hub::Hub;
use super::lanes::{Lane, Lanes};
use super::options::Queueing;
use super::queue::{Queue, Turn};

/// Most answers of a lane's jobs that wait for one another, and for how long.
const ANSWERS_MAX: usize = 8;
const ANSWERS_FOR: Duration = Duration::from_micros(100);
/// The same for changes that are to share a flush: one costs about as much as ten changes do.
const CHANGES_MAX: usize = 16;
const CHANGES_FOR: Duration = Duration::from_micros(500);
/// The same where it costs more, and how long it then waits for those who shared the last one: two or
/// three times what it takes where a flush is quick, and nothing to speak of elsewhere.
const DEAR_CHANGES_MAX: usize = 64;
const DEAR_CHANGES_FOR: Duration = Duration::from_millis(1);
const COMPANY_FOR: Duration = Duration::from_micros(400);
/// How long a thread without work stays its last caller. By Linux's rules whoever is that user on this machine may
/// have a say in the thread's scheduling for that long.
const STAYS_CALLER_FOR: Duration = Duration::from_millis(50);
/// Most jobs of a lane before others have their turn.
const TURN_MAX: usize = 64;

/// A job, and the permit it is done under.
pub(super) struct Work {
    /// Whose core it came from.
    pub(super) shard: usize,
    pub(super) execute: Execute,
    pub(super) permit: Option<Permit>,
}

/// A job, and whose turn it is taken in.
pub(super) struct Waiting {
    turn: Turn,
    work: Work,
}

/// Something for a thread to do.
#[expect(clippy::large_enum_variant, reason = "there are few of the others; a box for each job would cost more")]
pub(super) enum Task {
    /// A job.
    Execute(Waiting),
    /// The jobs of a lane, if nobody does them: one for each turn in which it was asked for.
    Lane(Turn, Lane),
    /// A flush, for all that wait for it, likewise.
    Flush(Turn, FlushKey),
}

/// What a thread has to do for a task.
enum Begun {
    /// A job.
    Execute(Waiting),
    /// The jobs of a lane, this one first.
    Lane(Lane, Waiting),
    /// A flush.
    Flush(FlushKey),
}

/// A job that is done.
pub(super) struct Done {
    pub(super) shard: usize,
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    pub(super) permit: Option<Permit>,
}

/// A job that waits for a flush.
struct Parked {
    turn: Turn,
    shard: usize,
    ticket: Ticket,
    unflushed: Unflushed,
    permit: Option<Permit>,
}

/// Jobs waiting for a thread, for others of their lane or for a flush. There are never more
/// than the core has in flight (`in_flight_max`), so it needs no bound of its own.
pub(super) struct JobQueue {
    queueing: Queueing,
    tasks: Queue<Task>,
    lanes: Lanes<Waiting>,
    parked: Gathering<Parked>,
}

impl JobQueue {
    pub(super) fn new(queueing: Queueing) -> JobQueue {
        JobQueue { queueing, tasks: Queue::default(), lanes: Lanes::default(), parked: Gathering::default() }
    }

    /// Adds jobs; after [`close`](JobQueue::close) they are dropped. A thread is woken when all are
    /// there: it would take the first for all there is, and take the processor from who adds the rest.
    pub(super) fn push(&self, jobs: Vec<Work>) {
        let tasks = jobs.into_iter().filter_map(|work| {
            let job = &work.execute.job;
            let turn = if job.is_validated() { self.tasks.turn_of(job.peer().addr) } else { Turn::FORGEABLE };
            let Some(lane) = self.lane_of(&work.execute.job) else {
                return Some((turn, Task::Execute(Waiting { turn, work })));
            };
            self.lanes.join(lane, turn, Waiting { turn, work }).then_some((turn, Task::Lane(turn, lane)))
        });
        self.tasks.push_all(tasks);
    }

    fn lane_of(&self, job: &Job) -> Option<Lane> {
        match self.queueing {
            Queueing::Lanes => self.lanes.of(job),
            Queueing::Daemons => None,
        }
    }

    /// What is to be done for a task; `None` if others do it, or have done it.
    fn begin(&self, task: Task) -> Option<Begun> {
        match task {
            Task::Execute(job) => Some(Begun::Execute(job)),
            Task::Lane(turn, lane) => self.lanes.begin(lane, turn).map(|first| Begun::Lane(lane, first)),
            Task::Flush(turn, key) => self.parked.begin(key, turn).then_some(Begun::Flush(key)),
        }
    }

    /// See [`Queue::pop_within`].
    fn next_within(&self, patience: Duration) -> Option<Begun> {
        self.tasks.pop_within(patience, |task| self.begin(task))
    }

    /// What waits for a thread.
    pub(super) fn tasks(&self) -> &Queue<Task> {
        &self.tasks
    }

    /// Drops what waits and sends the threads home.
    pub(super) fn close(&self) {
        self.tasks.close();
        self.lanes.clear();
        self.parked.clear();
    }

    /// Parks a job; the flush that must be asked for, if it has not been in its turn.
    fn park(&self, job: Parked) -> Option<(Turn, FlushKey)> {
        let (turn, key) = (job.turn, job.unflushed.flush().key());
        self.parked.join(key, turn, job).then_some((turn, key))
    }
}

/// Starts `n` threads (at least one), of this crew.
pub(super) fn start(hub: &Arc<Hub>, crew: &Arc<Crew>, n: usize) -> io::Result<Vec<JoinHandle<()>>> {
    let spawn = |i| {
        let (hub, crew) = (hub.clone(), crew.clone());
        let work = move || work_while(&hub, &crew, Duration::MAX, || true);
        std::thread::Builder::new().name(format!("disk-{i}")).spawn(work)
    };
    (0..n.max(1)).map(spawn).collect()
}

/// Does what there is to do, and what comes, until nothing has come for so long, or the thread is not to stay.
pub(super) fn work_while(hub: &Hub, crew: &Crew, patience: Duration, may_stay: impl Fn() -> bool) {
    let _counted = crew.join();
    let devoted = Devoted::begin();
    let next = || {
        hub.jobs.next_within(STAYS_CALLER_FOR).or_else(|| {
            devoted.rest();
            hub.jobs.next_within(patience)
        })
    };
    hub.jobs.tasks.work_while(may_stay, next, |begun| finish(hub, begun));
}

fn finish(hub: &Hub, begun: Begun) {
    match begun {
        Begun::Execute(job) => {
            let mut batch = Batch::default();
            run(hub, job, &mut batch);
            batch.finish(hub);
        }
        Begun::Lane(lane, first) => work_off(hub, lane, first),
        Begun::Flush(key) => flush(hub, key),
    }
}

/// What has come of some jobs.
#[derive(Default)]
struct Batch {
    done: Vec<Done>,
    /// They wait for flushes, which may not begin before all of them can share them.
    unflushed: Vec<Parked>,
}

impl Batch {
    fn add(&mut self, started: Started, (turn, shard, ticket, permit): (Turn, usize, Ticket, Option<Permit>)) {
        match started {
            Started::Done(answer) => self.done.push(Done { shard, ticket, answer, permit }),
            Started::Unflushed(unflushed) => self.unflushed.push(Parked { turn, shard, ticket, unflushed, permit }),
        }
    }

    /// Whether what has been gathered for `waited` should wait no longer.
    fn is_due(&self, waited: Duration) -> bool {
        let dear = self.unflushed.first().is_some_and(|job| job.unflushed.flush().is_dear());
        is_due(self.done.len(), self.unflushed.len(), dear, waited)
    }

    /// Hands everything on, from a thread that has more to do.
    fn release(&mut self, hub: &Hub) {
        for (turn, key) in self.park(hub) {
            hub.jobs.tasks.push(turn, Task::Flush(turn, key));
        }
        self.complete(hub);
    }

    /// Hands everything on, from a thread that takes what is next: a flush, for instance.
    fn finish(mut self, hub: &Hub) {
        let flushes = self.park(hub);
        self.complete(hub);
        for (turn, key) in flushes {
            hub.jobs.tasks.push_mine(turn, Task::Flush(turn, key));
        }
    }

    /// Parks what waits for flushes; those that must be asked for.
    fn park(&mut self, hub: &Hub) -> Vec<(Turn, FlushKey)> {
        self.unflushed.drain(..).filter_map(|job| hub.jobs.park(job)).collect()
    }

    fn complete(&mut self, hub: &Hub) {
        if !self.done.is_empty() {
            hub.complete(self.done.drain(..));
        }
    }
}

fn run(hub: &Hub, Waiting { turn, work }: Waiting, batch: &mut Batch) {
    let Work { shard, execute: Execute { ticket, job }, permit } = work;
    // A job shares nothing that is written to but the file system, which has its own locks; a
    // panic in one request is one request's failure.
    let started = catch_unwind(AssertUnwindSafe(|| job.start())).unwrap_or_else(|_| {
        hub.counters.job_panics.count();
        Started::Done(job.abandon())
    });
    batch.add(started, (turn, shard, ticket, permit));
}

/// Does the jobs of a lane, from the `first` on, until there are no more or it is others' turn.
fn work_off(hub: &Hub, lane: Lane, first: Waiting) {
    let mut batch = Batch::default();
    let mut since = hub.clock.now();
    run(hub, first, &mut batch);
    for _ in 1..TURN_MAX {
        let Some(job) = hub.jobs.lanes.next(lane) else { return batch.finish(hub) };
        let now = hub.clock.now();
        // Only now: what nothing follows is this thread's own to flush.
        if batch.is_due(now.since(since)) {
            batch.release(hub);
            since = now;
        }
        run(hub, job, &mut batch);
    }
    batch.finish(hub);
    for turn in hub.jobs.lanes.leave(lane).iter() {
        hub.jobs.tasks.push_mine(turn, Task::Lane(turn, lane));
    }
}

/// Whether so many answers and changes, gathered for `waited`, should wait no longer; `dear`: so is the
/// flush that the changes wait for.
fn is_due(answers: usize, changes: usize, dear: bool, waited: Duration) -> bool {
    let answers_due = answers >= ANSWERS_MAX || (answers > 0 && waited >= ANSWERS_FOR);
    let (most, longest) = if dear { (DEAR_CHANGES_MAX, DEAR_CHANGES_FOR) } else { (CHANGES_MAX, CHANGES_FOR) };
    answers_due || changes >= most || waited >= longest
}

/// Does a flush that has begun, for all that have gathered by now.
fn flush(hub: &Hub, key: FlushKey) {
    let jobs =
        hub.jobs.parked.gather(key, |job| if job.unflushed.flush().is_dear() { COMPANY_FOR } else { Duration::ZERO });
    let result = jobs.split_first().map_or(Ok(()), |(first, others)| {
        let others: Vec<&Flush> = others.iter().map(|job| job.unflushed.flush()).collect();
        let flush = || first.unflushed.flush().run(&others);
        catch_unwind(AssertUnwindSafe(flush)).unwrap_or_else(|_| {
            hub.counters.job_panics.count();
            Err(Status::ServerFault)
        })
    });
    let mut batch = Batch::default();
    // The next one begins only now, but before the answers are made: clients wait for it, too.
    let ask = hub.jobs.parked.end(key);
    hub.jobs.tasks.push_all(ask.iter().map(|turn| (turn, Task::Flush(turn, key))));
    for Parked { turn, shard, ticket, unflushed, permit } in jobs {
        batch.add(unflushed.flushed(result), (turn, shard, ticket, permit));
    }
    batch.finish(hub);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_wait_less_than_changes_and_nothing_waits_long() {
        let ns = Duration::from_nanos(1);
        let cases = [
            (1, 0, false, ANSWERS_FOR - ns, false),
            (1, 0, false, ANSWERS_FOR, true),
            (ANSWERS_MAX, 0, false, Duration::ZERO, true),
            (0, CHANGES_MAX - 1, false, ANSWERS_FOR, false),
            (0, CHANGES_MAX, false, Duration::ZERO, true),
            (0, CHANGES_MAX, true, CHANGES_FOR, false),
            (0, DEAR_CHANGES_MAX, true, Duration::ZERO, true),
            (0, 1, false, CHANGES_FOR, true),
            (0, 1, true, DEAR_CHANGES_FOR, true),
            (1, 1, true, ANSWERS_FOR, true),
        ];
        for (answers, changes, dear, waited, due) in cases {
            let is = is_due(answers, changes, dear, waited);
            assert_eq!(is, due, "{answers} answers, {changes} changes, dear: {dear}, {waited:?}");
        }
    }
}
