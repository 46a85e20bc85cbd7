//! Services whose reader goes away go on, and say so once; what others rely on them for is done. So it is where a
//! reader is there and does not read.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::between::{Fate, between};
use crate::common::{Daemon, Place, Running, names, until};
use remora_host::atp::keys;
use remora_wire::nfs3::{Proc, Status};
use serde_json::Value;

const UNREAD: &str = "standard output is closed; continuing";

/// A service that was read to its first line; what it says goes to a file.
struct Service {
    child: Child,
    ready: Value,
    said: PathBuf,
}

impl Service {
    fn start(p: &Place, name: &str, mut command: Command) -> Service {
        let said = p.state().join(name);
        let mut child = command.stderr(Stdio::from(fs::File::create(&said).unwrap())).spawn().unwrap();
        let mut line = String::new();
        // It is dropped here, and with it the only reader.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{name}: {e}: {line}"));
        Service { child, ready, said }
    }

    fn listen(&self) -> &str {
        self.ready["listen"].as_str().or(self.ready["listen"][0].as_str()).unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it has noticed.
    fn notices(&mut self) {
        until("a word on standard error", || self.said().contains(UNREAD));
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {}", self.said());
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Ends it; it has said once that nobody reads.
    fn end(mut self, code: i32) {
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {}", self.said());
        self.signal("TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.said());
        assert_eq!(self.said().matches(UNREAD).count(), 1, "{}", self.said());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn recv_answers_its_senders() {
    for json in [true, false] {
        let p = Place::new();
        let (dir, key) = (p.srv(""), p.state().join("recv.key"));
        let args = ["recv", dir.to_str().unwrap(), "--from-anyone", "--key", key.to_str().unwrap()];
        let mut command = p.command(&args);
        command.args(["--listen", "127.0.0.1:0"]).args(json.then_some("--json"));
        let (mut service, to) = if json {
            let service = Service::start(&p, "recv", command);
            let to = service.listen().to_owned();
            (service, to)
        } else {
            start_in_words(&p, command)
        };
        let public = keys::load(&key).unwrap().public().to_string();
        for name in ["a", "b"] {
            fs::write(p.here(name), name).unwrap();
            let identity = p.state().join("send.key");
            p.ok(&["send", name, &to, "--key", &public, "--identity", identity.to_str().unwrap()]);
            assert_eq!(fs::read(p.srv(name)).unwrap(), name.as_bytes());
        }
        service.notices();
        service.end(0);
    }
}

/// The same for `recv` without `--json`, whose first line is "receiving into DIR on ADDR; ...".
fn start_in_words(p: &Place, mut command: Command) -> (Service, String) {
    let said = p.state().join("recv");
    let mut child = command.stderr(Stdio::from(fs::File::create(&said).unwrap())).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let to = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next()).unwrap().to_owned();
    (Service { child, ready: Value::Null, said }, to)
}

#[test]
fn gateway_and_forward_carry_on() {
    let p = Place::new();
    let key = |name: &str| {
        let file = p.state().join(name);
        (keys::load_or_create(&file).unwrap().public().to_string(), file.to_str().unwrap().to_owned())
    };
    let ((mobile, mobile_key), (gateway, gateway_key)) = (key("mobile.key"), key("gateway.key"));
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = echo.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for tcp in echo.incoming() {
            let (mut tcp, mut got) = (tcp.unwrap(), Vec::new());
            if tcp.read_to_end(&mut got).is_ok() {
                tcp.write_all(&got).unwrap();
            }
        }
    });
    let args = ["gateway", "--listen", "127.0.0.1:0", "--allow", &mobile, "--key", &gateway_key, "--to", &target];
    let mut command = p.command(&args);
    command.arg("--json");
    let mut far = Service::start(&p, "gateway", command);
    let identity = ["--identity", &mobile_key, "--json"];
    let args = ["forward", "--listen", "127.0.0.1:0", "--to", &target, far.listen(), "--key", &gateway];
    let mut near = Service::start(&p, "forward", p.command(&[&args[..], &identity].concat()));
    for round in 0..3 {
        let mut tcp = TcpStream::connect(near.listen()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        tcp.write_all(b"hello").unwrap();
        tcp.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        tcp.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"hello", "{round}");
        // Figures are printed each second.
        near.notices();
        far.notices();
    }
    near.end(0);
    far.end(0);
}

#[test]
fn load_recv_counts_on() {
    let p = Place::new();
    // A port that was free a moment ago.
    let at = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut service = Service::start(&p, "load", p.command(&["load", "recv", "--listen", &at, "--json"]));
    for run in ["1", "2"] {
        let sent = p.ok(&["load", "send", &at, "--rate", "1Mbit", "--for", "300ms", "--run", run, "--json"]);
        let sent: Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(sent["carried"]["packets"], sent["sent"], "{sent}");
        service.notices();
    }
    service.end(143);
}

#[test]
fn the_relay_and_the_server_go_on() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    let srv = p.srv("");
    let args = ["serve", srv.to_str().unwrap(), "--listen", "127.0.0.1:0", "--squash", "none", "--json"];
    let mut server = Service::start(&p, "serve", p.server_command(&args));
    let args = ["lab", "relay", "--listen", "127.0.0.1:0", "--server", server.listen(), "--json"];
    let mut relay = Service::start(&p, "relay", p.command(&args));
    let url = format!("nfs://{}/f?proto=udp", relay.listen());
    for _ in 0..2 {
        server.signal("USR1");
        assert_eq!(p.ok(&["cat", &url]), "f");
        server.notices();
        relay.notices();
    }
    relay.end(0);
    server.end(0);
}

/// An operator who means to ask one server for its counters may send the signal to all processes of that name.
#[test]
fn user_signal_ends_no_service() {
    let p = Place::new();
    let key = keys::load_or_create(&p.state().join("peer.key")).unwrap().public().to_string();
    for (args, code) in [
        (&["recv", "--listen", "0", "--from-anyone", "inbox"][..], 0),
        (&["gateway", "--listen", "localhost:0", "--allow", &key, "--to", "9"], 0),
        (&["forward", "127.0.0.1:9", "--key", &key, "--listen", "0", "--to", "9", "--timeout", "0"], 0),
        (&["lab", "relay", "--listen", "0", "--server", "localhost:9"], 0),
        (&["load", "recv", "--listen", "0"], 143),
        (&["load", "send", "9", "--rate", "1kbit", "--for", "1h"], 143),
        (&["model", "serve", "--listen", "0"], 143),
        (&["cat", "nfs://127.0.0.1:9/f?proto=udp", "--timeout", "0"], 143),
    ] {
        fs::create_dir_all(p.here("inbox")).unwrap();
        let mut command = p.command(args);
        command.env("XDG_STATE_HOME", p.state());
        let running = Running::start(command);
        running.until_it_catches_ctrl_c();
        running.signal("USR1");
        running.signal("TERM");
        let out = running.finish();
        assert_eq!(out.code, code, "{args:?}: {out:?}");
    }
}

#[test]
fn diagnostics_are_on_standard_error_where_asked_for() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    let srv = p.srv("");
    for (name, flag, variable, is_expected) in
        [("silent", None, "", false), ("flag", Some("-v"), "", true), ("variable", None, "remora_host=debug", true)]
    {
        let args = ["serve", srv.to_str().unwrap(), "--listen", "0", "--squash", "none", "--json"];
        let mut command = p.server_command(&args);
        command.args(flag).env("RUST_LOG", variable);
        let mut server = Service::start(&p, name, command);
        assert_eq!(p.ok(&["cat", &format!("nfs://{}/f?proto=tcp", server.listen())]), "f");
        server.signal("TERM");
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        assert_eq!(server.said().contains("client connected"), is_expected, "{name}: {}", server.said());
    }
}

