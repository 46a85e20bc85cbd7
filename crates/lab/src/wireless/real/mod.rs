//! The jobs in real time: real programs in network namespaces on the emulated link.
//!
//! Runs are spread over several benches: a link of 1 Mbit/s needs little processor time. A run's bad periods begin
//! with its copy; afterwards the copy is compared with the file. A run in which the emulator was late is repeated
//! once. Needs root; leaves nothing behind. Read `setup`, `program` (processes and files), `tunnel`, `ssh` and
//! `guest` (systems), `bench` (copies), `workloads` (other jobs), then `experiments` and `papers`.

pub(crate) mod bench;
mod experiments;
pub(crate) mod guest;
mod papers;
pub(crate) mod peers;
pub(crate) mod program;
mod setup;
pub(crate) mod ssh;
pub(crate) mod tunnel;
mod workloads;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bench::{Bench, BenchCopy};
use peers::Peers;
use program::{Result, failed};
use remora_base::Rate;
use remora_host::emulate::EmulationReport;
use setup::{Equipment, Needs, Turns, best};
use workloads::floor_seconds;

use super::cell::{Emulation, Measure, RunError, Runner, Sample};
use super::cell_load::CellLoad;
use super::job::{Copy, Job, System};
use super::simulated::Simulator;
use crate::report::provenance::Source;

pub use experiments::{all, named, only_simulated};
pub use peers::Peer;
pub use program::HAND_OFF_DIR;
pub use setup::{Others, Setup};

/// A channel this fast keeps a processor busy: its run is alone.
const BUSY: Rate = Rate::mbit(10);
/// Attempts of a run in which the emulator is late.
const TRIES: u32 = 2;

#[derive(Debug)]
pub struct Real {
    setup: Setup,
    peers: Peers,
    idle: Mutex<Idle>,
    guests: Turns,
    /// Exclusive for a run on a fast channel.
    machine: RwLock<()>,
}

impl Real {
    /// Looks for other systems. Starts no bench.
    pub fn new(setup: Setup) -> Real {
        let others = setup.others.as_ref();
        let peers = others.map(|o| Peers::find(o.kernel.as_deref())).unwrap_or_default();
        let guests = Turns::new(others.map_or(1, |o| o.guests.get()));
        Real { setup, peers, idle: Mutex::default(), guests, machine: RwLock::default() }
    }

    /// Other systems, including missing ones.
    pub fn peers(&self) -> &[Peer] {
        self.peers.all()
    }

    /// Checks that a bench can start: privileges, devices, this program.
    pub fn check(&self) -> Result<()> {
        self.on_a_bench(Needs::of(None), |_| Ok(()))
    }

