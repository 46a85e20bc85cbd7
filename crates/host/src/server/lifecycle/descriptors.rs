//! How many files the process may have open, and how many of those connections may be.
//!
//! Each connection is one, and so is much else. What must not happen is that connections take the last of
//! them: then nobody's file can be opened, and everybody is told to come again.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::executor::EXTRA_THREADS_MAX;
use crate::server::options::StartError;

/// What a thread at work opens for a moment: a file, the directories on the way to it, a listing.
const THREAD: usize = 4;
/// What an export has open all the time: its root, and where that was found.
const EXPORT: usize = 2;
/// What an export keeps open at least when it is used: some files and directories, and what was just removed.
const EXPORT_KEEPS: usize = 8;
/// What the threads that serve sockets have open, for themselves.
const SOCKETS: usize = 8;
/// With fewer connections than these a server is none.
const CONNECTIONS_MIN: usize = 8;

/// The process's descriptors, as they are shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// How many there may be.
    pub max: usize,
    /// How many there are when nothing is served yet.
    open: usize,
    exports: usize,
    threads: usize,
}

impl Descriptors {
    /// Counts those that are open, which the `exports` are already, and raises the limit on them as far as the system
    /// lets us. `threads` will wait for disks.
    pub fn count(exports: usize, threads: usize) -> Descriptors {
        let max = raise_limit();
        let open = std::fs::read_dir("/proc/self/fd").map(Iterator::count);
        // Without /proc nobody knows, but when there are none left.
        let open = open.unwrap_or_else(|e| if e.raw_os_error() == Some(EMFILE) { max } else { 0 });
        Descriptors { max, open, exports, threads: threads + EXTRA_THREADS_MAX }
    }

    /// The same with so many exports.
    pub fn with_exports(self, exports: usize) -> Descriptors {
        let open = (self.open + EXPORT * exports).saturating_sub(EXPORT * self.exports);
        Descriptors { open, exports, ..self }
    }

    /// How many connections fit beside all else.
    pub fn connections(&self) -> usize {
        // What a disk keeps open is five sixteenths of the limit for all exports together, unless those are many.
        let kept = (self.max / 16 * 5).max(EXPORT_KEEPS * self.exports);
        let at_work = (THREAD * self.threads).min(self.max / 8);
        self.max.saturating_sub(self.open + kept + at_work + SOCKETS)
    }

    /// Fails if next to no connection fits.
    pub fn check(&self) -> Result<(), StartError> {
        if self.connections() < CONNECTIONS_MIN { Err(self.too_few()) } else { Ok(()) }
    }

    /// That they are too few, and how many it takes.
    pub fn too_few(&self) -> StartError {
        StartError::Descriptors { max: self.max, needed: self.needed(), exports: self.exports }
    }

    /// A limit with which connections fit, but none with much less.
    fn needed(&self) -> usize {
        let fits = |max| Descriptors { max, ..*self }.connections() >= CONNECTIONS_MIN;
        let (mut too_few, mut enough) = (0, usize::MAX);
        while enough - too_few > 1 {
            let max = too_few + (enough - too_few) / 2;
            *(if fits(max) { &mut enough } else { &mut too_few }) = max;
        }
        enough
    }

    /// How many connections to take, where those are not enough: more than fit, for that is better than none.
    pub(crate) fn connections_at_least(&self) -> usize {
        self.connections().max(CONNECTIONS_MIN)
    }
}

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// Raises the limit on open files as far as the system lets us; what it is then.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If it may not be raised, the present one holds.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(max: usize, open: usize, exports: usize) -> Descriptors {
        Descriptors { max, open, exports, threads: 4 + EXTRA_THREADS_MAX }
    }

    #[test]
    fn connections_get_what_nothing_else_needs() {
        assert_eq!(of(1024, 16, 1).connections(), 1024 - 16 - 320 - 128 - 8);
        assert_eq!(of(65_536, 20, 3).connections(), 65_536 - 20 - 20_480 - 256 - 8);
        assert!(of(64, 16, 1).check().is_ok());
        assert!(of(usize::MAX, 20, 1).connections() > 1 << 40);
    }

    #[test]
    fn many_exports_leave_less_and_at_last_nothing() {
        let full = of(1024, 15 + 2 * 450, 450);
        assert_eq!(full.connections(), 0);
        let why = full.check().unwrap_err().to_string();
        assert!(why.starts_with("for 450 exports this process must be allowed 4"), "{why}");
        assert!(why.contains(" open files, and is allowed 1024: "), "{why}");
        for (open, exports) in [(15 + 2 * 450, 450), (40_015, 20_000), (5000, 1)] {
            let few = of(1024, open, exports);
            let enough = few.needed();
            assert!(of(enough, open, exports).check().is_ok(), "{enough} for {exports}");
            assert!(of(enough - 16, open, exports).check().is_err(), "{enough} for {exports}");
        }
        assert_eq!(full.connections_at_least(), CONNECTIONS_MIN);
        assert_eq!(of(1024, 17, 1).with_exports(450), full);
        assert!(full.with_exports(10).check().is_ok(), "they were closed");
    }

    #[test]
    fn what_is_open_counts() {
        let before = Descriptors::count(1, 4);
        let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let after = Descriptors::count(1, 4);
        // Other tests of this process close theirs meanwhile.
        assert!(after.open + 50 > before.open + files.len(), "{before:?} {after:?}");
    }
}
