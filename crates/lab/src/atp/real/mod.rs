//! The jobs in real time: ATP endpoints and the kernel's TCP on emulated links.
//!
//! A cell has its own link: two network namespaces joined by the channel core ([`remora_host::emulate`]). The
//! mobile sends, the base receives. Both programs are in this process and read the channel's clock, so that one
//! ledger has the fates of all objects (`cell`). Cells need little processor time, so several run at once; a cell
//! in which the emulator was late ([`emulate::EmulationReport::fault`]) is repeated once. Needs root, and leaves nothing
//! behind.

mod cell;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cell::{Cell, MeasuredCell};
use remora_base::Time;
use remora_host::emulate::{self, EmulateError, Emulator};
use remora_sim::atp::{self, BULK_RATE, Fate, LEAD, Object, Pace, Protocol, Sends, Trace};

use super::job::{self, BULK_SEED, Job, JobResult};
use super::options::Options;
pub use super::options::{EXPERIMENTS, RealConditions, Setup};
use crate::report::pool;

/// Attempts of a cell in which the emulator is late.
const TRIES: u32 = 2;
/// Time from the last deadline to the end of a cell.
const TAIL: Duration = Duration::from_secs(1);
/// Bytes of a bulk transfer. ATP 02 has 64 MB and also uses the steady part only.
const BULK_BYTES: u32 = 8 << 20;
/// Outstanding bytes of asynchronous sends.
const BULK_AHEAD: u32 = 2 << 20;
/// Most objects of a synchronous bulk transfer: some seconds,
const SYNCHRONOUS_MAX: u32 = 400;
/// or as many as this time allows at one per round-trip time.
const SYNCHRONOUS_TIME: Duration = Duration::from_secs(60);
/// Time limit of a bulk transfer: twice the longest, and round-trip times to find the link's rate.
const BULK_PATIENCE: Duration = Duration::from_secs(120);
const FINDING_OUT: u32 = 40;

/// Checks that a link can be made: privileges, devices.
pub fn check() -> Result<(), EmulateError> {
    Emulator::start(emulate::EmulationSetup {
        congestion: cell::CONGESTION.into(),
        ..emulate::EmulationSetup::default()
    })
    .map(drop)
}

/// Whether real cells of this scheme are possible.
pub const fn takes(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Quic)
}

pub(super) fn run(options: &Options, setup: &Setup, done: impl Fn() + Sync) -> (Vec<(Job, JobResult)>, RealConditions) {
    let real = RealCells { setup, trace: options.trace.after(setup.from), notes: Mutex::default() };
    let (oracles, cells): (Vec<Job>, Vec<Job>) = jobs(options).into_iter().partition(|j| matches!(j, Job::Oracle(..)));
    // Computations must not disturb timed cells.
    let work = |jobs: &[Job], n: usize| jobs.get(n).map(|job| real.run(job));
    let computed = pool::map(oracles.len(), options.threads, |n| work(&oracles, n), &done);
    let measured = pool::map(cells.len(), setup.cells, |n| work(&cells, n), &done);
    let results = computed.into_iter().chain(measured).flatten();
    let results = oracles.iter().chain(&cells).copied().zip(results).collect();
    let notes = real.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let conditions = RealConditions {
        congestion: cell::CONGESTION,
        round_trip_ms: setup.round_trip.as_secs_f64() * 1e3,
        from_s: setup.from.as_secs_f64(),
        length_s: setup.length.as_secs_f64(),
        lateness_ms_max: notes.latest.as_secs_f64() * 1e3,
        repeated: notes.repeated,
    };
    (results, conditions)
}

/// The jobs that can run in real time.
pub(super) fn jobs(options: &Options) -> Vec<Job> {
    let mut options = options.clone();
    options.experiments.retain(|e| EXPERIMENTS.contains(e));
    options.protocols.retain(|p| takes(*p));
    job::all(&options)
}

#[derive(Debug, Default)]
struct Notes {
    latest: Duration,
    repeated: usize,
}

struct RealCells<'a> {
    setup: &'a Setup,
    trace: Trace,
    notes: Mutex<Notes>,
}

