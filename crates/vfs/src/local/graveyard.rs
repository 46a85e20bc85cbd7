//! Keeps inode numbers of short-lived objects out of use for a moment.
//!
//! Birth times are as coarse as the kernel's tick. A file made and removed within one, and
//! another one made at once, can have the same inode number and the same birth: the first
//! one's id would reach the second. An open descriptor keeps the number taken, so what is
//! removed right after its birth is held open until the tick has passed.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::ids::Key;

/// Longer than a tick of any Linux (10 ms at the longest).
const REST: Duration = Duration::from_millis(20);
/// Descriptors held at most: with as many, 50,000 removals a second need not wait.
pub(super) const GRAVES_MAX: usize = 1024;

/// See the module.
pub(super) struct Graveyard {
    graves: VecDeque<(Instant, Arc<OwnedFd>)>,
    max: usize,
}

impl Graveyard {
    /// Holds at most `max` descriptors (range: 1 to [`GRAVES_MAX`]); beyond, removals wait.
    pub(super) fn new(max: usize) -> Graveyard {
        Graveyard { graves: VecDeque::new(), max: max.clamp(1, GRAVES_MAX) }
    }

    /// Lets go of what has been held for long enough; what is held takes up its room on the disk.
    pub(super) fn clear(&mut self) {
        while self.graves.front().is_some_and(|(since, _)| since.elapsed() >= REST) {
            self.graves.pop_front();
        }
    }

    /// Waits until nothing has to be held any more; false if nothing was. Blocks for at most
    /// [`REST`].
    pub(super) fn outlive(&mut self) -> bool {
        let Some((newest, _)) = self.graves.back() else { return false };
        std::thread::sleep(REST.saturating_sub(newest.elapsed()));
        self.graves.clear();
        true
    }

    /// `fd` is open on an object that lost its last name. Blocks for at most [`REST`].
    pub(super) fn bury(&mut self, key: Key, fd: Arc<OwnedFd>) {
        self.clear();
        let now = Instant::now();
        let clock_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        if clock_ns.abs_diff(u128::from(key.born_ns)) > REST.as_nanos() {
            return;
        }
        if self.graves.len() >= self.max
            && let Some((since, oldest)) = self.graves.pop_front()
        {
            std::thread::sleep(REST.saturating_sub(now.duration_since(since)));
            drop(oldest);
        }
        self.graves.push_back((Instant::now(), fd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAVES: usize = 100;

    fn bury(yard: &mut Graveyard, age: Duration) {
        let born = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - age;
        let fd = OwnedFd::from(std::fs::File::open("/").unwrap());
        yard.bury(Key { ino: 1, born_ns: born.as_nanos() as u64 }, Arc::new(fd));
    }

    #[test]
    fn only_the_short_lived_are_held_and_not_too_many() {
        let mut yard = Graveyard::new(GRAVES);
        bury(&mut yard, Duration::from_secs(60));
        assert_eq!(yard.graves.len(), 0, "its number may be used again at once");
        bury(&mut yard, Duration::ZERO);
        assert_eq!(yard.graves.len(), 1);
        (0..2 * GRAVES).for_each(|_| bury(&mut yard, Duration::ZERO));
        assert!(yard.graves.len() <= GRAVES);
        assert!(yard.outlive() && !yard.outlive());
        bury(&mut yard, Duration::ZERO);
        std::thread::sleep(REST);
        yard.clear();
        assert_eq!(yard.graves.len(), 0, "the tick has passed");
    }
}
