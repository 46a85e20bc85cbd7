//! Runs the built binary: commands to their end, servers and relays beside them.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod between;
pub(crate) mod copies;
pub(crate) mod ganesha;
pub(crate) mod receiver;
pub(crate) mod trials;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// No command takes longer, or it hangs.
const DEADLINE: Duration = Duration::from_secs(300);
/// No command takes longer until it has a handler for signals.
const HANDLER_MAX: Duration = Duration::from_secs(30);

/// A command without input, whose output is read.
pub(crate) fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A directory for a test: `srv` is shared, `here` is where commands run, `state` is theirs.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["srv", "here", "state"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        Place { dir }
    }

    pub(crate) fn srv(&self, name: &str) -> PathBuf {
        self.dir.path().join("srv").join(name)
    }

    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.dir.path().join("here").join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The commands' cache.
    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    /// The commands' settings.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// What copies have left in the commands' state; what is known of servers stays, and what sets it apart.
    pub(crate) fn left(&self) -> Vec<String> {
        names(&self.state().join("remora")).into_iter().filter(|name| name != "roots" && name != "id").collect()
    }

    /// The command, ready to be run.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_remora").as_ref(), args)
    }

    /// The command as nobody in particular, whom the place is open to, if as root nothing would be forbidden.
    pub(crate) fn as_nobody(&self, args: &[&str]) -> Command {
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if !is_root() {
            return self.command(args);
        }
        // What is built may lie where only root gets.
        let binary = self.dir.path().join("remora");
        if !binary.exists() && fs::hard_link(env!("CARGO_BIN_EXE_remora"), &binary).is_err() {
            // Not by this process: while one has it open for writing, as children of other threads may, nobody can run it.
            assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_remora")).arg(&binary).status().unwrap().success());
        }
        let mut command = self.command_of(&binary, args);
        command.uid(65_534).gid(65_534);
        command
    }

    fn command_of(&self, binary: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command.args(args).current_dir(self.dir.path().join("here")).env("XDG_STATE_HOME", self.state());
        command.env("XDG_CACHE_HOME", self.cache()).env("XDG_CONFIG_HOME", self.config());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `command` where `/etc/hosts` says this. Takes root.
    pub(crate) fn with_hosts(&self, hosts: &str, command: &Command) -> Command {
        let file = self.state().join("hosts");
        fs::write(&file, hosts).unwrap();
        let mut inside = Command::new("unshare");
        let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        inside.args(["--mount", "--", "sh", "-ec", script]).arg(&file);
        inside.arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.current_dir(command.get_current_dir().unwrap());
        inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        inside
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Running::start(self.command(args)).finish()
    }

    /// Runs a command that must succeed; returns what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert_eq!(out.code, 0, "{args:?}: {}", out.stderr);
        out.stdout
    }

    /// Runs a command that writes `page` with a full disk behind its standard output, and with nobody behind it:
    /// there is a page each time, and only the disk is an error.
    pub(crate) fn page_is_written_whoever_reads(&self, args: &[&str], page: &str) {
        let (reader, unread) = std::io::pipe().unwrap();
        drop(reader);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        for (output, code, said) in
            [(Stdio::from(full), 1, "standard output: no space left on device"), (Stdio::from(unread), 0, "")]
        {
            let out = self.command(args).stdout(output).output().unwrap();
            let stderr = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(code), "{args:?}: {stderr}");
            assert!(if said.is_empty() { stderr.is_empty() } else { stderr.contains(said) }, "{args:?}: {stderr}");
            let written = fs::read_to_string(self.here(page)).unwrap_or_else(|e| panic!("{args:?}: {code}: {e}"));
            assert!(written.ends_with("</html>\n"), "{args:?}: {code}");
            fs::remove_file(self.here(page)).unwrap();
        }
    }

    /// Starts one that is not waited for.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// Shares `srv` on a free port.
    pub(crate) fn serve(&self, args: &[&str]) -> Daemon {
        self.serve_at(0, args)
    }

    /// Shares `srv` on this port.
    pub(crate) fn serve_at(&self, port: u16, args: &[&str]) -> Daemon {
        let (listen, srv) = (format!("127.0.0.1:{port}"), self.srv(""));
        let base = ["serve", srv.to_str().unwrap(), "--listen", &listen, "--squash", "none", "--json"];
        Daemon::start(self.server_command(&[&base[..], args].concat()))
    }

    /// A server's command; its key, too, goes away with this place.
    pub(crate) fn server_command(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.arg("--state").arg(self.state().join("server"));
        command
    }

    /// An emulated link to `server`, on this port; 0 for a free one.
    pub(crate) fn relay_at(&self, port: u16, server: &Daemon, args: &[&str]) -> Daemon {
        let (listen, server) = (format!("127.0.0.1:{port}"), server.addr.to_string());
        let base = ["lab", "relay", "--listen", &listen, "--server", &server, "--json"];
        Daemon::start(self.command(&[&base[..], args].concat()))
    }
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Checks the exit code, and that the error names all of `words`.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no '{word}' in: {}", self.stderr);
        }
    }
}

