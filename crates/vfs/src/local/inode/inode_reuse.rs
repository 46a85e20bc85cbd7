//! Keeps the inode number of a removed object in use until no new object can have the same birth time.
//!
//! A handle names an object by inode number and birth time. Birth times are as coarse as the kernel's clock tick: a
//! file created right after the removal of another may get both from it, and the old handle would reach the new file.
//! An open descriptor keeps the inode number in use, so an object removed within the tick of its birth stays open until
//! the tick has passed.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::local::inode::stat::InodeKey;

/// Longer than a clock tick on any Linux (at most 10 ms).
pub(crate) const TICK_MAX: Duration = Duration::from_millis(20);
/// Most descriptors held. With 1024, up to 50,000 removals a second do not wait.
const HELD_MAX: usize = 1024;

/// The removed objects of one file system whose birth tick has not passed.
pub(crate) struct InodeReuseGuard {
    held: VecDeque<HeldInode>,
    max: usize,
    /// Released, and to be closed by the caller: see [`InodeReuseGuard::take_released`].
    released: Vec<Arc<OwnedFd>>,
    /// How much coarser than the clock tick the file system keeps birth times.
    birth_grain: Duration,
}

/// An object without a name.
struct HeldInode {
    since: Instant,
    key: InodeKey,
    fd: Arc<OwnedFd>,
}

impl InodeReuseGuard {
    /// Holds at most a sixteenth of `share`, the number of descriptors this file system may use (range: 1 to
    /// [`HELD_MAX`]). Beyond that removals wait.
    pub(crate) fn new(share: usize, birth_grain: Duration) -> InodeReuseGuard {
        let max = (share / 16).clamp(1, HELD_MAX);
        InodeReuseGuard { held: VecDeque::new(), max, released: Vec::new(), birth_grain }
    }

    /// Returns the released descriptors. The caller closes them after it unlocks this value: closing a large file
    /// without a name frees its blocks, which may take seconds.
    #[must_use]
    pub(crate) fn take_released(&mut self) -> Vec<Arc<OwnedFd>> {
        std::mem::take(&mut self.released)
    }

    /// Releases the objects whose birth tick has passed.
    pub(crate) fn release_expired(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let tick_ns = tick_ns();
        while let Some(oldest) = self.held.front()
            && (self.is_over(oldest.key.birth_ns, tick_ns) || oldest.since.elapsed() >= TICK_MAX)
            && let Some(oldest) = self.held.pop_front()
        {
            self.released.push(oldest.fd);
        }
    }

    /// Waits at most [`TICK_MAX`], then releases all objects. Returns false if there were none.
    pub(crate) fn wait_and_release(&mut self) -> bool {
        let Some(newest) = self.held.back() else { return false };
        std::thread::sleep(TICK_MAX.saturating_sub(newest.since.elapsed()));
        self.released.extend(self.held.drain(..).map(|oldest| oldest.fd));
        true
    }

    /// Holds `fd`, open on an object that lost its last name, if its birth tick has not passed. Blocks for at most
    /// [`TICK_MAX`] if too many objects are held.
    pub(crate) fn hold(&mut self, key: InodeKey, fd: Arc<OwnedFd>) {
        self.release_expired();
        let (birth_ns, tick_ns) = (key.birth_ns, tick_ns());
        // A birth far in the future predates a clock change. No new object will have it.
        if self.is_over(birth_ns, tick_ns) || u128::from(birth_ns.saturating_sub(tick_ns)) > TICK_MAX.as_nanos() {
            return self.released.push(fd);
        }
        if self.held.len() >= self.max
            && let Some(oldest) = self.held.pop_front()
        {
            std::thread::sleep(TICK_MAX.saturating_sub(oldest.since.elapsed()));
            self.released.push(oldest.fd);
        }
        self.held.push_back(HeldInode { since: Instant::now(), key, fd });
    }

    /// Whether an object created at `tick_ns` or later cannot be born at `birth_ns`.
    fn is_over(&self, birth_ns: u64, tick_ns: u64) -> bool {
        u128::from(tick_ns) > u128::from(birth_ns) + self.birth_grain.as_nanos()
    }
}

/// The kernel's clock at its last tick, in nanoseconds since 1970: the source of birth times.
pub(crate) fn tick_ns() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: usize = 100;
    const OPEN_MAX: usize = 16 * HELD;
    const AGO: u64 = 60_000_000_000;
    const GRAINS: [Duration; 2] = [Duration::ZERO, TICK_MAX];

    fn hold(guard: &mut InodeReuseGuard, birth_ns: u64) {
        let fd = OwnedFd::from(std::fs::File::open("/").unwrap());
        guard.hold(InodeKey { ino: 1, birth_ns }, Arc::new(fd));
        drop(guard.take_released());
    }

    #[test]
    fn short_lived_object_is_held_until_its_tick_has_passed() {
        for grain in GRAINS {
            let mut guard = InodeReuseGuard::new(OPEN_MAX, grain);
            hold(&mut guard, tick_ns() - AGO);
            assert_eq!(guard.held.len(), 0, "born long ago: its number may be reused");
            hold(&mut guard, tick_ns() + AGO);
            assert_eq!(guard.held.len(), 0, "born before a clock change");
            // A little in the future, so that the tick does not pass during the test.
            hold(&mut guard, tick_ns() + 9_000_000);
            assert_eq!(guard.held.len(), 1);
            (0..2 * HELD).for_each(|_| hold(&mut guard, tick_ns() + 9_000_000));
            assert!(guard.held.len() <= HELD);
            hold(&mut guard, tick_ns() + 9_000_000);
            assert!(guard.wait_and_release() && !guard.wait_and_release());
            hold(&mut guard, tick_ns() + 9_000_000);
            std::thread::sleep(2 * TICK_MAX);
            guard.release_expired();
            assert_eq!(guard.held.len(), 0, "the tick has passed");
        }
    }

    #[test]
    fn number_is_free_when_no_birth_can_be_the_same() {
        let ms = 1_000_000;
        for (grain, held_ms) in GRAINS.into_iter().zip([0, 20]) {
            let guard = InodeReuseGuard::new(OPEN_MAX, grain);
            assert!(!guard.is_over(100 * ms, 99 * ms), "{grain:?}");
            assert!(!guard.is_over(100 * ms, (100 + held_ms) * ms), "{grain:?}");
            assert!(guard.is_over(100 * ms, (100 + held_ms) * ms + 1), "{grain:?}");
        }
    }
}
