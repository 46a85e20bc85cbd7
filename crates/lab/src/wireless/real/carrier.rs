//! The command lines of those who carry files.

use std::fs;
use std::path::{Path, PathBuf};

use remora_client::BlockSize;
use remora_sim::copy::Direction;

use super::super::job::{Copy, System};
use super::bench::Bench;
use super::scratch::Scratch;
use super::{Result, failed};

/// What the log of a run's program is called.
pub(super) const LOG: &str = "copy";

/// The directory in which programs on the mobile listen for hand-off signals: the first to do so
/// makes it, with the rights that it must have.
pub(super) const HAND_OFF: &str = "handoff";
/// The variable that names the directory in which clients listen for hand-off signals.
pub const HAND_OFF_DIR: &str = "REMORA_HANDOFF_DIR";

/// [`Config::stock`](remora_client::Config::stock) as flags, but for the block.
const STOCK: &[&str] = &[
    "--proto",
    "udp",
    "--retry",
    "exponential",
    "--initial",
    "700ms",
    "--factor",
    "2",
    "--longest",
    "60s",
    "--window",
    "5",
];
/// [`Config::paper`](remora_client::Config::paper), too.
const PAPERS: &[&str] = &[
    "--proto",
    "udp",
    "--retry",
    "hybrid-linear",
    "--initial",
    "700ms",
    "--step",
    "100ms",
    "--linear-retries",
    "3",
    "--longest",
    "60s",
    "--window",
    "5",
];

/// A run's file on both sides.
#[derive(Debug)]
pub(super) struct Files {
    /// Its name on the server.
    pub(super) name: String,
    on_server: PathBuf,
    on_mobile: PathBuf,
}

impl Files {
    pub(super) fn new(scratch: &Scratch, run: u64) -> Files {
        Files::of(scratch, run, 0)
    }

    /// A mobile's.
    pub(super) fn of(scratch: &Scratch, run: u64, mobile: usize) -> Files {
        let name = if mobile == 0 { format!("file-{run}") } else { format!("file-{run}-{mobile}") };
        Files { on_server: scratch.path("srv").join(&name), on_mobile: scratch.path("mobile").join(&name), name }
    }

    /// Where the file is.
    pub(super) fn source(&self, direction: Direction) -> &Path {
        match direction {
            Direction::Read => &self.on_server,
            Direction::Write => &self.on_mobile,
        }
    }

    /// Where it goes.
    pub(super) fn copy(&self, direction: Direction) -> &Path {
        match direction {
            Direction::Read => &self.on_mobile,
            Direction::Write => &self.on_server,
        }
    }

    /// Makes room.
    pub(super) fn remove(&self) {
        for path in [&self.on_server, &self.on_mobile] {
            // The directory goes soon enough.
            let _ = fs::remove_file(path);
        }
    }
}

/// What programs find in their environment: nothing of the user's own settings.
pub(crate) fn environment(scratch: &Scratch) -> Vec<(&'static str, String)> {
    let at = |name: &str| scratch.path(name).to_string_lossy().into_owned();
    vec![
        ("HOME", at("mobile")),
        ("XDG_STATE_HOME", at("state")),
        ("XDG_RUNTIME_DIR", at("run")),
        (HAND_OFF_DIR, at(HAND_OFF)),
    ]
}

/// What programs on this mobile find there: each mobile remembers what it has learned by itself.
pub(super) fn environment_of(scratch: &Scratch, mobile: usize) -> Vec<(&'static str, String)> {
    let mut environment = environment(scratch);
    if mobile > 0 {
        environment.push(("XDG_STATE_HOME", scratch.path(format!("state-{mobile}")).to_string_lossy().into_owned()));
    }
    environment
}

/// How a client of ours is told what it is to be; `None` for other systems.
fn flags(system: System) -> Option<&'static [&'static str]> {
    match system {
        System::Stock | System::LinkStock => Some(STOCK),
        System::Papers | System::LinkPapers => Some(PAPERS),
        System::Adaptive | System::LinkAdaptive => Some(&[]),
        System::OverUdp | System::LinkOverUdp => Some(&["--proto", "udp"]),
        System::OverTcp => Some(&["--proto", "tcp"]),
        _ => None,
    }
}

/// A command of ours with the flags of a system.
fn remora(bench: &Bench, command: &[&str], flags: &[&str]) -> Vec<String> {
    let binary = bench.binary.to_string_lossy();
    [&[&*binary], command, flags].concat().into_iter().map(str::to_owned).collect()
}

/// The command by which a client of ours gets to know the server, before the time is taken: the
/// kernel's is mounted by then.
pub(super) fn introduction(bench: &Bench, system: System) -> Option<Vec<String>> {
    let mut line = remora(bench, &["ls"], flags(system)?);
    line.push(format!("nfs://{}/", bench.base(system)));
    Some(line)
}

/// Bytes of a READ or WRITE, where they are not left to the client.
fn block(job: &Copy) -> Option<u32> {
    let of_client = || match job.system.client()?.block {
        BlockSize::Fixed(bytes) => Some(bytes),
        BlockSize::FromLink => None,
    };
    job.block.or_else(of_client)
}

/// The command that copies a file.
pub(super) fn line(bench: &Bench, job: &Copy, files: &Files) -> Result<Vec<String>> {
    let base = bench.base(job.system);
    let (command, remote) = match job.system {
        ours if let Some(flags) = flags(ours) => {
            // As patient as a hard mount.
            let mut command = remora(bench, &["cp", "-q", "--timeout", "0"], flags);
            if let Some(bytes) = block(job) {
                command.extend(["--block".into(), bytes.to_string()]);
            }
            (command, format!("nfs://{base}/{}", files.name))
        }
        System::Libnfs => {
            (vec!["nfs-cp".into()], format!("nfs://{base}/srv/{}?version=3&nfsport=2049&mountport=2049", files.name))
        }
        System::Scp | System::Rsync => {
            let ssh = bench.ssh.as_ref().ok_or_else(|| failed("there is no SSH server".into()))?;
            let path = files.on_server.to_string_lossy();
            (ssh.command(job.system), format!("root@{base}:{path}"))
        }
        other => return Err(failed(format!("{} has no command", other.name()))),
    };
    let local = files.on_mobile.to_string_lossy().into_owned();
    let mut line = command;
    line.extend(match job.direction {
        Direction::Read => [remote, local],
        Direction::Write => [local, remote],
    });
    Ok(line)
}
