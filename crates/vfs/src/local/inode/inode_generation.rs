//! Inode numbers that do not mean the same for ever, on file systems that tell no births.
//!
//! FUSE's are mostly counted up by the process behind a mount, as files are looked up: the next mount hands out
//! the same ones in another order. Those of a compressed image are places in it: another image has other files
//! there. Such a number, and nothing else, would lead an old id to another file that is there and well. So what
//! it was counted by takes the place of the birth: the mount, or the image. An id from before is stale then.

use std::hash::Hasher;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};
use siphasher::sip::SipHasher13;

use crate::local::inode::stat::InodeStat;

/// STATX_MNT_ID_UNIQUE (Linux 6.8): a number that no mount had before, nor will have until the next boot.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// See the module.
pub(crate) struct InodeGeneration {
    /// The root's number. It is known without what is told here: whoever has mounted it finds it again.
    root: u64,
    /// What stands for a birth: never 0.
    generation: u64,
    end: Option<HandleLifetime>,
}

/// When handles of an export go stale though the files are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleLifetime {
    /// When its file system is mounted anew.
    WithMount,
    /// When the server ends: the kernel does not tell one mount from the next.
    WithServer,
}

impl InodeGeneration {
    /// Of the disk that `dir` is on, as it was found, and that looks like `root`; `None` where a number stays its
    /// file's. `start` is different at every start.
    pub(crate) fn of(dir: impl AsFd, root: &InodeStat, start: [u8; 8]) -> Option<InodeGeneration> {
        if !renumbers(fstatfs(&dir).ok()?.f_type) {
            return None;
        }
        let (generation, end) = match mount(dir) {
            Some(mount) => (mount, Some(HandleLifetime::WithMount)),
            None => (u64::from_be_bytes(start), Some(HandleLifetime::WithServer)),
        };
        // Where births are told after all, nothing ends.
        let end = end.filter(|_| root.key.birth_ns == 0);
        Some(InodeGeneration { root: root.key.ino, generation: generation.max(1), end })
    }

    /// What the kernel says of an object, with something in place of a birth that it does not tell.
    pub(crate) fn within(&self, mut stat: InodeStat) -> InodeStat {
        if stat.key.birth_ns == 0 && stat.key.ino != self.root {
            stat.key.birth_ns = self.generation;
        }
        stat
    }

    pub(crate) fn handle_lifetime(&self) -> Option<HandleLifetime> {
        self.end
    }
}

/// Whether a file system of this type (statfs(2)) tells no births and numbers its inodes anew at each mount, or in each
/// image. Others without births, as ext4 with small inodes and NFS, keep a file's number.
fn renumbers(f_type: i64) -> bool {
    const FUSE: i64 = 0x6573_5546; // virtiofs, too
    const RAMFS: i64 = 0x8584_58f6;
    // SquashFS, EROFS, cramfs, romfs, ISO 9660.
    const IMAGES: [i64; 5] = [0x7371_7368, 0xe0f5_e1e2, 0x28cd_3d45, 0x7275, 0x9660];
    [FUSE, RAMFS].contains(&f_type) || IMAGES.contains(&f_type)
}

/// The mount of `dir`, unlike all others at any time.
fn mount(dir: impl AsFd) -> Option<u64> {
    let mount = statx(dir, "", AtFlags::EMPTY_PATH, UNIQUE).ok()?;
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let told = mount.stx_mask & UNIQUE.bits() != 0;
    told.then(|| hash(&[&boot, &mount.stx_mnt_id.to_be_bytes()]))
}

/// It must not change between versions.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut h = SipHasher13::new_with_keys(0, 0);
    parts.iter().for_each(|part| h.write(part));
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::handles::file_id::InodeKey;
    use crate::local::inode::stat;
    use std::fs::File;

    fn stat(ino: u64, birth_ns: u64) -> InodeStat {
        let stat = stat::of(File::open("/").unwrap()).unwrap();
        InodeStat { key: InodeKey { ino, birth_ns }, ..stat }
    }

    #[test]
    fn a_number_without_a_birth_means_something_else_when_counted_anew() {
        let numbers = |generation| InodeGeneration { root: 1, generation, end: None };
        for (ino, birth_ns, same) in [(1, 0, true), (7, 0, false), (7, 9, true)] {
            let [one, other] = [3, 4].map(|generation| numbers(generation).within(stat(ino, birth_ns)).key);
            assert_eq!(one == other, same, "{ino}, born at {birth_ns}");
            assert_eq!(numbers(3).within(stat(ino, birth_ns)).key, one);
        }
    }

    #[test]
    fn the_usual_file_systems_keep_their_numbers() {
        const EXT: i64 = 0xef53;
        const NFS: i64 = 0x6969;
        const XFS: i64 = 0x5846_5342;
        for kind in [EXT, NFS, XFS] {
            assert!(!renumbers(kind));
        }
    }

    #[test]
    fn a_mount_is_the_same_for_as_long_as_it_is_there() {
        let [one, again] = [0, 1].map(|_| mount(File::open("/").unwrap()));
        assert_eq!(one, again);
        let proc = mount(File::open("/proc").unwrap());
        assert!(one.is_none() || one != proc);
    }
}
