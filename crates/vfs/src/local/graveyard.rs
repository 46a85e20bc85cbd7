//! Keeps the inode number of a removed object in use until no new object can have the same birth time.
//!
//! A handle names an object by inode number and birth time. Birth times are as coarse as the kernel's clock tick: a file
//! created right after the removal of another may get both from it, and the old handle would reach the new file. An open
//! descriptor keeps the inode number in use, so an object removed within the tick of its birth stays open until the tick
//! has passed.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::ids::Key;

/// Longer than a clock tick on any Linux (at most 10 ms).
pub(super) const REST: Duration = Duration::from_millis(20);
/// Most descriptors held. With 1024, up to 50,000 removals a second do not wait.
const GRAVES_MAX: usize = 1024;

/// The removed objects of one file system whose birth tick has not passed.
pub(super) struct Graveyard {
    graves: VecDeque<Grave>,
    max: usize,
    /// Released, and to be closed by the caller: see [`Graveyard::take_gone`].
    gone: Vec<Arc<OwnedFd>>,
    /// How much coarser than the clock tick the file system keeps birth times.
    birth_grain: Duration,
}

/// An object without a name.
struct Grave {
    since: Instant,
    key: Key,
    fd: Arc<OwnedFd>,
}

impl Graveyard {
    /// Holds at most a sixteenth of `share`, the number of descriptors this file system may use (range: 1 to
    /// [`GRAVES_MAX`]). Beyond that removals wait.
    pub(super) fn new(share: usize, birth_grain: Duration) -> Graveyard {
        let max = (share / 16).clamp(1, GRAVES_MAX);
        Graveyard { graves: VecDeque::new(), max, gone: Vec::new(), birth_grain }
    }

    /// Returns the released descriptors. The caller closes them after it unlocks the graveyard: closing a large file
    /// without a name frees its blocks, which may take seconds.
    #[must_use]
    pub(super) fn take_gone(&mut self) -> Vec<Arc<OwnedFd>> {
        std::mem::take(&mut self.gone)
    }

    /// Releases the objects whose birth tick has passed.
    pub(super) fn clear(&mut self) {
        if self.graves.is_empty() {
            return;
        }
        let tick_ns = tick_ns();
        while let Some(grave) = self.graves.front()
            && (self.is_past(grave.key.born_ns, tick_ns) || grave.since.elapsed() >= REST)
            && let Some(grave) = self.graves.pop_front()
        {
            self.gone.push(grave.fd);
        }
    }

    /// Waits at most [`REST`], then releases all objects. Returns false if there were none.
    pub(super) fn outlive(&mut self) -> bool {
        let Some(newest) = self.graves.back() else { return false };
        std::thread::sleep(REST.saturating_sub(newest.since.elapsed()));
        self.gone.extend(self.graves.drain(..).map(|grave| grave.fd));
        true
    }

    /// Holds `fd`, open on an object that lost its last name, if its birth tick has not passed. Blocks for at most
    /// [`REST`] if too many objects are held.
    pub(super) fn bury(&mut self, key: Key, fd: Arc<OwnedFd>) {
        self.clear();
        let (born_ns, tick_ns) = (key.born_ns, tick_ns());
        // A birth far in the future predates a clock change. No new object will have it.
        if self.is_past(born_ns, tick_ns) || u128::from(born_ns.saturating_sub(tick_ns)) > REST.as_nanos() {
            return self.gone.push(fd);
        }
        if self.graves.len() >= self.max
            && let Some(oldest) = self.graves.pop_front()
        {
            std::thread::sleep(REST.saturating_sub(oldest.since.elapsed()));
            self.gone.push(oldest.fd);
        }
        self.graves.push_back(Grave { since: Instant::now(), key, fd });
    }

    /// Whether an object created at `tick_ns` or later cannot be born at `born_ns`.
    fn is_past(&self, born_ns: u64, tick_ns: u64) -> bool {
        u128::from(tick_ns) > u128::from(born_ns) + self.birth_grain.as_nanos()
    }
}

/// The kernel's clock at its last tick, in nanoseconds since 1970: the source of birth times.
pub(super) fn tick_ns() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAVES: usize = 100;
    const OPEN_MAX: usize = 16 * GRAVES;
    const AGO: u64 = 60_000_000_000;
    const GRAINS: [Duration; 2] = [Duration::ZERO, REST];

    fn bury(yard: &mut Graveyard, born_ns: u64) {
        let fd = OwnedFd::from(std::fs::File::open("/").unwrap());
        yard.bury(Key { ino: 1, born_ns }, Arc::new(fd));
        drop(yard.take_gone());
    }

    #[test]
    fn short_lived_object_is_held_until_its_tick_has_passed() {
        for grain in GRAINS {
            let mut yard = Graveyard::new(OPEN_MAX, grain);
            bury(&mut yard, tick_ns() - AGO);
            assert_eq!(yard.graves.len(), 0, "born long ago: its number may be reused");
            bury(&mut yard, tick_ns() + AGO);
            assert_eq!(yard.graves.len(), 0, "born before a clock change");
            // A little in the future, so that the tick does not pass during the test.
            bury(&mut yard, tick_ns() + 9_000_000);
            assert_eq!(yard.graves.len(), 1);
            (0..2 * GRAVES).for_each(|_| bury(&mut yard, tick_ns() + 9_000_000));
            assert!(yard.graves.len() <= GRAVES);
            bury(&mut yard, tick_ns() + 9_000_000);
            assert!(yard.outlive() && !yard.outlive());
            bury(&mut yard, tick_ns() + 9_000_000);
            std::thread::sleep(2 * REST);
            yard.clear();
            assert_eq!(yard.graves.len(), 0, "the tick has passed");
        }
    }

    #[test]
    fn number_is_free_when_no_birth_can_be_the_same() {
        let ms = 1_000_000;
        for (grain, held_ms) in GRAINS.into_iter().zip([0, 20]) {
            let yard = Graveyard::new(OPEN_MAX, grain);
            assert!(!yard.is_past(100 * ms, 99 * ms), "{grain:?}");
            assert!(!yard.is_past(100 * ms, (100 + held_ms) * ms), "{grain:?}");
            assert!(yard.is_past(100 * ms, (100 + held_ms) * ms + 1), "{grain:?}");
        }
    }
}
