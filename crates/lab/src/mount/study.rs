//! The runs of a study: several workers, each run with its own link and mount.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use guest::{HOST_MODULES, Kernel, Missing, find};
use indicatif::ProgressBar;

use super::bench;
use super::cell::WorkRun;
use super::options::{MountSystem, Options};
use super::outcome::{MountPeer, MountReport};
use super::work::Work;
use crate::report::progress::bar;
use crate::wireless::cell::RunError;
use crate::wireless::real::peers::said_with;

/// Runs the study with a progress bar. If `stop` is set, current runs are abandoned and the report has the others.
/// Fails if nothing can be run.
pub fn run(options: &Options, stop: &AtomicBool) -> Result<MountReport, RunError> {
    let began = Instant::now();
    let kernel = options.systems.contains(&MountSystem::Linux).then(|| find_kernel(options)).transpose();
    let peers: Vec<MountPeer> = options.systems.iter().map(|system| look_for(*system, &kernel)).collect();
    let systems: Vec<MountSystem> = peers.iter().filter(|p| p.missing.is_none()).map(|p| p.system).collect();
    let (works, skipped): (Vec<Work>, Vec<Work>) = options.works.iter().partition(|work| lacks(**work).is_none());
    if systems.is_empty() || works.is_empty() {
        let reasons = peers.iter().filter_map(|peer| peer.missing.clone()).chain(skipped.into_iter().filter_map(lacks));
        return Err(RunError::Failed(reasons.collect::<Vec<_>>().join("; ")));
    }
    let mut order = order(options, &systems, &works);
    let bar = bar(order.len() as u64, "runs", options.bar);
    // Workers pop from the end.
    order.reverse();
    let kernel = kernel.unwrap_or_default();
    let study = Study { options, kernel, order: Mutex::new(order), runs: Mutex::default(), bar, stop };
    thread::scope(|scope| {
        for _ in 0..options.jobs.get() {
            scope.spawn(|| study.work());
        }
    });
    study.bar.finish_and_clear();
    let mut runs = study.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    for work in skipped {
        let why = lacks(work).unwrap_or_default();
        let skipped = |system: &MountSystem| WorkRun {
            system: *system,
            work,
            seed: options.first_seed,
            result: Err(why.clone()),
        };
        runs.extend(systems.iter().map(skipped));
    }
    let complete = !stop.load(Ordering::Acquire);
    Ok(MountReport::new(options, peers, &runs, complete, began.elapsed().as_secs_f64()))
}

/// All runs, seed by seed.
fn order(options: &Options, systems: &[MountSystem], works: &[Work]) -> Vec<(MountSystem, Work, u64)> {
    let seeds = (0..options.seeds).map(|n| options.first_seed.wrapping_add(n));
    let of_seed = |seed| works.iter().flat_map(move |work| systems.iter().map(move |system| (*system, *work, seed)));
    seeds.flat_map(of_seed).collect()
}

struct Study<'a> {
    options: &'a Options,
    /// The kernel of guests, if there are any.
    kernel: Option<Kernel>,
    /// Remaining runs, the next one last.
    order: Mutex<Vec<(MountSystem, Work, u64)>>,
    runs: Mutex<Vec<WorkRun>>,
    bar: ProgressBar,
    stop: &'a AtomicBool,
}

impl Study<'_> {
    /// Makes runs until none is left.
    fn work(&self) {
        while let Some((system, work, seed)) = self.next() {
            self.bar.set_message(format!("{} {}", system.name(), work.name()));
            let result = bench::measure(self.options, system, work, seed, self.kernel.as_ref(), self.stop);
            let result = match result {
                Ok(None) => return,
                Err(_) if self.stop.load(Ordering::Acquire) => return,
                Ok(Some(sample)) => Ok(sample),
                Err(e) => Err(e.to_string()),
            };
            locked(&self.runs).push(WorkRun { system, work, seed, result });
            self.bar.inc(1);
        }
    }

    fn next(&self) -> Option<(MountSystem, Work, u64)> {
        if self.stop.load(Ordering::Acquire) {
            return None;
        }
        locked(&self.order).pop()
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a work lacks on this machine.
fn lacks(work: Work) -> Option<String> {
    let missing = work.programs().iter().find(|program| find(program).is_none())?;
    Some(format!("install {missing}"))
}

/// What a guest with the kernel's client needs.
fn find_kernel(options: &Options) -> Result<Kernel, String> {
    find("ip").ok_or("install iproute2")?;
    Kernel::find(options.kernel.as_deref(), &HOST_MODULES).map_err(|Missing(why)| why)
}

fn look_for(system: MountSystem, kernel: &Result<Option<Kernel>, String>) -> MountPeer {
    let missing = match system {
        MountSystem::Sshfs => {
            let programs = [("sshfs", "sshfs"), ("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")];
            let missing = programs.iter().find(|(program, _)| find(program).is_none());
            missing.map(|(_, package)| format!("install {package}"))
        }
        MountSystem::Linux => kernel.as_ref().err().cloned(),
        MountSystem::Udp | MountSystem::Atp | MountSystem::Tcp | MountSystem::Back => None,
    };
    let version = || match system {
        MountSystem::Sshfs => said_with("sshfs", "--version", "SSHFS"),
        MountSystem::Linux => {
            let version = kernel.as_ref().ok().and_then(Option::as_ref).map(|kernel| &*kernel.version);
            format!("Linux {} in QEMU", version.unwrap_or_default())
        }
        _ => format!("remora {}", env!("CARGO_PKG_VERSION")),
    };
    MountPeer { system, version: missing.is_none().then(version), missing }
}
