//! What sort of file system a disk is.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::fstatfs;

use super::graveyard::{REST, Ways};

/// What the disk is, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    /// Whether it has a journal that takes a new object and its name in one step, so that syncing
    /// the directory makes both stable: ext4 with a journal of its own, and XFS. What cannot be
    /// told counts as none.
    pub(super) has_journal: bool,
    /// Whether what is made gets the ACL that its directory hands down in a step of its own, behind that: XFS.
    pub(super) acl_apart: bool,
    /// Whether syncfs(2) writes names and attributes. FUSE asks nothing of the process behind it then (but for
    /// virtiofs, which cannot be told apart), and 9p and eCryptfs nothing of what is below.
    pub(super) syncs_all: bool,
    /// Whether what is removed while it is open here goes on under another name (`.nfsXXXX`, `.fuse_hiddenXXXX`), so
    /// that its directory cannot be removed, or cannot be removed at all: NFS, FUSE and CIFS.
    pub(super) hides_open: bool,
    /// Whether what a cookie of a listing means is up to who opened the directory: FUSE, and CIFS.
    pub(super) lists_anew: bool,
    /// How it does with inode numbers.
    pub(super) ways: Ways,
}

impl Kind {
    /// Of the disk that `root` is on.
    pub(super) fn of(root: impl AsFd, device: u64) -> Kind {
        const EXT: i64 = 0xef53;
        const XFS: i64 = 0x5846_5342;
        const FUSE: i64 = 0x6573_5546;
        const ECRYPTFS: i64 = 0xf15f;
        const NINE_P: i64 = 0x0102_1997;
        const NFS: i64 = 0x6969;
        const CIFS: i64 = 0xff53_4d42;
        const SMB2: i64 = 0xfe53_4d42;
        let exact = Ways { grain: Duration::ZERO, shuns: false };
        let unknown = Kind {
            has_journal: false,
            syncs_all: true,
            acl_apart: false,
            hides_open: false,
            lists_anew: false,
            ways: Ways { grain: REST, shuns: false },
        };
        match fstatfs(root).map(|s| s.f_type) {
            Ok(XFS) => Kind { has_journal: true, acl_apart: true, ways: exact, ..unknown },
            Ok(EXT) => {
                let has_journal = ext_journal(device >> 32, device & 0xffff_ffff).is_some();
                Kind { has_journal, ways: Ways { shuns: !has_journal, ..exact }, ..unknown }
            }
            Ok(FUSE) => Kind { syncs_all: false, hides_open: true, lists_anew: true, ..unknown },
            Ok(ECRYPTFS | NINE_P) => Kind { syncs_all: false, ..unknown },
            Ok(NFS) => Kind { hides_open: true, ..unknown },
            Ok(CIFS | SMB2) => Kind { hides_open: true, lists_anew: true, ..unknown },
            _ => unknown,
        }
    }
}

/// Where the kernel tells of the journal inside an ext4 file system.
fn ext_journal(major: u64, minor: u64) -> Option<PathBuf> {
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = device.file_name()?.to_str()?;
    // 8 is the journal's inode.
    Some(PathBuf::from(format!("/proc/fs/jbd2/{name}-8"))).filter(|path| path.is_dir())
}
