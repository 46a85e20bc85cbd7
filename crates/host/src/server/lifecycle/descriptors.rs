//! The process's limit of open files, and how many connections it allows.
//!
//! Each connection takes a descriptor. Connections must not take the last ones: then no file could be opened, and
//! every client would get JUKEBOX.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::server::executor::EXTRA_THREADS_MAX;
use crate::server::options::StartError;

/// Descriptors that a working thread opens: a file, its parent directories, a listing.
const THREAD: usize = 4;
/// Descriptors that an export holds permanently: its root, and the file system's.
const EXPORT: usize = 2;
/// The least that an export in use keeps open: files, directories and removed files.
const EXPORT_KEEPS: usize = 8;
/// Descriptors of the threads that serve sockets.
const SOCKETS: usize = 8;
/// The least number of connections of a useful server.
const CONNECTIONS_MIN: usize = 8;

/// The division of the process's descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// The process's limit of open files.
    pub max: usize,
    /// Open before anything is served.
    open: usize,
    exports: usize,
    threads: usize,
}

impl Descriptors {
    /// Counts the open descriptors, the `exports`' included, and raises the limit as far as the system allows.
    /// `threads`: the executor's.
    pub fn count(exports: usize, threads: usize) -> Descriptors {
        let max = raise_limit();
        let open = std::fs::read_dir("/proc/self/fd").map(Iterator::count);
        // Without /proc the number is unknown, unless there are none left.
        let open = open.unwrap_or_else(|e| if e.raw_os_error() == Some(EMFILE) { max } else { 0 });
        Descriptors { max, open, exports, threads: threads + EXTRA_THREADS_MAX }
    }

    /// The division for another number of exports.
    pub fn with_exports(self, exports: usize) -> Descriptors {
        let open = (self.open + EXPORT * exports).saturating_sub(EXPORT * self.exports);
        Descriptors { open, exports, ..self }
    }

    /// The connections that fit.
    pub fn connections(&self) -> usize {
        // A disk keeps at most five sixteenths of the limit open for all exports together, unless there are many.
        let kept = (self.max / 16 * 5).max(EXPORT_KEEPS * self.exports);
        let at_work = (THREAD * self.threads).min(self.max / 8);
        self.max.saturating_sub(self.open + kept + at_work + SOCKETS)
    }

    /// Fails if too few connections fit.
    pub fn check(&self) -> Result<(), StartError> {
        if self.connections() < CONNECTIONS_MIN { Err(self.too_few()) } else { Ok(()) }
    }

    /// The error that reports how many descriptors are needed.
    pub fn too_few(&self) -> StartError {
        StartError::Descriptors { max: self.max, needed: self.needed(), exports: self.exports }
    }

    /// The smallest sufficient limit, by bisection.
    fn needed(&self) -> usize {
        let fits = |max| Descriptors { max, ..*self }.connections() >= CONNECTIONS_MIN;
        let (mut too_few, mut enough) = (0, usize::MAX);
        while enough - too_few > 1 {
            let max = too_few + (enough - too_few) / 2;
            *(if fits(max) { &mut enough } else { &mut too_few }) = max;
        }
        enough
    }

    /// The connections to accept: some even if none fit.
    pub(crate) fn connections_at_least(&self) -> usize {
        self.connections().max(CONNECTIONS_MIN)
    }
}

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// Raises the limit of open files as far as the system allows. Returns it.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the present limit holds.
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
    fn connections_get_the_remaining_descriptors() {
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
    fn open_descriptors_count() {
        let before = Descriptors::count(1, 4);
        let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let after = Descriptors::count(1, 4);
        // Other tests of this process close descriptors in the meantime.
        assert!(after.open + 50 > before.open + files.len(), "{before:?} {after:?}");
    }
}
