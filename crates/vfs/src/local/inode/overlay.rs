//! Inode identity on overlayfs, one mount over several file systems
//! (Documentation/filesystems/overlayfs.rst, "Inode properties").
//!
//! * If the layers are on different file systems, files report the device number of their layer. The mount id shows
//!   that they belong to the overlay.
//! * The first change of a lower file copies it up: its inode number stays, its birth time changes. An object with the
//!   same number at the path where it was last seen is the same object, and keeps its first birth time. A lower file
//!   with several names gets a new number (unless `index=on`), and becomes another object, because its other names
//!   still lead to the lower file. An object born after the export was opened was created in the upper layer: a later
//!   object with its number is another one.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use rustix::fs::fstatfs;

use crate::local::inode::inode_reuse::tick_ns;
use crate::local::inode::stat::{InodeKey, InodeStat};
use crate::local::sys::lru_cache::lru_cache;

/// Most copied-up objects whose first birth time is kept.
const COPIED_UP_MAX: usize = 1 << 16;
/// The bits of a birth time that a device number may change.
const DEVICE_BITS: u32 = 44;

/// The identity rules of an overlay export.
pub(crate) struct Overlay {
    /// The overlay's own device number.
    fsid: u64,
    /// The id of its mount (Linux 5.8).
    mount_id: Option<u64>,
    /// When the export was opened, in nanoseconds since 1970.
    opened_ns: u64,
    /// Whether layers on different file systems have been seen.
    is_mixed: AtomicBool,
    /// The first key of each copied-up object, by its present key.
    copied_up: Mutex<LruCache<InodeKey, InodeKey>>,
}

impl Overlay {
    /// The rules for the export of `root`; `None` if it is not on overlayfs.
    pub(crate) fn of(root: impl AsFd, stat: &InodeStat) -> Option<Overlay> {
        const OVERLAYFS: i64 = 0x794c_7630;
        let is_overlay = fstatfs(root).is_ok_and(|s| s.f_type == OVERLAYFS);
        is_overlay.then(|| Overlay::new(stat, tick_ns()))
    }

    fn new(root: &InodeStat, opened_ns: u64) -> Overlay {
        let copied_up = Mutex::new(lru_cache(COPIED_UP_MAX));
        Overlay {
            fsid: root.attr.fsid,
            mount_id: root.mount_id,
            opened_ns,
            is_mixed: AtomicBool::new(false),
            copied_up,
        }
    }

    /// The key of the root. It has no birth time, so that it survives a copy-up.
    pub(crate) fn root_key(root: &InodeStat) -> InodeKey {
        InodeKey { birth_ns: 0, ..root.key }
    }

    /// `stat` with the overlay's device number and the object's first key.
    pub(crate) fn apply(&self, mut stat: InodeStat) -> InodeStat {
        if stat.attr.fsid != self.fsid && self.mount_id.is_some() && stat.mount_id == self.mount_id {
            // Two layers may use one inode number. Birth times differ in more bits than this changes.
            stat.key.birth_ns ^= stat.attr.fsid;
            stat.attr.fsid = self.fsid;
            self.is_mixed.store(true, Ordering::Relaxed);
        }
        if let Some(first) = self.copied_up.lock().unwrap_or_else(PoisonError::into_inner).get(&stat.key) {
            stat.key = *first;
        }
        stat
    }

    /// Whether `stat`, taken at the path where `key` was last seen, is `key` after a copy-up. If so, it has the key
    /// `key` from now on.
    pub(crate) fn is_copy(&self, stat: &InodeStat, key: InodeKey) -> bool {
        let same = stat.key.ino == key.ino && self.may_be_lower(key);
        if same {
            self.copied_up.lock().unwrap_or_else(PoisonError::into_inner).put(stat.key, key);
        }
        same
    }

    /// Whether `key` may be in a lower layer, which does not change.
    fn may_be_lower(&self, key: InodeKey) -> bool {
        let unsure = if self.is_mixed.load(Ordering::Relaxed) { DEVICE_BITS } else { 0 };
        key.birth_ns >> unsure <= self.opened_ns >> unsure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::inode::stat;

    const OPENED: u64 = 1 << 60;

    fn stat(ino: u64, birth_ns: u64, fsid: u64, mount_id: Option<u64>) -> InodeStat {
        let mut stat = stat::of(std::fs::File::open("/").unwrap()).unwrap();
        stat.attr.fsid = fsid;
        InodeStat { key: InodeKey { ino, birth_ns }, mount_id, ..stat }
    }

    #[test]
    fn layer_files_belong_to_the_overlay_other_mounts_do_not() {
        let overlay = Overlay::new(&stat(1, 10, 7, Some(3)), OPENED);
        let lower = overlay.apply(stat(5, 1000, 8, Some(3)));
        assert_eq!(lower.attr.fsid, 7);
        let upper = overlay.apply(stat(5, 1000, 9, Some(3)));
        assert_ne!(lower.key, upper.key, "two files with one number");
        assert_eq!(overlay.apply(stat(5, 1000, 8, Some(4))).attr.fsid, 8, "another mount");
        let overlay = Overlay::new(&stat(1, 10, 7, None), OPENED);
        assert_eq!(overlay.apply(stat(5, 1000, 8, None)).attr.fsid, 8, "a kernel without mount ids");
    }

    #[test]
    fn copied_up_file_keeps_its_first_birth() {
        let overlay = Overlay::new(&stat(1, 10, 7, Some(3)), OPENED);
        let seen = |ino, birth_ns| overlay.apply(stat(ino, birth_ns, 7, Some(3)));
        let first = seen(5, 1000).key;
        let copied = seen(5, 2000);
        assert_ne!(copied.key, first);
        assert!(overlay.is_copy(&copied, first));
        assert_eq!(seen(5, 2000).key, first);
        assert!(!overlay.is_copy(&seen(6, 2000), first), "another number is another object");
        assert_ne!(seen(6, 2000).key, first);
    }

    #[test]
    fn new_upper_file_is_no_copy_of_its_predecessor() {
        for fsid in [7, 8] {
            let overlay = Overlay::new(&stat(1, 10, 7, Some(3)), OPENED);
            let seen = |birth_ns| overlay.apply(stat(5, birth_ns, fsid, Some(3)));
            let later = OPENED + (2 << DEVICE_BITS);
            assert!(!overlay.is_copy(&seen(later + 1), seen(later).key), "device {fsid}");
            assert!(overlay.is_copy(&seen(later + 1), seen(OPENED - 1).key), "device {fsid}");
        }
    }
}
