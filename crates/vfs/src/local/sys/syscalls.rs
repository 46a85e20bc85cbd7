//! The system calls that flush and unlink. In tests flushes fail on demand, and unlinks count the open descriptors.

#[cfg(test)]
pub(crate) use failing::{fail_next, fail_next_with, fdatasync, flushes, fsync, lose, syncfs};
#[cfg(test)]
pub(crate) use removing::{open_at_removals, renameat, unlinkat};
#[cfg(not(test))]
pub(crate) use rustix::fs::{fdatasync, fsync, renameat, syncfs, unlinkat};

#[cfg(test)]
mod removing {
    use std::cell::RefCell;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{AtFlags, statat};
    use rustix::io::Result;

    thread_local! {
        /// The number of descriptors open on each unlinked object, while recording.
        static OPEN: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
    }

    /// Runs `work` and returns, for each unlink in it, how many descriptors of this process were open on the object.
    pub(crate) fn open_at_removals(work: impl FnOnce()) -> Vec<usize> {
        OPEN.set(Some(Vec::new()));
        work();
        OPEN.take().unwrap()
    }

    fn note(dir: impl AsFd, name: &[u8]) {
        let Ok(there) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        OPEN.with_borrow_mut(|seen| {
            let Some(seen) = seen else { return };
            let open =
                std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::metadata(fd.ok()?.path()).ok());
            seen.push(open.filter(|open| (open.dev(), open.ino()) == (there.st_dev, there.st_ino)).count());
        });
    }

    pub(crate) fn unlinkat(dir: impl AsFd, name: &[u8], flags: AtFlags) -> Result<()> {
        note(&dir, name);
        rustix::fs::unlinkat(dir, name, flags)
    }

    pub(crate) fn renameat(from: impl AsFd, name: &[u8], to: impl AsFd, new: &[u8]) -> Result<()> {
        note(&to, new);
        rustix::fs::renameat(from, name, to, new)
    }
}

#[cfg(test)]
mod failing {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::{Errno, Result};

    /// Marks descriptors whose next flush fails. The flag has no other effect here.
    const UNREPORTED: OFlags = OFlags::NOATIME;

    thread_local! {
        /// How many flushes of this thread fail from now on, and with which error.
        static TO_FAIL: Cell<(u32, Errno)> = const { Cell::new((0, Errno::IO)) };
        static FLUSHES: Cell<u32> = const { Cell::new(0) };
    }

    /// The number of flushes of this thread so far.
    pub(crate) fn flushes() -> u32 {
        FLUSHES.get()
    }

    /// Makes the next flush of `fd` fail, as after a write-back error that another descriptor has reported: only
    /// descriptors that were open then report it, too.
    pub(crate) fn lose(fd: impl AsFd) {
        fcntl_setfl(&fd, fcntl_getfl(&fd).unwrap() | UNREPORTED).unwrap();
    }

    fn or_lost(fd: impl AsFd, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let flags = fcntl_getfl(&fd)?;
        if !flags.contains(UNREPORTED) {
            return or_failing(flush);
        }
        fcntl_setfl(&fd, flags - UNREPORTED)?;
        FLUSHES.set(FLUSHES.get() + 1);
        Err(Errno::IO)
    }

    /// The next `count` flushes of this thread fail with EIO.
    pub(crate) fn fail_next(count: u32) {
        fail_next_with(count, Errno::IO);
    }

    /// The next `count` flushes of this thread fail with `why`.
    pub(crate) fn fail_next_with(count: u32, why: Errno) {
        TO_FAIL.set((count, why));
    }

    fn or_failing(flush: impl FnOnce() -> Result<()>) -> Result<()> {
        FLUSHES.set(FLUSHES.get() + 1);
        match TO_FAIL.get() {
            (0, _) => flush(),
            (n, why) => {
                TO_FAIL.set((n - 1, why));
                Err(why)
            }
        }
    }

    pub(crate) fn fdatasync(fd: impl AsFd) -> Result<()> {
        or_lost(&fd, || rustix::fs::fdatasync(&fd))
    }

    pub(crate) fn fsync(fd: impl AsFd) -> Result<()> {
        or_lost(&fd, || rustix::fs::fsync(&fd))
    }

    pub(crate) fn syncfs(fd: impl AsFd) -> Result<()> {
        or_failing(|| rustix::fs::syncfs(fd))
    }
}