#[test]
fn unread_diagnostics_hold_up_no_server() {
    let p = Place::new();
    fs::write(p.srv("f"), vec![7; 4 << 20]).unwrap();
    let (srv, (_reader, unread)) = (p.srv(""), unread_pipe());
    let args = ["serve", srv.to_str().unwrap(), "--listen", "0", "--squash", "none", "--json", "-vv"];
    let mut command = p.server_command(&args);
    let mut child = command.stderr(unread).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut service = Service { child, ready: serde_json::from_str(&line).unwrap(), said: PathBuf::new() };
    let url = format!("nfs://{}/f?proto=udp", service.listen());
    for _ in 0..3 {
        assert_eq!(p.ok(&["cat", &url]).len(), 4 << 20);
    }
    service.signal("TERM");
    until("its end", || service.child.try_wait().unwrap().is_some());
}

/// Others end, without a word.
#[test]
fn commands_end_quietly_on_a_closed_pipe() {
    let p = Place::new();
    for n in 0..20 {
        fs::write(p.srv(&n.to_string()), vec![b'x'; 100_000]).unwrap();
    }
    let s: Daemon = p.serve(&[]);
    let urls: Vec<String> = (0..20).map(|n| s.url(&format!("/{n}"))).collect();
    let mut command = p.command(&["cat"]);
    let mut child = command.args(&urls).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), &out.stderr[..]), (Some(0), &b""[..]));
}

