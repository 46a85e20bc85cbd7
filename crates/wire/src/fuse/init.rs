//! INIT: the version, limits and features on which kernel and file system agree.

use super::fields::{Fields, RequestError, Structure};

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// Earliest supported minor version (Linux 5.4).
pub const MINOR_MIN: u32 = 31;
/// Latest supported minor version (Linux 6.18).
pub const MINOR_MAX: u32 = 45;

/// Several READs of a file at a time.
pub const ASYNC_READ: u64 = 1 << 0;
/// Locks of fcntl(2) are the file system's.
pub const POSIX_LOCKS: u64 = 1 << 1;
/// OPEN with `O_TRUNC` truncates, without a SETATTR of its own.
pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
/// LOOKUP understands `.` and `..`.
pub const EXPORT_SUPPORT: u64 = 1 << 4;
/// WRITEs of more than 4 KiB.
pub const BIG_WRITES: u64 = 1 << 5;
/// Locks of flock(2) are the file system's.
pub const FLOCK_LOCKS: u64 = 1 << 10;
/// The kernel drops a file's pages when its mtime changes.
pub const AUTO_INVAL_DATA: u64 = 1 << 12;
pub const DO_READDIRPLUS: u64 = 1 << 13;
/// READDIRPLUS only where names are looked up, too.
pub const READDIRPLUS_AUTO: u64 = 1 << 14;
/// Several parts of a direct read or write at a time.
pub const ASYNC_DIO: u64 = 1 << 15;
/// The kernel keeps dirty pages.
pub const WRITEBACK_CACHE: u64 = 1 << 16;
/// OPEN may be answered with ENOSYS.
pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
/// Several LOOKUPs and READDIRs in a directory at a time.
pub const PARALLEL_DIROPS: u64 = 1 << 18;
/// Reading the device after an abort gives ECONNABORTED.
pub const ABORT_ERROR: u64 = 1 << 21;
/// The reply states the maximum number of pages of a request.
pub const MAX_PAGES: u64 = 1 << 22;
/// READLINK's results are cached.
pub const CACHE_SYMLINKS: u64 = 1 << 23;
/// The kernel drops a file's pages only on notification.
pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
/// The file system clears the set-id bits on WRITE, truncation and change of owner.
pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
/// The upper 32 bits of the flags count.
pub const INIT_EXT: u64 = 1 << 30;
/// Notifications can expire a name instead of removing it.
pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
/// Files opened for direct transfers can be mapped.
pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;

/// Features used where the kernel offers them. The lack of any of them costs speed, but no
/// correctness.
pub const WANTED_FLAGS: u64 = ASYNC_READ
    | ATOMIC_O_TRUNC
    | BIG_WRITES
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | ASYNC_DIO
    | PARALLEL_DIROPS
    | ABORT_ERROR
    | MAX_PAGES
    | EXPLICIT_INVAL_DATA
    | HANDLE_KILLPRIV_V2
    | INIT_EXT
    | HAS_EXPIRE_ONLY
    | DIRECT_IO_ALLOW_MMAP;

/// Pages of a request from a kernel without [`MAX_PAGES`].
const DEFAULT_PAGES: u32 = 32;
/// Minor version from which the kernel understands INC_EPOCH.
const MINOR_INC_EPOCH: u32 = 44;

/// What the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Offered features, with `flags2` in the upper half.
    pub flags: u64,
}

impl InitIn {
    pub(super) fn decode(fields: &mut Fields) -> Result<InitIn, RequestError> {
        let (major, minor) = (fields.u32()?, fields.u32()?);
        let (max_readahead, low) = (fields.u32()?, u64::from(fields.u32()?));
        // Before 7.36 the structure ends here.
        let high = if low & INIT_EXT == 0 { 0 } else { u64::from(fields.u32()?) };
        Ok(InitIn { major, minor, max_readahead, flags: high << 32 | low })
    }
}

/// What the file system accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Accepted features, with `flags2` in the upper half.
    pub flags: u64,
    /// Maximum number of outstanding asynchronous requests.
    pub max_background: u16,
    /// Number of those from which the kernel takes the file system for congested.
    pub congestion_threshold: u16,
    /// Maximum length of a WRITE in bytes.
    pub max_write: u32,
    /// Granularity of timestamps in nanoseconds.
    pub time_gran: u32,
    /// Maximum number of pages of a request.
    pub max_pages: u16,
}

impl InitOut {
    pub(super) fn encode(&self, out: &mut Structure) {
        out.u32(self.major).u32(self.minor).u32(self.max_readahead).u32(self.flags as u32);
        out.u16(self.max_background).u16(self.congestion_threshold).u32(self.max_write).u32(self.time_gran);
        out.u16(self.max_pages).u16(0).u32((self.flags >> 32) as u32).zeros(7 * 4);
    }

    /// Whether a notification can expire a name instead of removing it.
    pub fn can_expire(&self) -> bool {
        self.flags & HAS_EXPIRE_ONLY != 0
    }

    /// Whether the kernel understands
    /// [`Notification::IncEpoch`](super::notification::Notification::IncEpoch).
    pub fn can_inc_epoch(&self) -> bool {
        self.minor >= MINOR_INC_EPOCH
    }
}

/// Limits that the file system wishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Maximum length of a READ or WRITE in bytes.
    pub max_write: u32,
    /// Maximum number of outstanding asynchronous requests.
    pub max_background: u16,
    /// Page size of the machine in bytes.
    pub page_size: u32,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { max_readahead: 1 << 20, max_write: 1 << 20, max_background: 64, page_size: 4096 }
    }
}

/// The kernel's version of the protocol is not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VersionError {
    #[error("the kernel speaks FUSE {major}.{minor}, which is too old (Linux 5.4 with FUSE 7.31 is needed)")]
    TooOld { major: u32, minor: u32 },
    #[error("the kernel speaks FUSE {major}.{minor}, which is too new (FUSE 7 is needed)")]
    TooNew { major: u32, minor: u32 },
}

/// Answers INIT: the wanted features and limits, as far as the kernel offers them.
pub fn negotiate(offer: &InitIn, wanted: &Wanted) -> Result<InitOut, VersionError> {
    let InitIn { major, minor, .. } = *offer;
    if (major, minor) < (MAJOR, MINOR_MIN) {
        return Err(VersionError::TooOld { major, minor });
    }
    if major > MAJOR {
        return Err(VersionError::TooNew { major, minor });
    }
    let flags = offer.flags & WANTED_FLAGS;
    let page_size = wanted.page_size.max(1);
    let pages = if flags & MAX_PAGES == 0 { DEFAULT_PAGES } else { wanted.max_write.div_ceil(page_size) };
    let max_pages = u16::try_from(pages).unwrap_or(u16::MAX);
    Ok(InitOut {
        major: MAJOR,
        minor: minor.min(MINOR_MAX),
        max_readahead: offer.max_readahead.min(wanted.max_readahead),
        flags,
        max_background: wanted.max_background,
        congestion_threshold: wanted.max_background - wanted.max_background / 4,
        max_write: wanted.max_write.min(u32::from(max_pages).saturating_mul(page_size)),
        time_gran: 1,
        max_pages,
    })
}
