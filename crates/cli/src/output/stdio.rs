//! Standard output and standard error.
//!
//! A closed pipe is not an error: a command ends quietly, a service continues. Other write errors are reported.

use std::io;
#[cfg(feature = "lab")]
use std::io::IsTerminal;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

#[cfg(feature = "lab")]
use ratatui::crossterm::terminal;
use remora_host::client::ClientError;
use rustix::io::Errno;
use serde::Serialize;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::output::escape;
use crate::output::exit::{Error, Result};

/// The command's name, if it is a service.
static SERVICE: OnceLock<&str> = OnceLock::new();
/// Limits the notice about a closed standard output to one.
static UNREAD: Once = Once::new();

/// Makes this process a service: a closed standard output no longer ends it.
pub(crate) fn outlive_readers(command: &'static str) {
    SERVICE.get_or_init(|| command);
}

/// Width of the terminal that standard output goes to, in characters; `None` if it goes elsewhere.
#[cfg(feature = "lab")]
pub(crate) fn terminal_width() -> Option<usize> {
    let size = io::stdout().is_terminal().then(|| terminal::size().ok()).flatten();
    size.map(|(columns, _)| usize::from(columns))
}

/// Width of the tables of reports: a file gets them whole.
#[cfg(feature = "lab")]
pub(crate) fn report_width() -> usize {
    terminal_width().unwrap_or(usize::MAX)
}

/// A command line, quoted for a shell.
pub(crate) fn for_shell(words: &[String]) -> Result<String> {
    shlex::try_join(words.iter().map(String::as_str)).map_err(|_| Error::Usage("a flag contains a NUL byte".into()))
}

/// Writes all of `data` to standard output.
pub(crate) fn bytes(data: &[u8]) -> io::Result<()> {
    if is_stdout_closed() {
        return Err(Errno::BADF.into());
    }
    aside(|| {
        let mut out = io::stdout().lock();
        out.write_all(data)?;
        out.flush()
    })
}

/// Prints text unchanged.
pub(crate) fn print(text: &str) -> Result {
    match (bytes(text.as_bytes()), SERVICE.get()) {
        (Err(e), Some(command)) if is_unread(&e) => {
            let what = "standard output is closed; continuing without it";
            UNREAD.call_once(|| eprint(format_args!("remora: {command}: {what}")));
            Ok(())
        }
        (written, _) => written.map_err(failed),
    }
}

/// Prints an object on a line of its own.
pub(crate) fn print_json(object: &impl Serialize) -> Result {
    let mut line = json_line(object)?;
    line.push('\n');
    print(&line)
}

/// The object on one line, without its end; integers above 2^53 are strings.
pub(crate) fn json_line(object: &impl Serialize) -> Result<String> {
    remora_host::json::line(object).map_err(|e| Error::refused("standard output", e.to_string()))
}

/// Prints a line on standard error; ignores errors. May block, so the caller must not hold a lock.
pub(crate) fn eprint(line: impl std::fmt::Display) {
    aside(|| {
        let _ = writeln!(io::stderr(), "{line}");
    });
}

/// Runs a blocking write without blocking the other tasks of the worker thread.
fn aside<T>(write: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(write),
        _ => write(),
    }
}

/// Whether no reader exists: it went away, or standard output was closed from the start.
fn is_unread(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::BrokenPipe || is_stdout_closed()
}

fn failed(e: io::Error) -> Error {
    if e.kind() == io::ErrorKind::BrokenPipe { Error::Pipe } else { Error::local("standard output")(e) }
}

/// A transfer whose sink is standard output failed.
pub(crate) fn transfer_failed(what: impl std::fmt::Display) -> impl FnOnce(ClientError) -> Error {
    move |e| match e {
        ClientError::Local(e) => failed(e),
        other => Error::remote(what)(other),
    }
}

/// Prints an error of `command` and its hint. Escapes control characters, because names in it come from others; line
/// feeds remain.
pub(crate) fn print_error(command: &str, error: &Error) {
    let text: Vec<String> = error.to_string().split('\n').map(|line| escape::printable(line.as_bytes())).collect();
    let hint = error.hint().map_or(String::new(), |hint| format!("\nhint: {hint}"));
    // One write, so that output of other threads does not interleave.
    eprint(format_args!("remora: {command}: {}{hint}", text.join("\n")));
}

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed (`>&-`) when the process started.
pub(crate) fn is_stdout_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

#[expect(
    unsafe_code,
    reason = "the loader calls this before the standard library's start code, and nothing safe is that early"
)]
mod before_main {
    use std::os::fd::BorrowedFd;

    use super::{Ordering, STDOUT_CLOSED};

    // SAFETY: the loader calls each function in this section once, before other threads exist.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    /// Only one system call and one atomic store: nothing of the standard library is initialised yet.
    extern "C" fn look() {
        // SAFETY: fcntl(F_GETFD) takes any number, and nothing keeps the descriptor.
        let stdout = unsafe { BorrowedFd::borrow_raw(1) };
        if rustix::io::fcntl_getfd(stdout).is_err() {
            STDOUT_CLOSED.store(true, Ordering::Relaxed);
        }
    }
}
