//! The library as a C program has it: installed into a folder, found by pkg-config, compiled and
//! run against ATP in Rust, in both directions.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Config, Guests};
use remora_atp::{Options, Outcome, Priority};
use remora_host::atp::blocking::{BlockingEndpoint, wait};
use remora_host::atp::{EndpointSettings, keys};

const PATIENCE: Duration = Duration::from_secs(20);
const STRICT: &[&str] = &["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-pedantic"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the libraries: beside this test.
fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors().skip(1).find(|dir| dir.join("libatp.so").exists()).expect("cargo has built libatp.so").into()
}

fn succeed(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// An installed library.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Installed {
        let dir = tempfile::tempdir().unwrap();
        succeed(Command::new(here().join("install.sh")).arg(dir.path()).arg(built()).arg(env!("CARGO_PKG_VERSION")));
        Installed(dir)
    }

    fn prefix(&self) -> &Path {
        self.0.path()
    }

    /// What pkg-config says.
    fn flags(&self, what: &[&str]) -> Vec<String> {
        let mut ask = Command::new("pkg-config");
        let out = succeed(ask.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig")).args(what).arg("libatp"));
        String::from_utf8(out.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles `source`, a file of the crate; gives the program.
    fn compile(&self, source: &str) -> PathBuf {
        let program = self.prefix().join(Path::new(source).file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(STRICT).arg("-o").arg(&program).arg(here().join(source));
        succeed(cc.args(self.flags(&["--cflags", "--libs"])).arg("-lpthread"));
        program
    }

    /// A program, to be run with the library where it is.
    fn run(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        command
    }
}

/// Whether C programs can be built here; says so if not.
fn has_tools() -> bool {
    let missing: Vec<_> =
        ["cc", "pkg-config"].into_iter().filter(|t| Command::new(t).arg("--version").output().is_err()).collect();
    if !missing.is_empty() {
        skip::skipped(&skip::this_test(), &format!("missing: {}", missing.join(", ")));
    }
    missing.is_empty()
}

fn endpoint(guests: Guests) -> BlockingEndpoint {
    let session = Config { guests, ..Config::default() };
    let settings = EndpointSettings { session, ..EndpointSettings::receiver(SocketAddr::from(([127, 0, 0, 1], 0))) };
    BlockingEndpoint::bind(settings, keys::generate().unwrap()).unwrap()
}

/// One test, for the libraries are large and installed once.
#[test]
fn installed_it_is_what_the_header_says_and_talks_to_rust() {
    if !has_tools() {
        return;
    }
    let installed = Installed::new();
    a_c_client_talks_to_rust(&installed);
    a_c_client_with_another_key_is_told(&installed);
    rust_talks_to_a_c_server(&installed);
    the_examples_talk_to_each_other(&installed);
    the_header_says_what_the_library_has(&installed);
}

fn the_header_says_what_the_library_has(installed: &Installed) {
    let program = installed.compile("tests/interface.c");
    succeed(&mut installed.run(&program));
    // The library, not a file's name: what it is called is what programs ask for.
    let lib = installed.prefix().join("lib");
    assert!(lib.join("libatp.so.0").exists());
    std::fs::remove_file(lib.join("libatp.so")).unwrap();
    succeed(&mut installed.run(&program));
    // And without it: all of it in the program.
    let mut cc = Command::new("cc");
    cc.args(STRICT).args(["-s", "-o"]).arg(&program).arg(here().join("tests/interface.c"));
    succeed(cc.args(installed.flags(&["--cflags", "--libs", "--static"])));
    succeed(&mut Command::new(&program));
    assert_eq!(installed.flags(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
}

fn a_c_client_talks_to_rust(installed: &Installed) {
    let server = endpoint(Guests::Anyone);
    let send = installed.compile("examples/send.c");
    let (addr, key) = (server.endpoint().local_addr(), server.endpoint().public_key().to_string());
    let mut client = installed.run(&send);
    client.args(["127.0.0.1", &addr.port().to_string(), &key, "the line", "300000"]);
    let client = Running(client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let line = server.recv(Some(PATIENCE)).expect("in time").unwrap();
    assert_eq!((&line.object[..], line.priority), (&b"the line"[..], Priority::HIGH));
    let answer = line.from.send(Bytes::from_static(b"heard"), Options::default()).unwrap();
    assert_eq!(wait(answer).unwrap().outcome, Outcome::Delivered);
    let bulk = server.recv(Some(PATIENCE)).expect("in time").unwrap();
    assert_eq!((bulk.object.len(), bulk.priority), (300_000, Priority::LOW));
    let out = client.end();
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "answer: heard\n\
         bulk: no error\n\
         within a callback: a call that waits was made from a callback\n\
         ended: no such endpoint or request, or it has ended\n\
         closed: no error\n\
         closed twice: no such endpoint or request, or it has ended\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(out.status.success());
    server.close();
}

fn a_c_client_with_another_key_is_told(installed: &Installed) {
    let server = endpoint(Guests::Anyone);
    let addr = server.endpoint().local_addr();
    let other = keys::generate().unwrap().public().to_string();
    let mut client = installed.run(&installed.compile("examples/send.c"));
    client.args(["127.0.0.1", &addr.port().to_string(), &other, "the line", "1"]);
    let out = Running(client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).end();
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    // The refusal may arrive before the second call or during it.
    let said = ["atp_send_async", "atp_send_sync"].map(|call| format!("{call}: {REFUSED}\n"));
    assert!(said.contains(&why), "{why}");
    server.close();
}

const REFUSED: &str = "the peer refused the connection, or has another key";

/// The server of the examples, where it is and its key.
fn echo(installed: &Installed) -> (Running, SocketAddr, String) {
    let mut server = installed.run(&installed.compile("examples/echo.c"));
    let mut server = Running(server.arg("127.0.0.1:0").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut greeting = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut greeting).unwrap();
    let (port, key) = greeting.trim().split_once(' ').unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    (server, addr, key.to_owned())
}

/// The client goes without taking the echo of its bulk, which is no fault of the server's.
fn the_examples_talk_to_each_other(installed: &Installed) {
    let (server, addr, key) = echo(installed);
    let mut client = installed.run(&installed.compile("examples/send.c"));
    client.args(["127.0.0.1", &addr.port().to_string(), &key, "the line", "300000"]);
    let said = succeed(&mut client).stdout;
    assert!(said.starts_with(b"answer: the line\nbulk: no error\n"), "{}", String::from_utf8_lossy(&said));
    let out = server.end();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn rust_talks_to_a_c_server(installed: &Installed) {
    let client = endpoint(Guests::Nobody);
    let (server, addr, key) = echo(installed);
    let peer = client.connect(addr, key.parse().unwrap(), PATIENCE).expect("in time").unwrap();
    for (size, priority) in [(0, Priority::MIN), (1, Priority::MAX), (1_000_000, Priority::MEDIUM)] {
        let object: Bytes = (0..size).map(|i: usize| (i * 7) as u8).collect();
        let end = client.send(&peer, object.clone(), Options { priority, ..Options::default() }).unwrap();
        assert_eq!(end.outcome, Outcome::Delivered);
        let back = client.recv(Some(PATIENCE)).expect("in time").unwrap();
        assert!(back.object == object && back.priority == priority, "{size}");
    }
    client.close();
    let out = server.end();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// A program that does not outlive the test.
struct Running(Child);

impl Running {
    /// Waits for its end, but not for ever.
    fn end(mut self) -> Output {
        let begin = std::time::Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut out = Output { status: self.0.wait().unwrap(), stdout: Vec::new(), stderr: Vec::new() };
        let (stdout, stderr) = (self.0.stdout.take(), self.0.stderr.take());
        std::io::copy(&mut stdout.unwrap(), &mut out.stdout).unwrap();
        std::io::copy(&mut stderr.unwrap(), &mut out.stderr).unwrap();
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
