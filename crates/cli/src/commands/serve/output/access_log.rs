//! `--access-log`: a line for each answered call.
//!
//! The threads of the server format lines into a shared buffer, and one thread writes it, so that many lines share a
//! system call. What does not fit the buffer is dropped, and a line says how many.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use remora_host::server::AccessSink;
use remora_server::AccessRecord;

use crate::output::diagnostics::LogFormat;
use crate::output::exit::{Error, Result, io_text};
use crate::output::stdio;

/// Bytes that wait to be written.
const BYTES_MAX: usize = 4 << 20;
/// How long lines are gathered for one write.
const GATHER: Duration = Duration::from_millis(20);
/// The file's mode: names of files may be private.
const MODE: u32 = 0o640;
const MICROS: u64 = 1_000_000;

/// A running log. Dropping it writes what waits.
pub(crate) struct AccessLog {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

struct Queue {
    format: LogFormat,
    lines: Mutex<Lines>,
    has_lines: Condvar,
}

#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    /// Lines that found no room since the last that did.
    dropped: u64,
    clock: SecondText,
    is_closed: bool,
}

/// The text of a second, which many lines share.
#[derive(Default)]
struct SecondText {
    second: u64,
    text: String,
}

impl AccessLog {
    /// Opens the file, `-` being standard error, and starts the thread.
    pub(crate) fn open(path: &Path, format: LogFormat) -> Result<AccessLog> {
        let file = match path.as_os_str() == "-" {
            true => io::stderr().as_fd().try_clone_to_owned().map(File::from),
            false => OpenOptions::new().append(true).create(true).mode(MODE).open(path),
        };
        let file = file.map_err(Error::local(path.display()))?;
        let queue = Arc::new(Queue { format, lines: Mutex::default(), has_lines: Condvar::new() });
        let (writing, name) = (queue.clone(), path.display().to_string());
        let thread = std::thread::Builder::new().name("access log".into());
        let thread = thread.spawn(move || writing.write_to(file, &name)).map_err(Error::local("starting a thread"))?;
        Ok(AccessLog { queue, thread: Some(thread) })
    }

