//! The conventions that PATHCONF and FSINFO report (RFC 1813, sections 3.3.19 and 3.3.20).
//!
//! Linux has no call for them, so a table maps the type in statfs(2) to the usual conventions. Its sources are the
//! kernel's `linux/magic.h`, and the `super.c` and on-disk format of each file system. The report for a type that is
//! not in the table is conservative: times as accurate as the root's times show, and directories that may differ.

use std::os::fd::{AsFd, OwnedFd};

use remora_wire::nfs3::{NfsTime, PathConfOk};
use rustix::fs::{IFlags, Mode, OFlags, fstatfs, ioctl_getflags, ioctl_setflags, openat};
use rustix::io::Errno;

use crate::args::NAME_MAX;
use crate::local::inode::stat;
use crate::types::Features;

/// The flag of a case-insensitive directory (`FS_CASEFOLD_FL` in `linux/fs.h`).
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);
/// The longest name on FAT without long names (`FAT_NAME_LEN` and a dot in `msdos_fs.h`).
const SHORT_NAMES: u64 = 12;

const SECOND_NS: u32 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CaseRule {
    Sensitive,
    Insensitive,
    /// Each directory has a flag.
    ByDirectory,
    /// As the names of the directory show; if they do not, as usual for the type.
    Probed {
        usually_insensitive: bool,
    },
}

/// The accuracy of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeGrain {
    Nanos(u32),
    /// As the times of the root show.
    FromRoot,
}

/// The conventions of a type of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FsConventions {
    case: CaseRule,
    /// Names keep their case and length.
    preserves_names: bool,
    time_grain: TimeGrain,
    links_max: u32,
    symlinks: bool,
    /// All directories are alike, as far as the type tells.
    homogeneous: bool,
}

/// A type that is not in the table. `links_max` is that of ext4, the lowest of the usual file systems.
const UNKNOWN: FsConventions = FsConventions {
    case: CaseRule::Probed { usually_insensitive: false },
    preserves_names: true,
    time_grain: TimeGrain::FromRoot,
    links_max: 65_000,
    symlinks: true,
    homogeneous: false,
};

/// The usual file systems of Linux.
const NATIVE: FsConventions =
    FsConventions { case: CaseRule::Sensitive, time_grain: TimeGrain::Nanos(1), homogeneous: true, ..UNKNOWN };

/// File systems without hard and symbolic links.
const WITHOUT_LINKS: FsConventions =
    FsConventions { case: CaseRule::Insensitive, links_max: 1, symlinks: false, homogeneous: true, ..UNKNOWN };

/// The conventions of type `f_type`. `name_max` distinguishes FAT with and without long names; `has_births` the ext4
/// inodes of 128 bytes, which keep whole seconds, from larger ones.
fn by_type(f_type: u64, name_max: u64, has_births: bool) -> FsConventions {
    let nanos = TimeGrain::Nanos;
    match f_type {
        // ext2, ext3, ext4: EXT4_LINK_MAX.
        0xef53 => {
            let time_grain = nanos(if has_births { 1 } else { SECOND_NS });
            FsConventions { case: CaseRule::ByDirectory, time_grain, ..NATIVE }
        }
        // XFS: XFS_MAXLINK; `mkfs.xfs -n version=ci` makes names case-insensitive.
        0x5846_5342 => FsConventions { case: UNKNOWN.case, links_max: i32::MAX as u32, ..NATIVE },
        // btrfs: BTRFS_LINK_MAX.
        0x9123_683e => FsConventions { links_max: 65_535, ..NATIVE },
        // tmpfs (casefold since Linux 6.13), ramfs.
        0x0102_1994 => FsConventions { case: CaseRule::ByDirectory, ..NATIVE },
        0x8584_58f6 => NATIVE,
        // f2fs, bcachefs.
        0xf2f5_2010 | 0xca45_1a4e => FsConventions { case: CaseRule::ByDirectory, homogeneous: false, ..NATIVE },
        // FAT: mtime has a grain of two seconds; short names are upper case.
        0x4d44 => {
            FsConventions { preserves_names: name_max > SHORT_NAMES, time_grain: nanos(2 * SECOND_NS), ..WITHOUT_LINKS }
        }
        // exFAT: 10 ms.
        0x2011_bab0 => FsConventions { time_grain: nanos(SECOND_NS / 100), ..WITHOUT_LINKS },
        // NTFS, both drivers: 100 ns, NTFS_LINK_MAX, mount option nocase.
        0x7366_746e | 0x5346_544e => {
            FsConventions { case: UNKNOWN.case, time_grain: nanos(100), links_max: 1024, ..NATIVE }
        }
        // HFS, HFS+.
        0x4244 => FsConventions { time_grain: nanos(SECOND_NS), ..WITHOUT_LINKS },
        0x482b => {
            let case = CaseRule::Probed { usually_insensitive: true };
            FsConventions { case, time_grain: nanos(SECOND_NS), ..NATIVE }
        }
        // APFS and SMB in its three versions: most are case-insensitive.
        0x4253_584e | 0x517b | 0xff53_4d42 | 0xfe53_4d42 => {
            FsConventions { case: CaseRule::Probed { usually_insensitive: true }, ..UNKNOWN }
        }
        // NFS, FUSE, 9p, overlayfs and others depend on what they stand on.
        _ => UNKNOWN,
    }
}

