//! The command lines of those who carry files.

use std::fs;
use std::path::{Path, PathBuf};

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
        let name = format!("file-{run}");
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

/// The command that copies a file.
pub(super) fn line(bench: &Bench, job: &Copy, files: &Files) -> Result<Vec<String>> {
    let base = bench.base(job.system);
    let remora = |flags: &[&str]| {
        let binary = bench.binary.to_string_lossy();
        // As patient as a hard mount.
        [&[&*binary, "cp", "-q", "--timeout", "0"], flags].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (command, remote) = match job.system {
        System::Adaptive | System::LinkAdaptive => (remora(&[]), format!("nfs://{base}/{}", files.name)),
        System::OverUdp | System::LinkOverUdp => (remora(&["--proto", "udp"]), format!("nfs://{base}/{}", files.name)),
        System::OverTcp => (remora(&["--proto", "tcp"]), format!("nfs://{base}/{}", files.name)),
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
