//! The file system of DRC 89's servers: the cost of a write, and the locks of daemons.
//!
//! A write takes one synchronous disk operation for the block, one for the inode if it allocates
//! the block, and one for the indirect block if the block is beyond the direct ones (section 2.2).
//! Rewriting waits for the block alone; the inode's new modification time follows asynchronously,
//! but still moves the arm.
//!
//! A writer holds the inode's lock until the write is on the disk. Daemons that find it locked
//! sleep. The kernel is not preemptive: a daemon that releases the lock and finds the next request
//! in the queue locks again before any sleeper runs (see [`ServerNode`](crate::ServerNode)).

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use remora_base::{Rate, Rng, Time};
use remora_wire::nfs3::{Call, Fh};

/// Bytes of a file system block.
pub const BLOCK: u64 = 8192;
/// Blocks whose addresses are in the inode itself.
const DIRECT_BLOCKS: u64 = 12;
/// Disk operations of a truncation: the inode, the indirect block, the map of free blocks.
const TRUNCATION_OPERATIONS: u32 = 3;

/// The write costs of a machine's file system.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ufs {
    /// Processor time of a write or truncation: network, RPC, copies.
    pub cpu: Duration,
    /// Maximum seek; seeks are uniform from 0.
    pub seek_max: Duration,
    /// Rotation time; the rotational delay is uniform from 0.
    pub turn: Duration,
    /// Transfer rate of a block.
    pub rate: Rate,
    /// Probability that another activity holds the disk when a write arrives (range: 0 to 1).
    pub hold_up_chance: f64,
    /// Mean of the exponential duration of that.
    pub hold_up_mean: Duration,
    /// Whether a daemon that releases a lock acquires the next one before sleepers do, as in
    /// kernels without preemption; otherwise sleepers come first.
    pub overtaking: bool,
}

/// A volume that follows a [`Ufs`].
#[derive(Debug)]
pub struct Volume {
    model: Ufs,
    rng: Rng,
    allocated: BTreeSet<(Fh, u64)>,
    locked: BTreeSet<Fh>,
    arm_free_at: Time,
}

impl Volume {
    /// An empty volume; `seed` draws the positions of arm and platter.
    pub fn new(model: Ufs, seed: u64) -> Volume {
        let rng = Rng::stream(seed, "volume");
        Volume { model, rng, allocated: BTreeSet::new(), locked: BTreeSet::new(), arm_free_at: Time::ZERO }
    }

    /// Releases all locks at a restart of the machine. Written data persists.
    pub(crate) fn reset(&mut self, now: Time) {
        self.locked.clear();
        self.arm_free_at = now;
    }

    /// Acquires the lock of a call, if it needs one. `false` if it is held.
    pub(crate) fn lock(&mut self, call: Option<&Call>) -> bool {
        inode(call).is_none_or(|fh| self.locked.insert(fh.clone()))
    }

    /// Releases the lock of a call.
    pub(crate) fn unlock(&mut self, call: Option<&Call>) {
        if let Some(fh) = inode(call) {
            self.locked.remove(fh);
        }
    }

    /// Completion of a write or truncation that begins now; `None` for other calls.
    pub(crate) fn schedule(&mut self, now: Time, call: Option<&Call>) -> Option<Time> {
        match call? {
            Call::Write(a) => {
                let end = a.offset.saturating_add(a.data.len() as u64);
                Some(self.write(now, &a.fh, a.offset..end))
            }
            Call::SetAttr(a) => Some(self.truncate(now, &a.fh, a.attr.size?)),
            _ => None,
        }
    }

    /// Completion of a truncation to `size` bytes that begins now.
    pub fn truncate(&mut self, now: Time, fh: &Fh, size: u64) -> Time {
        self.allocated.retain(|(file, block)| file != fh || *block < size.div_ceil(BLOCK));
        let start = self.begin(now);
        let done = (0..TRUNCATION_OPERATIONS).fold(start, |at, _| at + self.operation());
        self.arm_free_at = done;
        done
    }

