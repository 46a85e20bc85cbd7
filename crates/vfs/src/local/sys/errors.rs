//! Errors of the kernel: their NFS status (RFC 1813, section 2.6), descriptor exhaustion, and the hook for disk
//! failures.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use remora_wire::nfs3::Status;
use rustix::io::Errno;

use crate::types::Result;

/// The status of a system call that failed with `errno`. Counts descriptor exhaustion.
pub(crate) fn status(errno: Errno) -> Status {
    note_fd_exhaustion(errno.raw_os_error());
    match errno {
        Errno::PERM => Status::Perm,
        Errno::NOENT => Status::NoEnt,
        Errno::IO => Status::Io,
        Errno::NXIO => Status::NxIo,
        // NFSv3 has no "busy". Clients may not change a mount point or a running program.
        Errno::ACCESS | Errno::BUSY | Errno::TXTBSY => Status::Access,
        Errno::EXIST => Status::Exist,
        Errno::XDEV => Status::XDev,
        Errno::NODEV => Status::NoDev,
        Errno::NOTDIR => Status::NotDir,
        Errno::ISDIR => Status::IsDir,
        // The server follows no symbolic link, so ELOOP means an invalid request.
        Errno::INVAL | Errno::LOOP => Status::Inval,
        Errno::FBIG | Errno::OVERFLOW => Status::FBig,
        Errno::NOSPC => Status::NoSpc,
        Errno::ROFS => Status::RoFs,
        Errno::MLINK => Status::MLink,
        Errno::NAMETOOLONG => Status::NameTooLong,
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::DQuot,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NotSupp,
        // A temporary shortage: the client retries.
        Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NFILE | Errno::MFILE | Errno::TIMEDOUT => Status::Jukebox,
        _ => Status::Io,
    }
}

/// Converts the errors of system calls: `.nfs()?`.
pub(crate) trait OrStatus<T> {
    /// The result with an NFS status as its error.
    fn nfs(self) -> Result<T>;
}

impl<T> OrStatus<T> for rustix::io::Result<T> {
    fn nfs(self) -> Result<T> {
        self.map_err(status)
    }
}

static EXHAUSTED_COUNT: AtomicU64 = AtomicU64::new(0);
static EXHAUSTED_ERRNO: AtomicI32 = AtomicI32::new(0);

/// How often the kernel refused this process a file descriptor. Clients receive JUKEBOX and retry, so only this count shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdExhaustion {
    /// Refusals since the process started.
    pub count: u64,
    /// Whether the last refusal was the system's limit (ENFILE), not the process's (EMFILE).
    pub system_wide: bool,
}

/// Counts a failed system call if `errno` is EMFILE or ENFILE.
pub fn note_fd_exhaustion(errno: i32) {
    if [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&errno) {
        EXHAUSTED_ERRNO.store(errno, Relaxed);
        EXHAUSTED_COUNT.fetch_add(1, Relaxed);
    }
}

/// The refusals of this process so far.
pub fn fd_exhaustion() -> FdExhaustion {
    let system_wide = EXHAUSTED_ERRNO.load(Relaxed) == Errno::NFILE.raw_os_error();
    FdExhaustion { count: EXHAUSTED_COUNT.load(Relaxed), system_wide }
}

/// What a disk failed to do.
#[derive(Debug)]
pub enum DiskFailure {
    /// A flush failed with this error. The [write verifier](crate::Vfs::verifier) has changed.
    Flush(io::Error),
    /// A read-only operation failed: the client got [`Status::Io`].
    Look,
}

type Hook = dyn Fn(DiskFailure) + Send + Sync;

/// Called at each disk failure. It must not block: operations on that disk wait for it.
#[derive(Clone, Default)]
pub struct FailureHook(Option<Arc<Hook>>);

impl FailureHook {
    /// A hook that calls `hook`.
    pub fn call(hook: impl Fn(DiskFailure) + Send + Sync + 'static) -> FailureHook {
        FailureHook(Some(Arc::new(hook)))
    }

    pub(crate) fn report(&self, failure: DiskFailure) {
        if let Some(hook) = &self.0 {
            hook(failure);
        }
    }

    /// Reports `result` if it is [`Status::Io`]. For operations that flush nothing: a dead disk fails them first.
    pub(crate) fn watch<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Status::Io)) {
            self.report(DiskFailure::Look);
        }
        result
    }
}

impl fmt::Debug for FailureHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "FailureHook(..)" } else { "FailureHook" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn failure_hook_reports_io_errors_only() {
        let (report, reports) = channel();
        let hook = FailureHook::call(move |what| report.send(format!("{what:?}")).unwrap());
        for (result, reported) in
            [(Ok(()), None), (Err(Status::Stale), None), (Err(Status::Io), Some("Look".to_owned()))]
        {
            assert_eq!(hook.watch(result), result);
            assert_eq!(reports.try_recv().ok(), reported, "after {result:?}");
        }
    }
}