/// A command under way; it ends with its owner, if not before.
pub(crate) struct Running {
    child: Child,
    readers: Vec<std::thread::JoinHandle<String>>,
    started: Instant,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(read_all(stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(read_all(stderr));
        }
        Running { child, readers, started: Instant::now() }
    }

    pub(crate) fn signal(&self, signal: &str) {
        send_signal(&self.child, signal);
    }

    pub(crate) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    /// Waits until it has a handler for SIGINT: one that comes before ends it without a word.
    #[track_caller]
    pub(crate) fn until_it_catches_ctrl_c(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let started = Instant::now();
        while !catches_ctrl_c(&fs::read_to_string(&status).unwrap()) {
            assert!(started.elapsed() < HANDLER_MAX, "waited in vain for a handler of SIGINT");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As timeout(1) and a terminal that is closed send it.
    pub(crate) fn signal_twice(&self, signal: Signal) {
        for pause_ms in [5, 0] {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
    }

    /// Whether it has come to its end.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; kills it, and fails, if that does not come.
    pub(crate) fn finish(self) -> Output {
        self.finish_within(DEADLINE)
    }

    /// The same, for one that takes its time.
    pub(crate) fn finish_within(mut self, deadline: Duration) -> Output {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(self.started.elapsed() <= deadline, "still running after {deadline:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut texts = self.readers.drain(..).map(|r| r.join().unwrap());
        let (stdout, stderr) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        Output { code: status.code().unwrap_or(-1), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing where it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether a process of this /proc/PID/status has a handler for SIGINT, signal 2.
fn catches_ctrl_c(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 1) != 0
}

fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A server or relay; it ends with its owner.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) addr: SocketAddr,
    /// What its first line said.
    pub(crate) ready: serde_json::Value,
    rest: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    /// Starts it and waits for the line that says where it listens.
    pub(crate) fn start(mut command: Command) -> Daemon {
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let listen = ready["listen"].as_str().or(ready["listen"][0].as_str());
        let addr = listen.unwrap_or_else(|| panic!("it did not start: {line}")).parse().unwrap();
        Daemon { child, addr, ready, rest }
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://{}{path}", self.addr)
    }

    pub(crate) fn udp_url(&self, path: &str) -> String {
        format!("nfs://{}{path}?proto=udp", self.addr)
    }

    /// The next object that it prints.
    pub(crate) fn next_object(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.rest.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    pub(crate) fn signal(&self, signal: &str) {
        send_signal(&self.child, signal);
    }

    /// Waits for it to end by itself; returns its exit code.
    pub(crate) fn wait(mut self) -> i32 {
        until("its end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Ends it the hard way, and waits until its port is free.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; returns its exit code and the rest of what it printed.
    pub(crate) fn interrupt(mut self, signal: &str) -> (i32, String) {
        send_signal(&self.child, signal);
        let mut text = String::new();
        self.rest.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), text)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something to happen.
#[track_caller]
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes without a pattern, the same for the same seed.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64, from Marsaglia's paper: enough to tell blocks apart.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