    /// Completion of a write of these bytes that begins now.
    pub fn write(&mut self, now: Time, fh: &Fh, bytes: Range<u64>) -> Time {
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let mut at = self.begin(now);
        if self.rng.chance(self.model.hold_up_chance) {
            at += self.rng.exponential(self.model.hold_up_mean);
        }
        let (mut is_new, mut is_indirect) = (false, false);
        for block in blocks {
            at = at + self.operation() + self.model.rate.airtime(BLOCK);
            let allocates = self.allocated.insert((fh.clone(), block));
            is_new |= allocates;
            is_indirect |= allocates && block >= DIRECT_BLOCKS;
        }
        if is_indirect {
            at += self.operation();
        }
        let inode = at + self.operation();
        self.arm_free_at = inode;
        if is_new { inode } else { at }
    }

    /// When the arm serves a request that arrives now.
    fn begin(&self, now: Time) -> Time {
        self.arm_free_at.max(now + self.model.cpu)
    }

    fn operation(&mut self) -> Duration {
        self.model.seek_max.mul_f64(self.rng.unit()) + self.model.turn.mul_f64(self.rng.unit())
    }
}

/// The inode that a call locks.
fn inode(call: Option<&Call>) -> Option<&Fh> {
    match call? {
        Call::Write(a) => Some(&a.fh),
        Call::SetAttr(a) => Some(&a.fh),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{SetAttr, SetAttrArgs, Stable, WriteArgs};

    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Each operation takes about 10 ms; a block transfer takes 8 ms.
    fn volume() -> Volume {
        let rate = Rate::from_bits(BLOCK * 1000).unwrap();
        let (hold_up_chance, hold_up_mean) = (0.0, Duration::ZERO);
        let (cpu, seek_max, turn) = (ms(5), ms(10), Duration::ZERO);
        Volume::new(Ufs { cpu, seek_max, turn, rate, hold_up_chance, hold_up_mean, overtaking: true }, 1)
    }

    fn fh(n: u8) -> Fh {
        Fh(Bytes::from(vec![n; 16]))
    }

    fn write(file: u8, block: u64) -> Call {
        let data = Bytes::from(vec![0; BLOCK as usize]);
        let (offset, count) = (block * BLOCK, BLOCK as u32);
        Call::Write(WriteArgs { fh: fh(file), offset, count, stable: Stable::FileSync, data })
    }

    /// Mean times in milliseconds: of a first write, and of a rewrite.
    fn means(block: u64) -> (f64, f64) {
        let mut volume = volume();
        let (mut first, mut again, mut now) = (Duration::ZERO, Duration::ZERO, Time::ZERO);
        for file in 0..200 {
            for sum in [&mut first, &mut again] {
                // Long after the previous inode update.
                now += ms(1000);
                *sum += volume.schedule(now, Some(&write(file, block))).unwrap().since(now);
            }
        }
        (first.as_secs_f64() * 5.0, again.as_secs_f64() * 5.0)
    }

    #[test]
    fn new_block_takes_two_or_three_operations_old_one_takes_one() {
        let near = |(a, b): (f64, f64), (x, y): (f64, f64)| (a - x).abs() < 1.0 && (b - y).abs() < 1.0;
        // 5 ms of processor, 8 ms of transfer, and 5 ms for each operation.
        assert!(near(means(0), (23.0, 18.0)), "{:?}", means(0));
        assert!(near(means(DIRECT_BLOCKS), (28.0, 18.0)), "{:?}", means(DIRECT_BLOCKS));
    }

    #[test]
    fn truncated_block_is_new_again() {
        let mut volume = volume();
        assert_eq!(volume.schedule(Time::ZERO, None), None);
        volume.schedule(Time::ZERO, Some(&write(1, 0)));
        assert!(volume.allocated.contains(&(fh(1), 0)));
        let attr = SetAttr { size: Some(0), ..SetAttr::NONE };
        let truncate = Call::SetAttr(SetAttrArgs { fh: fh(1), attr, guard: None });
        assert!(volume.schedule(Time::ZERO, Some(&truncate)).is_some());
        assert_eq!(volume.allocated, BTreeSet::new());
    }

    #[test]
    fn inode_has_one_writer() {
        let mut volume = volume();
        assert!(volume.lock(Some(&write(1, 0))) && volume.lock(Some(&write(2, 0))) && volume.lock(None));
        assert!(!volume.lock(Some(&write(1, 1))));
        volume.unlock(Some(&write(1, 0)));
        assert!(volume.lock(Some(&write(1, 1))));
        volume.reset(Time::ZERO);
        assert!(volume.lock(Some(&write(2, 1))));
    }
}
