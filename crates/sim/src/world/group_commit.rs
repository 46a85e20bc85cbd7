//! Group commit in virtual time: jobs that wait for a flush, and the flushes.
//!
//! A flush completes the jobs whose change precedes its start; later ones wait for the next flush.
//! In half of the flushes, at random, the data is durable at the start, in the others only at the
//! end: a crash in between finds either.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_base::{Rng, Time};
use remora_server::{Ticket, Unflushed};
use remora_vfs::{self as vfs, Flush, FlushKey};

use crate::events::EventQueue;

/// Maximum delay between the request of a flush and its start: it queues like any job.
const QUEUE_MAX: Duration = Duration::from_millis(4);

/// A job whose change is made and not yet stable.
#[derive(Debug)]
pub(crate) struct WaitingJob {
    pub(crate) ticket: Ticket,
    pub(crate) unflushed: Unflushed,
    /// Its client; `None` for an address that is no client's.
    pub(crate) client: Option<usize>,
    pub(crate) xid: u32,
}

/// Jobs by the flush they wait for.
#[derive(Default, Debug)]
struct Group {
    waiting: Vec<WaitingJob>,
    running: Vec<WaitingJob>,
    /// The result of the flush, if the data is durable at its start.
    result: Option<vfs::Result<()>>,
}

/// The next step of a group.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(FlushKey),
    End(FlushKey),
}

/// All groups, bounded by the core's limit of jobs in flight.
#[derive(Default, Debug)]
pub(crate) struct GroupCommit {
    groups: BTreeMap<FlushKey, Group>,
    steps: EventQueue<Step>,
}

impl GroupCommit {
    /// Makes a job wait for its flush.
    pub(crate) fn park(&mut self, now: Time, job: WaitingJob, rng: &mut Rng) {
        let key = job.unflushed.flush().key();
        let fresh = !self.groups.contains_key(&key);
        self.groups.entry(key).or_default().waiting.push(job);
        if fresh {
            self.steps.push(now + QUEUE_MAX.mul_f64(rng.unit()), Step::Begin(key));
        }
    }

    /// Runs due steps. Returns jobs whose flush ended, with its result.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Time,
        rng: &mut Rng,
        mut duration: impl FnMut() -> Duration,
    ) -> Vec<(WaitingJob, vfs::Result<()>)> {
        let mut done = Vec::new();
        while let Some((_, step)) = self.steps.pop_due(now) {
            match step {
                Step::Begin(key) => {
                    let Some(group) = self.groups.get_mut(&key) else { continue };
                    group.running = std::mem::take(&mut group.waiting);
                    group.result = rng.chance(0.5).then(|| flush(&group.running));
                    self.steps.push(now + duration(), Step::End(key));
                }
                Step::End(key) => {
                    let Some(group) = self.groups.get_mut(&key) else { continue };
                    let result = group.result.take().unwrap_or_else(|| flush(&group.running));
                    done.extend(std::mem::take(&mut group.running).into_iter().map(|job| (job, result)));
                    if group.waiting.is_empty() {
                        self.groups.remove(&key);
                    } else {
                        self.steps.push(now, Step::Begin(key));
                    }
                }
            }
        }
        done
    }

    /// When the next step is due.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.steps.next_at()
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.values().map(|g| g.waiting.len() + g.running.len()).sum()
    }

    /// Drops all jobs at a crash.
    pub(crate) fn clear(&mut self) {
        *self = GroupCommit::default();
    }
}

fn flush(sharing: &[WaitingJob]) -> vfs::Result<()> {
    let Some((first, others)) = sharing.split_first() else { return Ok(()) };
    let others: Vec<&Flush> = others.iter().map(|job| job.unflushed.flush()).collect();
    first.unflushed.flush().run(&others)
}
