//! A program in a station: started, waited for within limits, and ended.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use guest::Talk;
use remora_host::emulate::{Emulator, Station};

use super::scratch::Scratch;
use super::{Result, failed, failed_with};

/// How often a program is asked whether it has ended: small against what is measured.
const POLL: Duration = Duration::from_millis(1);
/// How much of a program's last words is repeated, in bytes.
const WORDS_MAX: u64 = 1000;

/// A running program; dropping it ends it and all it has started.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    /// What it says on its standard error, and unless it talks to us on its standard output.
    log: PathBuf,
}

/// What to start.
pub(crate) struct Start<'a> {
    /// What errors call it.
    pub(crate) name: &'a str,
    /// The program and its arguments.
    pub(crate) line: &'a [String],
    /// The environment on top of ours.
    pub(crate) environment: &'a [(&'a str, String)],
    /// Whether it is talked to: its input and output are pipes then.
    pub(crate) talks: bool,
}

impl<'a> Start<'a> {
    /// A program without a conversation.
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

    /// Its conversation, once.
    pub(crate) fn talk(&mut self) -> Result<Talk> {
        let stdout = self.child.stdout.take().ok_or_else(|| failed(format!("{} does not talk", self.name)))?;
        Talk::new(stdout).map_err(failed_with(&self.name))
    }

    /// Its input, once.
    pub(crate) fn input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for its end; `None` if that is not until `limit`.
    pub(crate) fn ended(&mut self, limit: Instant) -> Result<Option<ExitStatus>> {
        loop {
            match self.child.try_wait().map_err(failed_with(&self.name))? {
                None if Instant::now() < limit => thread::sleep(POLL),
                status => return Ok(status),
            }
        }
    }

    /// An error if it has ended, which is not for it to do by itself.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait().map_err(failed_with(&self.name))? {
            None => Ok(()),
            Some(status) => {
                Err(failed(format!("{} ended in the middle of a run, {status}; {}", self.name, last_words(&self.log))))
            }
        }
    }

    /// Its last words.
    pub(crate) fn words(&self) -> String {
        format!("{}: {}", self.name, last_words(&self.log))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Killing the first process of its PID namespace kills all that it has started.
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
