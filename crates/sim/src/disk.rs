//! How long the server's work takes: processor, one disk arm, and now and then a block on some
//! other resource.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_base::{Rate, Rng, Time};
use remora_wire::nfs3::{Call, Proc, Stable};

/// A server's speed. The disk serves one request at a time, in the order they came; everything
/// else happens side by side.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskModel {
    /// Processor time of any request.
    pub cpu: Duration,
    /// One synchronous disk operation: seek and rotation.
    pub seek: Duration,
    /// How fast data moves to and from the disk; `None` for at once.
    pub rate: Option<Rate>,
    /// Each disk time is longer by up to this share (range: 0 to 1).
    pub jitter: f64,
    /// Probability that a request blocks on a system resource (DRC 89, Example 1, t5).
    pub block_chance: f64,
    /// The longest such block.
    pub block_max: Duration,
}

impl DiskModel {
    /// No time at all but a token of processor time: the link is what is looked at.
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

/// A request of this kind takes longer: for scripted tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// Executions of this procedure,
    pub proc: Proc,
    /// the how manieth one, from 0,
    pub nth: u32,
    /// take this long on top.
    pub extra: Duration,
}

/// The disk of a [`DiskModel`].
#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    free_at: Time,
    rng: Rng,
    stalls: Vec<Stall>,
    seen: BTreeMap<Proc, u32>,
}

impl Disk {
    /// An idle disk.
    pub fn new(model: DiskModel, seed: u64) -> Disk {
        Disk { model, free_at: Time::ZERO, rng: Rng::stream(seed, "disk"), stalls: Vec::new(), seen: BTreeMap::new() }
    }

    /// Has some executions take longer.
    pub fn set_stalls(&mut self, stalls: Vec<Stall>) {
        self.stalls = stalls;
    }

    /// Ends the blocks on other resources.
    pub fn heal(&mut self) {
        self.model.block_chance = 0.0;
        self.stalls.clear();
    }

    /// The machine restarts: nothing waits for the disk any more.
    pub fn reset(&mut self, now: Time) {
        self.free_at = now;
    }

    /// When a request that a slot takes up now is done. `None` stands for the server's own
    /// questions, which are as cheap as a GETATTR.
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

    /// How long a flush takes, beside what else the disk does.
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

/// Synchronous disk operations and bytes moved. A stable write takes one for the block and one
/// for the inode (DRC 89, section 2.2); names and attributes are found in memory.
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
