//! The site of the steps: the servers on this machine and the guest that mounts their exports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use guest::{Kernel, Scratch};

use super::kernel_server::{self, Ports, SERVE};
use super::machine::Machine;
use super::outcome::{Ended, Verdict};
use super::posix::{self, Excused};
use super::server::{self, Identity, Server};
use super::step::{Besides, Mount, Step};
use crate::cmd::{self, Result};

/// Time from a server's start to its kill. The kernel's TCP waits some 3 s before it reconnects, and then work must
/// proceed.
const ALIVE: Duration = Duration::from_secs(8);
/// Time from a kill to the next start.
const AWAY: Duration = Duration::from_millis(500);
/// Interval at which the end of a step is polled.
const TICK: Duration = Duration::from_millis(100);
/// Limit for the guest to become a server, in seconds.
const SERVES_SECS_MAX: u64 = 60;
/// Exit code of a script that cannot run in this guest. Its last line says why.
const SKIPS: u8 = 77;
/// How much of what a step said is repeated when it fails, in lines.
const LINES_MAX: usize = 20;

/// Crates whose sources the steps copy, pack and compare.
const SOURCES: [&str; 6] = ["base", "cache", "host", "server", "vfs", "wire"];

/// Copies sources to `place`, so that they stay the same while the originals change.
pub(super) fn copy_source(place: &Path) -> Result {
    fs::create_dir(place)?;
    let sources = SOURCES.map(|name| cmd::root().join("crates").join(name));
    cmd::run(Command::new("cp").arg("-a").args(sources).arg(place))
}

/// Everything that runs. Fields are dropped in order, users of others first.
#[derive(Debug)]
pub(super) struct Site {
    machine: Machine,
    /// The server that runs as root and trusts the client's credentials, if this process is root.
    root: Option<Server>,
    plain: Server,
    /// Shell variables for the scripts in the guest.
    told: String,
    /// Shell variables for the scripts on this machine.
    told_here: String,
    logs: PathBuf,
    _memory: Scratch,
    scratch: Scratch,
}

