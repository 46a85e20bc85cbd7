//! Who hears of disks that fail.

use std::fmt;
use std::io;
use std::sync::Arc;

use remora_wire::nfs3::Status;

use crate::Result;

type Hear = dyn Fn(DiskFailure) + Send + Sync;

/// What a disk failed to do.
#[derive(Debug)]
pub enum DiskFailure {
    /// A flush, for this reason. It has changed the [verifier](crate::Vfs::verifier).
    Flush(io::Error),
    /// To tell or show what is there: who asked was answered [`Status::Io`].
    Look,
}

/// Hears of each failure. It must not block: others wait for that disk.
#[derive(Clone, Default)]
pub struct FailureHook(Option<Arc<Hear>>);

impl FailureHook {
    /// Calls `hear`.
    pub fn call(hear: impl Fn(DiskFailure) + Send + Sync + 'static) -> FailureHook {
        FailureHook(Some(Arc::new(hear)))
    }

    pub(crate) fn tell(&self, what: DiskFailure) {
        if let Some(hear) = &self.0 {
            hear(what);
        }
    }

    /// `done`, which takes no flush. A dead disk fails it before anything could be flushed.
    pub(crate) fn watch<T>(&self, done: Result<T>) -> Result<T> {
        if matches!(done, Err(Status::Io)) {
            self.tell(DiskFailure::Look);
        }
        done
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
    fn who_is_refused_for_another_reason_is_no_failure_of_the_disk() {
        let (hear, heard) = channel();
        let failure_hook = FailureHook::call(move |what| hear.send(format!("{what:?}")).unwrap());
        for (done, told) in [(Ok(()), None), (Err(Status::Stale), None), (Err(Status::Io), Some("Look".to_owned()))] {
            assert_eq!(failure_hook.watch(done), done);
            assert_eq!(heard.try_recv().ok(), told);
        }
    }
}
