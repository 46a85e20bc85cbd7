//! How often the system fd_exhaustion this process another open file. Whoever asked for something is told to come again,
//! and so nobody would notice but by waiting.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

static TIMES: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);

/// What a process was fd_exhaustion: its limit is its own, not a disk's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdExhaustion {
    /// How often, so far.
    pub times: u64,
    /// Whether it was, last, the system that had no more, and not the process that may have none.
    pub by_system: bool,
}

/// A system call failed with this error: it counts if there may be no more open files.
pub fn note_fd_exhaustion(errno: i32) {
    if [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&errno) {
        LAST.store(errno, Relaxed);
        TIMES.fetch_add(1, Relaxed);
    }
}

/// What has been fd_exhaustion.
pub fn fd_exhaustion() -> FdExhaustion {
    FdExhaustion { times: TIMES.load(Relaxed), by_system: LAST.load(Relaxed) == Errno::NFILE.raw_os_error() }
}
