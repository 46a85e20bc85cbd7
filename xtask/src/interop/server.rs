//! `remora serve`, as root or as a user without privileges.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use guest::Talk;

use crate::cmd::Result;

/// Limit for a server's start.
const START: Duration = Duration::from_secs(30);
/// The unprivileged user, if this process is root.
const NOBODY: u32 = 65534;
/// Starts a program and kills it when standard input ends, which happens when this process ends for any reason. (A
/// parent-death signal would not do: Linux clears it when a process changes its file system user, which the server
/// does for each request.)
const GUARD: &str = "trap '' INT; \"$@\" & exec >&-; read _; kill -KILL $!; wait";

/// Names of the file systems that [`MOUNTS`] mounts.
pub(super) const MOUNTED: [&str; 3] = ["small", "overlay", "mixed"];
/// Mounts file systems below its first argument in a new mount namespace, then runs its other arguments.
const MOUNTS: &str = r#"
set -e
cd "$1"
mkdir -p small overlay mixed in-memory lower/below/deeper
echo 'from below' | tee lower/below/file > lower/below/deeper/file
mount -t tmpfs -o mode=755,size=8m small small
mkdir small/covered
echo below > small/covered/below
mount -t tmpfs above small/covered
echo above > small/covered/above
mount -t tmpfs -o mode=755 in-memory in-memory
mkdir in-memory/one in-memory/one-work in-memory/two in-memory/two-work
cp -r lower in-memory/lower
mount -t overlay -o lowerdir=in-memory/lower,upperdir=in-memory/one,workdir=in-memory/one-work overlay overlay
mount -t overlay -o lowerdir=lower,upperdir=in-memory/two,workdir=in-memory/two-work mixed mixed
cd /
shift
exec "$@"
"#;

/// Whether mounting works here. Leaves files in `place`.
pub(super) fn may_mount(place: &Path) -> bool {
    let mut try_it = Command::new("unshare");
    try_it.args(["--mount", "/bin/sh", "-c", MOUNTS, "mounts"]).arg(place).arg("true");
    try_it.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    try_it.status().is_ok_and(|s| s.success())
}

/// A running server. Dropping it ends the server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    line: Vec<String>,
    log: PathBuf,
    port: u16,
}

/// The user that a server runs as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Identity {
    /// The user of this process.
    Ours,
    /// A user without privileges.
    Nobody,
}

impl Server {
    /// Starts a server on a free loopback port with these exports (names and empty directories) and a state directory. It
    /// mounts [`MOUNTED`] below `mounts`, if given.
    pub(super) fn start(
        binary: &Path,
        identity: Identity,
        exports: &[(&str, &Path)],
        mounts: Option<&Path>,
        state: &Path,
        log: &Path,
    ) -> Result<Server> {
        let mut line = Vec::new();
        let directories = exports.iter().map(|(_, d)| *d).chain([state]);
        directories.clone().try_for_each(fs::create_dir_all)?;
        if identity == Identity::Nobody {
            for directory in directories {
                chown(directory, Some(NOBODY), Some(NOBODY))?;
            }
            line.extend(["setpriv", "--clear-groups"].map(str::to_owned));
            line.extend([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
        }
        for (_, directory) in exports {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if let Some(mounts) = mounts {
            line.extend(["unshare", "--mount", "/bin/sh", "-c", MOUNTS, "mounts"].map(str::to_owned));
            line.push(text(mounts));
        }
        line.extend([text(binary), "serve".into(), "--json".into(), "--squash=none".into()]);
        line.extend(["--state".into(), text(state)]);
        line.extend(exports.iter().map(|(name, directory)| format!("--export={name}={}", text(directory))));
        let (child, port) = spawn(&line, 0, log)?;
        Ok(Server { child, line, log: log.to_owned(), port })
    }

    /// The loopback port that it listens on.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Starts it again on the same port after a kill.
    pub(super) fn again(&mut self) -> Result {
        (self.child, self.port) = spawn(&self.line, self.port, &self.log)?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the command `line` on `port` (0: a free one), waits until it listens, and returns the address.
fn spawn(line: &[String], port: u16, log: &Path) -> Result<(Child, u16)> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GUARD, "guard"]).args(line).arg(format!("--listen=127.0.0.1:{port}"));
    let log = File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn()?;
    let listens = |output| {
        let talk = Talk::new(output).map_err(|e| e.to_string())?;
        talk.until(Instant::now() + START, listening).map_err(|e| e.to_string())
    };
    match child.stdout.take().ok_or_else(|| "no output".into()).and_then(listens) {
        Ok(port) => Ok((child, port)),
        Err(why) => {
            end(&mut child);
            Err(format!("{}: {why}", line.join(" ")).into())
        }
    }
}

/// Kills what the guard started, and waits for both.
fn end(guard: &mut Child) {
    drop(guard.stdin.take());
    // It may have ended already.
    let _ = guard.wait();
}

/// The port in the line in which a server announces its address.
fn listening(line: &str) -> Option<u16> {
    let says: serde_json::Value = serde_json::from_str(line).ok()?;
    let (_, port) = says["listen"][0].as_str()?.rsplit_once(':')?;
    port.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_where_it_listens() {
        assert_eq!(listening(r#"{"listen":["127.0.0.1:4711"],"mount":null}"#), Some(4711));
        assert_eq!(listening("remora 1.0"), None);
        assert_eq!(listening(r#"{"calls":0}"#), None);
    }

    #[test]
    fn what_does_not_start_is_told() {
        let scratch = guest::Scratch::new(&std::env::temp_dir(), "xtask-", &[]).unwrap();
        let why = spawn(&["false".into(), "serve".into()], 0, &scratch.path("log")).unwrap_err().to_string();
        assert!(why.contains("false serve") && why.contains("ended too early"), "{why}");
    }

    #[test]
    fn a_server_does_not_outlive_its_guard() {
        let scratch = guest::Scratch::new(&std::env::temp_dir(), "xtask-", &[]).unwrap();
        let pid = scratch.path("pid");
        let serves = format!(r#"echo $$ > {}; echo '{{"listen":["127.0.0.1:7"]}}'; exec sleep 60"#, pid.display());
        let line = ["sh", "-c", &serves].map(str::to_owned);
        let (mut child, port) = spawn(&line, 0, &scratch.path("log")).unwrap();
        let process = Path::new("/proc").join(fs::read_to_string(pid).unwrap().trim());
        assert!(port == 7 && process.exists());
        end(&mut child);
        assert!(!process.exists());
    }
}
