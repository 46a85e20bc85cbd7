//! Keeps inode numbers of short-lived objects out of use for a moment.
//!
//! Birth times are as coarse as the kernel's tick. A file made and removed within one, and
//! another one made at once, can have the same inode number and the same birth: the first
//! one's id would reach the second. An open descriptor keeps the number taken, so what is
//! removed right after its birth is held open until the tick has passed.
//!
//! **And for longer where that pays.** ext4 without a journal shuns for minutes the numbers that
//! became free in an earlier second, and looks at each of them again whenever a file is made
//! (`find_inode_bit`): some hundreds of them cost more than all else together. A number that became
//! free in this second is taken at once. So small files are held until one is about to be made, and
//! then one of them is let go. What is free at the turn of a second is next to nothing, and
//! no heap of shunned numbers grows. It is the lowest of them that goes: the search begins at the lowest and
//! does not come to those above, which others may have made to be shunned.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remora_wire::nfs3::{Attr, FileType};
use rustix::time::{ClockId, clock_gettime};

use super::ids::Key;

/// Longer than a tick of any Linux (10 ms at the longest).
pub(super) const REST: Duration = Duration::from_millis(20);
/// Descriptors held at most because they must be: with as many, 50,000 removals a second need not
/// wait.
const GRAVES_MAX: usize = 1024;
/// Descriptors held at most because it pays, and for how long.
const KEPT_MAX: usize = 512;
const KEEP_FOR: Duration = Duration::from_secs(60);
/// How often it is looked whether that is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The room they take up on the disk, in bytes: each at most, and all together.
const KEPT_FILE_MAX: u64 = 256 << 10;
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// See the module.
pub(super) struct Graveyard {
    /// Held because they must be.
    graves: VecDeque<Grave>,
    max: usize,
    /// Descriptors from this number on are wanted for something better. The system gives out the
    /// lowest that is free, so this is how many may be open when one is kept.
    keep_below: usize,
    /// Held because it pays, by their numbers.
    kept: BTreeMap<u64, Grave>,
    kept_bytes: u64,
    /// Held no more, and to be closed: see [`Graveyard::take_gone`].
    gone: Vec<Arc<OwnedFd>>,
    /// When it was last looked which of those have been held for long enough.
    looked: Instant,
    ways: Ways,
}

/// The ways of a file system with inode numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ways {
    /// How much coarser than the kernel's tick it keeps the times of births, at most (range: up to
    /// [`REST`]).
    pub(super) grain: Duration,
    /// Whether it shuns numbers that became free of late.
    pub(super) shuns: bool,
}

/// An object without a name.
struct Grave {
    since: Instant,
    key: Key,
    /// The bytes it takes up, if it may be kept.
    small: Option<u64>,
    fd: Arc<OwnedFd>,
}

impl Graveyard {
    /// For a process that may open `open_max` files, `share` of them for this file system: holds at most a
    /// sixteenth of those (range: 1 to [`GRAVES_MAX`]) because it must, beyond which removals wait, and
    /// none because it pays while half of all are open.
    pub(super) fn new(open_max: usize, share: usize, ways: Ways) -> Graveyard {
        let (graves, kept, gone) = (VecDeque::new(), BTreeMap::new(), Vec::new());
        let max = (share / 16).clamp(1, GRAVES_MAX);
        Graveyard { graves, max, keep_below: open_max / 2, kept, kept_bytes: 0, gone, looked: Instant::now(), ways }
    }

    /// What has been let go of since this was last asked. Whoever closes a large file without a name waits until the disk
    /// has taken back its room, seconds perhaps: not while others wait for the graveyard.
    #[must_use]
    pub(super) fn take_gone(&mut self) -> Vec<Arc<OwnedFd>> {
        std::mem::take(&mut self.gone)
    }

