//! Diagnostics for `-v`, `-vv` and `RUST_LOG`: `tracing` events as lines on standard error.
//!
//! A background thread writes them, so that a slow reader blocks no task. Events that do not fit its queue are dropped
//! and counted. Notices for operators and `--json` output do not pass through here.

use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::os::fd::AsFd;
use std::{env, io};

use clap::{ArgAction, Args, ValueEnum};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Lines that may wait to be written.
const LINES_MAX: usize = 4096;
/// Where filters are read from, as in many programs.
const VARIABLE: &str = "RUST_LOG";

/// What is logged, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogSettings {
    /// The number of `-v` flags.
    pub(crate) verbose: u8,
    pub(crate) format: LogFormat,
}

/// The format of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

/// Writes diagnostics until it is dropped.
pub(crate) struct Diagnostics {
    writer: Option<WorkerGuard>,
    dropped: ErrorCounter,
}

/// Starts to write what `RUST_LOG` asks for, else what so many `-v` do; `None` if neither is there. Ignores a filter
/// that it cannot read, and says so: the variable may be meant for other programs.
pub(crate) fn start(settings: LogSettings) -> Result<Option<Diagnostics>> {
    let wanted = filter(env::var(VARIABLE).ok().as_deref(), settings.verbose).or_else(|why| {
        stdio::eprint(format_args!("remora: ignoring {why}"));
        filter(None, settings.verbose)
    });
    let Some(filter) = wanted.map_err(Error::Usage)? else { return Ok(None) };
    let cannot = Error::local("standard error");
    // A file of its own: a reader who does not read holds no lock that messages need.
    let file = match io::stderr().as_fd().try_clone_to_owned() {
        Ok(fd) => File::from(fd),
        Err(e) => return Err(cannot(e)),
    };
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("diagnostics")
        // The thread flushes when no line waits.
        .finish(BufWriter::new(file));
    let dropped = writer.error_counter();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // There is no other in this process.
    let _ = match settings.format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    Ok(Some(Diagnostics { writer: Some(guard), dropped }))
}

fn filter(variable: Option<&str>, verbosity: u8) -> std::result::Result<Option<EnvFilter>, String> {
    let directives = match (variable.filter(|text| !text.is_empty()), verbosity) {
        (Some(text), _) => text,
        (None, 0) => return Ok(None),
        (None, 1) => "remora=debug",
        (None, _) => "remora=trace,noq_proto=debug",
    };
    EnvFilter::builder().parse(directives).map(Some).map_err(|e| format!("{VARIABLE}={directives}: {e}"))
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        // Waits a moment for what is left.
        drop(self.writer.take());
        let dropped = self.dropped.dropped_lines();
        if dropped > 0 {
            stdio::eprint(format_args!(
                "remora: dropped {dropped} lines of diagnostics: standard error is not read fast enough"
            ));
        }
    }
}

/// Flags of services.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Verbosity {
    /// Write diagnostics to standard error: connections and sessions; -vv: calls, too. RUST_LOG chooses more finely, as
    /// in RUST_LOG=remora_host=debug
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Format of diagnostics and of the access log
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: LogFormat,
}

impl Verbosity {
    pub(crate) fn settings(self) -> LogSettings {
        LogSettings { verbose: self.verbose, format: self.log_format }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_comes_before_verbosity() {
        let shown = |variable, verbosity| {
            let filter = filter(variable, verbosity).unwrap()?.to_string();
            let mut directives: Vec<String> = filter.split(',').map(str::to_owned).collect();
            directives.sort();
            Some(directives.join(","))
        };
        assert_eq!((shown(None, 0), shown(Some(""), 0)), (None, None));
        assert_eq!(shown(None, 1).as_deref(), Some("remora=debug"));
        assert_eq!(shown(None, 9).as_deref(), Some("noq_proto=debug,remora=trace"));
        assert_eq!(shown(Some("remora_host=info"), 2).as_deref(), Some("remora_host=info"));
        assert!(filter(Some("remora=loudly"), 0).unwrap_err().starts_with("RUST_LOG=remora=loudly: "));
    }
}
