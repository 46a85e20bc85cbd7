//! `remora mount` on this machine, put to the steps that the kernel's NFS client is put to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use guest::Scratch;

use super::outcome::{Ended, Verdict};
use super::posix::{self, Excused};
use super::server::{self, Identity, Server};
use super::site::{copy_source, last_said, tail};
use super::step::{Besides, Mount, Policy, Step};
use crate::cmd::{self, Build, Result};

/// Time from a server's start to its kill, and from a kill to the next start.
const ALIVE: Duration = Duration::from_secs(3);
const AWAY: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);
/// Limit of a step in its long form, in seconds.
const LONG_SECONDS_MAX: u64 = 6 * 60 * 60;

/// Prelude of every script, as in the guest.
const PRELUDE: &str = "\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
not() { if \"$@\" 2> /dev/null; then echo \"succeeds: $*\" >&2; exit 1; fi; }
set -eux
";

/// Why steps with `remora mount` cannot run here, if they cannot.
pub(super) fn missing() -> Option<String> {
    if !cmd::is_root() {
        return Some("needs root".into());
    }
    (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse".into())
}

/// Whether steps run in their long forms. The scripts know the same variable.
fn is_long() -> bool {
    std::env::var_os("REMORA_MOUNT_LONG").is_some()
}

/// Time limit of a step in seconds.
fn seconds_max(step: &Step) -> u64 {
    if is_long() { LONG_SECONDS_MAX } else { step.seconds_max }
}

/// A server and its mounts. Dropping it unmounts them and ends the server.
#[derive(Debug)]
pub(super) struct FuseSite {
    server: Server,
    binary: PathBuf,
    mounted: Vec<PathBuf>,
    told: String,
    logs: PathBuf,
    scratch: Scratch,
}

impl FuseSite {
    /// Starts the server. Logs go below `target`.
    pub(super) fn build(target: &Path, tools: &Path) -> Result<FuseSite> {
        let logs = target.join("interop");
        fs::create_dir_all(&logs)?;
        let scratch = Scratch::new(&std::env::temp_dir(), "rm-", &["io", "file-systems", "disk"])?;
        for directory in ["", "io", "disk"] {
            fs::set_permissions(scratch.path(directory), fs::Permissions::from_mode(0o755))?;
        }
        let source = scratch.path("source");
        copy_source(&source)?;
        let io = scratch.path("io");
        let binary = scratch.path("remora");
        fs::copy(cmd::built("remora", if is_long() { Build::Release } else { Build::Debug })?, &binary)?;
        let cargo = cmd::cargo(&[]);
        let told = [
            ("source", &*source),
            ("tools", tools),
            ("io", &*io),
            ("remora", &*binary),
            ("cargo", Path::new(cargo.get_program())),
        ];
        let told = told.map(|(name, path)| format!("{name}='{}'\n", path.display())).concat();
        let (disk, places) = (scratch.path("disk"), scratch.path("file-systems"));
        let own = server::MOUNTED.map(|name| (name, places.join(name)));
        let mut exports = vec![("disk", &*disk)];
        exports.extend(own.iter().map(|(name, place)| (*name, &**place)));
        let log = logs.join("serve-mount.log");
        let state = scratch.path("state");
        let server = Server::start(&binary, Identity::Ours, &exports, Some(&places), &state, &log)?;
        Ok(FuseSite { server, binary, mounted: Vec::new(), told, logs, scratch })
    }

    /// Empties the directory that scripts share with this program.
    fn empty_io(&self) -> Result {
        let io = self.scratch.path("io");
        fs::remove_dir_all(&io)?;
        fs::create_dir(&io)?;
        fs::set_permissions(&io, fs::Permissions::from_mode(0o755))?;
        for (name, settings) in
            [("fsx.toml", include_str!("fsx.toml")), ("pjdfstest.toml", include_str!("pjdfstest.toml"))]
        {
            fs::write(io.join(name), settings)?;
        }
        Ok(())
    }

    /// Runs a step on two mounts of its own.
    pub(super) fn run(&mut self, step: &Step, policy: Policy) -> Result<Verdict> {
        self.empty_io()?;
        let export = step.mount.unwrap_or(Mount::Disk).names().1;
        // Short paths, for the names of sockets have at most 107 bytes.
        let here = self.mount("m", export, policy)?.join(step.name);
        let other = self.mount("o", export, policy)?.join(step.name);
        let place = format!("dir='{}'\nother='{}'\nmkdir $dir\ncd $dir\n", here.display(), other.display());
        let script = format!("{PRELUDE}{}\n{}\n{place}{}", self.told, step.told, step.script);
        let path = self.scratch.path("step.sh");
        fs::write(&path, script)?;
        let ended = self.perform(step, &path)?;
        self.unmount_all()?;
        let log = String::from_utf8_lossy(&fs::read(self.log(step))?).into_owned();
        Ok(match ended {
            Ended::Late => Verdict::Failed(format!("it did not end within {} s{}", seconds_max(step), tail(&log))),
            Ended::Badly(77) => Verdict::Skipped(last_said(&log).to_owned()),
            Ended::Badly(code) => Verdict::Failed(format!("it ended with {code}{}", tail(&log))),
            Ended::Well if step.besides == Besides::Verdicts => self.verdicts()?,
            Ended::Well => Verdict::Passed(String::new()),
        })
    }

    fn log(&self, step: &Step) -> PathBuf {
        self.logs.join(format!("{}.log", step.name))
    }

    /// The result of a script; the server is killed and restarted meanwhile if the step wants that.
    fn perform(&mut self, step: &Step, script: &Path) -> Result<Ended> {
        let log = fs::File::create(self.log(step))?;
        let mut shell = Command::new("timeout");
        shell.args(["-s", "KILL", &seconds_max(step).to_string(), "/bin/sh"]).arg(script);
        let mut child = shell.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let io = self.scratch.path("io");
        let mut alive = Duration::ZERO;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            thread::sleep(TICK);
            let restarts = step.besides == Besides::Restarts && io.join("under-way").exists();
            alive = if restarts { alive + TICK } else { Duration::ZERO };
            if alive >= ALIVE {
                self.server.kill();
                thread::sleep(AWAY);
                self.server.again()?;
                fs::write(io.join("restarted"), "")?;
                alive = Duration::ZERO;
            }
        };
        Ok(match status.code() {
            Some(0) => Ended::Well,
            Some(124 | 137) | None => Ended::Late,
            Some(code) => Ended::Badly(u8::try_from(code).unwrap_or(u8::MAX)),
        })
    }

    fn mount(&mut self, name: &str, export: &str, policy: Policy) -> Result<PathBuf> {
        let place = self.scratch.path(name);
        fs::create_dir_all(&place)?;
        let policy = match policy {
            Policy::Default => "default",
            Policy::Strict => "strict",
        };
        let url = format!("nfs://127.0.0.1:{}/{export}", self.server.port());
        let mut mount = Command::new(&self.binary);
        mount.args(["mount", "--allow-other", "--cache", policy, &url]).arg(&place).stdin(Stdio::null());
        mount.env("XDG_CACHE_HOME", self.scratch.path("cache"));
        cmd::run(&mut mount)?;
        self.mounted.push(place.clone());
        Ok(place)
    }

    fn unmount_all(&mut self) -> Result {
        while let Some(place) = self.mounted.pop() {
            cmd::run(Command::new(&self.binary).arg("umount").arg(&place).stdin(Stdio::null()))?;
        }
        Ok(())
    }

    /// The verdict on pjdfstest's logs.
    fn verdicts(&self) -> Result<Verdict> {
        let [log, second] = ["pjdfstest.log", "remount.log"].map(|name| {
            let log = fs::read_to_string(self.scratch.path("io").join(name))?;
            fs::write(self.logs.join(format!("mount-{name}")), &log)?;
            Ok::<_, std::io::Error>(log)
        });
        let (log, second) = (log?, second?);
        let judged = Excused::load_for_mount().and_then(|excused| posix::judge(&log, &second, &excused));
        Ok(judged.map_or_else(Verdict::Failed, Verdict::Passed))
    }
}

impl Drop for FuseSite {
    fn drop(&mut self) {
        for place in &self.mounted {
            let mut umount = Command::new(&self.binary);
            // The mount may be gone.
            let _ = umount.args(["umount", "--force"]).arg(place).stdin(Stdio::null()).status();
        }
    }
}
