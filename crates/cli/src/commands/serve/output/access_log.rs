//! `--access-log`: a line for each answered call.
//!
//! The threads of the server add lines to a shared buffer, and one thread writes it, so that many lines share a
//! system call. What does not fit the buffer is dropped, and a line says how many.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
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
    is_closed: bool,
}

thread_local! {
    /// Lines of a thread, formatted before it takes the lock that all threads share.
    static FORMATTER: RefCell<Formatter> = RefCell::default();
}

/// Lines, and texts that most lines share with the line before.
#[derive(Default)]
struct Formatter {
    text: Vec<u8>,
    second: Option<(u64, String)>,
    client: Option<(SocketAddr, String)>,
    /// A quoted name of an export.
    export: Option<(Arc<str>, String)>,
}

/// What stands before, between and after the fields of a line.
struct Keys {
    time: &'static str,
    client: &'static str,
    uid: &'static str,
    procedure: &'static str,
    export: &'static str,
    name: &'static str,
    new_name: &'static str,
    status: &'static str,
    latency: &'static str,
    dropped: &'static str,
    /// Ends a text that needs no escapes.
    quote: &'static str,
    end: &'static str,
}

const TEXT: Keys = Keys {
    time: "",
    client: " client=",
    uid: " uid=",
    procedure: " procedure=",
    export: " export=",
    name: " name=",
    new_name: " new_name=",
    status: " status=",
    latency: " us=",
    dropped: "dropped=",
    quote: "",
    end: "\n",
};

const JSON: Keys = Keys {
    time: r#"{"time":""#,
    client: r#","client":""#,
    uid: r#","uid":"#,
    procedure: r#","procedure":""#,
    export: r#","export":"#,
    name: r#","name":"#,
    new_name: r#","new_name":"#,
    status: r#","status":""#,
    latency: r#","us":"#,
    dropped: r#"{"dropped":"#,
    quote: "\"",
    end: "}\n",
};

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
        let keys = match self.format {
            LogFormat::Text => &TEXT,
            LogFormat::Json => &JSON,
        };
        let was_empty = FORMATTER.with_borrow_mut(|formatter| {
            formatter.text.clear();
            records.iter().for_each(|record| formatter.add(keys, now_us, record));
            let mut lines = self.lock();
            let was_empty = lines.text.is_empty();
            lines.add(keys, &formatter.text, records.len() as u64);
            was_empty
        });
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
    /// Adds `count` lines, or drops them.
    fn add(&mut self, keys: &Keys, text: &[u8], count: u64) {
        if self.text.len() >= BYTES_MAX {
            self.dropped += count;
            return;
        }
        if self.dropped > 0 {
            let mut number = itoa::Buffer::new();
            let dropped = number.format(std::mem::take(&mut self.dropped));
            append(&mut self.text, [keys.dropped, dropped, keys.end]);
        }
        self.text.extend_from_slice(text);
    }
}

impl Formatter {
    fn add(&mut self, keys: &Keys, now_us: u64, record: &AccessRecord) {
        let AccessRecord { client, uid, procedure, export, name, new_name, status, latency } = record;
        let Formatter { text, second: last_second, client: last_client, export: last_export } = self;
        let (mut number, quote) = (itoa::Buffer::new(), keys.quote);
        // The digit in front keeps the zeros.
        let micros = &number.format(MICROS + now_us % MICROS)[1..];
        let second = shared_text(last_second, &(now_us / MICROS), |second| second_text(*second));
        let client = shared_text(last_client, client, SocketAddr::to_string);
        append(text, [keys.time, second, ".", micros, "Z", quote, keys.client, client, quote]);
        if let Some(uid) = uid {
            append(text, [keys.uid, number.format(*uid)]);
        }
        append(text, [keys.procedure, procedure, quote]);
        if let Some(export) = export {
            append(text, [keys.export, shared_text(last_export, export, |export| quoted(export.as_bytes()))]);
        }
        for (key, name) in [(keys.name, name), (keys.new_name, new_name)] {
            if let Some(name) = name {
                append(text, [key, &quoted(name)]);
            }
        }
        append(text, [keys.status, status, quote, keys.latency, number.format(latency.as_micros()), keys.end]);
    }
}

