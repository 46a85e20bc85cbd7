//! What sort of file system a disk is.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::fstatfs;

use crate::local::inode::inode_reuse::TICK_MAX;

/// What the disk is, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FsCaps {
    /// Whether it has a journal that takes a new object and its name in one step, so that syncing
    /// the directory makes both stable: ext4 with a journal of its own, and XFS. What cannot be
    /// told counts as none.
    pub(crate) has_journal: bool,
    /// Whether what is made gets the ACL that its directory hands down in a step of its own, behind that: XFS.
    pub(crate) acl_after_create: bool,
    /// Whether syncfs(2) writes names and attributes. FUSE asks nothing of the process behind it then (but for
    /// virtiofs, which cannot be told apart), and 9p and eCryptfs nothing of what is below.
    pub(crate) syncfs_is_complete: bool,
    /// Whether what is removed while it is open here goes on under another name (`.nfsXXXX`, `.fuse_hiddenXXXX`), so
    /// that its directory cannot be removed, or cannot be removed at all: NFS, FUSE and CIFS.
    pub(crate) silly_renames: bool,
    /// Whether what a cookie of a listing means is up to who opened the directory: FUSE, and CIFS.
    pub(crate) volatile_cookies: bool,
    /// Whether this machine's kernel decides about files by mode bits and POSIX ACL: local file systems. What is not
    /// known for that counts as decided elsewhere, as on network file systems.
    pub(crate) local_permissions: bool,
    /// How much coarser than the kernel's clock tick it keeps birth times (range: up to [`TICK_MAX`]).
    pub(crate) birth_grain: Duration,
}

impl FsCaps {
    /// Of the disk that `root` is on.
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
            syncfs_is_complete: true,
            acl_after_create: false,
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

/// Local file systems on which nothing but [`FsCaps::local_permissions`] is special, by the number in statfs(2)
/// (`linux/magic.h`).
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

/// Where the kernel tells of the journal inside an ext4 file system.
fn ext_journal(major: u64, minor: u64) -> Option<PathBuf> {
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = device.file_name()?.to_str()?;
    // 8 is the journal's inode.
    Some(PathBuf::from(format!("/proc/fs/jbd2/{name}-8"))).filter(|path| path.is_dir())
}
