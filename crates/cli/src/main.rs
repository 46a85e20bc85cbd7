//! `remora`: remote files over links that drop, stall and crawl.
//!
//! [`commands`] has the command line and a module for each command; [`remote`] the files on NFS servers; [`config`]
//! values, files and state; [`output`] standard output, errors and exit codes. [`cp`] is the largest command.

// Printing panics if nobody reads the output; `output::stdio` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod commands;
mod config;
mod cp;
mod interrupt;
mod output;
mod remote;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use config::state_dir as state;
use config::{filter, units};
use output::{diagnostics, exit, stdio};
use remote::{
    attributes as object, concurrency as ahead, concurrency as pool, listing, servers, stall_notice as silence,
};

/// The path that `cp` has for its flags.
mod args {
    pub(crate) use crate::cp::flags::Cp;
}
/// The path that `cp` has for output.
mod out {
    pub(crate) use crate::output::escape::{child_url as below, printable as shown};
    pub(crate) use crate::output::stdio::{eprint as say, print as text, print_error as show, print_json as json};
}

/// Pairs of descriptors that the runtime needs: two to wait with, and for signals a pair and a copy.
const RUNTIME_PAIRS: usize = 3;
/// Threads beside its workers: for files, for what is printed, and for who waits for signals.
const THREADS_BESIDE: usize = 3;

/// Requests and replies are allocated by one thread and freed by another all the time, which this
/// allocator is better at than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long what was interrupted waits for somebody to read that it was.
const UNREAD_MAX: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = commands::parse();
    let name = cli.command.name();
    if cli.command.is_service() {
        stdio::outlive_readers(name);
    }
    let diagnostics = match diagnostics::start(cli.command.verbosity()) {
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
    // A thread that hangs in a name look-up or on a full pipe is not waited for.
    runtime.shutdown_background();
    // Peers would keep what they have for us.
    remora_host::atp::close_all();
    // Nor one that starts an emulator, but it puts back what it has changed.
    remora_host::emulate::leave_machine();
    drop(diagnostics);
    finish(name, result, in_all)
}

/// Tokio panics where there are no descriptors for what it hears signals with, and waits for ever where there are no
/// threads: there are as many first.
fn runtime() -> io::Result<Runtime> {
    let room: Vec<_> = (0..RUNTIME_PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<_>>()?;
    drop(room);
    let wanted = std::thread::available_parallelism().map_or(1, usize::from) + THREADS_BESIDE;
    match threads_to_be_had(wanted) {
        (n, Some(e)) if n <= 1 => {
            let why =
                format!("no more threads may be made here (ulimit -u, or a container's limit): {}", exit::io_text(&e));
            Err(io::Error::other(why))
        }
        (n, Some(_)) => {
            let workers = n.saturating_sub(THREADS_BESIDE).max(1);
            Builder::new_multi_thread().worker_threads(workers).enable_all().build()
        }
        (_, None) => Runtime::new(),
    }
}

/// How many threads of `wanted` can be at a time, and why no more.
fn threads_to_be_had(wanted: usize) -> (usize, Option<io::Error>) {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let closed = gate.lock();
        // Each stays until all are there.
        let stay = || drop(gate.lock());
        let made = |_: usize| std::thread::Builder::new().spawn_scoped(scope, stay).map(drop);
        let mut n = 0;
        let why = (0..wanted).map(made).inspect(|made| n += usize::from(made.is_ok())).find_map(Result::err);
        drop(closed);
        (n, why)
    })
}

/// Says what went wrong, and what to do about it; picks the exit code.
fn finish(name: &'static str, result: exit::Result, kept: interrupt::KeptInAll) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let code = ExitCode::from(error.code());
    if !matches!(error, exit::Error::Interrupted(_)) {
        say(name, &error, &kept);
        return code;
    }
    // Nobody may be reading standard error, and who wants it to end does not want it to wait for that.
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
        let how = "the same command with --resume goes on from there";
        stdio::eprint(format_args!("hint: {kept} of what was not finished are kept; {how}"));
    }
}
