//! Notices for the operator: failing disks, and a lack of file descriptors. At most one line a minute each.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use remora_vfs::local::{DiskFailure, FailureHook, FdExhaustion, fd_exhaustion};
use rustix::process::{Resource, getrlimit};
use tokio::time::interval;

use crate::commands::serve::output::console::Console;
use crate::output::exit::{Error, Result, io_text};
use crate::output::{escape, stdio};

/// Least time between two notices about the same thing.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);
/// Lines queued for standard error; further ones are dropped.
const QUEUE_MAX: usize = 16;
/// Interval at which the count of refused opens is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Limits notices about one thing to one per [`NOTICE_INTERVAL`], and counts the events between them.
#[derive(Default)]
struct NoticeInterval {
    last: Option<Instant>,
    pending: u64,
}

impl NoticeInterval {
    /// Adds `events`. If a notice is due, returns the number of events since the last one.
    fn take(&mut self, now: Instant, events: u64) -> Option<u64> {
        self.pending += events;
        let is_too_soon = self.last.is_some_and(|last| now.saturating_duration_since(last) < NOTICE_INTERVAL);
        if self.pending == 0 || is_too_soon {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.pending))
    }
}

/// Counts failed flushes of all exports and writes notices about failing disks.
pub(crate) struct Failures {
    count: AtomicU64,
    lines: SyncSender<String>,
}

impl Failures {
    /// Starts a thread that writes the notices, so that the thread that meets a failure does not wait for a reader.
    pub(crate) fn start() -> Result<Arc<Failures>> {
        let (lines, said) = sync_channel(QUEUE_MAX);
        let say = move || said.iter().for_each(|line: String| stdio::eprint(line));
        std::thread::Builder::new()
            .name("failures".into())
            .spawn(say)
            .map_err(Error::local("cannot start a thread"))?;
        Ok(Arc::new(Failures { count: AtomicU64::new(0), lines }))
    }

    /// The number of failed flushes.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The callback for failures of the export of `dir`.
    pub(crate) fn of(self: &Arc<Failures>, dir: &Path) -> FailureHook {
        let (failures, dir) = (self.clone(), escape::printable(dir.as_os_str().as_encoded_bytes()));
        let [flushes, looks] = [(); 2].map(|()| Mutex::<NoticeInterval>::default());
        FailureHook::call(move |what| {
            let told = match what {
                DiskFailure::Flush(_) => {
                    failures.count.fetch_add(1, Relaxed);
                    &flushes
                }
                DiskFailure::Look => &looks,
            };
            if let Some(count) = told.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now(), 1) {
                let _ = failures.lines.try_send(disk_line(&dir, &what, count - 1));
            }
        })
    }
}

/// The notice about a failure of the export of `dir`, and `unsaid` others since the last notice.
fn disk_line(dir: &str, what: &DiskFailure, unsaid: u64) -> String {
    let more = if unsaid > 0 { format!(" (and {unsaid} more since the last such line)") } else { String::new() };
    let (failed, told) = match what {
        DiskFailure::Flush(why) => {
            (format!("a flush failed: {}", io_text(why)), "clients retransmit the unwritten data")
        }
        DiskFailure::Look => ("the file system failed".to_owned(), "the client gets NFS3ERR_IO"),
    };
    format!("remora: serve: {dir}: {failed}{more}; {told}")
}

/// Starts a task that reports refused opens while the process lives.
pub(crate) fn report_refused_opens(console: Console) {
    tokio::spawn(async move {
        let (mut poll, mut notice, mut seen) = (interval(POLL_INTERVAL), NoticeInterval::default(), 0);
        loop {
            let now = poll.tick().await.into_std();
            let times = fd_exhaustion().count;
            if let Some(count) = notice.take(now, times - std::mem::replace(&mut seen, times)) {
                console.say(descriptor_line(count, fd_exhaustion(), getrlimit(Resource::Nofile).current));
            }
        }
    });
}

/// The notice that opening a file failed `times` times for lack of descriptors.
fn descriptor_line(times: u64, what: FdExhaustion, limit: Option<u64>) -> String {
    let (whose, todo) = match what.system_wide {
        true => ("on this machine (ENFILE)".to_owned(), "raise sysctl fs.file-max"),
        false => {
            let limit = limit.map_or("its limit".to_owned(), |limit| limit.to_string());
            (
                format!("in this process (EMFILE; the limit is {limit})"),
                "raise LimitNOFILE= or ulimit -Hn, and restart the server",
            )
        }
    };
    let often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("remora: serve: too many open files {whose}, {often}: clients wait; {todo}")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn notices_are_limited_to_one_a_minute() {
        let (start, mut notice) = (Instant::now(), NoticeInterval::default());
        for (secs, events, due) in [
            (0, 0, None),
            (0, 1, Some(1)),
            (0, 1, None),
            (59, 1, None),
            (60, 1, Some(3)),
            (200, 0, None),
            (500, 7, Some(7)),
        ] {
            assert_eq!(notice.take(start + Duration::from_secs(secs), events), due, "after {secs} s");
        }
    }

    #[test]
    fn disk_notice_names_export_and_failure() {
        let flush = DiskFailure::Flush(io::Error::from_raw_os_error(5));
        let once = "remora: serve: /data: a flush failed: input/output error; clients retransmit the unwritten data";
        assert_eq!(disk_line("/data", &flush, 0), once);
        assert!(disk_line("/data", &flush, 2).contains("error (and 2 more since the last such line);"));
        let look = "remora: serve: /data: the file system failed; the client gets NFS3ERR_IO";
        assert_eq!(disk_line("/data", &DiskFailure::Look, 0), look);
    }

    #[test]
    fn descriptor_notice_names_limit_and_remedy() {
        let ours = descriptor_line(2, FdExhaustion { count: 9, system_wide: false }, Some(64));
        let once = "remora: serve: too many open files in this process (EMFILE; the limit is 64), 2 times: \
                    clients wait; raise LimitNOFILE= or ulimit -Hn, and restart the server";
        assert_eq!(ours, once);
        let theirs = descriptor_line(1, FdExhaustion { count: 9, system_wide: true }, Some(64));
        assert!(theirs.contains("(ENFILE), once: clients") && theirs.contains("fs.file-max"), "{theirs}");
    }
}
