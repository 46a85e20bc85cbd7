//! What the operator hears of disks that fail: a count, and now and then a line for each export.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use remora_vfs::local::OnFailure;

use crate::exit::{Error, Result, io_text};
use crate::out;

/// How often an export has a line.
const EVERY: Duration = Duration::from_secs(60);
/// Lines that wait for standard error; more are not said.
const WAITING_MAX: usize = 16;

/// Of all exports that this process has had.
pub(super) struct Failures {
    count: AtomicU64,
    lines: SyncSender<String>,
}

impl Failures {
    /// From now on. A thread says the lines: who meets a failure does not wait for those who read them.
    pub(super) fn start() -> Result<Arc<Failures>> {
        let (lines, said) = sync_channel(WAITING_MAX);
        let say = move || said.iter().for_each(|line: String| out::say(line));
        std::thread::Builder::new()
            .name("failures".into())
            .spawn(say)
            .map_err(Error::local("cannot start a thread"))?;
        Ok(Arc::new(Failures { count: AtomicU64::new(0), lines }))
    }

    /// How many flushes have failed.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Hears of those of the export of `dir`.
    pub(super) fn of(self: &Arc<Failures>, dir: &Path) -> OnFailure {
        let (failures, dir, told) = (self.clone(), out::shown(dir.as_os_str().as_encoded_bytes()), Mutex::default());
        OnFailure::call(move |why| {
            failures.count.fetch_add(1, Relaxed);
            let mut told: std::sync::MutexGuard<'_, Told> = told.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(unsaid) = told.due(Instant::now()) {
                let _ = failures.lines.try_send(line(&dir, &why, unsaid));
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

fn line(dir: &str, why: &io::Error, unsaid: u64) -> String {
    let more = if unsaid > 0 { format!(" (and {unsaid} more since this was said last)") } else { String::new() };
    let why = io_text(why);
    format!("remora: serve: {dir}: a flush failed: {why}{more}; clients are told to send again what is not on the disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fails_has_a_line_a_minute() {
        let (start, mut told) = (Instant::now(), Told::default());
        for (secs, due) in [(0, Some(0)), (0, None), (59, None), (60, Some(2)), (61, None), (500, Some(1))] {
            assert_eq!(told.due(start + Duration::from_secs(secs)), due, "after {secs} s");
        }
        let why = io::Error::from_raw_os_error(5);
        let once = "remora: serve: /data: a flush failed: input/output error; clients are told to send again what is \
                    not on the disk";
        assert_eq!(line("/data", &why, 0), once);
        assert!(line("/data", &why, 2).contains("error (and 2 more since this was said last);"));
    }
}
