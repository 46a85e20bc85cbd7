//! Signals that come while a server starts, while nobody reads what it says, and while it cannot say it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use remora_wire::mount::MountError;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::common::until;
use crate::raw::Client;
use crate::{Exports, reload};

/// A server whose output nobody reads but the test, if it does.
struct Server {
    child: Child,
    /// Unless it goes to a file.
    stdout: Option<BufReader<ChildStdout>>,
}

impl Server {
    fn start(mut command: Command) -> Server {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Server { child, stdout }
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Waits until it has handlers for SIGTERM and SIGUSR1.
    fn catches_signals(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let wanted = 1 << (15 - 1) | 1 << (10 - 1);
        until("handlers", || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & wanted == wanted
        });
    }

    fn ends_with(mut self, code: i32) {
        until("its end", || self.child.try_wait().unwrap().is_some());
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn server_stops_with_unread_reload_output() {
    for json in [true, false] {
        let e = Exports::new(&["a", "b"]);
        e.write(&[("a", "*(rw)")]);
        let mut command = e.place.server_command(&["serve", "--exports", &e.file(), "--listen", "127.0.0.1:0"]);
        command.args(json.then_some("--json"));
        let mut server = Server::start(command);
        let first = server.line();
        let addr = if json {
            let ready: Value = serde_json::from_str(&first).unwrap();
            ready["listen"][0].as_str().unwrap().to_owned()
        } else {
            first.split(" on ").nth(1).unwrap().split(',').next().unwrap().to_owned()
        };
        // A note for each line: far more than a pipe holds, both as JSON and on standard error.
        let clients: Vec<String> = (0..3000).map(|n| format!("10.0.{}.{}(wdelay)", n / 250, n % 250)).collect();
        let mut lines: Vec<(&str, &str)> = clients.iter().map(|client| ("a", client.as_str())).collect();
        lines.push(("b", "*(ro)"));
        e.write(&lines);
        server.signal("HUP");
        let mut client = Client::to(addr.parse().unwrap(), "127.0.0.1");
        until("the new exports", || client.mount(&e.path("b")).is_ok());
        e.write(&[("b", "*(ro)")]);
        server.signal("HUP");
        until("once more", || client.mount(&e.path("a")) == Err(MountError::NoEnt));
        server.signal("TERM");
        server.ends_with(0);
    }
}

#[test]
fn sighup_does_not_block_on_a_pipe() {
    let e = Exports::new(&["a"]);
    e.write(&[("a", "*(rw)")]);
    let mut server = e.serve();
    fs::remove_file(e.file()).unwrap();
    fifo(Path::new(&e.file()));
    let why = format!("{}: is not a regular file, so it cannot be reloaded", e.file());
    assert_eq!(reload(&mut server)["error"], why);
    fs::remove_file(e.file()).unwrap();
    e.write(&[("a", "*(ro)")]);
    assert_eq!(reload(&mut server)["changed"], json!([e.path("a")]));
}

#[test]
fn signal_during_startup_is_deferred_or_exits() {
    let e = Exports::new(&["a"]);
    fifo(Path::new(&e.file()));
    for end in [true, false] {
        let mut server = Server::start(e.server());
        // It waits for somebody to write into the pipe.
        server.catches_signals();
        if end {
            server.signal("TERM");
            server.ends_with(143);
            continue;
        }
        server.signal("USR1");
        let mut pipe = fs::OpenOptions::new().write(true).open(e.file()).unwrap();
        writeln!(pipe, "{} *(rw)", e.path("a")).unwrap();
        drop(pipe);
        for key in ["listen", "counters"] {
            let object: Value = serde_json::from_str(&server.line()).unwrap();
            assert!(object.get(key).is_some(), "{object}");
        }
    }
}

#[test]
fn counters_are_printed_again_when_there_is_room_again() {
    let e = Exports::new(&["a"]);
    e.write(&[("a", "*(rw)")]);
    let [printed, said] = ["out", "err"].map(|name| e.place.state().join(name));
    let file = |path| Stdio::from(fs::File::create(path).unwrap());
    let mut command = e.server();
    command.stdout(file(&printed)).stderr(file(&said));
    let server = Server::start(command);
    let pid = Pid::from_child(&server.child);
    let text = || fs::read_to_string(&printed).unwrap();
    until("its first line", || text().ends_with('\n'));
    let limit = |bytes| {
        let old = prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None });
        old.unwrap_or_else(|e| panic!("{e}"));
    };
    limit(Some(text().len() as u64 + 10));
    server.signal("USR1");
    until("a word about it", || fs::read_to_string(&said).unwrap().contains("standard output: file too large"));
    limit(None);
    server.signal("USR1");
    until("counters", || {
        let last = text().lines().last().and_then(|line| serde_json::from_str(line).ok());
        last.is_some_and(|line: Value| line.get("counters").is_some())
    });
}

#[test]
fn a_directory_under_two_names_is_the_same_after_a_hang_up() {
    let e = Exports::new(&["a", "d"]);
    e.write(&[("a", "*(rw)")]);
    let mut command = e.server();
    for name in ["x", "y"] {
        command.arg("--export").arg(format!("{name}={}", e.path("d")));
    }
    let mut server = crate::Daemon::start(command);
    let said = reload(&mut server);
    assert_eq!((&said["changed"], &said["kept"]), (&json!([]), &json!(3)), "{said}");
}
