//! A shell on the mobile that runs one script after another, in the mount namespace of the mounted directory; or in a
//! guest on the mobile, with the kernel's NFS client.
//!
//! Killing it ends all its programs and the mount.

use std::io::Write;
use std::path::Path;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use guest::{BEGIN, HOST_ROOT, Kernel, Scratch, Silence, Talk};
use remora_host::emulate::{Emulator, Station};

use crate::wireless::real::guest as kernel_client;
use crate::wireless::real::program::{self, Program, READY, Result, Start, failed, failed_with};

/// The shell: it runs each line that it reads, and prints its exit code.
const SHELL: &str = "while read -r line; do eval \"$line\" </dev/null; echo \"lab-done $?\"; done";
/// What a guest says when its shell runs.
const GUEST_READY: &str = "lab-ready";
/// Enough for git and a compiler.
const GUEST_MEMORY_MIB: u32 = 768;
/// How often a wait looks whether it should stop.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of a command's output that are kept.
const SAID_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Shell {
    input: ChildStdin,
    talk: Talk,
    program: Program,
}

/// How a line ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Code {
        code: u8,
        said: String,
    },
    /// It did not end in time.
    Late,
    /// The study is to stop.
    Stopped,
}

impl Shell {
    pub(super) fn start(emulator: &Emulator, scratch: &Scratch) -> Result<Shell> {
        let line = ["/bin/sh", "-c", SHELL].map(str::to_owned);
        let mut environment = program::environment(scratch);
        environment.push(("XDG_CACHE_HOME", scratch.path("cache").to_string_lossy().into_owned()));
        environment.push(("GIT_CONFIG_NOSYSTEM", "1".into()));
        environment.push(("LC_ALL", "C".into()));
        let start = Start { environment: &environment, talks: true, ..Start::new("shell", &line) };
        let mut program = Program::start(emulator, scratch, Station::Mobile(0), &start)?;
        let talk = program.talk()?;
        let input = program.input().ok_or_else(|| failed("the shell has no input".into()))?;
        Ok(Shell { input, talk, program })
    }

    /// Boots a guest with this machine's programs and the directory of the run, at the same place as here.
    pub(super) fn in_guest(emulator: &Emulator, scratch: &Scratch, kernel: &Kernel) -> Result<Shell> {
        let mut line =
            kernel_client::command_line(emulator, scratch, kernel, GUEST_MEMORY_MIB, &first_process(scratch))?;
        line.extend(guest::share_root());
        line.extend(guest::share("run", &scratch.path("")));
        let start = Start { talks: true, ..Start::new("guest", &line) };
        let mut program = Program::start(emulator, scratch, Station::Mobile(0), &start)?;
        let talk = program.talk()?;
        let input = program.input().ok_or_else(|| failed("the guest has no console".into()))?;
        let ready = talk.until(Instant::now() + 2 * READY, |line| line.ends_with(GUEST_READY).then_some(()));
        ready.map_err(|e| failed(format!("the guest does not boot: {e}; {}", program.words())))?;
        Ok(Shell { input, talk, program })
    }

    /// Runs a shell line.
    pub(super) fn run(&mut self, line: &str, limit: Instant, stop: &AtomicBool) -> Result<Ended> {
        writeln!(self.input, "{line}").map_err(failed_with("the shell"))?;
        let mut said = String::new();
        loop {
            let code = |line: &str| {
                let code = line.strip_prefix("lab-done ").map(|code| code.parse().unwrap_or(u8::MAX));
                if code.is_none() && said.len() < SAID_MAX {
                    said += line;
                    said.push('\n');
                }
                code
            };
            match self.talk.until(limit.min(Instant::now() + TICK), code) {
                Ok(code) => return Ok(Ended::Code { code, said }),
                Err(Silence::Late) if stop.load(Ordering::Acquire) => return Ok(Ended::Stopped),
                Err(Silence::Late) if Instant::now() < limit => {}
                Err(Silence::Late) => return Ok(Ended::Late),
                Err(e) => return Err(failed(format!("the shell: {e}; {}", self.program.words()))),
            }
        }
    }

    /// Runs a line that must succeed.
    pub(super) fn must(&mut self, line: &str, limit: Instant, stop: &AtomicBool) -> Result<()> {
        match self.run(line, limit, stop)? {
            Ended::Code { code: 0, .. } | Ended::Stopped => Ok(()),
            Ended::Code { code, .. } => Err(self.refusal(line, &format!("ended with {code}"))),
            Ended::Late => Err(self.refusal(line, "does not end in time")),
        }
    }

    pub(super) fn refusal(&self, line: &str, why: &str) -> crate::wireless::cell::RunError {
        failed(format!("`{line}` {why}; {}", self.program.words()))
    }
}

/// The script of a guest's first process: it becomes a shell among this machine's programs.
fn first_process(scratch: &Scratch) -> String {
    let run = scratch.path("").to_string_lossy().into_owned();
    let share = guest::mount_share("run", &format!("/new{run}"));
    let (forget, address) = (kernel_client::FORGET, kernel_client::address());
    let environment =
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C GIT_CONFIG_NOSYSTEM=1";
    format!(
        "{BEGIN}{forget}{HOST_ROOT}{share}\n{address}\n\
         exec chroot /new /usr/bin/env -i {environment} HOME='{run}/mobile' \
         /bin/sh -c 'echo {GUEST_READY}; {SHELL}'\n"
    )
}

/// A word for the shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}
