//! No reply that promises stable storage is sent before the flush that makes it true.
//!
//! A killed process leaves the kernel's cache behind, so killing it cannot show this; strace(1)
//! can. It writes down the server's system calls while four connections make changes that share
//! flushes; then each reply is looked up, and between the change and the reply there must be a
//! flush of every file and directory that is changed, or of all, that began after the one and ended
//! before the other. What the disk itself does with a flush is beyond it.

mod client;
#[path = "../common/mod.rs"]
mod common;
mod trace;

use std::process::Command;

use client::{CHANGES, Client, Disk, Promise};
use common::{Daemon, Place};
use trace::{Event, check, hex, parse};

const CALLS: &str = "trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,fsync,fdatasync,syncfs,\
                     openat,openat2,linkat,symlinkat,mknodat,mkdirat,unlinkat,renameat,renameat2,ftruncate,fchmodat,\
                     utimensat,io_uring_setup";
const CONNECTIONS: u32 = 4;
const ROUNDS: u32 = 12;

#[test]
fn stable_replies_follow_their_flushes() {
    let Some((promises, events)) = observed(&[]) else { return };
    for promise in &promises {
        check(&events, &promise.wanted).unwrap_or_else(|why| panic!("{}: {why}", promise.what));
    }
    let flushes = events.iter().filter(|e| e.is_flush()).count();
    println!("{} promises, {flushes} flushes", promises.len());
}

#[test]
fn names_later_acknowledges_names_before_flush_but_not_data() {
    let Some((promises, events)) = observed(&["--durability", "names-later"]) else { return };
    let (data, names): (Vec<_>, Vec<_>) = promises.iter().partition(|p| matches!(p.what, "WRITE" | "COMMIT"));
    for promise in data {
        check(&events, &promise.wanted).unwrap_or_else(|why| panic!("{}: {why}", promise.what));
    }
    let waited = names.iter().filter(|p| check(&events, &p.wanted).is_ok()).count();
    assert!(waited < names.len() / 4, "{waited} of {} waited for a flush", names.len());
}

/// What a server with these flags promised, and what it did; `None` if it cannot be watched.
fn observed(flags: &[&str]) -> Option<(Vec<Promise>, Vec<Event>)> {
    if Command::new("strace").arg("-V").output().is_err() {
        skip::skipped(&skip::this_test(), "strace is not installed");
        return None;
    }
    let p = Place::new();
    let log = p.here("trace");
    let Some(server) = traced(&p, &log, flags) else {
        skip::skipped(&skip::this_test(), "strace may not trace here");
        return None;
    };
    let (addr, disk) = (server.addr, Disk::of(&p.srv("")));
    let promises: Vec<Promise> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|n| {
                scope.spawn({
                    let disk = &disk;
                    move || Client::new(addr, n, disk).work(ROUNDS)
                })
            })
            .collect();
        clients.into_iter().flat_map(|c| c.join().unwrap()).collect()
    });
    let (code, _) = server.interrupt("TERM");
    assert_eq!(code, 0);
    // strace writes on for a moment.
    let read = || std::fs::read_to_string(&log).unwrap();
    common::until("the end of the trace", || read().contains("+++ exited with 0 +++"));
    let text = read();
    assert!(!text.contains("io_uring_setup"), "this test knows nothing of io_uring");
    assert_eq!(promises.len() as u32, CONNECTIONS * ROUNDS * CHANGES);
    let events = parse(&text);
    for dir in [p.state().join("server"), p.state()] {
        assert!(key_is_settled(&events, &dir), "{dir:?} is not flushed after the key was made in it, or not in time");
    }
    Some((promises, events))
}

/// Whether `dir`, on the way to the key that handles are signed with, was flushed when that had been made and before
/// the first reply.
fn key_is_settled(events: &[Event], dir: &std::path::Path) -> bool {
    let path = std::fs::canonicalize(dir).unwrap();
    let shown = [format!("<{}>", path.display()), format!("<{}>", hex(path.as_os_str().as_encoded_bytes()))];
    let made = events.iter().find(|e| e.name == "linkat" && e.ok).map(|e| e.ended);
    let replied = events.iter().find(|e| e.name.starts_with("send")).map_or(usize::MAX, |e| e.began);
    let is_flush = |e: &&Event| e.name == "fsync" && e.ok && shown.iter().any(|shown| e.args.contains(shown));
    events.iter().filter(is_flush).any(|e| made.is_some_and(|made| made < e.began) && e.ended < replied)
}

/// The server, under strace's eyes; `None` if strace may not look.
fn traced(p: &Place, log: &std::path::Path, flags: &[&str]) -> Option<Daemon> {
    let may = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        return None;
    }
    let srv = p.srv("");
    let serve = p.server_command(&["serve", srv.to_str()?, "--listen", "127.0.0.1:0", "--squash", "none", "--json"]);
    let mut command = Command::new("strace");
    // With -D the process that is started is the server, and strace its grandchild.
    command.args(["-D", "-f", "-y", "-xx", "-s", "4096", "-e", CALLS, "-o"]).arg(log);
    command.arg(serve.get_program()).args(serve.get_args()).args(flags).stdout(std::process::Stdio::piped());
    Some(Daemon::start(command))
}
