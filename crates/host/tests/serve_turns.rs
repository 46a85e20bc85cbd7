//! A client with a single request waits for one of each other client's, also for what several want of one file.

mod serve_kit;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use remora_vfs::{MemFs, memory::OpKind};
use remora_wire::nfs3::{Call, Fh, Stable, WriteArgs};
use remora_wire::record::mark;
use serve_kit::*;

/// What the busy client has waiting.
const BACKLOG: usize = 100;
/// Most of it that is done first: what is under way, and one in the busy client's turn.
const BEFORE_MAX: usize = 2;
/// Two clients may fall into the same turn, one time in 64.
const TRIES: usize = 4;

/// Has the first READ wait for `open`, and notes what is done from then on.
fn note_from(fs: &MemFs, open: Receiver<()>) -> Arc<Mutex<Vec<OpKind>>> {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let notes = noted.clone();
    let mut open = Some(open);
    fs.set_fault(move |kind| {
        if kind == OpKind::Read
            && let Some(open) = open.take()
        {
            open.recv_timeout(PATIENCE).unwrap();
        }
        notes.lock().unwrap().push(kind);
        None
    });
    noted
}

fn write_as(fh: &Fh, stable: Stable) -> Call {
    let data = Bytes::from_static(b"written");
    Call::Write(WriteArgs { fh: fh.clone(), offset: 0, count: data.len() as u32, stable, data })
}

/// What a server with one thread has done, in order, when a busy client has sent what `burst` makes of a WRITE to a file and
/// of the READs of another, and a second client then sends a WRITE to the same file; and all is answered.
fn done(stable: Stable, burst: fn(Call, Vec<Call>) -> Vec<Call>) -> Vec<OpKind> {
    let fs = Arc::new(MemFs::new(1));
    fs.defer();
    let mut opts = options(fs.clone());
    opts.executor_threads = 1;
    opts.executor_threads_more = 0;
    let (serving, addr) = start(opts);
    let [mut busy, mut modest] = [2, 3].map(|n| Tcp::connect_from(Ipv4Addr::new(127, 0, 0, n), addr));
    let root = busy.mount("/");
    let [written, other] = ["written", "other"].map(|name| busy.create(&root, name));
    modest.mount("/");
    let (open, opened) = channel();
    let noted = note_from(&fs, opened);

    let before = serving.stats().core.executed;
    let calls = burst(write_as(&written, stable), vec![read(&other, 1); BACKLOG]);
    let messages = calls.iter().map(|call| nfs_message(xid(), call));
    let bytes: Vec<u8> = messages.flat_map(|m| [&mark(m.len())[..], &m[..]].concat()).collect();
    busy.send_raw(&bytes);
    wait_until(&serving, |s| s.core.executed == before + calls.len() as u64);
    modest.send(&nfs_message(xid(), &write_as(&written, stable)));
    wait_until(&serving, |s| s.core.executed == before + calls.len() as u64 + 1);
    // It counts as executed a moment before it is in line.
    std::thread::sleep(Duration::from_millis(20));
    open.send(()).unwrap();
    modest.receive();
    (0..calls.len()).for_each(|_| drop(busy.receive()));
    noted.lock().unwrap().clone()
}

/// The second client's WRITE among what was done; the first client's comes before or after it.
fn second_write(done: &[OpKind]) -> usize {
    let writes = |(n, kind): (usize, &OpKind)| (*kind == OpKind::Write).then_some(n);
    done.iter().enumerate().filter_map(writes).nth(1).unwrap()
}

fn reads(done: &[OpKind]) -> usize {
    done.iter().filter(|kind| **kind == OpKind::Read).count()
}

#[test]
fn single_write_overtakes_backlog_of_another_client() {
    let first_write = |done: Vec<OpKind>| reads(done.split(|kind| *kind == OpKind::Write).next().unwrap());
    let write_last = |write, mut reads: Vec<Call>| {
        reads.push(write);
        reads
    };
    let fewest = (0..TRIES).map(|_| first_write(done(Stable::Unstable, write_last))).min().unwrap();
    assert!(fewest <= BEFORE_MAX, "{fewest} READs came first");
}

#[test]
fn single_flush_overtakes_flush_backlog_of_another_client() {
    let last_flush = |done: Vec<OpKind>| {
        let (before, after) = done.split_at(second_write(&done));
        reads(before) + reads(after.split(|kind| *kind == OpKind::Flush).next().unwrap())
    };
    // The first READ is under way, and the WRITE is done before the others.
    let write_second = |write, mut reads: Vec<Call>| {
        reads.insert(1, write);
        reads
    };
    let fewest = (0..TRIES).map(|_| last_flush(done(Stable::FileSync, write_second))).min().unwrap();
    assert!(fewest <= BEFORE_MAX, "{fewest} READs came first");
}

#[test]
fn datagrams_of_many_unproved_addresses_share_a_turn() {
    let fs = Arc::new(MemFs::new(1));
    let mut opts = options(fs.clone());
    (opts.executor_threads, opts.executor_threads_more, opts.core.address_validation) = (1, 0, true);
    let (serving, addr) = start(opts);
    let mut modest = Tcp::connect_from(Ipv4Addr::new(127, 0, 0, 3), addr);
    let root = modest.mount("/");
    let [written, other] = ["written", "other"].map(|name| modest.create(&root, name));
    let (open, opened) = channel();
    let noted = note_from(&fs, opened);

    let before = serving.stats().core.executed;
    for n in 1..=BACKLOG as u8 {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 1, n), 0)).unwrap();
        socket.send_to(&nfs_message(xid(), &read(&other, 1)), addr).unwrap();
    }
    wait_until(&serving, |s| s.core.executed == before + BACKLOG as u64);
    modest.send(&nfs_message(xid(), &write_as(&written, Stable::Unstable)));
    wait_until(&serving, |s| s.core.executed == before + BACKLOG as u64 + 1);
    // It counts as executed a moment before it is in line.
    std::thread::sleep(Duration::from_millis(20));
    open.send(()).unwrap();
    modest.receive();
    let done = noted.lock().unwrap().clone();
    let reads = done.iter().take_while(|kind| **kind != OpKind::Write).filter(|kind| **kind == OpKind::Read).count();
    assert!(reads <= BEFORE_MAX, "{reads} datagrams first");
}
