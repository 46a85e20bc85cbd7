//! The file system under the servers of DRC 89: what a write costs there, and how daemons wait
//! for one another.
//!
//! A write takes one synchronous disk operation for the block; one for the inode, if the write
//! allocates the block; and one for the indirect block, if the block is beyond the direct ones
//! (section 2.2). Written again, only the block itself is waited for; the inode's new time of
//! modification follows while nobody waits, but the arm has to go there all the same.
//!
//! Whoever writes holds the inode's lock until the write is on the disk. Daemons that find the
//! lock taken sleep. The kernel does not take the processor away from a daemon: one that has
//! let go of the lock, and finds the next request in the queue, is back at the lock before any
//! of the sleepers runs ([`ServerNode`](crate::ServerNode) does that).

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

/// A machine's file system, as far as writes go.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ufs {
    /// Processor time of a write or truncation: the network, RPC, copies.
    pub cpu: Duration,
    /// The longest seek. Seeks are uniform from none at all.
    pub seek_max: Duration,
    /// A turn of the platter. What is waited for is uniform from none at all.
    pub turn: Duration,
    /// How fast a block moves to the disk.
    pub rate: Rate,
    /// Probability that something else has the disk when a write comes (range: 0 to 1).
    pub hold_up_chance: f64,
    /// Mean of the exponential time for which it does.
    pub hold_up_mean: Duration,
    /// Whether a daemon that lets go of a lock comes to the next before those that sleep for it.
    /// So it is in kernels that do not take the processor away; else they come in their order.
    pub overtaking: bool,
}

/// A [`Ufs`] in use.
#[derive(Debug)]
pub struct Volume {
    model: Ufs,
    rng: Rng,
    allocated: BTreeSet<(Fh, u64)>,
    /// Inodes that a daemon holds.
    locked: BTreeSet<Fh>,
    arm_free_at: Time,
}

impl Volume {
    /// An empty volume; `seed` draws where the arm and the platter are.
    pub fn new(model: Ufs, seed: u64) -> Volume {
        let rng = Rng::stream(seed, "volume");
        Volume { model, rng, allocated: BTreeSet::new(), locked: BTreeSet::new(), arm_free_at: Time::ZERO }
    }

    /// The machine restarts: nobody holds anything. What was written is still there.
    pub(crate) fn reset(&mut self, now: Time) {
        self.locked.clear();
        self.arm_free_at = now;
    }

    /// Takes the lock that the call needs, if it needs one. False: another holds it.
    pub(crate) fn lock(&mut self, call: Option<&Call>) -> bool {
        inode(call).is_none_or(|fh| self.locked.insert(fh.clone()))
    }

    /// Gives back what [`lock`](Volume::lock) took.
    pub(crate) fn unlock(&mut self, call: Option<&Call>) {
        if let Some(fh) = inode(call) {
            self.locked.remove(fh);
        }
    }

    /// When a write or truncation that begins now is done; `None` for any other call.
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

    /// When a truncation to `size` bytes that begins now is done.
    pub fn truncate(&mut self, now: Time, fh: &Fh, size: u64) -> Time {
        self.allocated.retain(|(file, block)| file != fh || *block < size.div_ceil(BLOCK));
        let start = self.begin(now);
        let done = (0..TRUNCATION_OPERATIONS).fold(start, |at, _| at + self.operation());
        self.arm_free_at = done;
        done
    }

    /// When a write of these bytes that begins now is done.
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

    /// When the arm is there for a request that comes now.
    fn begin(&self, now: Time) -> Time {
        self.arm_free_at.max(now + self.model.cpu)
    }

    fn operation(&mut self) -> Duration {
        self.model.seek_max.mul_f64(self.rng.unit()) + self.model.turn.mul_f64(self.rng.unit())
    }
}

/// The inode whose lock a call holds while it is executed.
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

    /// Each operation takes 10 ms or nearly; a block moves in 8 ms.
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

    /// The mean of many, in milliseconds: of a first write, and of one that writes it again.
    fn means(block: u64) -> (f64, f64) {
        let mut volume = volume();
        let (mut first, mut again, mut now) = (Duration::ZERO, Duration::ZERO, Time::ZERO);
        for file in 0..200 {
            for sum in [&mut first, &mut again] {
                // Long after the inode of the one before.
                now += ms(1000);
                *sum += volume.schedule(now, Some(&write(file, block))).unwrap().since(now);
            }
        }
        (first.as_secs_f64() * 5.0, again.as_secs_f64() * 5.0)
    }

    #[test]
    fn a_new_block_takes_two_or_three_operations_and_an_old_one_takes_one() {
        let near = |(a, b): (f64, f64), (x, y): (f64, f64)| (a - x).abs() < 1.0 && (b - y).abs() < 1.0;
        // 5 ms of processor, 8 ms of transfer, and 5 ms for each operation.
        assert!(near(means(0), (23.0, 18.0)), "{:?}", means(0));
        assert!(near(means(DIRECT_BLOCKS), (28.0, 18.0)), "{:?}", means(DIRECT_BLOCKS));
    }

    #[test]
    fn a_truncated_block_is_new_again() {
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
    fn one_inode_has_one_writer() {
        let mut volume = volume();
        assert!(volume.lock(Some(&write(1, 0))) && volume.lock(Some(&write(2, 0))) && volume.lock(None));
        assert!(!volume.lock(Some(&write(1, 1))));
        volume.unlock(Some(&write(1, 0)));
        assert!(volume.lock(Some(&write(1, 1))));
        volume.reset(Time::ZERO);
        assert!(volume.lock(Some(&write(2, 1))));
    }
}
