//! Inode numbers that do not mean the same for ever, on file systems that tell no births.
//!
//! FUSE's are mostly counted up by the process behind a mount, as files are looked up: the next mount hands out
//! the same ones in another order. Those of a compressed image are places in it: another image has other files
//! there. Such a number, and nothing else, would lead an old id to another file that is there and well. So what
//! it was counted by takes the place of the birth: the mount, or the image. An id from before is stale then.

use std::fs::File;
use std::hash::Hasher;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, makedev, statx};
use siphasher::sip::SipHasher13;

use super::stat::Stat;

/// STATX_MNT_ID_UNIQUE (Linux 6.8): a number that no mount had before, nor will have until the next boot.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// The first bytes of an image, which tell it from others: all of these have a superblock there, with counts,
/// places and mostly the time when it was made (ISO 9660 behind 32 KiB).
const HEAD: usize = 64 << 10;

/// See the module.
pub(super) struct Numbers {
    /// The root's number. It is known without what is told here: whoever has mounted it finds it again.
    root: u64,
    /// What stands for a birth: never 0.
    counted_by: u64,
    end: Option<HandlesEnd>,
}

/// When handles of an export go stale though the files are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandlesEnd {
    /// When its file system is mounted anew.
    WithMount,
    /// When the server ends: the kernel does not tell one mount from the next.
    WithServer,
}

/// Whose the numbers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counter {
    Mount,
    Image,
}

impl Numbers {
    /// Of the disk that `dir` is on, as it was found, and that looks like `root`; `None` where a number stays its
    /// file's. `start` is different at every start.
    pub(super) fn of(dir: impl AsFd, root: &Stat, start: [u8; 8]) -> Option<Numbers> {
        let image = |counter| if counter == Counter::Image { image(root.attr.fsid) } else { None };
        let counter = counter(fstatfs(&dir).ok()?.f_type)?;
        let (counted_by, end) = match (image(counter), mount(dir)) {
            (Some(image), _) => (image, None),
            (None, Some(mount)) => (mount, Some(HandlesEnd::WithMount)),
            (None, None) => (u64::from_be_bytes(start), Some(HandlesEnd::WithServer)),
        };
        // Where births are told after all, nothing ends.
        let end = end.filter(|_| root.key.born_ns == 0);
        Some(Numbers { root: root.key.ino, counted_by: counted_by.max(1), end })
    }

    /// What the kernel says of an object, with something in place of a birth that it does not tell.
    pub(super) fn within(&self, mut stat: Stat) -> Stat {
        if stat.key.born_ns == 0 && stat.key.ino != self.root {
            stat.key.born_ns = self.counted_by;
        }
        stat
    }

    pub(super) fn handles_end(&self) -> Option<HandlesEnd> {
        self.end
    }
}

/// By the type of a file system (statfs(2)). Others that tell no births, as ext4 with small inodes and NFS, have
/// numbers for good.
fn counter(kind: i64) -> Option<Counter> {
    match kind {
        // FUSE and virtiofs, and ramfs.
        0x6573_5546 | 0x8584_58f6 => Some(Counter::Mount),
        // SquashFS, EROFS, cramfs, romfs, ISO 9660.
        0x7371_7368 | 0xe0f5_e1e2 | 0x28cd_3d45 | 0x7275 | 0x9660 => Some(Counter::Image),
        _ => None,
    }
}

/// The mount of `dir`, unlike all others at any time.
fn mount(dir: impl AsFd) -> Option<u64> {
    let mount = statx(dir, "", AtFlags::EMPTY_PATH, UNIQUE).ok()?;
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let told = mount.stx_mask & UNIQUE.bits() != 0;
    told.then(|| hash(&[&boot, &mount.stx_mnt_id.to_be_bytes()]))
}

/// The image on a device, if this process may read it.
fn image(device: u64) -> Option<u64> {
    let (major, minor) = ((device >> 32) as u32, device as u32);
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // Where the name has a slash the kernel has this.
    let name = link.file_name()?.to_str()?.replace('!', "/");
    let node = File::open(format!("/dev/{name}")).ok()?;
    let is_it = node.metadata().ok()?.rdev() == makedev(major, minor);
    if is_it { head(&node) } else { None }
}

fn head(image: &File) -> Option<u64> {
    let mut bytes = vec![0; HEAD];
    let mut len = 0;
    while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match image.read_at(rest, len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(hash(&[bytes.get(..len)?]))
}

/// It must not change between versions.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut h = SipHasher13::new_with_keys(0, 0);
    parts.iter().for_each(|part| h.write(part));
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::super::ids::Key;
    use super::super::stat;
    use super::*;

    fn stat(ino: u64, born_ns: u64) -> Stat {
        let stat = stat::of(File::open("/").unwrap()).unwrap();
        Stat { key: Key { ino, born_ns }, ..stat }
    }

    #[test]
    fn a_number_without_a_birth_means_something_else_when_counted_anew() {
        let numbers = |counted_by| Numbers { root: 1, counted_by, end: None };
        for (ino, born_ns, same) in [(1, 0, true), (7, 0, false), (7, 9, true)] {
            let [one, other] = [3, 4].map(|counted_by| numbers(counted_by).within(stat(ino, born_ns)).key);
            assert_eq!(one == other, same, "{ino}, born at {born_ns}");
            assert_eq!(numbers(3).within(stat(ino, born_ns)).key, one);
        }
    }

    #[test]
    fn the_usual_file_systems_keep_their_numbers() {
        const EXT: i64 = 0xef53;
        const NFS: i64 = 0x6969;
        const XFS: i64 = 0x5846_5342;
        for kind in [EXT, NFS, XFS] {
            assert_eq!(counter(kind), None);
        }
    }

    #[test]
    fn a_mount_is_the_same_for_as_long_as_it_is_there() {
        let [one, again] = [0, 1].map(|_| mount(File::open("/").unwrap()));
        assert_eq!(one, again);
        let proc = mount(File::open("/proc").unwrap());
        assert!(one.is_none() || one != proc);
    }

    #[test]
    fn images_are_told_by_their_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let image = |bytes: &[u8]| {
            std::fs::write(dir.path().join("image"), bytes).unwrap();
            head(&File::open(dir.path().join("image")).unwrap()).unwrap()
        };
        let mut bytes = vec![0; HEAD + 1];
        let before = image(&bytes);
        bytes[HEAD] = 1;
        assert_eq!(image(&bytes), before);
        bytes[HEAD - 1] = 1;
        assert_ne!(image(&bytes), before);
        assert_ne!(image(b""), image(b"\0"));
    }
}
