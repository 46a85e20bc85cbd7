//! What a datagram with a forged source sends to its victim.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use remora_base::{Peer, Time};
use remora_server::{Access, Config, Export, Exports, Server, cache};
use remora_vfs::{MemFs, Vfs};
use remora_wire::mount;
use remora_wire::nfs3::{Call, Fh, ReadArgs, ReadDirArgs, ReadDirPlusArgs, Reply, SetAttr, SymLinkArgs};
use remora_wire::rpc::{CallHeader, OpaqueAuth};
use remora_wire::{Xdr, nfs2, nfs3};

use crate::world::{KEY, ROOT, World, at, create, everybody, only, tcp, udp};

/// IP's and UDP's headers.
const HEADERS: usize = 28;
/// Bytes sent for each received, at most.
const FACTOR: usize = 30;

/// A server that validates addresses, with a file of 1 MiB and a directory of 200 names.
fn world() -> (World, Fh, Fh) {
    world_for(everybody(|_| {}))
}

/// The same with other clients.
fn world_for(access: Access) -> (World, Fh, Fh) {
    let mut w = World::new(cache::Config::full());
    let vfs: Arc<MemFs> = w.fs.clone();
    let exports = Exports::new(vec![Export { access, ..Export::new("/", vfs) }], &KEY).unwrap();
    let config = Config { address_validation: true, ..Config::new(Arc::new(exports)) };
    w.server = Server::new(config, 1, Time::ZERO);
    let root = w.root();
    for n in 0..200 {
        w.file(&root, &format!("{n:0>200}"));
    }
    let file = w.file(&root, "large");
    let (id, _) = w.fs.lookup(&ROOT, &w.fs.root(), b"large").unwrap();
    w.fs.write(&ROOT, &id, 0, &Bytes::from(vec![7; 1 << 20]), nfs3::Stable::FileSync).unwrap();
    (w, root, file)
}

/// Who never speaks to the server.
fn victim() -> Peer {
    Peer::datagram("10.0.0.99:700".parse().unwrap())
}

fn message(xid: u32, prog: u32, vers: u32, proc: u32, args: &[u8]) -> Bytes {
    let mut out = Vec::new();
    CallHeader { xid, prog, vers, proc, cred: OpaqueAuth::none(), verf: OpaqueAuth::none() }.encode(&mut out);
    out.extend_from_slice(args);
    out.into()
}

fn v3(xid: u32, call: &Call) -> Bytes {
    let mut args = Vec::new();
    call.encode(&mut args);
    message(xid, nfs3::PROGRAM, nfs3::VERSION, call.proc() as u32, &args)
}

/// Bytes on the wire to `from` for a message that came from there.
fn sent(w: &mut World, from: Peer, message: Bytes) -> usize {
    w.input(from, message);
    w.run_all();
    w.sent.drain(..).map(|reply| reply.payload.len() + HEADERS).sum()
}

fn read(fh: &Fh, offset: u64) -> Call {
    Call::Read(ReadArgs { fh: fh.clone(), offset, count: 64 << 10 })
}

#[test]
fn forged_datagram_sends_a_small_multiple_to_its_victim() {
    let (mut w, root, file) = world();
    let link = SymLinkArgs { at: at(&root, "link"), attr: SetAttr::NONE, target: "x".repeat(4000).into() };
    let Reply::SymLink(Ok(link)) = w.call_from(tcp(1), &Call::SymLink(link)) else { panic!() };
    let plus = ReadDirPlusArgs { dir: root.clone(), cookie: 0, verf: [0; 8], dir_count: 65536, max_count: 65536 };
    let list = ReadDirArgs { dir: root.clone(), cookie: 0, verf: [0; 8], count: 65536 };
    // A handle of version 2, as MNT of version 1 brings it.
    w.input(tcp(1), message(7, mount::PROGRAM, mount::VERSION_1, 1, &Bytes::from_static(b"/").to_bytes()));
    w.run_all();
    let root_v2 = w.sent.pop().unwrap().payload.slice(28..);
    let dir_v2 = [&root_v2[..], &[0; 4], &8192u32.to_be_bytes()].concat();
    let calls = [
        v3(1, &read(&file, 0)),
        v3(2, &Call::ReadDir(list)),
        v3(3, &Call::ReadDirPlus(plus)),
        v3(4, &Call::ReadLink(link.fh.unwrap())),
        v3(5, &Call::GetAttr(root)),
        message(6, nfs3::PROGRAM, nfs2::VERSION, nfs2::Proc::ReadDir as u32, &dir_v2),
        message(8, mount::PROGRAM, mount::VERSION, mount::Call::Export.proc(), &[]),
    ];
    let (mut received, mut all) = (0, 0);
    for round in 0..20 {
        for (n, call) in calls.iter().enumerate() {
            // As new calls, not as repeated ones.
            let call = [&(1000 * round + n as u32).to_be_bytes(), &call[4..]].concat();
            received += call.len() + HEADERS;
            let bytes = sent(&mut w, victim(), call.into());
            all += bytes;
            assert!(all <= FACTOR * received, "call {n} of round {round}: {all} bytes for {received}");
        }
    }
    let stats = w.server.stats();
    assert!(stats.unvalidated_cut >= 60 && stats.replies > 100, "{stats:?}");
}

