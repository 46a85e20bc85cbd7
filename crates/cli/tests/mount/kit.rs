//! A server, and mounts of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::common::ganesha::{self, Ganesha};
use crate::common::trials::find;
use crate::common::{Daemon, Output, Place, Running, is_root, until};

/// No answer from the cache, and no end of a killed program, takes longer on the slowest machine.
const PROMPT: Duration = Duration::from_secs(20);

/// A server and a directory where it is mounted.
pub(crate) struct Site {
    pub(crate) place: Place,
    pub(crate) server: Daemon,
    /// Mounted instead of `server`.
    ganesha: Option<Ganesha>,
    mounts: Vec<PathBuf>,
}

/// A mount in the background.
pub(crate) struct Mount {
    pub(crate) dir: PathBuf,
}

impl Site {
    /// A server without mounts; `None`, after a report, where nothing can be mounted.
    pub(crate) fn new() -> Option<Site> {
        let why = if !is_root() {
            "mounting takes root"
        } else if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            "no /dev/fuse here"
        } else {
            let place = Place::new();
            let server = place.serve(&[]);
            return Some(Site { place, server, ganesha: None, mounts: Vec::new() });
        };
        skip::skipped(&skip::this_test(), why);
        None
    }

    /// NFS-Ganesha without mounts; `None`, after a report, where it cannot be mounted.
    pub(crate) fn on_ganesha() -> Option<Site> {
        if let Some(missing) = ganesha::PROGRAMS.into_iter().find(|name| find(name).is_none()) {
            skip::skipped(&skip::this_test(), &format!("{missing} is not installed"));
            return None;
        }
        let mut site = Site::new()?;
        site.ganesha = Some(Ganesha::start(&site.place));
        Some(site)
    }

    /// The directory that is mounted.
    pub(crate) fn export(&self) -> PathBuf {
        self.ganesha.as_ref().map_or_else(|| self.place.srv(""), |ganesha| ganesha.export.clone())
    }

    /// A server that is mounted with these flags.
    pub(crate) fn mounted(flags: &[&str]) -> Option<(Site, Mount)> {
        let mut site = Site::new()?;
        let mount = site.mount("mnt", flags);
        Some((site, mount))
    }

    /// Mounts the server at a new directory.
    pub(crate) fn mount(&mut self, name: &str, flags: &[&str]) -> Mount {
        let dir = self.place.here(name);
        match fs::create_dir(&dir) {
            // A dead mount may be there.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.unwrap(),
        }
        let out = self.try_mount(&dir, flags);
        assert_eq!(out.code, 0, "{}", out.stderr);
        Mount { dir }
    }

    /// Mounts the server at `dir`, if that is possible.
    pub(crate) fn try_mount(&mut self, dir: &Path, flags: &[&str]) -> Output {
        self.adopt(dir);
        if let Some(ganesha) = &self.ganesha {
            return ganesha.mount(&self.place, dir, flags);
        }
        let (url, dir) = (self.server.url("/"), dir.to_str().unwrap());
        self.place.run(&[&["mount", &url, dir][..], flags].concat())
    }

    /// Unmounts `dir` at the end.
    pub(crate) fn adopt(&mut self, dir: &Path) {
        self.mounts.push(dir.to_owned());
    }

    /// `remora status --json` of a mount.
    pub(crate) fn status(&self, mount: &Mount) -> Value {
        mount.status(&self.place)
    }

    /// Waits until a system call of this program is held.
    pub(crate) fn until_held(&self, mount: &Mount, program: &str) {
        crate::common::until("a held call", || {
            let status = self.status(mount);
            status["held"].as_array().unwrap().iter().any(|held| held["program"] == program)
        });
    }

    /// Kills the mount's process.
    pub(crate) fn kill(&self, mount: &Mount) {
        let pid = self.pid(mount).to_string();
        assert!(Command::new("kill").args(["-s", "KILL", &pid]).status().unwrap().success());
        wait_for_end(&pid);
    }

    /// The mount's process.
    pub(crate) fn pid(&self, mount: &Mount) -> u64 {
        self.status(mount)["pid"].as_u64().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.signal("CONT");
        for dir in &self.mounts {
            // Most are unmounted already.
            self.place.run(&["umount", "--force", dir.to_str().unwrap()]);
        }
    }
}

impl Mount {
    pub(crate) fn path(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// `remora status --json` of a mount of this machine.
    pub(crate) fn status(&self, place: &Place) -> Value {
        serde_json::from_str(&place.ok(&["status", "--json", self.path()])).unwrap()
    }
}

/// Starts a program.
pub(crate) fn program(name: &str, args: &[&Path]) -> Running {
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command)
}

/// Runs `work` on a thread of its own. Fails if it waits for the server, which would hang the test.
#[track_caller]
pub(crate) fn promptly<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    is_done.recv_timeout(PROMPT).unwrap_or_else(|_| panic!("{what} waits"))
}

/// The error number of a failure.
pub(crate) fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// Whether the long forms are wanted, which take minutes and judge times.
pub(crate) fn is_long() -> bool {
    std::env::var_os("REMORA_MOUNT_LONG").is_some()
}

/// Waits until every thread of a killed process has closed its files: a zombie has.
pub(crate) fn wait_for_end(pid: &str) {
    let is_running = |stat: String| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"));
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = || threads().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    until("the end of the process", || !stats().any(is_running));
}