impl RealCells<'_> {
    fn run(&self, job: &Job) -> JobResult {
        self.attempt(job).unwrap_or_else(JobResult::Failed)
    }

    fn attempt(&self, job: &Job) -> Result<JobResult, String> {
        match *job {
            Job::Oracle(workload, seed) => {
                let objects = self.objects(atp::objects(workload, seed));
                let best = atp::optimum(&self.trace.delayed(LEAD), &objects).map_err(|e| e.to_string())?;
                Ok(JobResult::Oracle(objects, best.chosen))
            }
            Job::Cell(workload, protocol, seed) => {
                let objects = self.objects(atp::objects(workload, seed));
                let until = objects.iter().map(Object::due).max().unwrap_or_default() + TAIL;
                let link = cell::varying(&self.trace.delayed(LEAD), until, self.setup.round_trip)?;
                let cell = Cell { protocol, objects: &objects, pace: Pace::Open, link, until, seed };
                let fates = self.valid(&cell)?;
                Ok(JobResult::Fates(objects, fates))
            }
            Job::Bulk(protocol, sends, kb) => self.bulk(protocol, sends, kb << 10).map(JobResult::Rate),
            Job::Saturated(..) | Job::Mixed(..) | Job::Contention(..) => Err("is simulated only".into()),
        }
    }

    /// The objects that arrive during the cell, on its clock.
    fn objects(&self, mut all: Vec<Object>) -> Vec<Object> {
        let (first, end) = (LEAD + self.setup.from, LEAD + self.setup.from + self.setup.length);
        all.retain(|o| (first..end).contains(&o.arrival.since(Time::ZERO)));
        all.iter_mut().for_each(|o| o.arrival = o.arrival - self.setup.from);
        all
    }

    /// Steady throughput of a bulk transfer, in bytes per second.
    fn bulk(&self, protocol: Protocol, sends: Sends, size: u32) -> Result<f64, String> {
        let size = size.clamp(1024, BULK_BYTES / 4);
        let round_trip = self.setup.round_trip;
        let patience = patience(round_trip);
        let (count, at_once) = match sends {
            Sends::Synchronous => (synchronous(size, round_trip), 1),
            Sends::Asynchronous => (BULK_BYTES / size, (BULK_AHEAD / size).max(2) as usize),
        };
        let deadline = Duration::from_secs(24 * 3600);
        let object = Object { arrival: Time::ZERO, size, class: atp::Class::High, deadline };
        let objects = vec![object; count as usize];
        let cell = Cell {
            protocol,
            objects: &objects,
            pace: Pace::Closed { at_once },
            link: cell::steady(BULK_RATE, round_trip)?,
            until: Time::ZERO + patience,
            seed: BULK_SEED,
        };
        let fates = self.valid(&cell)?;
        atp::steady_rate(&fates, size).ok_or_else(|| {
            let delivered = fates.iter().filter_map(Fate::delivered).count();
            format!("{delivered} of {count} objects were delivered in {} s", patience.as_secs())
        })
    }

    /// Repeats a cell until the emulator was in time.
    fn valid(&self, cell: &Cell) -> Result<Vec<Fate>, String> {
        self.until_valid(|| cell.measure(self.setup.lateness_max))
    }

    fn until_valid(&self, measure: impl Fn() -> Result<MeasuredCell, String>) -> Result<Vec<Fate>, String> {
        let notes = || self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut faults = Vec::new();
        for again in 0..TRIES {
            notes().repeated += usize::from(again > 0);
            let MeasuredCell { fates, lateness, fault } = measure()?;
            let Some(fault) = fault else {
                let mut notes = notes();
                notes.latest = notes.latest.max(lateness);
                return Ok(fates);
            };
            faults.push(fault);
        }
        Err(format!("not valid: {}", faults.join("; again: ")))
    }
}

fn synchronous(size: u32, round_trip: Duration) -> u32 {
    // The cast saturates.
    let in_time = (SYNCHRONOUS_TIME.as_secs_f64() / each(size, round_trip)) as u32;
    (BULK_BYTES / size).min(SYNCHRONOUS_MAX).min(in_time)
}

/// Shortest time of a synchronous send in seconds, without headers.
fn each(size: u32, round_trip: Duration) -> f64 {
    round_trip.as_secs_f64() + f64::from(size) / BULK_RATE
}

fn patience(round_trip: Duration) -> Duration {
    BULK_PATIENCE + FINDING_OUT * round_trip
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    #[test]
    fn bulk_transfer_limit_suits_any_round_trip_time() {
        for (ms, counts) in [(10, [400, 128, 8]), (300, [198, 128, 8]), (1000, [59, 53, 8]), (10_000, [5, 5, 5])] {
            let round_trip = Duration::from_millis(ms);
            for (size, count) in [1 << 10, 64 << 10, 1 << 20].into_iter().zip(counts) {
                assert_eq!(synchronous(size, round_trip), count, "{ms} ms, {size} bytes");
                let best = f64::from(count) * each(size, round_trip);
                assert!(2.0 * best <= patience(round_trip).as_secs_f64(), "{ms} ms, {size} bytes: {best:.0} s");
            }
        }
    }

    #[test]
    fn invalid_cell_is_repeated_with_a_reason() {
        let setup = Setup {
            cells: NonZeroUsize::MIN,
            round_trip: Duration::ZERO,
            from: Duration::ZERO,
            length: Duration::ZERO,
            lateness_max: Duration::ZERO,
        };
        for (lost, repeated, why) in
            [(0, 0, None), (1, 1, None), (2, 1, Some("not valid: 1 packets never came; again: 0 packets never came"))]
        {
            let real = RealCells { setup: &setup, trace: Trace::constant(1e6), notes: Mutex::default() };
            let left = std::cell::Cell::<usize>::new(lost);
            let made = real.until_valid(|| {
                let fault = left.get().checked_sub(1).map(|n| format!("{n} packets never came"));
                left.set(left.get().saturating_sub(1));
                Ok(MeasuredCell { fates: Vec::new(), lateness: Duration::ZERO, fault })
            });
            assert_eq!((made.err().as_deref(), real.notes.into_inner().unwrap().repeated), (why, repeated));
        }
    }
}