impl FsConventions {
    /// The conventions of the file system of `root`.
    pub(crate) fn of(root: &OwnedFd) -> FsConventions {
        let Ok(fs) = fstatfs(root) else { return UNKNOWN };
        let has_births = stat::of(root).is_ok_and(|stat| stat.key.birth_ns != 0);
        // `f_type` is a `long`: 32-bit machines have its lower half.
        by_type(fs.f_type as u64 & 0xffff_ffff, fs.f_namelen as u64, has_births)
    }

    /// The reply to FSINFO.
    pub(crate) fn features(&self, root: &OwnedFd) -> Features {
        let grain_ns = match self.time_grain {
            TimeGrain::Nanos(ns) => ns,
            TimeGrain::FromRoot => root_time_grain_ns(root),
        };
        let by_directory = self.case == CaseRule::ByDirectory && supports_casefold(root);
        Features {
            time_delta: NfsTime { secs: grain_ns / SECOND_NS, nanos: grain_ns % SECOND_NS },
            links: self.links_max > 1,
            symlinks: self.symlinks,
            homogeneous: self.homogeneous && !by_directory,
        }
    }

    /// The reply to PATHCONF for objects in `dir`. `f_namemax` is from statvfs(2); `probe` probes the case rule of `dir`.
    pub(crate) fn pathconf(&self, dir: impl AsFd, f_namemax: u64, probe: impl FnOnce() -> Option<bool>) -> PathConfOk {
        let case_insensitive = match self.case {
            CaseRule::Sensitive => false,
            CaseRule::Insensitive => true,
            CaseRule::ByDirectory => ioctl_getflags(dir).is_ok_and(|flags| flags.contains(CASEFOLD)),
            CaseRule::Probed { usually_insensitive } => probe().unwrap_or(usually_insensitive),
        };
        PathConfOk {
            attr: None,
            link_max: self.links_max,
            name_max: name_max(f_namemax),
            no_trunc: self.preserves_names,
            chown_restricted: true,
            case_insensitive,
            case_preserving: self.preserves_names,
        }
    }
}

/// The accuracy that the root's ctime and birth time show, which no client can set: a power of ten up to a second.
fn root_time_grain_ns(root: &OwnedFd) -> u32 {
    let Ok(stat) = stat::of(root) else { return SECOND_NS };
    time_grain_ns([stat.attr.ctime.nanos, (stat.key.birth_ns % u64::from(SECOND_NS)) as u32])
}

fn time_grain_ns(nanos: [u32; 2]) -> u32 {
    let units = std::iter::successors(Some(SECOND_NS), |unit| (*unit > 1).then_some(unit / 10));
    units.into_iter().find(|unit| nanos.iter().all(|n| n % unit == 0)).unwrap_or(1)
}

/// Whether the file system supports the casefold flag: if so, the kernel refuses it on a file with another error. True
/// if it cannot be tried.
fn supports_casefold(root: impl AsFd) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = openat(root, ".", flags, Mode::RUSR | Mode::WUSR) else { return true };
    !matches!(ioctl_setflags(file, CASEFOLD), Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL))
}

fn name_max(f_namemax: u64) -> u32 {
    match f_namemax {
        // A FUSE process that does not report it.
        0 => NAME_MAX as u32,
        max => max.min(NAME_MAX as u64) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_max_defaults_to_255() {
        for (f_namemax, max) in [(0, 255), (143, 143), (255, 255), (1530, 255), (u64::MAX, 255)] {
            assert_eq!(name_max(f_namemax), max, "{f_namemax}");
        }
    }

    #[test]
    fn time_grain_is_coarsest_common_unit() {
        for (nanos, grain_ns) in [
            ([0, 0], SECOND_NS),
            ([10_000_000, 0], 10_000_000),
            ([123_456_700, 0], 100),
            ([123_456_700, 7], 1),
            ([500_000_000, 123_000], 1000),
        ] {
            assert_eq!(time_grain_ns(nanos), grain_ns, "{nanos:?}");
        }
    }

    #[test]
    fn conventions_follow_the_type() {
        let (vfat, msdos) = (by_type(0x4d44, 1530, true), by_type(0x4d44, 12, true));
        assert_eq!(
            (vfat.case, vfat.preserves_names, vfat.links_max, vfat.symlinks),
            (CaseRule::Insensitive, true, 1, false)
        );
        assert_eq!((msdos.case, msdos.preserves_names), (CaseRule::Insensitive, false));
        let ext = [true, false].map(|has_births| by_type(0xef53, 255, has_births).time_grain);
        assert_eq!(ext, [TimeGrain::Nanos(1), TimeGrain::Nanos(SECOND_NS)]);
        assert_eq!(by_type(0x6573_5546, 255, true), UNKNOWN);
        assert!(!by_type(0, 255, true).homogeneous, "an unknown type promises nothing");
    }
}
