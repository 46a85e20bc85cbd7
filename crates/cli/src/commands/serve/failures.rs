//! What the operator hears of disks that fail: a count, and now and then a line for each export.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use remora_vfs::local::{DiskFailure, FailureHook};

use crate::output::exit::{Error, Result, io_text};
use crate::output::{escape, stdio};

/// How often an export has a line.
const EVERY: Duration = Duration::from_secs(60);
/// Lines that wait for standard error; more are not said.
const WAITING_MAX: usize = 16;

/// Of all exports that this process has had.
pub(crate) struct Failures {
    count: AtomicU64,
    lines: SyncSender<String>,
}

impl Failures {
    /// From now on. A thread says the lines: who meets a failure does not wait for those who read them.
    pub(crate) fn start() -> Result<Arc<Failures>> {
        let (lines, said) = sync_channel(WAITING_MAX);
        let say = move || said.iter().for_each(|line: String| stdio::say(line));
        std::thread::Builder::new()
            .name("failures".into())
            .spawn(say)
            .map_err(Error::local("cannot start a thread"))?;
        Ok(Arc::new(Failures { count: AtomicU64::new(0), lines }))
    }

    /// How many flushes have failed.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Hears of those of the export of `dir`.
    pub(crate) fn of(self: &Arc<Failures>, dir: &Path) -> FailureHook {
        let (failures, dir) = (self.clone(), escape::shown(dir.as_os_str().as_encoded_bytes()));
        let [flushes, looks] = [(); 2].map(|()| Mutex::<Told>::default());
        FailureHook::call(move |what| {
            let told = match what {
                DiskFailure::Flush(_) => {
                    failures.count.fetch_add(1, Relaxed);
                    &flushes
                }
                DiskFailure::Look => &looks,
            };
            if let Some(unsaid) = told.lock().unwrap_or_else(PoisonError::into_inner).due(Instant::now()) {
                let _ = failures.lines.try_send(line(&dir, &what, unsaid));
            }
        })
    }
}

/// What has been said of an export.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
    unsaid: u64,
}

impl Told {
    /// One more. Where it is to be told, how many were not.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

fn line(dir: &str, what: &DiskFailure, unsaid: u64) -> String {
    let more = if unsaid > 0 { format!(" (and {unsaid} more since this was said last)") } else { String::new() };
    let (failed, told) = match what {
        DiskFailure::Flush(why) => {
            (format!("a flush failed: {}", io_text(why)), "clients are told to send again what is not on the disk")
        }
        DiskFailure::Look => ("the file system failed".to_owned(), "who asked is told of an input/output error"),
    };
    format!("remora: serve: {dir}: {failed}{more}; {told}")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_disk_that_fails_has_a_line_a_minute() {
        let (start, mut told) = (Instant::now(), Told::default());
        for (secs, due) in [(0, Some(0)), (0, None), (59, None), (60, Some(2)), (61, None), (500, Some(1))] {
            assert_eq!(told.due(start + Duration::from_secs(secs)), due, "after {secs} s");
        }
        let flush = DiskFailure::Flush(io::Error::from_raw_os_error(5));
        let once = "remora: serve: /data: a flush failed: input/output error; clients are told to send again what is \
                    not on the disk";
        assert_eq!(line("/data", &flush, 0), once);
        assert!(line("/data", &flush, 2).contains("error (and 2 more since this was said last);"));
        let look = "remora: serve: /data: the file system failed; who asked is told of an input/output error";
        assert_eq!(line("/data", &DiskFailure::Look, 0), look);
    }
}
