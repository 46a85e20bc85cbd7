//! `remora`: remote files over links that drop, stall and crawl.
//!
//! [`commands`] has the command line and a module for each command; [`remote`] the files on NFS servers; [`config`]
//! values, files and state; [`output`] standard output, errors and exit codes; [`metrics`] the pages for Prometheus;
//! [`service_manager`] talks to systemd. [`cp`] is the largest command.

// Printing panics if standard output is closed; `output::stdio` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod commands;
mod config;
mod cp;
mod http;
mod interrupt;
mod metrics;
mod output;
mod remote;
mod service_manager;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use config::units;
use output::{diagnostics, exit, stdio};

/// Descriptor pairs that the runtime needs: one for polling, and a pair and its copy for signals.
const RUNTIME_PAIRS: usize = 3;
/// Threads besides the workers: file I/O, output, signals.
const THREADS_BESIDE: usize = 3;

/// Requests and replies are often freed by another thread than the allocating one, which mimalloc does faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Limit for printing the message of an interrupted command.
const UNREAD_MAX: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = commands::parse();
    service_manager::find_sockets();
    let name = cli.command.name();
    if cli.command.is_service() {
        stdio::outlive_readers(name);
    }
    let diagnostics = match diagnostics::start(cli.command.log_settings()) {
        Ok(diagnostics) => diagnostics,
        Err(error) => {
            stdio::print_error(name, &error);
            return ExitCode::from(error.code());
        }
    };
    let (kept, in_all) = interrupt::kept();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => {
            drop(kept);
            return finish(name, Err(exit::Error::local("starting")(e)), in_all);
        }
    };
    let result = runtime.block_on(async {
        interrupt::outlive_user_signal();
        commands::run(cli.command, kept).await
    });
    // Do not wait for threads that hang in a name look-up or on a full pipe.
    runtime.shutdown_background();
    // Tell ATP peers to release their state.
    remora_host::atp::close_all();
    // Do not wait for an emulator's thread, but undo its changes to the machine.
    remora_host::emulate::leave_machine();
    drop(diagnostics);
    finish(name, result, in_all)
}

/// Checks that descriptors and threads are available before tokio starts: it panics without descriptors for signals,
/// and hangs without threads.
fn runtime() -> io::Result<Runtime> {
    let room: Vec<_> = (0..RUNTIME_PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<_>>()?;
    drop(room);
    let wanted = std::thread::available_parallelism().map_or(1, usize::from) + THREADS_BESIDE;
    match threads_to_be_had(wanted) {
        (n, Some(e)) if n <= 1 => {
            let why =
                format!("cannot create threads (check ulimit -u and the container's limit): {}", exit::io_text(&e));
            Err(io::Error::other(why))
        }
        (n, Some(_)) => {
            let workers = n.saturating_sub(THREADS_BESIDE).max(1);
            Builder::new_multi_thread().worker_threads(workers).enable_all().build()
        }
        (_, None) => Runtime::new(),
    }
}

/// The number of threads, up to `wanted`, that can exist at once, and the error that limited it.
fn threads_to_be_had(wanted: usize) -> (usize, Option<io::Error>) {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let closed = gate.lock();
        // Each thread waits until all are started.
        let stay = || drop(gate.lock());
        let made = |_: usize| std::thread::Builder::new().spawn_scoped(scope, stay).map(drop);
        let mut n = 0;
        let why = (0..wanted).map(made).inspect(|made| n += usize::from(made.is_ok())).find_map(Result::err);
        drop(closed);
        (n, why)
    })
}

/// Prints the error and its hint; returns the exit code.
fn finish(name: &'static str, result: exit::Result, kept: interrupt::KeptInAll) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let code = ExitCode::from(error.code());
    if !matches!(error, exit::Error::Interrupted(_)) {
        say(name, &error, &kept);
        return code;
    }
    // A stalled reader of standard error must not delay an interrupted command.
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        say(name, &error, &kept);
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(UNREAD_MAX);
    code
}

fn say(name: &str, error: &exit::Error, kept: &interrupt::KeptInAll) {
    match error {
        exit::Error::Pipe | exit::Error::Reported(_) => {}
        _ => stdio::print_error(name, error),
    }
    let kept = kept.bytes();
    if kept > 0 {
        let kept = units::human(kept);
        let how = "repeat the command with --resume to continue";
        stdio::eprint(format_args!("hint: {kept} of unfinished copies are kept; {how}"));
    }
}
