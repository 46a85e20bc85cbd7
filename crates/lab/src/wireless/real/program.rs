//! Programs in a station: files, environment, start, time limits and exit.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use guest::Talk;
use remora_host::emulate::{Emulator, Station};
use remora_sim::copy::Direction;

use crate::wireless::cell::RunError;

pub(super) use guest::Scratch;

pub(crate) type Result<T> = std::result::Result<T, RunError>;

pub(crate) fn failed(why: String) -> RunError {
    RunError::Failed(why)
}

pub(crate) fn failed_with<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> RunError {
    move |e| RunError::Failed(format!("{what}: {e}"))
}

/// Start-up time limit of servers and tunnels.
pub(crate) const READY: Duration = Duration::from_secs(60);
/// Name of the log of a run's program.
pub(super) const LOG: &str = "copy";

/// Directory in which programs on the mobile listen for hand-off signals; the first program creates it with the right
/// mode.
pub(super) const HAND_OFF: &str = "handoff";
/// Environment variable for the directory of hand-off signals.
pub const HAND_OFF_DIR: &str = "REMORA_HANDOFF_DIR";

#[derive(Debug)]
pub(super) struct Files {
    pub(super) name: String,
    pub(super) on_server: PathBuf,
    pub(super) on_mobile: PathBuf,
}

impl Files {
    pub(super) fn new(scratch: &Scratch, run: u64) -> Files {
        Files::of(scratch, run, 0)
    }

    pub(super) fn of(scratch: &Scratch, run: u64, mobile: usize) -> Files {
        let name = if mobile == 0 { format!("file-{run}") } else { format!("file-{run}-{mobile}") };
        Files { on_server: scratch.path("srv").join(&name), on_mobile: scratch.path("mobile").join(&name), name }
    }

    pub(super) fn source(&self, direction: Direction) -> &Path {
        match direction {
            Direction::Read => &self.on_server,
            Direction::Write => &self.on_mobile,
        }
    }

    pub(super) fn copy(&self, direction: Direction) -> &Path {
        match direction {
            Direction::Read => &self.on_mobile,
            Direction::Write => &self.on_server,
        }
    }

    pub(super) fn remove(&self) {
        for path in [&self.on_server, &self.on_mobile] {
            // The directory is removed later.
            let _ = fs::remove_file(path);
        }
    }
}

/// Environment of programs, without the user's own settings.
pub(crate) fn environment(scratch: &Scratch) -> Vec<(&'static str, String)> {
    let at = |name: &str| scratch.path(name).to_string_lossy().into_owned();
    vec![
        ("HOME", at("mobile")),
        ("XDG_STATE_HOME", at("state")),
        ("XDG_CACHE_HOME", at("cache")),
        ("XDG_RUNTIME_DIR", at("run")),
        (HAND_OFF_DIR, at(HAND_OFF)),
    ]
}

/// Environment of programs on a mobile: each mobile has its own state.
pub(super) fn environment_of(scratch: &Scratch, mobile: usize) -> Vec<(&'static str, String)> {
    let mut environment = environment(scratch);
    if mobile > 0 {
        environment.push(("XDG_STATE_HOME", scratch.path(format!("state-{mobile}")).to_string_lossy().into_owned()));
    }
    environment
}

/// Polling interval, small against the measured times.
const POLL: Duration = Duration::from_millis(1);
/// Bytes of a program's last output that errors quote.
const WORDS_MAX: u64 = 1000;

/// A running program. Dropping it kills its whole process tree.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    /// Its standard error, and standard output unless it `talks`.
    log: PathBuf,
}

pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: &'a [String],
    pub(crate) environment: &'a [(&'a str, String)],
    /// Its input and output are pipes.
    pub(crate) talks: bool,
}

impl<'a> Start<'a> {
    pub(crate) fn new(name: &'a str, line: &'a [String]) -> Start<'a> {
        Start { name, line, environment: &[], talks: false }
    }
}

impl Program {
    pub(crate) fn start(emulator: &Emulator, scratch: &Scratch, at: Station, start: &Start<'_>) -> Result<Program> {
        let Some((program, arguments)) = start.line.split_first() else {
            return Err(failed(format!("{}: no program", start.name)));
        };
        let log = scratch.path("log").join(start.name);
        let file = fs::File::create(&log).map_err(failed_with("the log of a program"))?;
        let mut command: Command =
            emulator.command(at, program).ok_or_else(|| failed("there is no such station".into()))?;
        command.args(arguments).envs(start.environment.iter().map(|(k, v)| (k, v)));
        if start.talks {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            let same = file.try_clone().map_err(failed_with("the log of a program"))?;
            command.stdin(Stdio::null()).stdout(same);
        }
        command.stderr(file);
        let child = emulator.spawn(command).map_err(failed_with(start.name))?;
        Ok(Program { name: start.name.to_owned(), child, log })
    }

    pub(crate) fn talk(&mut self) -> Result<Talk> {
        let stdout = self.child.stdout.take().ok_or_else(|| failed(format!("{} has no conversation", self.name)))?;
        Talk::new(stdout).map_err(failed_with(&self.name))
    }

    pub(crate) fn input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits until `limit`; `None` if it is still running.
    pub(crate) fn ended(&mut self, limit: Instant) -> Result<Option<ExitStatus>> {
        loop {
            match self.child.try_wait().map_err(failed_with(&self.name))? {
                None if Instant::now() < limit => thread::sleep(POLL),
                status => return Ok(status),
            }
        }
    }

    /// Fails if it has exited.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait().map_err(failed_with(&self.name))? {
            None => Ok(()),
            Some(status) => {
                Err(failed(format!("{} ended in the middle of a run, {status}; {}", self.name, last_words(&self.log))))
            }
        }
    }

    pub(crate) fn words(&self) -> String {
        format!("{}: {}", self.name, last_words(&self.log))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Killing the first process of a PID namespace kills all others.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_words(log: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(WORDS_MAX);
        file.seek(SeekFrom::Start(start))?;
        let mut words = Vec::new();
        file.take(WORDS_MAX).read_to_end(&mut words)?;
        Ok(String::from_utf8_lossy(&words).trim().replace('\n', "; "))
    };
    read().ok().filter(|w| !w.is_empty()).unwrap_or_else(|| "it said nothing".into())
}

/// Runs `ip` in a station.
pub(super) fn ip(emulator: &Emulator, at: Station, line: &str) -> Result<()> {
    let run = || Command::new("ip").args(line.split_whitespace()).output();
    let output = emulator.within(at, run).map_err(failed_with("ip"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

const IN_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "remora-lab-";

/// A directory in memory with these subdirectories.
pub(crate) fn in_memory(inside: &[&str]) -> io::Result<Scratch> {
    let here = |place: &Path| Scratch::new(place, PREFIX, inside);
    here(Path::new(IN_MEMORY)).or_else(|_| here(&std::env::temp_dir()))
}
