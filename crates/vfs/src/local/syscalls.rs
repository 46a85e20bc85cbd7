//! The system calls that put data on stable storage. In tests they fail on demand: a disk that
//! fails is hard to come by.

#[cfg(test)]
pub(super) use failing::{fail_next, fail_next_with, fdatasync, fsync, syncfs};
#[cfg(not(test))]
pub(super) use rustix::fs::{fdatasync, fsync, syncfs};

#[cfg(test)]
mod failing {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    use rustix::io::{Errno, Result};

    thread_local! {
        /// How many of this thread's flushes are to fail, and how.
        static TO_FAIL: Cell<(u32, Errno)> = const { Cell::new((0, Errno::IO)) };
    }

    /// The next `count` flushes of this thread fail as those of a broken disk do.
    pub(in super::super) fn fail_next(count: u32) {
        fail_next_with(count, Errno::IO);
    }

    /// The next `count` flushes of this thread fail with `why`.
    pub(in super::super) fn fail_next_with(count: u32, why: Errno) {
        TO_FAIL.set((count, why));
    }

    fn unless_failing(flush: impl FnOnce() -> Result<()>) -> Result<()> {
        match TO_FAIL.get() {
            (0, _) => flush(),
            (n, why) => {
                TO_FAIL.set((n - 1, why));
                Err(why)
            }
        }
    }

    pub(in super::super) fn fdatasync(fd: impl AsFd) -> Result<()> {
        unless_failing(|| rustix::fs::fdatasync(fd))
    }

    pub(in super::super) fn fsync(fd: impl AsFd) -> Result<()> {
        unless_failing(|| rustix::fs::fsync(fd))
    }

    pub(in super::super) fn syncfs(fd: impl AsFd) -> Result<()> {
        unless_failing(|| rustix::fs::syncfs(fd))
    }
}