/// That nobody reads of a failure makes it none.
#[test]
fn unread_failure_keeps_its_exit_code() {
    let p = Place::new();
    let s = p.serve(&[]);
    let to = Receiver::start(&p, Stdio::null(), Stdio::null());
    fs::write(p.here("ok"), "ok").unwrap();
    for args in [&["cp", "--json", "missing", &s.url("/x")][..], &to.send(&["missing", "ok"], &["--json"])] {
        let (reader, unread) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = p.command(args);
        command.stdout(unread);
        Running::start(command).finish().expect(1, &[]);
    }
    assert_eq!(fs::read(p.srv("ok")).unwrap(), b"ok");
    ends(to.running, 0);
}

/// A pipe that has room for a page, and that nobody reads.
fn unread_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // Of the 64 KiB that a pipe holds, see pipe(7).
    writer.write_all(&vec![b'x'; 60 << 10]).unwrap();
    (reader, writer)
}

/// `recv` into `srv`, of which nothing need be read to know where it is.
struct Receiver {
    running: Running,
    at: String,
    key: String,
    identity: String,
}

impl Receiver {
    fn start(p: &Place, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Receiver {
        // A port that was free a moment ago.
        let at = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let file = p.state().join("recv.key");
        let key = keys::load_or_create(&file).unwrap().public().to_string();
        let (srv, identity) = (p.srv(""), p.state().join("send.key").to_str().unwrap().to_owned());
        let mut command = p.command(&["recv", srv.to_str().unwrap(), "--from-anyone", "--listen", &at, "--key"]);
        command.arg(file).stdout(stdout).stderr(stderr);
        Receiver { running: Running::start(command), at, key, identity }
    }

    /// The words that send these files to it.
    fn send<'a>(&'a self, files: &[&'a str], args: &[&'a str]) -> Vec<&'a str> {
        [&["send"][..], files, &[&self.at, "--key", &self.key, "--identity", &self.identity], args].concat()
    }
}

/// Names that fill a page together, of files that are in `here` now.
fn long_names(p: &Place) -> Vec<String> {
    let names: Vec<String> = (0..30).map(|n| format!("{n:0200}")).collect();
    names.iter().for_each(|name| fs::write(p.here(name), name).unwrap());
    names
}

