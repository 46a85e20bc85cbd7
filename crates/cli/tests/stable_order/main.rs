//! No reply that promises stable storage is sent before the flush that makes it true.
//!
//! A killed process leaves the kernel's cache behind, so killing it cannot show this; strace(1)
//! can. It writes down the server's system calls while four connections make changes that share
//! flushes; then each reply is looked up, and between the change and the reply there must be a
//! flush of that file or directory, or of all, that began after the one and ended before the
//! other. What the disk itself does with a flush is beyond it.

#[path = "../common/mod.rs"]
mod common;
mod trace;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use common::{Daemon, Place};
use remora_lab::raw::{self, Stream};
use remora_wire::nfs3::{
    Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, MkDirArgs, RenameArgs, Reply, SetAttr, Stable, WriteArgs,
};
use trace::{Event, check, hex, parse};

const CALLS: &str = "trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,fsync,fdatasync,syncfs,\
                     openat,openat2,linkat,mkdirat,unlinkat,renameat,renameat2,io_uring_setup";
const CONNECTIONS: u32 = 4;
const ROUNDS: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

/// A change that was acknowledged as stable: how it shows in the trace, and its reply.
struct Promise {
    what: &'static str,
    is_change: fn(&Event) -> bool,
    change: String,
    reply: String,
}

#[test]
fn stable_replies_follow_their_flushes() {
    let Some((promises, events)) = observed(&[]) else { return };
    for promise in &promises {
        promise.is_kept(&events).unwrap_or_else(|why| panic!("{}: {why}", promise.what));
    }
    let flushes = events.iter().filter(|e| matches!(e.name.as_str(), "fsync" | "fdatasync" | "syncfs")).count();
    println!("{} promises, {flushes} flushes", promises.len());
}

#[test]
fn names_are_acknowledged_before_any_flush_if_the_operator_wants_it_and_data_never() {
    let Some((promises, events)) = observed(&["--durability", "names-later"]) else { return };
    let (data, names): (Vec<_>, Vec<_>) = promises.iter().partition(|p| matches!(p.what, "WRITE" | "COMMIT"));
    for promise in data {
        promise.is_kept(&events).unwrap_or_else(|why| panic!("{}: {why}", promise.what));
    }
    let waited = names.iter().filter(|p| p.is_kept(&events).is_ok()).count();
    assert!(waited < names.len() / 4, "{waited} of {} waited for a flush", names.len());
}

impl Promise {
    /// Whether it was made after the flush that makes it true, or why not.
    fn is_kept(&self, events: &[Event]) -> Result<(), String> {
        check(events, self.is_change, &self.change, &self.reply)
    }
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
    let addr = server.addr;
    let promises: Vec<Promise> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS).map(|n| scope.spawn(move || Client::new(addr, n).work())).collect();
        clients.into_iter().flat_map(|c| c.join().unwrap()).collect()
    });
    let (code, _) = server.interrupt("TERM");
    assert_eq!(code, 0);
    // strace writes on for a moment.
    let read = || std::fs::read_to_string(&log).unwrap();
    common::until("the end of the trace", || read().contains("+++ exited with 0 +++"));
    let text = read();
    assert!(!text.contains("io_uring_setup"), "this test knows nothing of io_uring");
    assert_eq!(promises.len() as u32, CONNECTIONS * ROUNDS * 7);
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

struct Client {
    stream: Stream,
    number: u32,
    next_xid: u32,
    dir: Fh,
    promises: Vec<Promise>,
}

impl Client {
    fn new(addr: SocketAddr, number: u32) -> Client {
        let mut stream = Stream::connect(addr, PATIENCE).unwrap();
        let dir = stream.mount("/").unwrap();
        Client { stream, number, next_xid: 0x5a5a_0000 | number << 12, dir, promises: Vec::new() }
    }

    /// Makes changes, one after the other.
    fn work(mut self) -> Vec<Promise> {
        for round in 0..ROUNDS {
            let [name, other, sub] = ["f", "g", "d"].map(|kind| format!("{kind}{}x{round}", self.number));
            let at = |name: &str, dir: &Fh| DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) };
            let attr = SetAttr { mode: Some(0o644), ..SetAttr::NONE };
            let create = CreateArgs { at: at(&name, &self.dir), how: CreateHow::Guarded(attr.clone()) };
            let made = self.promise("CREATE", Call::Create(create), opens, quoted(&name));
            let Reply::Create(Ok(made)) = made else { panic!("{made:?}") };
            let fh = made.fh.unwrap();
            for stable in [Stable::FileSync, Stable::DataSync] {
                let (write, tag) = self.write(&fh, stable);
                self.promise("WRITE", write, writes, hex(&tag));
            }
            let (write, tag) = self.write(&fh, Stable::Unstable);
            self.call(&write);
            self.promise("COMMIT", Call::Commit(CommitArgs { fh, offset: 0, count: 0 }), writes, hex(&tag));
            let rename = RenameArgs { from: at(&name, &self.dir), to: at(&other, &self.dir) };
            self.promise("RENAME", Call::Rename(rename), renames, quoted(&other));
            let mkdir = MkDirArgs { at: at(&sub, &self.dir), attr };
            self.promise("MKDIR", Call::MkDir(mkdir), makes_dir, quoted(&sub));
            let remove = at(&other, &self.dir);
            self.promise("REMOVE", Call::Remove(remove), unlinks, quoted(&other));
        }
        self.promises
    }

    /// A WRITE that can be told from all others, and how.
    fn write(&self, fh: &Fh, stable: Stable) -> (Call, Vec<u8>) {
        let tag = [&[0xd1, 0xd2, 0xd3][..], &self.next_xid.to_be_bytes()].concat();
        let (count, data) = (tag.len() as u32, Bytes::from(tag.clone()));
        (Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count, stable, data }), tag)
    }

    fn promise(&mut self, what: &'static str, call: Call, is_change: fn(&Event) -> bool, change: String) -> Reply {
        let (xid, reply) = self.call(&call);
        // A reply begins with the call's xid and the word for a reply.
        let head = [xid.to_be_bytes(), 1u32.to_be_bytes()].concat();
        self.promises.push(Promise { what, is_change, change, reply: hex(&head) });
        reply
    }

    fn call(&mut self, call: &Call) -> (u32, Reply) {
        self.next_xid += 1;
        let bytes = self.stream.exchange(&raw::nfs(self.next_xid, call)).unwrap();
        let reply = raw::results(call, &bytes).unwrap();
        assert_eq!(reply.status(), None, "{call:?}");
        (self.next_xid, reply)
    }
}

/// A whole name in the trace.
fn quoted(name: &str) -> String {
    format!("\"{}\"", hex(name.as_bytes()))
}

fn writes(e: &Event) -> bool {
    matches!(e.name.as_str(), "pwrite64" | "pwritev" | "pwritev2")
}

fn opens(e: &Event) -> bool {
    matches!(e.name.as_str(), "openat" | "openat2") && e.args.contains("O_CREAT")
}

fn makes_dir(e: &Event) -> bool {
    e.name == "mkdirat"
}

fn renames(e: &Event) -> bool {
    matches!(e.name.as_str(), "renameat" | "renameat2")
}

fn unlinks(e: &Event) -> bool {
    // What is removed may first be moved aside.
    e.name == "unlinkat" || renames(e)
}
