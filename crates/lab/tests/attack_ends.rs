//! What `attack` starts and makes ends with it, however that comes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// An attack on a program that is no server and says nothing; its number is in `pid`.
struct Attack {
    dir: tempfile::TempDir,
    child: Child,
    server: i32,
}

impl Attack {
    fn start() -> Attack {
        let dir = tempfile::tempdir().unwrap();
        let (program, pid) = (dir.path().join("silent"), dir.path().join("pid"));
        let script = format!("#!/bin/sh\necho $$ > {0}.new && mv {0}.new {0}\nexec sleep 1000\n", pid.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_attack"));
        command.arg("--server").arg(&program).arg("garbage").env("TMPDIR", dir.path().join("tmp"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until(|| pid.exists());
        let server = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        Attack { dir, child, server }
    }

    fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    fn server_is_there(&self) -> bool {
        // A zombie that nobody has waited for counts as gone, too.
        let status = fs::read_to_string(format!("/proc/{}/stat", self.server)).unwrap_or_default();
        status.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S") || rest.starts_with(" R"))
    }

    fn signal(&self, pid: i32, signal: Signal) {
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < PATIENCE, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn server_exits_with_a_killed_attacker() {
    let mut attack = Attack::start();
    assert!(attack.server_is_there());
    attack.child.kill().unwrap();
    attack.child.wait().unwrap();
    until(|| !attack.server_is_there());
}

#[test]
fn signal_leaves_no_process_and_no_file() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut attack = Attack::start();
        assert_eq!(entries(&attack.tmp()), 1, "the server's files");
        attack.signal(i32::try_from(attack.child.id()).unwrap(), signal);
        let mut told = String::new();
        BufReader::new(attack.child.stderr.take().unwrap()).read_line(&mut told).unwrap();
        assert!(told.starts_with("attack: stopping"), "{told}");
        // What it waits for: a word of the server.
        attack.signal(attack.server, signal);
        let status = attack.child.wait().unwrap();
        assert_eq!((status.code(), entries(&attack.tmp())), (Some(130), 0), "{signal:?}");
    }
}
