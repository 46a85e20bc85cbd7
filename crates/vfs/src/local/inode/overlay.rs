//! overlayfs: one mount with several file systems beneath it
//! (Documentation/filesystems/overlayfs.rst, "Inode properties").
//!
//! Two of its ways are unlike any other file system's:
//!
//! * Where the overlay are on different file systems its files bear their layer's device number,
//!   though they are no more mounted there than the directories they are in. What tells is the
//!   number of the mount.
//! * What is changed for the first time is copied from a lower layer to the upper one. Its inode
//!   number stays, its birth does not. So what is still at the place where it was last seen, with its
//!   number, is taken for what it was, and keeps the birth that it was first seen with. A file that has
//!   several names in the lower layer gets another number (but with `index=on`), and rightly: its other
//!   names go on to mean what is below. What was born after the export was opened was made in the upper
//!   layer: once it is gone the next file there may have its number, and is not it.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use rustix::fs::fstatfs;

use crate::local::handles::file_id::InodeKey;
use crate::local::inode::inode_reuse::tick_ns;
use crate::local::inode::stat::InodeStat;
use crate::local::sys::lru_cache::lru_cache;

/// Objects whose first birth is remembered.
const COPIED_UP_MAX: usize = 1 << 16;
/// The bits of a birth that a device number may change.
const DEVICE_BITS: u32 = 44;

/// See the module.
pub(crate) struct Overlay {
    /// The overlay's own device number.
    fsid: u64,
    /// The number of its mount, if the kernel tells (Linux 5.8).
    mount: Option<u64>,
    /// When it was opened, in nanoseconds since 1970.
    opened_ns: u64,
    /// Its overlay were seen to be on different file systems.
    is_mixed: AtomicBool,
    /// By what copied objects are now, what they were first seen as.
    copied_up: Mutex<LruCache<InodeKey, InodeKey>>,
}

impl Overlay {
    /// Of the disk that `root` is on; `None` if it has none.
    pub(crate) fn of(root: impl AsFd, stat: &InodeStat) -> Option<Overlay> {
        const OVERLAYFS: i64 = 0x794c_7630;
        let layered = fstatfs(root).is_ok_and(|s| s.f_type == OVERLAYFS);
        layered.then(|| Overlay::new(stat, tick_ns()))
    }

    fn new(root: &InodeStat, opened_ns: u64) -> Overlay {
        let (is_mixed, copied_up) = (AtomicBool::new(false), Mutex::new(lru_cache(COPIED_UP_MAX)));
        Overlay { fsid: root.attr.fsid, mount: root.mount, opened_ns, is_mixed, copied_up }
    }

    /// What the root is known as: it is found without its birth.
    pub(crate) fn root_key(root: &InodeStat) -> InodeKey {
        InodeKey { birth_ns: 0, ..root.key }
    }

    /// What the kernel says of an object, in the overlay's own terms.
    pub(crate) fn within(&self, mut stat: InodeStat) -> InodeStat {
        if stat.attr.fsid != self.fsid && self.mount.is_some() && stat.mount == self.mount {
            // Two overlay may use one number. Births differ by more than what this changes.
            stat.key.birth_ns ^= stat.attr.fsid;
            stat.attr.fsid = self.fsid;
            self.is_mixed.store(true, Ordering::Relaxed);
        }
        if let Some(first) = self.copied_up.lock().unwrap_or_else(PoisonError::into_inner).get(&stat.key) {
            stat.key = *first;
        }
        stat
    }

    /// Whether `stat`, of what is where `key` was seen, is `key` after it was copied; it is known as
    /// `key` from now on.
    pub(crate) fn is_copy(&self, stat: &InodeStat, key: InodeKey) -> bool {
        let same = stat.key.ino == key.ino && self.may_be_lower(key);
        if same {
            self.copied_up.lock().unwrap_or_else(PoisonError::into_inner).put(stat.key, key);
        }
        same
    }

    /// Whether it may come from a lower layer, which nobody changes.
    fn may_be_lower(&self, key: InodeKey) -> bool {
        let unsure = if self.is_mixed.load(Ordering::Relaxed) { DEVICE_BITS } else { 0 };
        key.birth_ns >> unsure <= self.opened_ns >> unsure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::stat;

    const SINCE: u64 = 1 << 60;

    /// What the kernel would say of something with this number and birth.
    fn stat(ino: u64, birth_ns: u64, fsid: u64, mount: Option<u64>) -> InodeStat {
        let mut stat = stat::of(std::fs::File::open("/").unwrap()).unwrap();
        stat.attr.fsid = fsid;
        InodeStat { key: InodeKey { ino, birth_ns }, mount, ..stat }
    }

    #[test]
    fn files_of_the_layers_belong_to_the_overlay_and_other_mounts_do_not() {
        let overlay = Overlay::new(&stat(1, 10, 7, Some(3)), SINCE);
        let lower = overlay.within(stat(5, 1000, 8, Some(3)));
        assert_eq!(lower.attr.fsid, 7);
        let upper = overlay.within(stat(5, 1000, 9, Some(3)));
        assert_ne!(lower.key, upper.key, "two files with the number of one");
        assert_eq!(overlay.within(stat(5, 1000, 8, Some(4))).attr.fsid, 8);
        // A kernel that does not tell of mounts: nothing can be said for a foreign device.
        let overlay = Overlay::new(&stat(1, 10, 7, None), SINCE);
        assert_eq!(overlay.within(stat(5, 1000, 8, None)).attr.fsid, 8);
    }

    #[test]
    fn what_was_copied_keeps_its_first_birth() {
        let overlay = Overlay::new(&stat(1, 10, 7, Some(3)), SINCE);
        let seen = |ino, born| overlay.within(stat(ino, born, 7, Some(3)));
        let first = seen(5, 1000).key;
        let copied = seen(5, 2000);
        assert_ne!(copied.key, first);
        assert!(overlay.is_copy(&copied, first));
        assert_eq!(seen(5, 2000).key, first);
        // Another number is another object, whatever its place.
        assert!(!overlay.is_copy(&seen(6, 2000), first));
        assert_ne!(seen(6, 2000).key, first);
    }
    #[test]
    fn what_was_made_since_is_no_copy_of_what_had_its_number() {
        for fsid in [7, 8] {
            let overlay = Overlay::new(&stat(1, 10, 7, Some(3)), SINCE);
            let seen = |born| overlay.within(stat(5, born, fsid, Some(3)));
            let later = SINCE + (2 << DEVICE_BITS);
            assert!(!overlay.is_copy(&seen(later + 1), seen(later).key), "of device {fsid}");
            assert!(overlay.is_copy(&seen(later + 1), seen(SINCE - 1).key), "of device {fsid}");
        }
    }
}