    /// Lets go of what has been held for long enough; what is held takes up its room on the disk.
    pub(super) fn clear(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.kept.retain(|_, grave| {
                let stays = grave.since.elapsed() < KEEP_FOR;
                if !stays {
                    self.gone.push(grave.fd.clone());
                }
                stays
            });
            self.kept_bytes = self.kept.values().filter_map(|grave| grave.small).sum();
        }
        if self.graves.is_empty() {
            return;
        }
        let tick_ns = tick_ns();
        while let Some(grave) = self.graves.front()
            && (self.is_past(grave.key.born_ns, tick_ns) || grave.since.elapsed() >= REST)
            && let Some(grave) = self.graves.pop_front()
        {
            self.keep(grave);
        }
    }

    /// Lets go of all that need not be held.
    pub(super) fn clear_out(&mut self) {
        self.clear();
        self.gone.extend(std::mem::take(&mut self.kept).into_values().map(|grave| grave.fd));
        self.kept_bytes = 0;
    }

    /// A new object is about to be made: what is to be closed to let go of a number for it.
    #[must_use]
    pub(super) fn release_one(&mut self) -> Option<Arc<OwnedFd>> {
        self.clear();
        let (_, lowest) = self.kept.pop_first()?;
        self.kept_bytes -= lowest.small.unwrap_or(0);
        Some(lowest.fd)
    }

    /// `fd` is open on an object that never had a name and is not wanted.
    pub(super) fn keep_number(&mut self, key: Key, fd: OwnedFd) {
        self.keep(Grave { since: Instant::now(), key, small: Some(0), fd: Arc::new(fd) });
    }

    /// Whether as many descriptors as this number tells of leave enough for better uses.
    pub(super) fn has_room_for(&self, fd: RawFd) -> bool {
        (fd as usize) < self.keep_below
    }

    /// Waits until nothing has to be held any more, and lets go of everything; false if there was
    /// nothing. Blocks for at most [`REST`].
    pub(super) fn outlive(&mut self) -> bool {
        let some = !(self.graves.is_empty() && self.kept.is_empty());
        if let Some(newest) = self.graves.back() {
            std::thread::sleep(REST.saturating_sub(newest.since.elapsed()));
        }
        self.gone.extend(self.graves.drain(..).map(|grave| grave.fd));
        self.clear_out();
        some
    }

    /// `fd` is open on an object that lost its last name, and looked like `attr` before. Blocks
    /// for at most [`REST`].
    pub(super) fn bury(&mut self, key: Key, fd: Arc<OwnedFd>, attr: &Attr) {
        self.clear();
        let small = (attr.kind == FileType::Regular && attr.used <= KEPT_FILE_MAX).then_some(attr.used);
        let grave = Grave { since: Instant::now(), key, small, fd };
        let (born_ns, tick_ns) = (key.born_ns, tick_ns());
        // A birth far in the future is from before the clock was set, and will not be another's.
        if self.is_past(born_ns, tick_ns) || u128::from(born_ns.saturating_sub(tick_ns)) > REST.as_nanos() {
            return self.keep(grave);
        }
        if self.graves.len() >= self.max
            && let Some(oldest) = self.graves.pop_front()
        {
            std::thread::sleep(REST.saturating_sub(oldest.since.elapsed()));
            self.keep(oldest);
        }
        self.graves.push_back(grave);
    }

    /// Holds on to what need not be held any more, if that pays.
    fn keep(&mut self, grave: Grave) {
        let Some(bytes) = grave.small.filter(|_| self.ways.shuns) else { return self.gone.push(grave.fd) };
        if !self.has_room_for(grave.fd.as_raw_fd()) {
            self.gone.push(grave.fd);
            return self.drop_highest();
        }
        self.kept_bytes += bytes;
        let before = self.kept.insert(grave.key.ino, grave);
        self.forget(before.map(|grave| (grave.key.ino, grave)));
        while self.kept.len() > KEPT_MAX.min(self.max) || self.kept_bytes > KEPT_BYTES_MAX {
            self.drop_highest();
        }
    }

    fn drop_highest(&mut self) {
        let highest = self.kept.pop_last();
        self.forget(highest);
    }

    /// One that was kept is held no more.
    fn forget(&mut self, kept: Option<(u64, Grave)>) {
        if let Some((_, grave)) = kept {
            self.kept_bytes -= grave.small.unwrap_or(0);
            self.gone.push(grave.fd);
        }
    }

    /// Whether nothing that is born from `tick_ns` on is born at `born_ns`.
    fn is_past(&self, born_ns: u64, tick_ns: u64) -> bool {
        u128::from(tick_ns) > u128::from(born_ns) + self.ways.grain.as_nanos()
    }
}

