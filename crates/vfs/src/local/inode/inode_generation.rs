//! The generation of inode numbers that a file system assigns anew.
//!
//! FUSE numbers inodes as they are looked up, so after a remount another file has the number. In a compressed image the
//! number is a position, so another image has another file there. These file systems have no birth times, and an old
//! handle would reach the wrong file. So the id of the mount replaces the birth time: handles from an earlier mount are
//! stale.

use std::hash::Hasher;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};
use siphasher::sip::SipHasher13;

use crate::local::inode::stat::InodeStat;

/// STATX_MNT_ID_UNIQUE (Linux 6.8): a mount id that is not reused before the next boot.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The generation of the inode numbers of an export.
pub(crate) struct InodeGeneration {
    /// The root's inode number. The root keeps its id across mounts, so clients need not mount again.
    root_ino: u64,
    /// Replaces a missing birth time; never 0.
    generation: u64,
    lifetime: Option<HandleLifetime>,
}

/// How long the file handles of an export are valid, if not as long as their files exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleLifetime {
    /// Until the file system is unmounted.
    UntilUnmount,
    /// Until the server exits: this kernel does not distinguish one mount from the next.
    UntilServerExit,
}

impl InodeGeneration {
    /// The generation for the export of `dir`, whose stat is `root`; `None` if the file system keeps a file's number.
    /// `start` differs at each start of the server.
    pub(crate) fn of(dir: impl AsFd, root: &InodeStat, start: [u8; 8]) -> Option<InodeGeneration> {
        if !renumbers(fstatfs(&dir).ok()?.f_type) {
            return None;
        }
        let (generation, lifetime) = match mount_hash(dir) {
            Some(mount) => (mount, HandleLifetime::UntilUnmount),
            None => (u64::from_be_bytes(start), HandleLifetime::UntilServerExit),
        };
        let lifetime = (root.key.birth_ns == 0).then_some(lifetime);
        Some(InodeGeneration { root_ino: root.key.ino, generation: generation.max(1), lifetime })
    }

    /// `stat` with the generation in place of a missing birth time.
    pub(crate) fn apply(&self, mut stat: InodeStat) -> InodeStat {
        if stat.key.birth_ns == 0 && stat.key.ino != self.root_ino {
            stat.key.birth_ns = self.generation;
        }
        stat
    }

    pub(crate) fn handle_lifetime(&self) -> Option<HandleLifetime> {
        self.lifetime
    }
}

/// Whether a file system of this type (statfs(2)) has no birth times and numbers its inodes anew at each mount or in
/// each image. Others without birth times, such as ext4 with small inodes and NFS, keep a file's number.
fn renumbers(f_type: i64) -> bool {
    const FUSE: i64 = 0x6573_5546; // virtiofs, too
    const RAMFS: i64 = 0x8584_58f6;
    // SquashFS, EROFS, cramfs, romfs, ISO 9660.
    const IMAGES: [i64; 5] = [0x7371_7368, 0xe0f5_e1e2, 0x28cd_3d45, 0x7275, 0x9660];
    [FUSE, RAMFS].contains(&f_type) || IMAGES.contains(&f_type)
}

/// A hash of boot and mount of `dir`. It must not change between versions.
fn mount_hash(dir: impl AsFd) -> Option<u64> {
    let mount = statx(dir, "", AtFlags::EMPTY_PATH, UNIQUE).ok()?;
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let is_unique = mount.stx_mask & UNIQUE.bits() != 0;
    is_unique.then(|| {
        let mut hasher = SipHasher13::new_with_keys(0, 0);
        hasher.write(&boot);
        hasher.write(&mount.stx_mnt_id.to_be_bytes());
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::local::inode::stat::{self, InodeKey};

    fn stat(ino: u64, birth_ns: u64) -> InodeStat {
        let stat = stat::of(File::open("/").unwrap()).unwrap();
        InodeStat { key: InodeKey { ino, birth_ns }, ..stat }
    }

    #[test]
    fn missing_birth_is_replaced_by_the_generation() {
        let numbers = |generation| InodeGeneration { root_ino: 1, generation, lifetime: None };
        for (ino, birth_ns, same) in [(1, 0, true), (7, 0, false), (7, 9, true)] {
            let [one, other] = [3, 4].map(|generation| numbers(generation).apply(stat(ino, birth_ns)).key);
            assert_eq!(one == other, same, "inode {ino}, birth {birth_ns}");
            assert_eq!(numbers(3).apply(stat(ino, birth_ns)).key, one);
        }
    }

    #[test]
    fn usual_file_systems_keep_their_numbers() {
        const EXT: i64 = 0xef53;
        const NFS: i64 = 0x6969;
        const XFS: i64 = 0x5846_5342;
        assert!([EXT, NFS, XFS].iter().all(|f_type| !renumbers(*f_type)));
    }

    #[test]
    fn mount_hash_is_stable_and_differs_by_mount() {
        let [one, again] = [0, 1].map(|_| mount_hash(File::open("/").unwrap()));
        assert_eq!(one, again);
        let proc = mount_hash(File::open("/proc").unwrap());
        assert!(one.is_none() || one != proc);
    }
}
