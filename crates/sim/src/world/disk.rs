//! Service times of the server: processor, one disk arm, and occasional blocks on another resource.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_base::{Rate, Rng, Time};
use remora_wire::nfs3::{Call, Proc, Stable};

/// A server's speed. The disk is a FIFO server; everything else runs in parallel.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskModel {
    /// Processor time of a request.
    pub cpu: Duration,
    /// Seek and rotation of one synchronous disk operation.
    pub seek: Duration,
    /// Transfer rate of the disk; `None` for infinite.
    pub rate: Option<Rate>,
    /// Each disk time increases by up to this share (range: 0 to 1).
    pub jitter: f64,
    /// Probability that a request blocks on a system resource (DRC 89, Example 1, t5).
    pub block_chance: f64,
    /// Maximum duration of such a block.
    pub block_max: Duration,
}

impl DiskModel {
    /// A disk without delay and negligible processor time, for experiments on the link.
    pub fn instant() -> DiskModel {
        DiskModel {
            cpu: Duration::from_micros(100),
            seek: Duration::ZERO,
            rate: None,
            jitter: 0.0,
            block_chance: 0.0,
            block_max: Duration::ZERO,
        }
    }
}

/// An added delay of one execution, for scripted tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// Procedure of the execution.
    pub proc: Proc,
    /// Its number among those of the procedure, from 0.
    pub nth: u32,
    pub extra: Duration,
}

/// A disk that follows a [`DiskModel`].
#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    free_at: Time,
    rng: Rng,
    stalls: Vec<Stall>,
    seen: BTreeMap<Proc, u32>,
}

impl Disk {
    pub fn new(model: DiskModel, seed: u64) -> Disk {
        Disk { model, free_at: Time::ZERO, rng: Rng::stream(seed, "disk"), stalls: Vec::new(), seen: BTreeMap::new() }
    }

    /// Adds delays to some executions.
    pub fn set_stalls(&mut self, stalls: Vec<Stall>) {
        self.stalls = stalls;
    }

    /// Ends the blocks on other resources.
    pub fn heal(&mut self) {
        self.model.block_chance = 0.0;
        self.stalls.clear();
    }

    /// Clears the queue at a restart of the machine.
    pub fn reset(&mut self, now: Time) {
        self.free_at = now;
    }

    /// When a request that a slot starts now is done. `None` stands for the server's internal
    /// lookups, which cost as much as a GETATTR.
    pub fn schedule(&mut self, now: Time, call: Option<&Call>) -> Time {
        let (ops, bytes) = call.map_or((0, 0), cost);
        let mut done = now + self.model.cpu;
        if ops > 0 {
            done = self.free_at.max(done) + self.disk_time(ops, bytes);
            self.free_at = done;
        }
        done += self.stall(call.map(Call::proc));
        if self.rng.chance(self.model.block_chance) {
            done += self.model.block_max.mul_f64(self.rng.unit());
        }
        done
    }

    /// Duration of a flush, parallel to other disk operations.
    pub fn flush(&mut self) -> Duration {
        self.model.cpu + self.disk_time(1, 0)
    }

    fn disk_time(&mut self, ops: u32, bytes: u64) -> Duration {
        let transfer = self.model.rate.map_or(Duration::ZERO, |r| r.airtime(bytes));
        let longer = 1.0 + self.model.jitter.clamp(0.0, 1.0) * self.rng.unit();
        (self.model.seek * ops + transfer).mul_f64(longer)
    }

    fn stall(&mut self, proc: Option<Proc>) -> Duration {
        let Some(proc) = proc.filter(|_| !self.stalls.is_empty()) else { return Duration::ZERO };
        let seen = self.seen.entry(proc).or_default();
        let nth = *seen;
        *seen += 1;
        self.stalls.iter().filter(|s| s.proc == proc && s.nth == nth).map(|s| s.extra).sum()
    }
}

/// Synchronous disk operations and bytes moved. A stable write takes one for the block and one for
/// the inode (DRC 89, section 2.2); names and attributes are cached.
fn cost(call: &Call) -> (u32, u64) {
    match call {
        Call::Read(a) => (1, u64::from(a.count)),
        Call::Write(a) if a.stable == Stable::Unstable => (0, 0),
        Call::Write(a) => (2, a.data.len() as u64),
        Call::Commit(_) => (2, 0),
        Call::SetAttr(_) => (1, 0),
        call if call.proc().is_non_idempotent() => (2, 0),
        _ => (0, 0),
    }
}