impl Site {
    /// Starts servers and guest. Logs go below `target`.
    pub(super) fn build(target: &Path, kernel: &Kernel, tools: &Path, steps: &[&Step]) -> Result<Site> {
        let logs = target.join("interop");
        fs::create_dir_all(&logs)?;
        let place = std::env::temp_dir();
        let scratch = Scratch::new(&place, "remora-interop-", &["io"])?;
        let shm = Path::new("/dev/shm");
        let memory = Scratch::new(if shm.is_dir() { shm } else { &place }, "remora-interop-", &[])?;
        // The unprivileged server and the guest's users must reach their files.
        for directory in [scratch.path(""), memory.path(""), scratch.path("io")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        let source = scratch.path("source");
        copy_source(&source)?;
        let told = format!("source='{}'\ntools='{}'", source.display(), tools.display());
        // The unprivileged user may not reach the original binary.
        let binary = scratch.path("remora");
        fs::copy(target.join("debug/remora"), &binary)?;
        let start = |identity, name: &str, exports: &[(&str, &Path)], mounts: Option<&Path>| {
            let log = logs.join(format!("serve-{name}.log"));
            Server::start(&binary, identity, exports, mounts, &scratch.path(format!("state-{name}")), &log)
        };
        let is_root = cmd::is_root();
        let identity = if is_root { Identity::Nobody } else { Identity::Ours };
        let plain = start(identity, "plain", &[("disk", &scratch.path("plain"))], None)?;
        let (disk, in_memory, mounts) = (scratch.path("disk"), memory.path("memory"), scratch.path("mounts"));
        fs::create_dir(&mounts)?;
        let own = server::MOUNTED.map(|name| (name, mounts.join(name)));
        let mut exports = vec![("disk", &*disk), ("memory", &*in_memory)];
        let mounts = steps.iter().any(|s| s.is_on_servers_own()).then_some(&*mounts);
        exports.extend(mounts.iter().flat_map(|_| &own).map(|(name, place)| (*name, &**place)));
        let root = if is_root { Some(start(Identity::Ours, "root", &exports, mounts)?) } else { None };
        let ports = if steps.iter().any(|s| s.is_reversed()) { Some(Ports::free()?) } else { None };
        let ports_told = ports.map(Ports::told).unwrap_or_default();
        let told_here = format!("{told}\nremora='{}'\n{ports_told}", binary.display());
        let mut machine = Machine::boot(kernel, ports, &scratch, &logs.join("qemu.log"))?;
        for mount in Mount::ALL.into_iter().filter(|m| steps.iter().any(|s| s.mount == Some(*m))) {
            let server = if mount.needs_root() { root.as_ref().ok_or("no server as root")? } else { &plain };
            machine.mount(mount, server.port())?;
        }
        for (name, settings) in
            [("fsx.toml", include_str!("fsx.toml")), ("pjdfstest.toml", include_str!("pjdfstest.toml"))]
        {
            fs::write(machine.io().join(name), settings)?;
        }
        Ok(Site { machine, root, plain, told, logs, told_here, _memory: memory, scratch })
    }

    /// Runs a step. After an error no other step can run.
    pub(super) fn run(&mut self, step: &Step) -> Result<Verdict> {
        let mut note = String::new();
        let ended = match step.mount {
            Some(mount) if step.besides == Besides::Restarts => {
                let (ended, kills) = self.run_with_restarts(step, mount)?;
                if kills == 0 && ended == Ended::Well {
                    return Ok(Verdict::Failed("it was over before the server could be killed".into()));
                }
                note = format!("the server was killed {kills} times");
                ended
            }
            Some(mount) => self.machine.run(step, mount, &self.told)?,
            None => self.run_here(step)?,
        };
        let log = self.keep(&format!("{}.log", step.name), "step.log");
        Ok(match ended {
            Ended::Late => Verdict::Failed(format!("it did not end within {} s{}", step.seconds_max, tail(&log))),
            Ended::Badly(SKIPS) => Verdict::Skipped(last_said(&log).to_owned()),
            Ended::Badly(code) => Verdict::Failed(format!("it ended with {code}{}", tail(&log))),
            Ended::Well if step.besides == Besides::Verdicts => self.verdicts(),
            Ended::Well => Verdict::Passed(note),
        })
    }

    /// Runs a step on this machine against the guest's server.
    fn run_here(&mut self, step: &Step) -> Result<Ended> {
        let programs = kernel_server::programs()?.join("usr/sbin");
        let serves = format!("programs='{}'\n{SERVE}", programs.display());
        match self.machine.script("serve", &serves, SERVES_SECS_MAX)? {
            Ended::Well => {}
            ended => return Ok(ended),
        }
        let io = self.machine.io();
        let told = format!("io='{}'\n{}\n{}", io.display(), self.told_here, step.told);
        let script = format!("{told}\nset -eux\n{}", step.script);
        kernel_server::run(&script, &self.scratch.path(step.name), step.seconds_max, &io.join("step.log"))
    }

    /// Runs a step while its server is killed and restarted; returns the number of kills.
    fn run_with_restarts(&mut self, step: &Step, mount: Mount) -> Result<(Ended, u32)> {
        let server = if mount.needs_root() { self.root.as_mut().ok_or("no server as root")? } else { &mut self.plain };
        let (machine, told) = (&mut self.machine, &self.told);
        let (under_way, restarted) = (machine.io().join("under-way"), machine.io().join("restarted"));
        thread::scope(|scope| {
            let work = scope.spawn(|| machine.run(step, mount, told).map_err(|e| e.to_string()));
            let mut kills = 0;
            let mut alive = Duration::ZERO;
            while !work.is_finished() {
                thread::sleep(TICK);
                alive = if under_way.exists() { alive + TICK } else { Duration::ZERO };
                if alive >= ALIVE {
                    server.kill();
                    thread::sleep(AWAY);
                    server.again()?;
                    fs::write(&restarted, "")?;
                    kills += 1;
                    alive = Duration::ZERO;
                }
            }
            let ended = work.join().map_err(|_| "the thread that watches the guest is gone")??;
            Ok((ended, kills))
        })
    }

    /// The verdict on pjdfstest's logs.
    fn verdicts(&self) -> Verdict {
        let logs = ["pjdfstest.log", "remount.log"].map(|name| self.keep(name, name));
        match Excused::load().and_then(|excused| posix::judge(&logs[0], &logs[1], &excused)) {
            Ok(note) => Verdict::Passed(note),
            Err(why) => Verdict::Failed(why),
        }
    }

    /// Copies a log from the share to `name`, and returns it.
    fn keep(&self, name: &str, from: &str) -> String {
        let log = fs::read(self.machine.io().join(from)).unwrap_or_default();
        // A missing log shows that nothing was written.
        let _ = fs::write(self.logs.join(name), &log);
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// The last line of a log that the shell did not trace.
pub(super) fn last_said(log: &str) -> &str {
    log.lines().rfind(|l| !l.starts_with('+')).unwrap_or_default()
}

/// The last lines of a log, each on a line of its own.
pub(super) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].iter().map(|l| format!("\n    {l}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_said_is_told_from_what_the_shell_did() {
        assert_eq!(last_said("+ true\nfirst\n+ echo none\nnone\n+ exit 77\n"), "none");
        assert_eq!(last_said("+ true\n"), "");
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        assert_eq!(tail(""), "");
        assert_eq!(tail("a\nb\n"), "\n    a\n    b");
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert!(tail(&many).starts_with("\n    80") && tail(&many).ends_with("99"));
    }
}