fn append<const N: usize>(text: &mut Vec<u8>, parts: [&str; N]) {
    parts.into_iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
}

/// The text of `value`, which is that of the line before if the value is.
fn shared_text<'t, T: PartialEq + Clone>(
    last: &'t mut Option<(T, String)>,
    value: &T,
    format: impl Fn(&T) -> String,
) -> &'t str {
    if last.as_ref().is_some_and(|(last, _)| last != value) {
        *last = None;
    }
    &last.get_or_insert_with(|| (value.clone(), format(value))).1
}

/// A name as a JSON string, so that no name can imitate a line.
fn quoted(name: &[u8]) -> String {
    serde_json::Value::from(String::from_utf8_lossy(name)).to_string()
}

/// Date and time of day of `second` since 1970, UTC.
fn second_text(second: u64) -> String {
    let time = i64::try_from(second).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.unwrap_or_default().to_string().trim_end_matches('Z').to_owned()
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

    fn line(keys: &Keys, record: &AccessRecord) -> String {
        let mut formatter = Formatter::default();
        formatter.add(keys, NOW_US, record);
        String::from_utf8(formatter.text).unwrap()
    }

    #[test]
    fn text_line_quotes_names() {
        let line = line(&TEXT, &record(Some(b"a\nb \"c\""), Some(b"\xff")));
        let want = "2023-11-14T22:13:20.000042Z client=10.0.0.1:700 uid=1000 procedure=RENAME export=\"/srv\" \
            name=\"a\\nb \\\"c\\\"\" new_name=\"\u{fffd}\" status=OK us=120\n";
        assert_eq!(line, want);
    }

    #[test]
    fn json_line_is_an_object_without_unknown_fields() {
        let full: serde_json::Value = serde_json::from_str(&line(&JSON, &record(Some(b"a\n"), None))).unwrap();
        assert_eq!(full["name"], "a\n");
        assert_eq!((full["us"].as_u64(), full["uid"].as_u64(), full.get("new_name")), (Some(120), Some(1000), None));
        let anonymous = AccessRecord { uid: None, export: None, ..record(None, None) };
        let bare: serde_json::Value = serde_json::from_str(&line(&JSON, &anonymous)).unwrap();
        let keys: Vec<&String> = bare.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["client", "procedure", "status", "time", "us"]);
    }

    #[test]
    fn full_buffer_drops_lines_and_says_how_many() {
        let mut lines = Lines { text: vec![b'x'; BYTES_MAX], ..Lines::default() };
        let text = line(&JSON, &record(None, None));
        lines.add(&JSON, text.as_bytes(), 2);
        lines.add(&JSON, text.as_bytes(), 1);
        assert_eq!((lines.text.len(), lines.dropped), (BYTES_MAX, 3));
        lines.text.clear();
        lines.add(&JSON, text.as_bytes(), 1);
        assert!(lines.text.starts_with(b"{\"dropped\":3}\n{\"time\":\""));
    }

    #[test]
    fn each_line_has_its_own_client_export_and_second() {
        let mut formatter = Formatter::default();
        let other = AccessRecord {
            client: "[::1]:9".parse().unwrap(),
            export: Some("/other".into()),
            new_name: None,
            ..record(None, None)
        };
        for (seconds, record) in [(0, record(None, None)), (1, other), (1, record(None, None))] {
            formatter.add(&TEXT, NOW_US + seconds * MICROS, &record);
        }
        let want = "2023-11-14T22:13:20.000042Z client=10.0.0.1:700 uid=1000 procedure=RENAME export=\"/srv\" \
                status=OK us=120\n\
            2023-11-14T22:13:21.000042Z client=[::1]:9 uid=1000 procedure=RENAME export=\"/other\" status=OK us=120\n\
            2023-11-14T22:13:21.000042Z client=10.0.0.1:700 uid=1000 procedure=RENAME export=\"/srv\" \
                status=OK us=120\n";
        assert_eq!(String::from_utf8(formatter.text).unwrap(), want);
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
