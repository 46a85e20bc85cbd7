//! What an idle TCP connection costs the server. Alone in its binary, because it measures
//! the memory of its process; the clients live in another one.
//! `cargo test -p remora-host --test serve_memory -- --nocapture` prints what it found.

mod serve_kit;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use remora_host::server::IDLE_CONNECTION_BYTES_MAX;
use remora_vfs::MemFs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serve_kit::*;

/// Names the address to connect to, for the process of the clients.
const ADDR: &str = "REMORA_TEST_CLIENTS_OF";
const COUNT: usize = 10_000;

fn main() {
    if std::env::var_os(ADDR).is_some() {
        return clients();
    }
    let name = "ten_thousand_idle_connections_stay_within_their_bound";
    let trial = Trial::test(name, || {
        ten_thousand_idle_connections_stay_within_their_bound();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn ten_thousand_idle_connections_stay_within_their_bound() {
    let (serving, addr) = start(options(Arc::new(MemFs::new(1))));
    let count = COUNT.min(serving.connections_max() - 1);
    // Threads, their buffers and the cache's first growth are not the connections'.
    let mut first = Tcp::connect(addr);
    (0..1000).for_each(|_| drop(first.mount("/")));
    let before = resident();

    let mut clients = Clients::spawn(addr, count);
    clients.wait_for("connected");
    wait_until(&serving, |s| s.connections == count + 1);
    let each = resident().saturating_sub(before) / count;
    println!("{count} connections that have sent nothing: {each} bytes each");
    assert!(each <= IDLE_CONNECTION_BYTES_MAX, "{each} bytes for an idle connection");

    // They have spoken once and are idle again: no buffer stays behind.
    clients.go_on();
    clients.wait_for("spoken");
    wait_until(&serving, |s| s.under_way == 0 && s.core.mount_calls as usize == 1000 + count);
    let each = resident().saturating_sub(before) / count;
    println!("the same after a request on each: {each} bytes each");
    assert!(each <= IDLE_CONNECTION_BYTES_MAX, "{each} bytes for a connection that is idle again");

    clients.go_on();
    wait_until(&serving, |s| s.connections == 1);
}

/// The other process.
fn clients() {
    let Ok(args) = std::env::var(ADDR) else { return };
    let (addr, count) = args.split_once(' ').unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let addr = addr.parse().unwrap();
    let mut wires: Vec<Tcp> = (0..count.parse().unwrap()).map(|_| Tcp::connect(addr)).collect();
    println!("\nconnected");
    pause();
    wires.iter_mut().for_each(|w| drop(w.mount("/")));
    println!("\nspoken");
    pause();
}

fn pause() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

struct Clients(Child, BufReader<std::process::ChildStdout>);

impl Clients {
    fn spawn(addr: SocketAddr, count: usize) -> Clients {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ADDR, format!("{addr} {count}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Clients(child, out)
    }

    fn wait_for(&mut self, word: &str) {
        let mut lines = self.1.by_ref().lines().map(Result::unwrap);
        assert!(lines.any(|l| l == word), "the clients ended before they were {word}");
    }

    fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