    /// Where a server puts its records.
    pub(crate) fn sink(&self) -> AccessSink {
        let queue = self.queue.clone();
        AccessSink::new(move |records| queue.add(SystemTime::now(), records))
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.has_lines.notify_one();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Queue {
    fn add(&self, now: SystemTime, records: &[AccessRecord]) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let mut lines = self.lock();
        let was_empty = lines.text.is_empty();
        for record in records {
            lines.add(self.format, now_us, record);
        }
        drop(lines);
        if was_empty {
            self.has_lines.notify_one();
        }
    }

    /// Writes until the queue is closed and empty. An error is reported once; lines are lost until writing works again.
    fn write_to(&self, mut file: File, name: &str) {
        let (mut text, mut is_failing) = (Vec::new(), false);
        loop {
            let is_closed = {
                let lines = self.lock();
                let idle = |lines: &mut Lines| lines.text.is_empty() && !lines.is_closed;
                self.has_lines.wait_while(lines, idle).unwrap_or_else(PoisonError::into_inner).is_closed
            };
            if !is_closed {
                std::thread::sleep(GATHER);
            }
            text.clear();
            {
                let mut lines = self.lock();
                std::mem::swap(&mut lines.text, &mut text);
            }
            if text.is_empty() && is_closed {
                return;
            }
            let written = file.write_all(&text);
            if let Some(e) = written.as_ref().err().filter(|_| !is_failing) {
                stdio::eprint(format_args!("remora: serve: access log {name}: {}", io_text(e)));
            }
            is_failing = written.is_err();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn add(&mut self, format: LogFormat, now_us: u64, record: &AccessRecord) {
        if self.text.len() >= BYTES_MAX {
            self.dropped += 1;
            return;
        }
        let Lines { text, dropped, clock, .. } = self;
        // Writing to a vector never fails.
        let _ = match format {
            LogFormat::Text => {
                let told = tell_dropped(text, dropped, "", "dropped=", "\n");
                told.and_then(|()| text_line(text, clock, now_us, record))
            }
            LogFormat::Json => {
                let told = tell_dropped(text, dropped, "{", "\"dropped\":", "}\n");
                told.and_then(|()| json_line(text, clock, now_us, record))
            }
        };
    }
}

fn tell_dropped(text: &mut Vec<u8>, dropped: &mut u64, begin: &str, key: &str, end: &str) -> io::Result<()> {
    match std::mem::take(dropped) {
        0 => Ok(()),
        n => write!(text, "{begin}{key}{n}{end}"),
    }
}

fn text_line(text: &mut Vec<u8>, clock: &mut SecondText, now_us: u64, record: &AccessRecord) -> io::Result<()> {
    let AccessRecord { client, uid, procedure, export, name, new_name, status, latency } = record;
    write!(text, "{}.{:06}Z client={client}", clock.at(now_us / MICROS), now_us % MICROS)?;
    if let Some(uid) = uid {
        write!(text, " uid={uid}")?;
    }
    write!(text, " procedure={procedure}")?;
    let names = [(" export=", export.as_deref().map(str::as_bytes)), (" name=", name.as_deref())];
    for (key, name) in names.into_iter().chain([(" new_name=", new_name.as_deref())]) {
        quoted(text, key, name)?;
    }
    writeln!(text, " status={status} us={}", latency.as_micros())
}

fn json_line(text: &mut Vec<u8>, clock: &mut SecondText, now_us: u64, record: &AccessRecord) -> io::Result<()> {
    let AccessRecord { client, uid, procedure, export, name, new_name, status, latency } = record;
    let (second, us) = (clock.at(now_us / MICROS), now_us % MICROS);
    write!(text, "{{\"time\":\"{second}.{us:06}Z\",\"client\":\"{client}\"")?;
    if let Some(uid) = uid {
        write!(text, ",\"uid\":{uid}")?;
    }
    write!(text, ",\"procedure\":\"{procedure}\"")?;
    let names = [(",\"export\":", export.as_deref().map(str::as_bytes)), (",\"name\":", name.as_deref())];
    for (key, name) in names.into_iter().chain([(",\"new_name\":", new_name.as_deref())]) {
        quoted(text, key, name)?;
    }
    writeln!(text, ",\"status\":\"{status}\",\"us\":{}}}", latency.as_micros())
}

/// Appends a name as a JSON string, so that no name can imitate a line.
fn quoted(text: &mut Vec<u8>, key: &str, name: Option<&[u8]>) -> io::Result<()> {
    let Some(name) = name else { return Ok(()) };
    text.extend_from_slice(key.as_bytes());
    serde_json::to_writer(text, &String::from_utf8_lossy(name)).map_err(io::Error::from)
}

impl SecondText {
    /// Date and time of day of `second` since 1970, UTC.
    fn at(&mut self, second: u64) -> &str {
        if self.second != second || self.text.is_empty() {
            let time = i64::try_from(second).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
            let text = time.unwrap_or_default().to_string();
            (self.second, self.text) = (second, text.trim_end_matches('Z').to_owned());
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_700_000_000_000_042;

    fn record(name: Option<&'static [u8]>, new_name: Option<&'static [u8]>) -> AccessRecord {
        AccessRecord {
            client: "10.0.0.1:700".parse().unwrap(),
            uid: Some(1000),
            procedure: "RENAME",
            export: Some("/srv".into()),
            name: name.map(Into::into),
            new_name: new_name.map(Into::into),
            status: "OK",
            latency: Duration::from_micros(120),
        }
    }

    fn line(format: LogFormat, record: &AccessRecord) -> String {
        let mut lines = Lines::default();
        lines.add(format, NOW_US, record);
        String::from_utf8(lines.text).unwrap()
    }

    #[test]
    fn text_line_quotes_names() {
        let line = line(LogFormat::Text, &record(Some(b"a\nb \"c\""), Some(b"\xff")));
        let want = "2023-11-14T22:13:20.000042Z client=10.0.0.1:700 uid=1000 procedure=RENAME export=\"/srv\" \
            name=\"a\\nb \\\"c\\\"\" new_name=\"\u{fffd}\" status=OK us=120\n";
        assert_eq!(line, want);
    }

    #[test]
    fn json_line_is_an_object_without_unknown_fields() {
        let full: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, &record(Some(b"a\n"), None))).unwrap();
        assert_eq!(full["name"], "a\n");
        assert_eq!((full["us"].as_u64(), full["uid"].as_u64(), full.get("new_name")), (Some(120), Some(1000), None));
        let anonymous = AccessRecord { uid: None, export: None, ..record(None, None) };
        let bare: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, &anonymous)).unwrap();
        let keys: Vec<&String> = bare.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["client", "procedure", "status", "time", "us"]);
    }

    #[test]
    fn full_buffer_drops_lines_and_says_how_many() {
        let mut lines = Lines { text: vec![b'x'; BYTES_MAX], ..Lines::default() };
        for _ in 0..3 {
            lines.add(LogFormat::Json, NOW_US, &record(None, None));
        }
        assert_eq!((lines.text.len(), lines.dropped), (BYTES_MAX, 3));
        lines.text.clear();
        lines.add(LogFormat::Json, NOW_US, &record(None, None));
        assert!(lines.text.starts_with(b"{\"dropped\":3}\n{\"time\":"));
    }

    #[test]
    fn lines_are_in_the_file_when_the_log_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        for runs in 1..=2 {
            let log = AccessLog::open(&path, LogFormat::Text).unwrap();
            log.queue.add(UNIX_EPOCH, &[record(None, None)]);
            drop(log);
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), runs, "it appends");
        }
    }
}
