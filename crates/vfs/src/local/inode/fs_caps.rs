//! The capabilities of the file system of an export: how it keeps names, attributes and birth times.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, SeekFrom, fstatfs, openat, seek};

use crate::local::inode::inode_reuse::TICK_MAX;

/// What the local disk needs to know of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FsCaps {
    /// A journal commits a new object together with its name, so one fsync of the directory makes both stable: ext4
    /// with an internal journal, and XFS. False if unknown.
    pub(crate) has_journal: bool,
    /// A new object inherits its directory's default ACL in a second transaction, after its creation: XFS.
    pub(crate) acl_after_create: bool,
    /// syncfs(2) flushes names and attributes. Not so on FUSE, which sends its process nothing (except virtiofs, which
    /// looks the same from here), nor on 9p and eCryptfs, which do not flush the file system below.
    pub(crate) syncfs_is_complete: bool,
    /// An open object that is removed gets a hidden name (`.nfsXXXX`, `.fuse_hiddenXXXX`), which blocks the removal of
    /// its directory, or cannot be removed: NFS, FUSE and CIFS.
    pub(crate) silly_renames: bool,
    /// Directory cookies are valid for one open descriptor only: FUSE and CIFS.
    pub(crate) volatile_cookies: bool,
    /// The kernel of this machine checks permissions by mode and POSIX ACL. False for network file systems and if
    /// unknown.
    pub(crate) local_permissions: bool,
    /// How much coarser than the kernel's clock tick birth times are (range: up to [`TICK_MAX`]).
    pub(crate) birth_grain: Duration,
}

impl FsCaps {
    /// The capabilities of the file system of `root` on `device`.
    pub(crate) fn of(root: impl AsFd, device: u64) -> FsCaps {
        const EXT: i64 = 0xef53;
        const XFS: i64 = 0x5846_5342;
        const FUSE: i64 = 0x6573_5546;
        const ECRYPTFS: i64 = 0xf15f;
        const NINE_P: i64 = 0x0102_1997;
        const NFS: i64 = 0x6969;
        const CIFS: i64 = 0xff53_4d42;
        const SMB2: i64 = 0xfe53_4d42;
        let unknown = FsCaps {
            has_journal: false,
            acl_after_create: false,
            syncfs_is_complete: true,
            silly_renames: false,
            volatile_cookies: false,
            local_permissions: false,
            birth_grain: TICK_MAX,
        };
        let local = FsCaps { local_permissions: true, ..unknown };
        match fstatfs(root).map(|s| s.f_type) {
            Ok(XFS) => FsCaps { has_journal: true, acl_after_create: true, birth_grain: Duration::ZERO, ..local },
            Ok(EXT) => {
                let has_journal = ext_journal(device >> 32, device & 0xffff_ffff).is_some();
                FsCaps { has_journal, birth_grain: Duration::ZERO, ..local }
            }
            Ok(FUSE) => FsCaps { syncfs_is_complete: false, silly_renames: true, volatile_cookies: true, ..unknown },
            Ok(ECRYPTFS | NINE_P) => FsCaps { syncfs_is_complete: false, ..unknown },
            Ok(NFS) => FsCaps { silly_renames: true, ..unknown },
            Ok(CIFS | SMB2) => FsCaps { silly_renames: true, volatile_cookies: true, ..unknown },
            Ok(magic) if OTHER_LOCAL.contains(&magic) => local,
            _ => unknown,
        }
    }
}

/// Local file systems that differ from an unknown one in [`FsCaps::local_permissions`] only, by their number in
/// statfs(2) (`linux/magic.h`).
const OTHER_LOCAL: [i64; 20] = [
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS2
    0x2405_1905, // UBIFS
    0x72b6,      // JFFS2
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS3
    0x482b,      // HFS+
    0x9660,      // ISO 9660
    0x1501_3346, // UDF
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
];

/// The kernel's directory of the internal journal of an ext4 file system.
fn ext_journal(major: u64, minor: u64) -> Option<PathBuf> {
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = device.file_name()?.to_str()?;
    // Inode 8 is the journal.
    Some(PathBuf::from(format!("/proc/fs/jbd2/{name}-8"))).filter(|path| path.is_dir())
}

/// The maximum file size in bytes on the file system of `dir`; `None` without O_TMPFILE.
///
/// Linux has no call for this limit (`s_maxbytes`: 4 TiB on ext4 with blocks of 1 KiB), but lseek(2) fails beyond it. A
/// client that knows the limit rejects a larger write at once instead of at its flush.
pub(crate) fn file_size_max(dir: impl AsFd) -> Option<u64> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    Some(largest_offset(|offset| seek(&file, SeekFrom::Start(offset)).is_ok()))
}

/// The largest offset that `fits`, given that all smaller ones do.
fn largest_offset(fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, i64::MAX as u64);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_offset_finds_every_limit() {
        let end = i64::MAX as u64;
        for limit in [0, 1, 2, (1 << 32) - 1, 1 << 42, (1 << 42) + 4095, end - 1, end] {
            assert_eq!(largest_offset(|offset| offset <= limit), limit);
        }
    }

    #[test]
    fn unknown_file_system_has_no_local_permissions() {
        let procfs = FsCaps::of(std::fs::File::open("/proc").unwrap(), 0);
        assert!(!procfs.local_permissions, "procfs is not in the table");
    }
}