/// Ends it with SIGTERM, which takes a few seconds at most.
fn ends(running: Running, code: i32) {
    let began = Instant::now();
    running.signal("TERM");
    running.finish().expect(code, &[]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn recv_answers_with_unread_output() {
    for is_refused in [false, true] {
        let p = Place::new();
        let names = long_names(&p);
        let (_reader, writer) = unread_pipe();
        let to = match is_refused {
            false => Receiver::start(&p, writer, Stdio::null()),
            true => Receiver::start(&p, Stdio::null(), writer),
        };
        if is_refused {
            names.iter().for_each(|name| fs::write(p.srv(name), "another").unwrap());
        }
        let files: Vec<&str> = names.iter().map(String::as_str).collect();
        let out = p.run(&to.send(&files, &["--json"]));
        out.expect(i32::from(is_refused), &[]);
        let outcome = if is_refused { "\"refused\"" } else { "\"stored\"" };
        assert_eq!(out.stdout.matches(outcome).count(), names.len(), "{out:?}");
        ends(to.running, 0);
    }
}

#[test]
fn send_can_be_stopped_with_unread_output() {
    for is_told in [true, false] {
        let p = Place::new();
        let long = long_names(&p);
        let to = Receiver::start(&p, Stdio::null(), Stdio::null());
        let (_reader, writer) = unread_pipe();
        let files: Vec<&str> = long.iter().map(String::as_str).collect();
        let mut command = p.command(&to.send(&files, if is_told { &["--json"] } else { &[] }));
        if is_told {
            command.stdout(writer);
        } else {
            long.iter().for_each(|name| fs::write(p.srv(name), "another").unwrap());
            command.stderr(writer);
        }
        let sending = Running::start(command);
        until("all of them", || names(&p.srv("")).len() == long.len());
        // Until it stands still.
        std::thread::sleep(Duration::from_secs(2));
        ends(sending, 143);
        ends(to.running, 0);
    }
}

/// Jobs of a tree tell what they skip and what fails, each by itself.
#[test]
fn tree_copy_can_be_interrupted_while_stderr_is_unread() {
    let p = Place::new();
    let s = p.serve(&[]);
    let refuses = between(&s, usize::MAX, |call| match call.proc() {
        Proc::Create | Proc::Remove => Fate::Fail(Status::Access),
        _ => Fate::Pass(call),
    });
    let long: Vec<String> = (0..300).map(|n| format!("{n:0200}")).collect();
    let made = |dir: PathBuf| {
        fs::create_dir(&dir).unwrap();
        long.iter().map(move |name| dir.join(name)).collect::<Vec<_>>()
    };
    made(p.here("files")).into_iter().chain(made(p.srv("there"))).for_each(|path| fs::write(path, "x").unwrap());
    assert!(Command::new("mkfifo").args(made(p.here("pipes"))).status().unwrap().success());
    let there = refuses.replace("/?", "/there?");
    for args in [["cp", "-rq", "pipes", &refuses].as_slice(), &["cp", "-rq", "files", &refuses], &["rm", "-r", &there]]
    {
        let (_reader, writer) = unread_pipe();
        let mut command = p.command(args);
        command.stderr(writer);
        let running = Running::start(command);
        // Until it stands still.
        std::thread::sleep(Duration::from_secs(2));
        ends(running, 143);
    }
}

/// `remora ARGS >&-`.
fn closed_output(p: &Place, args: &[&str]) -> Command {
    let remora = p.command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(remora.get_program()).args(args);
    shell.envs(remora.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    shell
}

/// The standard library opens /dev/null in the place of a closed descriptor, so each write succeeds.
#[test]
fn closed_standard_output_is_an_error() {
    let p = Place::new();
    fs::write(p.srv("f"), "f").unwrap();
    let s = p.serve(&[]);
    let (file, root) = (s.url("/f"), s.url("/"));
    for args in [&["cat", &file][..], &["ls", &root], &["stat", "--json", &file], &["df", &root], &["--version"]] {
        let out = closed_output(&p, args).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        let is_told = said.contains("standard output: bad file descriptor");
        assert!(out.status.code() == Some(1) && is_told, "{args:?}: {:?} {said}", out.status);
    }
    // What prints nothing succeeds.
    let out = closed_output(&p, &["mkdir", &s.url("/d")]).output().unwrap();
    assert_eq!((out.status.code(), &out.stderr[..]), (Some(0), &b""[..]));
}
