//! The first process in a station: enters the network namespace, runs one command, forwards signals, and ends with
//! it.
//!
//! It is process 1 of a PID namespace, so the kernel kills all descendants when it ends, including daemons. It is
//! killed when its parent ends. So nothing outlives the emulator, even after `kill -9`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, wait};
use tokio::signal::unix::{self, SignalKind, signal};

use super::namespace;
use crate::signals::unless_ignored;

/// Exit code of shells for a command that was not found.
const NOT_FOUND: u8 = 127;
/// Exit code of shells for a command that could not run.
const NOT_RUN: u8 = 126;

/// Runs `program` with `args` in the network namespace at `path`; returns its exit code, or 128 plus the signal
/// that ended it. Only for the process that [`Emulator::spawn`](super::Emulator::spawn) started.
pub async fn run(path: &Path, program: &OsString, args: &[OsString]) -> io::Result<u8> {
    if std::process::id() != 1 {
        return Err(io::Error::other("only the emulator starts this"));
    }
    // If the emulator ended earlier, opening its namespace fails next.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    namespace::enter(path)?;
    own_mounts()?;
    // Signal streams first, so that none is missed.
    let mut ended = signal(SignalKind::child())?;
    // The terminal signals the command directly; ignored signals stay ignored in the command.
    let mut hangup = unless_ignored(SignalKind::hangup())?;
    let mut terminate = unless_ignored(SignalKind::terminate())?;
    let mut user1 = unless_ignored(SignalKind::user_defined1())?;
    let mut user2 = unless_ignored(SignalKind::user_defined2())?;
    let child = match Command::new(program).args(args).spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(e) => {
            use io::Write;
            let _ = writeln!(io::stderr(), "remora: cannot run {}: {e}", program.display());
            return Ok(if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN });
        }
    };
    loop {
        let passed_on = tokio::select! {
            _ = ended.recv() => match reap(child)? {
                Some(status) => return Ok(code(status)),
                None => continue,
            },
            () = heard(&mut hangup) => Signal::HUP,
            () = heard(&mut terminate) => Signal::TERM,
            () = heard(&mut user1) => Signal::USR1,
            () = heard(&mut user2) => Signal::USR2,
        };
        // It may have ended just now.
        let _ = kill_process(child, passed_on);
    }
}

/// Waits for a signal that is not ignored.
async fn heard(stream: &mut Option<unix::Signal>) {
    match stream {
        Some(stream) => {
            stream.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Mounts `/proc` and `/sys` of the new namespaces, for this process and its children only.
fn own_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(mount("sysfs", "/sys", "sysfs", flags, None)?)
}

/// Reaps all ended processes; returns the status of `child` if it is among them.
fn reap(child: Pid) -> io::Result<Option<ExitStatus>> {
    let mut status = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, s))) if pid == child => status = Some(ExitStatus::from_raw(s.as_raw())),
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(status),
            Err(e) => return Err(e.into()),
        }
    }
}

/// The exit code that a shell reports for this status.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
