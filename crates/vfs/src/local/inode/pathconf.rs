//! What PATHCONF and FSINFO tell of a file system (RFC 1813, sections 3.3.19 and 3.3.20).
//!
//! Linux has no call that tells these. The table below has them for the usual file systems, by statfs(2)'s type; its
//! source are the kernel's `linux/magic.h` and, for what each does, the file system's own `super.c` and on-disk format.
//! Where it depends on a mount option, on the other end of a network or on the process behind FUSE, the directory is
//! looked at. What stays unknown is told conservatively: times to the accuracy seen, and no promise that all directories
//! are alike.

use std::os::fd::{AsFd, OwnedFd};

use remora_wire::nfs3::{FileType, NfsTime, PathConfOk};
use rustix::fs::{IFlags, Mode, OFlags, fstatfs, fstatvfs, ioctl_getflags, ioctl_setflags, openat};
use rustix::io::Errno;

use crate::local::LocalDisk;
use crate::local::handles::file_id::PathHint;
use crate::local::handles::resolve::{OpenDir, OpenObject};
use crate::local::inode::stat;
use crate::local::sys::errno::OrStatus;
use crate::{Features, FileId, Result, names};

/// Flag of a directory in which names are case-insensitive (`FS_CASEFOLD_FL` in `linux/fs.h`).
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);
/// Longest name where names have eight letters and three (`FAT_NAME_LEN` and a dot in `msdos_fs.h`).
const SHORT_NAMES: u64 = 12;

const SECOND: u32 = 1_000_000_000;

/// Whether names that differ in case alone are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CaseRule {
    /// They are two.
    Sensitive,
    /// They are one.
    Insensitive,
    /// As each directory's flag says.
    ByDirectory,
}

/// To what accuracy times are kept, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeGrain {
    Is(u32),
    /// As the times of the root show.
    Shown,
}

/// The conventions of a type of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FsConventions {
    case: CaseRule,
    /// Names keep the case, and the length, that they were given.
    preserves: bool,
    grain: TimeGrain,
    /// Most names of a file.
    links_max: u32,
    symlinks: bool,
    /// Whether all directories are alike, as far as the type alone tells.
    homogeneous: bool,
}

/// Of what is not in the table. The number of links is ext4's, the smallest of the usual file systems; others answer
/// MLINK later.
const UNKNOWN: FsConventions = FsConventions {
    case: CaseRule::Sensitive,
    preserves: true,
    grain: TimeGrain::Shown,
    links_max: 65_000,
    symlinks: true,
    homogeneous: false,
};

/// Of the usual disks of Linux.
const NATIVE: FsConventions =
    FsConventions { case: CaseRule::Sensitive, grain: TimeGrain::Is(1), homogeneous: true, ..UNKNOWN };

/// Of file systems without links of either sort.
const WITHOUT_LINKS: FsConventions =
    FsConventions { case: CaseRule::Insensitive, links_max: 1, symlinks: false, homogeneous: true, ..UNKNOWN };

/// By `f_type`. `name_max` tells FAT without long names from FAT with them, and `has_births` ext4's inodes of 128 bytes,
/// which keep whole seconds, from larger ones.
fn by_type(f_type: u64, name_max: u64, has_births: bool) -> FsConventions {
    match f_type {
        // ext2, ext3, ext4: EXT4_LINK_MAX.
        0xef53 => FsConventions {
            case: CaseRule::ByDirectory,
            grain: TimeGrain::Is(if has_births { 1 } else { SECOND }),
            ..NATIVE
        },
        // XFS: XFS_MAXLINK.
        0x5846_5342 => FsConventions { links_max: i32::MAX as u32, ..NATIVE },
        // btrfs: BTRFS_LINK_MAX.
        0x9123_683e => FsConventions { links_max: 65_535, ..NATIVE },
        // tmpfs (casefold since Linux 6.13), ramfs.
        0x0102_1994 => FsConventions { case: CaseRule::ByDirectory, ..NATIVE },
        0x8584_58f6 => NATIVE,
        // f2fs, bcachefs.
        0xf2f5_2010 | 0xca45_1a4e => FsConventions { case: CaseRule::ByDirectory, homogeneous: false, ..NATIVE },
        // FAT keeps the time of a change to two seconds. Without long names it makes all letters capitals.
        0x4d44 => {
            FsConventions { preserves: name_max > SHORT_NAMES, grain: TimeGrain::Is(2 * SECOND), ..WITHOUT_LINKS }
        }
        // exFAT: 10 ms.
        0x2011_bab0 => FsConventions { grain: TimeGrain::Is(SECOND / 100), ..WITHOUT_LINKS },
        // NTFS, by both of its drivers: units of 100 ns; NTFS_LINK_MAX.
        0x7366_746e | 0x5346_544e => FsConventions { grain: TimeGrain::Is(100), links_max: 1024, ..NATIVE },
        // HFS, HFS+: seconds; HFSX is case-sensitive.
        0x4244 => FsConventions { grain: TimeGrain::Is(SECOND), ..WITHOUT_LINKS },
        0x482b => FsConventions { case: CaseRule::Insensitive, grain: TimeGrain::Is(SECOND), ..NATIVE },
        // APFS, and SMB in its three versions: most fold.
        0x4253_584e | 0x517b | 0xff53_4d42 | 0xfe53_4d42 => FsConventions { case: CaseRule::Insensitive, ..UNKNOWN },
        // NFS, FUSE, 9p, overlayfs and others: as what is behind them.
        _ => UNKNOWN,
    }
}