    /// Runs `work` on an idle or new bench. A bench is not reused after an error.
    fn on_a_bench<T>(&self, needs: Needs, work: impl FnOnce(&mut Bench) -> Result<T>) -> Result<T> {
        let idle = self.idle().pop_best(needs);
        let mut bench = idle.map_or_else(|| Bench::start(&self.setup, needs.mobiles), Ok)?;
        let done = work(&mut bench)?;
        self.idle().0.push(bench);
        Ok(done)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats a run until the emulator was in time.
    fn valid<T>(
        &self,
        needs: Needs,
        mut run: impl FnMut(&mut Bench) -> Result<(T, EmulationReport)>,
    ) -> Result<(T, Emulation)> {
        let mut faults = Vec::new();
        for again in 0..TRIES {
            let (made, report) = self.on_a_bench(needs, &mut run)?;
            let Some(fault) = report.fault() else {
                let lateness_ms = report.lateness.max.as_secs_f64() * 1e3;
                return Ok((made, Emulation { lateness_ms, repeated: again > 0 }));
            };
            faults.push(fault);
        }
        Err(failed(format!("not valid: {}", faults.join("; again: "))))
    }

    fn copy(&self, job: &Copy, seed: u64, limit: Duration) -> Result<Sample> {
        let _turn = (job.system == System::Linux).then(|| self.guests.take());
        let needs = Needs { mobiles: job.mobiles, ..Needs::of(Some(job.system)) };
        let (copied, emulation) = self.valid(needs, |bench| {
            let copied = bench.copy(job, seed, limit, &self.peers)?;
            let report = copied.report.clone();
            // Packets of the run may still arrive later.
            if copied.seconds.is_none() {
                *bench = Bench::start(&self.setup, job.mobiles)?;
            }
            Ok((copied, report))
        })?;
        let mut values = vec![(Measure::Seconds, copied.seconds.unwrap_or(f64::INFINITY))];
        values.extend(cell_load(job, &copied, limit).values());
        if let Some(longest) = copied.resumed.into_iter().reduce(f64::max) {
            values.push((Measure::Resume, longest));
        }
        // The floor assumes one mobile alone on the medium.
        let floor_seconds = match job.mobiles {
            1 => floor_seconds(&job.crossed(), seed, job.direction, job.bytes)?,
            _ => None,
        };
        let simulated = job.is_simulated().then(|| Simulator.run(&Job::Copy(job.clone()), seed, limit));
        let simulated = simulated.transpose()?.and_then(|s| s.value(Measure::Seconds));
        Ok(Sample { values, floor_seconds, emulation: Some(emulation), simulated, ..Sample::default() })
    }
}

fn cell_load(job: &Copy, copied: &BenchCopy, limit: Duration) -> CellLoad {
    let all = std::iter::once(&copied.seconds).chain(&copied.others);
    CellLoad {
        seconds: all.map(|seconds| seconds.unwrap_or(f64::INFINITY)).collect(),
        bytes: job.bytes,
        rate: job.channel.rate,
        airtime: copied.report.lanes.iter().map(|lane| lane.stats.airtime).sum(),
        limit,
    }
}

impl Runner for Real {
    fn source(&self) -> Source {
        Source::Real
    }

    fn takes(&self, job: &Job) -> bool {
        match job {
            Job::Copy(copy) => copy.system.is_ours() || self.peers.has(copy.system),
            Job::SmallOperations(small) => small.system.is_ours() || self.peers.has(small.system),
            Job::Tcp(_) | Job::Saturation(_) => true,
            Job::Testbed(_) => false,
        }
    }

    fn run(&self, job: &Job, seed: u64, limit: Duration) -> Result<Sample> {
        let is_busy = matches!(job, Job::Copy(copy) if copy.channel.rate >= BUSY);
        let _alone = is_busy.then(|| self.machine.write().unwrap_or_else(PoisonError::into_inner));
        let _beside = (!is_busy).then(|| self.machine.read().unwrap_or_else(PoisonError::into_inner));
        match job {
            Job::Copy(job) => self.copy(job, seed, limit),
            Job::SmallOperations(job) => {
                let _turn = (job.system == System::Linux).then(|| self.guests.take());
                let (values, emulation) = self.valid(Needs::of(Some(job.system)), |bench| {
                    workloads::small_operations(bench, job, seed, limit, &self.peers)
                })?;
                Ok(Sample { values, emulation: Some(emulation), ..Sample::default() })
            }
            Job::Tcp(job) => {
                let needs = Needs { link: job.link, ..Needs::of(None) };
                let (values, emulation) = self.valid(needs, |bench| workloads::stream(bench, job, seed))?;
                Ok(Sample { values, emulation: Some(emulation), ..Sample::default() })
            }
            Job::Saturation(job) => {
                let needs = Needs { link: true, mobiles: job.destinations, ..Needs::of(None) };
                let (values, emulation) = self.valid(needs, |bench| workloads::saturate(bench, job, seed))?;
                Ok(Sample { values, emulation: Some(emulation), ..Sample::default() })
            }
            Job::Testbed(_) => Err(RunError::Unsupported),
        }
    }
}

#[derive(Debug, Default)]
struct Idle(Vec<Bench>);

impl Idle {
    /// The best-equipped idle bench. A bench with another number of mobiles is dropped to make room.
    fn pop_best(&mut self, needs: Needs) -> Option<Bench> {
        let all: Vec<Equipment> = self.0.iter().map(Bench::equipment).collect();
        let best = best(&all, needs)?;
        Some(self.0.swap_remove(best)).filter(|bench| bench.equipment().mobiles == needs.mobiles)
    }
}
