//! A thread that writes lines to standard output or standard error.
//!
//! A stalled reader blocks only this thread. Lines that do not fit the queue are dropped and counted.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Default queue length: some minutes of figures.
const LINES_MAX: usize = 256;
/// Limit for the last lines at the end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Handle of the thread.
pub(crate) struct BackgroundWriter {
    lines: SyncSender<String>,
    /// Resolves when the thread ends, with its error.
    ended: Option<oneshot::Receiver<Error>>,
    missed: u64,
}

impl BackgroundWriter {
    pub(crate) fn stdout() -> Result<BackgroundWriter> {
        BackgroundWriter::stdout_with_queue(LINES_MAX)
    }

    /// The same, where so many lines may wait.
    pub(crate) fn stdout_with_queue(lines_max: usize) -> Result<BackgroundWriter> {
        BackgroundWriter::start_with(lines_max, |line| stdio::print(&line))
    }

    /// Writes to standard error and ignores errors.
    pub(crate) fn stderr() -> Result<BackgroundWriter> {
        BackgroundWriter::stderr_with_queue(LINES_MAX)
    }

    /// The same, where so many lines may wait.
    pub(crate) fn stderr_with_queue(lines_max: usize) -> Result<BackgroundWriter> {
        BackgroundWriter::start_with(lines_max, |line| {
            stdio::eprint(line.trim_end());
            Ok(())
        })
    }

    fn start_with(lines_max: usize, print: impl Fn(String) -> Result + Send + 'static) -> Result<BackgroundWriter> {
        let (lines, waiting) = sync_channel::<String>(lines_max);
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("printer".into());
        let started = thread.spawn(move || {
            for line in waiting {
                if let Err(e) = print(line + "\n") {
                    // The handle may be gone.
                    let _ = end.send(e);
                    return;
                }
            }
        });
        started.map_err(Error::local("a thread"))?;
        Ok(BackgroundWriter { lines, ended: Some(ended), missed: 0 })
    }

    /// Queues a line, or counts it as dropped.
    pub(crate) fn print(&mut self, line: String) {
        match self.lines.try_send(line) {
            Err(TrySendError::Full(_)) => self.missed += 1,
            // `failed` returns the error.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Queues the line that reports dropped lines, if there are any.
    pub(crate) fn report_dropped(&mut self, line: impl FnOnce(u64) -> Result<String>) -> Result {
        if self.missed > 0 && self.lines.try_send(line(self.missed)?).is_ok() {
            self.missed = 0;
        }
        Ok(())
    }

    /// Waits for a write error.
    pub(crate) async fn failed(&mut self) -> Error {
        let Some(ended) = &mut self.ended else { return std::future::pending().await };
        let failed = ended.await;
        self.ended = None;
        match failed {
            Ok(e) => e,
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits up to [`PATIENCE`] for the queued lines.
    pub(crate) async fn finish(self) {
        // What goes wrong with the last ones is not worth an error.
        let _ = self.finish_within(PATIENCE).await;
    }

    /// The same, where they may take so long, and an error is an error.
    pub(crate) async fn finish_within(self, patience: Duration) -> Result {
        drop(self.lines);
        let Some(ended) = self.ended else { return Ok(()) };
        match tokio::time::timeout(patience, ended).await {
            Ok(Ok(e)) => Err(e),
            // All lines are written, or the reader has stalled.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn stopped_reader_blocks_nobody_and_learns_of_drops() {
        let (read, reader) = channel::<()>();
        let (told, printed) = channel();
        let print = move |line| reader.recv().map_err(|_| Error::Pipe).map(|()| told.send(line).unwrap());
        let mut printer = BackgroundWriter::start_with(LINES_MAX, print).unwrap();
        let news = |n| Ok(format!("{n} missing"));
        (0..LINES_MAX * 2).for_each(|i| printer.print(i.to_string()));
        printer.report_dropped(news).unwrap();
        read.send(()).unwrap();
        read.send(()).unwrap();
        assert_eq!(printed.recv().unwrap() + &printed.recv().unwrap(), "0\n1\n");
        // One is in the thread's hands beside those that wait.
        let missed = LINES_MAX as u64 - u64::from(printer.missed < LINES_MAX as u64);
        while printer.missed > 0 {
            printer.report_dropped(news).unwrap();
        }
        (0..LINES_MAX * 2).for_each(|_| read.send(()).unwrap());
        drop(read);
        printer.finish().await;
        assert_eq!(printed.iter().last().unwrap(), format!("{missed} missing\n"));
    }

    #[tokio::test]
    async fn write_error_is_reported_once() {
        let mut printer = BackgroundWriter::start_with(LINES_MAX, |_| Err(Error::Pipe)).unwrap();
        printer.print("line".into());
        assert!(matches!(printer.failed().await, Error::Pipe));
        printer.print("line".into());
        printer.finish().await;
    }
}