impl FsConventions {
    /// Of the file system that `root` is on.
    pub(crate) fn of(root: &OwnedFd) -> FsConventions {
        let Ok(fs) = fstatfs(root) else { return UNKNOWN };
        let has_births = stat::of(root).is_ok_and(|stat| stat.key.birth_ns != 0);
        // The kernel's `long`, of which 32-bit machines have the lower half.
        by_type(fs.f_type as u64 & 0xffff_ffff, fs.f_namelen as u64, has_births)
    }

    /// What FSINFO tells.
    pub(crate) fn features(&self, root: &OwnedFd) -> Features {
        let grain = match self.grain {
            TimeGrain::Is(ns) => ns,
            TimeGrain::Shown => shown_grain(root),
        };
        let by_directory = self.case == CaseRule::ByDirectory && may_fold(root);
        Features {
            time_delta: NfsTime { secs: grain / SECOND, nanos: grain % SECOND },
            links: self.links_max > 1,
            symlinks: self.symlinks,
            homogeneous: self.homogeneous && !by_directory,
        }
    }

    /// Whether names in `dir` are case-insensitive.
    fn folds(&self, dir: &OpenDir) -> bool {
        let is_flagged = || Some(ioctl_getflags(dir.open_unnoticed().ok()?).ok()?.contains(CASEFOLD));
        match self.case {
            CaseRule::Sensitive => false,
            CaseRule::Insensitive => true,
            CaseRule::ByDirectory => is_flagged().unwrap_or(false),
        }
    }
}

/// The coarsest unit, a power of ten of nanoseconds up to a second, that the root's last change and birth are whole
/// numbers of. Nobody can set these two.
fn shown_grain(root: &OwnedFd) -> u32 {
    let Ok(stat) = stat::of(root) else { return SECOND };
    grain_of([stat.attr.ctime.nanos, (stat.key.birth_ns % u64::from(SECOND)) as u32])
}

fn grain_of(nanos: [u32; 2]) -> u32 {
    let units = std::iter::successors(Some(SECOND), |unit| (*unit > 1).then_some(unit / 10));
    units.into_iter().find(|unit| nanos.iter().all(|n| n % unit == 0)).unwrap_or(1)
}

/// Whether directories of this file system can have the flag: the kernel refuses it of a file for another reason then.
/// Where that cannot be tried, they may.
fn may_fold(root: impl AsFd) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = openat(root, ".", flags, Mode::RUSR | Mode::WUSR) else { return true };
    !matches!(ioctl_setflags(file, CASEFOLD), Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL))
}

/// How long a name may be on a disk of which the kernel tells so much.
fn name_max(told: u64) -> u32 {
    match told {
        // FUSE, where the process behind it does not say.
        0 => names::NAME_MAX as u32,
        told => told.min(names::NAME_MAX as u64) as u32,
    }
}

impl LocalDisk {
    pub(crate) fn do_pathconf(&self, id: &FileId) -> Result<PathConfOk> {
        let object = self.resolve(id)?;
        self.release_held_inodes();
        let s = fstatvfs(&self.disk.root).nfs()?;
        let (conventions, dir) = (self.disk.conventions, self.directory_of(object));
        Ok(PathConfOk {
            attr: None,
            link_max: conventions.links_max,
            name_max: name_max(s.f_namemax),
            no_trunc: conventions.preserves,
            chown_restricted: true,
            case_insensitive: conventions.folds(&dir),
            case_preserving: conventions.preserves,
        })
    }

    /// The directory itself, or the one that `object` was last seen in; if that is forgotten, the root.
    fn directory_of(&self, object: OpenObject) -> OpenDir {
        if object.attr.kind == FileType::Directory {
            return object.open_dir_of();
        }
        let place = self.paths().place(object.key);
        let above =
            place.and_then(|(key, _)| Some(OpenDir { fd: self.open_path(key).ok()?.fd, key, hint: object.hint }));
        let root = || OpenDir { fd: self.disk.root.clone(), key: self.disk.root_key, hint: PathHint::default() };
        above.unwrap_or_else(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_max_of_a_disk_that_does_not_tell_is_the_usual() {
        for (told, max) in [(0, 255), (143, 143), (255, 255), (1530, 255), (u64::MAX, 255)] {
            assert_eq!(name_max(told), max, "{told}");
        }
    }

    #[test]
    fn grain_is_the_coarsest_unit_of_all_times() {
        for (nanos, grain) in [
            ([0, 0], SECOND),
            ([10_000_000, 0], 10_000_000),
            ([123_456_700, 0], 100),
            ([123_456_700, 7], 1),
            ([500_000_000, 123_000], 1000),
        ] {
            assert_eq!(grain_of(nanos), grain, "{nanos:?}");
        }
    }

    #[test]
    fn conventions_are_those_of_the_type() {
        let (vfat, msdos) = (by_type(0x4d44, 1530, true), by_type(0x4d44, 12, true));
        assert_eq!((vfat.case, vfat.preserves, vfat.links_max, vfat.symlinks), (CaseRule::Insensitive, true, 1, false));
        assert_eq!((msdos.case, msdos.preserves), (CaseRule::Insensitive, false));
        assert_eq!(
            [by_type(0xef53, 255, true).grain, by_type(0xef53, 255, false).grain],
            [TimeGrain::Is(1), TimeGrain::Is(SECOND)]
        );
        assert_eq!(by_type(0x6573_5546, 255, true), UNKNOWN);
        assert!(!by_type(0, 255, true).homogeneous, "nothing is promised of what is not known");
    }
}
