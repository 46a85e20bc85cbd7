//! statx(2), as attributes and keys.

use std::os::fd::AsFd;

use remora_wire::nfs3::{Attr, FileType, NfsTime, SpecData};
use rustix::fs::{AtFlags, FileType as UnixFileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};

use crate::local::handles::file_id::InodeKey;

/// What statx(2) says of an object.
#[derive(Clone, Debug)]
pub(crate) struct InodeStat {
    pub(crate) key: InodeKey,
    pub(crate) attr: Attr,
    /// Whether another file system is mounted there.
    pub(crate) is_mount: bool,
    /// The number of the mount it was reached by, if the kernel tells.
    pub(crate) mount: Option<u64>,
}

/// Of an open object.
pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<InodeStat> {
    statx(fd, b"", AtFlags::EMPTY_PATH)
}

/// The same, as it is by now and not as it was when last asked for: a network file system is asked again.
pub(crate) fn fresh(fd: impl AsFd) -> rustix::io::Result<InodeStat> {
    statx(fd, b"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC)
}

/// How many names an open object has.
pub(crate) fn links(fd: impl AsFd) -> rustix::io::Result<u32> {
    Ok(of(fd)?.attr.nlink)
}

/// Of `name` in an open directory; a symbolic link is not followed.
pub(crate) fn at(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<InodeStat> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// What is asked of the kernel.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

fn statx(fd: impl AsFd, name: &[u8], flags: AtFlags) -> rustix::io::Result<InodeStat> {
    let x = rustix::fs::statx(fd, name, flags, WANTED)?;
    let birth_ns = if x.stx_mask & StatxFlags::BTIME.bits() != 0 { nanos(x.stx_btime) } else { 0 };
    let key = InodeKey { ino: x.stx_ino, birth_ns };
    let is_mount = x.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let mount = (x.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(x.stx_mnt_id);
    Ok(InodeStat { key, attr: attr(&x), is_mount, mount })
}

fn attr(x: &Statx) -> Attr {
    Attr {
        kind: kind(x.stx_mode),
        mode: u32::from(x.stx_mode) & crate::attrs::MODE_MASK,
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

fn kind(mode: u16) -> FileType {
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

/// NFSv3 has times from 1970 to 2106; what is before or after becomes the nearest of them.
fn time(t: StatxTimestamp) -> NfsTime {
    match u32::try_from(t.tv_sec) {
        Ok(secs) => NfsTime { secs, nanos: t.tv_nsec },
        Err(_) if t.tv_sec < 0 => NfsTime { secs: 0, nanos: 0 },
        Err(_) => NfsTime { secs: u32::MAX, nanos: t.tv_nsec },
    }
}