/// The kernel's time as births are told by: that of its last tick, in nanoseconds since 1970.
pub(super) fn tick_ns() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use remora_wire::nfs3::{NfsTime, SpecData};

    use super::*;

    const GRAVES: usize = 100;
    const OPEN_MAX: usize = 16 * GRAVES;
    const AGO: u64 = 60_000_000_000;
    const PLAIN: Ways = Ways { grain: Duration::ZERO, shuns: false };
    const SHUNS: Ways = Ways { shuns: true, ..PLAIN };
    const COARSE: Ways = Ways { grain: REST, shuns: false };

    fn attr(kind: FileType, used: u64) -> Attr {
        let (none, rdev) = (NfsTime { secs: 0, nanos: 0 }, SpecData { major: 0, minor: 0 });
        let (size, fsid, fileid, mode, uid, gid) = (used, 1, 1, 0, 0, 0);
        Attr { kind, mode, nlink: 1, uid, gid, size, used, rdev, fsid, fileid, atime: none, mtime: none, ctime: none }
    }

    fn bury_as(yard: &mut Graveyard, born_ns: u64, attr: &Attr) {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        bury_number(yard, Key { ino: NUMBERS.fetch_add(1, Ordering::Relaxed), born_ns }, attr);
    }

    fn bury_number(yard: &mut Graveyard, key: Key, attr: &Attr) {
        let fd = OwnedFd::from(std::fs::File::open("/").unwrap());
        yard.bury(key, Arc::new(fd), attr);
        drop(yard.take_gone());
    }

    fn bury(yard: &mut Graveyard, born_ns: u64) {
        bury_as(yard, born_ns, &attr(FileType::Regular, 0));
    }

    #[test]
    fn the_short_lived_must_be_held_and_not_too_many() {
        for ways in [PLAIN, COARSE] {
            let mut yard = Graveyard::new(OPEN_MAX, OPEN_MAX, ways);
            bury(&mut yard, tick_ns() - AGO);
            assert_eq!(yard.graves.len(), 0, "its number may be used again at once");
            bury(&mut yard, tick_ns() + AGO);
            assert_eq!(yard.graves.len(), 0, "the clock has been set");
            // A little in the future: the tick must not pass in between.
            bury(&mut yard, tick_ns() + 9_000_000);
            assert_eq!(yard.graves.len(), 1);
            (0..2 * GRAVES).for_each(|_| bury(&mut yard, tick_ns() + 9_000_000));
            assert!(yard.graves.len() <= GRAVES);
            bury(&mut yard, tick_ns() + 9_000_000);
            assert!(yard.outlive() && !yard.outlive());
            bury(&mut yard, tick_ns() + 9_000_000);
            std::thread::sleep(2 * REST);
            yard.clear();
            assert_eq!((yard.graves.len(), yard.kept.len()), (0, 0), "the tick has passed");
        }
    }

    #[test]
    fn a_number_is_free_again_as_soon_as_no_birth_can_be_the_same() {
        let ms = 1_000_000;
        for (ways, held_ms) in [(PLAIN, 0), (COARSE, 20)] {
            let yard = Graveyard::new(OPEN_MAX, OPEN_MAX, ways);
            assert!(!yard.is_past(100 * ms, 99 * ms), "{ways:?}");
            assert!(!yard.is_past(100 * ms, (100 + held_ms) * ms), "{ways:?}");
            assert!(yard.is_past(100 * ms, (100 + held_ms) * ms + 1), "{ways:?}");
        }
    }

    #[test]
    fn where_numbers_are_shunned_small_files_wait_for_the_next_to_be_made() {
        let mut yard = Graveyard::new(OPEN_MAX, OPEN_MAX, SHUNS);
        for (kind, used, kept) in [
            (FileType::Regular, 0, 1),
            (FileType::Regular, KEPT_FILE_MAX, 2),
            (FileType::Regular, KEPT_FILE_MAX + 1, 2),
            (FileType::Directory, 0, 2),
        ] {
            bury_as(&mut yard, tick_ns() - AGO, &attr(kind, used));
            assert_eq!(yard.kept.len(), kept, "{kind:?} of {used} bytes");
        }
        assert!(yard.release_one().is_some());
        assert_eq!(yard.kept.len(), 1);
        bury(&mut yard, tick_ns() + 9_000_000);
        assert!(yard.release_one().is_some());
        assert!(yard.release_one().is_none());
        assert_eq!((yard.kept.len(), yard.graves.len()), (0, 1), "what must be held is");
        std::thread::sleep(2 * REST);
        yard.clear();
        assert_eq!((yard.kept.len(), yard.graves.len()), (1, 0), "and kept afterwards");
        (0..2 * KEPT_MAX).for_each(|_| bury(&mut yard, tick_ns() - AGO));
        assert_eq!(yard.kept.len(), KEPT_MAX.min(GRAVES));
        let mut yard = Graveyard::new(usize::MAX, usize::MAX, SHUNS);
        let large = attr(FileType::Regular, KEPT_FILE_MAX);
        (0..2 * KEPT_MAX).for_each(|_| bury_as(&mut yard, tick_ns() - AGO, &large));
        assert_eq!(yard.kept.len() as u64, KEPT_BYTES_MAX / KEPT_FILE_MAX);
        yard.clear_out();
        assert_eq!((yard.kept.len(), yard.kept_bytes), (0, 0));
    }

    #[test]
    fn what_is_kept_makes_way_for_other_descriptors() {
        let mut yard = Graveyard::new(OPEN_MAX, OPEN_MAX, SHUNS);
        (0..10).for_each(|_| bury(&mut yard, tick_ns() - AGO));
        yard.keep_below = 0;
        (0..10).for_each(|_| bury(&mut yard, tick_ns() - AGO));
        assert!(yard.kept.is_empty());
    }

    #[test]
    fn the_lowest_number_is_used_again_first_and_the_highest_goes_if_there_are_too_many() {
        let mut yard = Graveyard::new(OPEN_MAX, OPEN_MAX, SHUNS);
        let born_ns = tick_ns() - AGO;
        let numbers = |yard: &Graveyard| yard.kept.keys().copied().collect::<Vec<_>>();
        for ino in [5, 9, 2, 7] {
            bury_number(&mut yard, Key { ino, born_ns }, &attr(FileType::Regular, 0));
        }
        assert!(yard.release_one().is_some());
        assert_eq!(numbers(&yard), [5, 7, 9]);
        let most = KEPT_MAX.min(GRAVES) as u64;
        (10..=most + 7).for_each(|ino| bury_number(&mut yard, Key { ino, born_ns }, &attr(FileType::Regular, 1)));
        bury_number(&mut yard, Key { ino: 1, born_ns }, &attr(FileType::Regular, 0));
        assert_eq!((yard.kept.len() as u64, numbers(&yard)[..3].to_vec()), (most, vec![1, 5, 7]));
        assert_eq!(yard.kept_bytes, yard.kept.values().filter_map(|grave| grave.small).sum());
    }
}
