//! The identity and attributes of an inode, from statx(2).

use std::os::fd::AsFd;

use remora_wire::nfs3::{Attr, FileType, NfsTime, SpecData};
use rustix::fs::{AtFlags, FileType as UnixFileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};

/// Identifies an inode of an export, whatever its names are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct InodeKey {
    pub(crate) ino: u64,
    /// Birth time in nanoseconds since 1970. On file systems without birth times, 0 or the
    /// [generation](super::inode_generation).
    pub(crate) birth_ns: u64,
}

/// The result of statx(2).
#[derive(Clone, Debug)]
pub(crate) struct InodeStat {
    pub(crate) key: InodeKey,
    pub(crate) attr: Attr,
    /// Whether another file system is mounted there.
    pub(crate) is_mount: bool,
    /// The id of the mount it was reached through (Linux 5.8).
    pub(crate) mount_id: Option<u64>,
}

/// Stats an open object.
pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<InodeStat> {
    statx(fd, b"", AtFlags::EMPTY_PATH)
}

/// Stats an open object and bypasses the attribute cache of a network file system.
pub(crate) fn uncached(fd: impl AsFd) -> rustix::io::Result<InodeStat> {
    statx(fd, b"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC)
}

/// The link count of an open object.
pub(crate) fn links(fd: impl AsFd) -> rustix::io::Result<u32> {
    Ok(of(fd)?.attr.nlink)
}

/// Stats `name` in an open directory. Does not follow a symbolic link.
pub(crate) fn at(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<InodeStat> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

const STATX_MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

fn statx(fd: impl AsFd, name: &[u8], flags: AtFlags) -> rustix::io::Result<InodeStat> {
    let x = rustix::fs::statx(fd, name, flags, STATX_MASK)?;
    let birth_ns = if x.stx_mask & StatxFlags::BTIME.bits() != 0 { nanos(x.stx_btime) } else { 0 };
    let key = InodeKey { ino: x.stx_ino, birth_ns };
    let is_mount = x.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let mount_id = (x.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(x.stx_mnt_id);
    Ok(InodeStat { key, attr: attr(&x), is_mount, mount_id })
}

fn attr(x: &Statx) -> Attr {
    Attr {
        kind: file_type(x.stx_mode),
        mode: u32::from(x.stx_mode) & crate::args::MODE_MASK,
        nlink: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        size: x.stx_size,
        used: x.stx_blocks.saturating_mul(512),
        rdev: SpecData { major: x.stx_rdev_major, minor: x.stx_rdev_minor },
        fsid: u64::from(x.stx_dev_major) << 32 | u64::from(x.stx_dev_minor),
        fileid: x.stx_ino,
        atime: time(x.stx_atime),
        mtime: time(x.stx_mtime),
        ctime: time(x.stx_ctime),
    }
}

fn file_type(mode: u16) -> FileType {
    match UnixFileType::from_raw_mode(u32::from(mode)) {
        UnixFileType::Directory => FileType::Directory,
        UnixFileType::Symlink => FileType::SymLink,
        UnixFileType::BlockDevice => FileType::Block,
        UnixFileType::CharacterDevice => FileType::Char,
        UnixFileType::Socket => FileType::Socket,
        UnixFileType::Fifo => FileType::Fifo,
        _ => FileType::Regular,
    }
}

fn nanos(t: StatxTimestamp) -> u64 {
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(t.tv_nsec))
}

/// NFSv3 times range from 1970 to 2106. Clamps times outside.
fn time(t: StatxTimestamp) -> NfsTime {
    match u32::try_from(t.tv_sec) {
        Ok(secs) => NfsTime { secs, nanos: t.tv_nsec },
        Err(_) if t.tv_sec < 0 => NfsTime { secs: 0, nanos: 0 },
        Err(_) => NfsTime { secs: u32::MAX, nanos: t.tv_nsec },
    }
}