#[test]
fn pages_for_unproved_address_have_entries_and_go_on() {
    let (mut w, root, _) = world();
    let (mut cookie, mut verf, mut names) = (0, [0; 8], 0);
    loop {
        let plus = ReadDirPlusArgs { dir: root.clone(), cookie, verf, dir_count: 65536, max_count: 65536 };
        let Reply::ReadDirPlus(Ok(page)) = w.call_from(victim(), &Call::ReadDirPlus(plus)) else { panic!() };
        names += page.entries.list.len();
        verf = page.verf;
        match page.entries.list.last() {
            Some(last) if !page.entries.eof => cookie = last.cookie,
            _ => break,
        }
    }
    assert_eq!(names, 203, "with . and ..");
}

#[test]
fn short_read_for_unproved_address_does_not_claim_the_end() {
    let (mut w, _, file) = world();
    let Reply::Read(Ok(ok)) = w.call_from(victim(), &read(&file, 0)) else { panic!() };
    assert!((1024..2048).contains(&ok.data.len()) && !ok.eof, "{} bytes", ok.data.len());
    assert_eq!(ok.count as usize, ok.data.len());
}

#[test]
fn read_of_version_2_is_answered_in_full_or_not_at_all() {
    let (mut w, _, _) = world();
    w.input(tcp(1), message(7, mount::PROGRAM, mount::VERSION_1, 1, &Bytes::from_static(b"/").to_bytes()));
    w.run_all();
    let root = w.sent.pop().unwrap().payload.slice(28..);
    let lookup = [&root[..], &Bytes::from_static(b"large").to_bytes()].concat();
    w.input(tcp(1), message(8, nfs3::PROGRAM, nfs2::VERSION, nfs2::Proc::Lookup as u32, &lookup));
    w.run_all();
    let file = w.sent.pop().unwrap().payload.slice(28..60);
    let args = [&file[..], &[0; 4], &8192u32.to_be_bytes(), &[0; 4]].concat();
    let mut answers = Vec::new();
    for xid in 100..112 {
        let read = message(xid, nfs3::PROGRAM, nfs2::VERSION, nfs2::Proc::Read as u32, &args);
        answers.push(sent(&mut w, victim(), read));
    }
    assert!(answers.iter().all(|bytes| *bytes == 0 || *bytes > 8192), "{answers:?}");
    assert!(answers.iter().filter(|bytes| **bytes > 0).count() >= 4, "the client gets on: {answers:?}");
    assert_eq!(answers[0], 0);
}

#[test]
fn address_with_a_stream_gets_all_at_once() {
    let (mut w, root, file) = world();
    w.call_from(tcp(5), &Call::GetAttr(root.clone()));
    let Reply::Read(Ok(ok)) = w.call_from(udp(), &read(&file, 0)) else { panic!() };
    assert_eq!(ok.data.len(), 32 << 10);
    w.call_from(udp(), &create(&root, "new"));
}

#[test]
fn strangers_evict_no_client_from_the_table_of_addresses() {
    let (mut w, _, file) = world_for(only(&["10.0.0.0/8"]));
    let null = message(1, nfs3::PROGRAM, nfs3::VERSION, 0, &[]);
    let flood = |w: &mut World| {
        for n in 0..5000 {
            let addr = (Ipv4Addr::from_bits(0xac10_0000 + n), 700).into();
            assert_eq!(sent(w, Peer::datagram(addr), v3(n, &read(&file, 0))), 32 + HEADERS, "a refusal");
            w.input(Peer::stream(addr, 1000 + u64::from(n)), null.clone());
            w.sent.clear();
        }
    };
    let mut offset = 0;
    let mut lengths = Vec::new();
    for _ in 0..4 {
        flood(&mut w);
        let Reply::Read(Ok(ok)) = w.call_from(victim(), &read(&file, offset)) else { panic!() };
        offset += ok.data.len() as u64;
        lengths.push(ok.data.len());
    }
    assert!(lengths[..3].iter().all(|len| *len < 2048) && lengths[3] == 32 << 10, "{lengths:?}");
    flood(&mut w);
    let Reply::Read(Ok(ok)) = w.call_from(victim(), &read(&file, offset)) else { panic!() };
    assert_eq!(ok.data.len(), 32 << 10, "its proof stays");
}
