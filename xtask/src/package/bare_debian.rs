//! A bare Debian, booted in a container with systemd and without a network, that installs the package, uses it and
//! removes it. What happens in it is `packaging/check.sh`.
//!
//! The system is made once by mmdebstrap and lies below the user's cache directory. Each run writes to memory only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cmd::{self, Result};
use crate::test;

/// The programs that the check needs, and their packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("mmdebstrap", "mmdebstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
];
/// Programs of this machine that run in the system; they need no file beside them.
const GUESTS: [&str; 2] = ["prometheus", "promtool"];
const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// Limit for making the system.
const MAKE_SECS_MAX: &str = "600";
/// Limit for booting it.
const BOOT_MAX: Duration = Duration::from_secs(90);
/// Limit for the check, in seconds.
const CHECK_SECS_MAX: &str = "400";
/// Limit for shutting it down.
const SHUTDOWN_MAX: Duration = Duration::from_secs(30);
/// SIGRTMIN+4: systemd powers the container off.
const POWER_OFF: &str = "-38";

/// Makes what the check needs besides the package, if it is missing. Returns the directory of the bare system.
pub(crate) fn prepare() -> Result<PathBuf> {
    if !cmd::is_root() {
        return Err("only root can run a container: run cargo xtask package --check as root".into());
    }
    let missing: Vec<&str> = PROGRAMS.iter().filter(|(p, _)| cmd::find(p).is_none()).map(|(_, p)| *p).collect();
    if !missing.is_empty() {
        test::install(&missing)?;
    }
    base()
}

/// Runs the whole check with `package`.
pub(super) fn check(package: &Path) -> Result {
    let system = Container::boot(&prepare()?, package)?;
    let start = Instant::now();
    system.run(&["timeout", "--kill-after=10", CHECK_SECS_MAX, "sh", "/check.sh"])?;
    println!("== bare Debian: ok in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The directory of the bare system; makes it if it is missing.
fn base() -> Result<PathBuf> {
    let cache = guest::cache()?;
    let place = cache.join(format!("debian-{SUITE}"));
    if place.join("usr/bin/apt-get").exists() {
        return Ok(place);
    }
    println!("== mmdebstrap: a bare Debian in {}", place.display());
    fs::create_dir_all(&cache)?;
    let scratch = tempfile::tempdir_in(&cache)?;
    let unfinished = scratch.path().join("system");
    let mut make = Command::new("timeout");
    make.args(["--kill-after=10", MAKE_SECS_MAX, "mmdebstrap", "--quiet", "--variant=minbase"]);
    make.args(["--include=systemd,systemd-sysv", SUITE]).arg(&unfinished).arg(MIRROR).stdout(Stdio::null());
    cmd::run(&mut make)?;
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::rename(&unfinished, &place)?;
    Ok(place)
}

/// A booted system. Dropping it ends it.
struct Container {
    manager: Child,
    /// The process id of its systemd.
    leader: String,
}

impl Container {
    fn boot(base: &Path, package: &Path) -> Result<Container> {
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.arg("--directory").arg(base);
        nspawn.args(["--volatile=overlay", "--register=no", "--keep-unit", "--private-network", "--console=pipe"]);
        nspawn.args(["--bind=/dev/fuse", "--bind=/dev/net/tun", "--boot"]);
        let check = cmd::root().join("packaging/check.sh");
        for (file, inside) in [(package, "/remora.deb"), (&check, "/check.sh")] {
            nspawn.arg(format!("--bind-ro={}:{inside}", file.display()));
        }
        for name in GUESTS {
            let program = cmd::find(name).ok_or_else(|| format!("{name} is not installed"))?;
            nspawn.arg(format!("--bind-ro={}:/opt/{name}", program.display()));
        }
        nspawn.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let manager = nspawn.spawn().map_err(|e| format!("cannot start systemd-nspawn: {e}"))?;
        let mut system = Container { manager, leader: String::new() };
        let until = Instant::now() + BOOT_MAX;
        while Instant::now() < until {
            if let Some(status) = system.manager.try_wait()? {
                return Err(format!("the bare Debian did not start: systemd-nspawn ended ({status})").into());
            }
            system.leader = system.first_child().unwrap_or_default();
            if !system.leader.is_empty() && system.is_running() {
                return Ok(system);
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        Err(format!("the bare Debian has not started after {} s", BOOT_MAX.as_secs()).into())
    }

    fn first_child(&self) -> Option<String> {
        let id = self.manager.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    /// A failed unit of the bare system is no concern of ours.
    fn is_running(&self) -> bool {
        let state = self.inside(&["systemctl", "is-system-running"]).stderr(Stdio::null()).output();
        state.is_ok_and(|out| matches!(out.stdout.trim_ascii(), b"running" | b"degraded"))
    }

    fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.leader, "--all"]).args(words).stdin(Stdio::null());
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .env("HOME", "/home/operator");
        command
    }

    fn run(&self, words: &[&str]) -> Result {
        cmd::run(&mut self.inside(words))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !self.leader.is_empty() {
            // It may have ended.
            let _ = Command::new("kill").args([POWER_OFF, &self.leader]).stderr(Stdio::null()).status();
        }
        let until = Instant::now() + SHUTDOWN_MAX;
        while self.manager.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}
