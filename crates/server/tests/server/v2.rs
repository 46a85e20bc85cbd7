//! NFSv2, MOUNT v1 and the portmapper.

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::Peer;
use remora_server::{Limits, cache};
use remora_vfs::Vfs;
use remora_vfs::memory::OpKind;
use remora_wire::nfs2::*;
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::rpcbind::{Netid, Service};
use remora_wire::{Reader, mount, nfs3, portmap};

use crate::world::{ROOT, World, only, tcp, udp};

fn message(xid: u32, prog: u32, vers: u32, proc: u32, put: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let cred = OpaqueAuth::unix(&AuthUnix { machine: "old".into(), ..AuthUnix::default() });
    let mut out = Vec::new();
    CallHeader { xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut out);
    put(&mut out);
    out.into()
}

fn encode(xid: u32, call: &Call) -> Bytes {
    message(xid, PROGRAM, VERSION, call.proc() as u32, |out| call.encode(out))
}

/// The results in the only reply that was sent.
fn results(w: &mut World, xid: u32) -> Reader {
    let mut r = Reader::new(w.sent.pop().expect("a reply").payload);
    assert_eq!(remora_wire::Xdr::decode(&mut r), Ok(ReplyHeader { xid, outcome: Outcome::Success }));
    assert!(w.sent.is_empty());
    r
}

pub(crate) fn call_from(w: &mut World, from: Peer, xid: u32, call: &Call) -> Reply {
    w.input(from, encode(xid, call));
    w.run_all();
    let mut r = results(w, xid);
    let reply = Reply::decode(call.proc(), &mut r).unwrap();
    assert_eq!(r.remaining(), 0);
    reply
}

/// Hands the server a call by UDP.
pub(crate) fn send(w: &mut World, xid: u32, call: &Call) {
    w.input(udp(), encode(xid, call));
}

pub(crate) fn call(w: &mut World, call: &Call) -> Reply {
    use std::sync::atomic::{AtomicU32, Ordering};
    static XID: AtomicU32 = AtomicU32::new(1 << 20);
    call_from(w, udp(), XID.fetch_add(1, Ordering::Relaxed), call)
}

fn mount(w: &mut World, vers: u32, call: &mount::Call) -> mount::ReplyV1 {
    w.input(tcp(1), message(3, mount::PROGRAM, vers, call.proc(), |out| call.encode(out)));
    w.run_all();
    mount::ReplyV1::decode(call.proc(), &mut results(w, 3)).unwrap()
}

/// The handle of the export's root.
pub(crate) fn root(w: &mut World) -> Fh {
    let mount::ReplyV1::Mnt(Ok(root)) = mount(w, 1, &mount::Call::Mnt("/".into())) else { panic!() };
    root
}

fn world() -> (World, Fh) {
    let mut w = World::new(cache::Config::full());
    let root = root(&mut w);
    (w, root)
}

fn at(dir: Fh, name: &str) -> DirOp {
    DirOp { dir, name: Bytes::copy_from_slice(name.as_bytes()) }
}

fn create(dir: Fh, name: &str) -> Call {
    Call::Create(CreateArgs { at: at(dir, name), attr: SetAttr { mode: Some(0o644), size: Some(0), ..SetAttr::NONE } })
}

fn file(w: &mut World, dir: Fh, name: &str) -> Fh {
    let Reply::Create(Ok(made)) = call(w, &create(dir, name)) else { panic!() };
    assert_eq!((made.attr.kind, made.attr.mode, made.attr.size), (FileType::Regular, 0o100_644, 0));
    made.fh
}

fn write(fh: Fh, offset: u32, data: &'static [u8]) -> Call {
    Call::Write(WriteArgs { fh, begin_offset: 9, offset, total_count: 9, data: Data(Bytes::from_static(data)) })
}

fn read(fh: Fh, offset: u32, count: u32) -> Call {
    Call::Read(ReadArgs { fh, offset, count, total_count: 0 })
}

fn list(dir: Fh, cookie: u32, count: u32) -> Call {
    Call::ReadDir(ReadDirArgs { dir, cookie, count })
}

#[test]
fn files_are_made_written_read_and_removed() {
    let (mut w, root) = world();
    let f = file(&mut w, root, "f");
    let Reply::Write(Ok(attr)) = call(&mut w, &write(f, 2, b"hello")) else { panic!() };
    assert_eq!((attr.size, attr.fileid), (7, w_fileid(&w, "f")));
    assert_eq!(w.content("f"), &b"\0\0hello"[..]);
    let Reply::Read(Ok(ok)) = call(&mut w, &read(f, 1, 100)) else { panic!() };
    assert_eq!((ok.data.0, ok.attr.size), (Bytes::from_static(b"\0hello"), 7));
    let Reply::Lookup(Ok(found)) = call(&mut w, &Call::Lookup(at(root, "f"))) else { panic!() };
    assert_eq!(found.fh, f);
    assert_eq!(call(&mut w, &Call::GetAttr(f)), Reply::GetAttr(Ok(found.attr)));
    let to = at(root, "g");
    assert_eq!(call(&mut w, &Call::Link(LinkArgs { fh: f, at: to.clone() })), Reply::Link(Ok(())));
    let rename = Call::Rename(RenameArgs { from: to, to: at(root, "h") });
    assert_eq!(call(&mut w, &rename), Reply::Rename(Ok(())));
    assert_eq!(call(&mut w, &Call::Remove(at(root, "h"))), Reply::Remove(Ok(())));
    assert_eq!(call(&mut w, &Call::Remove(at(root, "h"))), Reply::Remove(Err(Status::NoEnt)));
    // CREATE of what exists empties it.
    assert!(matches!(call(&mut w, &create(root, "f")), Reply::Create(Ok(made)) if made.fh == f));
    assert_eq!(w.content("f"), "");
    assert!(w.server.stats().nfs2_calls >= 9);
}

fn w_fileid(w: &World, name: &str) -> u32 {
    w.fs.lookup(&ROOT, &w.fs.root(), name.as_bytes()).unwrap().1.fileid as u32
}

#[test]
fn directories_links_and_file_systems() {
    let (mut w, root) = world();
    w.fs.set_capacity(1 << 30);
    let attr = SetAttr { mode: Some(0o750), size: Some(5), ..SetAttr::NONE };
    let mkdir = Call::MkDir(CreateArgs { at: at(root, "d"), attr: attr.clone() });
    let Reply::MkDir(Ok(d)) = call(&mut w, &mkdir) else { panic!() };
    assert_eq!((d.attr.kind, d.attr.mode), (FileType::Directory, 0o040_750));
    let link = Call::SymLink(SymLinkArgs { at: at(d.fh, "l"), target: "to/there".into(), attr: attr.clone() });
    assert_eq!(call(&mut w, &link), Reply::SymLink(Ok(())));
    let long = SymLinkArgs { at: at(d.fh, "long"), target: vec![b'x'; 1025].into(), attr: attr.clone() };
    assert_eq!(call(&mut w, &Call::SymLink(long)), Reply::SymLink(Err(Status::NameTooLong)), "READLINK could not tell");
    let Reply::Lookup(Ok(l)) = call(&mut w, &Call::Lookup(at(d.fh, "l"))) else { panic!() };
    assert_eq!((l.attr.kind, l.attr.mode & 0o170_000), (FileType::SymLink, 0o120_000));
    assert_eq!(call(&mut w, &Call::ReadLink(l.fh)), Reply::ReadLink(Ok(Path("to/there".into()))));
    assert_eq!(call(&mut w, &Call::RmDir(at(root, "d"))), Reply::RmDir(Err(Status::NotEmpty)));
    assert_eq!(call(&mut w, &Call::Remove(at(d.fh, "l"))), Reply::Remove(Ok(())));
    assert_eq!(call(&mut w, &Call::RmDir(at(root, "d"))), Reply::RmDir(Ok(())));
    let Reply::StatFs(Ok(room)) = call(&mut w, &Call::StatFs(root)) else { panic!() };
    assert!((room.transfer_size, room.block_size, room.blocks) == (8192, 4096, 1 << 18) && room.free > 0);
    assert_eq!(call(&mut w, &Call::GetAttr(d.fh)), Reply::GetAttr(Err(Status::Stale)));
    assert_eq!(call(&mut w, &Call::GetAttr(Fh([0; 32]))), Reply::GetAttr(Err(Status::Stale)));
}

#[test]
fn obsolete_procedures_get_an_empty_reply() {
    let (mut w, _) = world();
    for (obsolete, reply) in
        [(Call::Null, Reply::Null), (Call::Root, Reply::Root), (Call::WriteCache, Reply::WriteCache)]
    {
        assert_eq!(call(&mut w, &obsolete), reply);
    }
}

/// U-Boot learns from these two statuses, and no other, that it has to follow a link.
#[test]
fn read_of_a_directory_is_an_error() {
    let (mut w, root) = world();
    let link = SymLinkArgs { at: at(root, "l"), target: "kernel".into(), attr: SetAttr::NONE };
    assert_eq!(call(&mut w, &Call::SymLink(link)), Reply::SymLink(Ok(())));
    let pipe = CreateArgs { at: at(root, "p"), attr: SetAttr { mode: Some(0o010_600), ..SetAttr::NONE } };
    assert!(matches!(call(&mut w, &Call::Create(pipe)), Reply::Create(Ok(_))));
    for name in ["l", "p"] {
        let Reply::Lookup(Ok(found)) = call(&mut w, &Call::Lookup(at(root, name))) else { panic!() };
        assert_eq!(call(&mut w, &read(found.fh, 0, 1024)), Reply::Read(Err(Status::Inval)), "{name}");
    }
    assert_eq!(call(&mut w, &read(root, 0, 1024)), Reply::Read(Err(Status::IsDir)));
    assert_eq!(call(&mut w, &Call::ReadLink(root)), Reply::ReadLink(Err(Status::Inval)));
}

/// Version 2 has no error for "later": the client sends an unanswered datagram again, and the server executes it then.
#[test]
fn waiting_call_gets_silence_or_io_by_transport() {
    for config in [cache::Config::full(), cache::Config::juszczak(), cache::Config::Off] {
        let mut w = World::new(config);
        let root = root(&mut w);
        let f = file(&mut w, root, "f");
        let look = Call::GetAttr(f);
        let change = Call::SetAttr(SetAttrArgs { fh: f, attr: SetAttr { size: Some(5), ..SetAttr::NONE } });
        for (xid, (kind, call)) in (1..).zip([(OpKind::GetAttr, look), (OpKind::SetAttr, change)]) {
            w.fs.fail_next(kind, nfs3::Status::Jukebox, 1);
            send(&mut w, xid, &call);
            w.run_all();
            assert_eq!(w.sent.len(), 0, "{config:?} {kind:?}");
            assert_eq!(call_from(&mut w, udp(), xid, &call).status(), None, "{config:?} {kind:?}");
            // On a stream the client would wait for minutes.
            w.fs.fail_next(kind, nfs3::Status::Jukebox, 1);
            let on_stream = call_from(&mut w, tcp(1), xid + 10, &call);
            assert_eq!(on_stream.status(), Some(Status::Io), "{config:?} {kind:?}");
        }
        assert_eq!(w.server.stats().overload_dropped, 2);
    }
}

#[test]
fn setattr_sets_given_attributes() {
    let (mut w, root) = world();
    w.wait(std::time::Duration::from_secs(5));
    let f = file(&mut w, root, "f");
    let time = |secs, micros| Some(Time { secs, micros });
    let attr = SetAttr { mode: Some(0o600), size: Some(9), mtime: time(77, 5), ..SetAttr::NONE };
    let set = |attr| Call::SetAttr(SetAttrArgs { fh: f, attr });
    let Reply::SetAttr(Ok(after)) = call(&mut w, &set(attr)) else { panic!() };
    assert_eq!((after.mode, after.size, after.mtime), (0o100_600, 9, Time { secs: 77, micros: 5 }));
    let now = SetAttr { atime: time(1, 0), mtime: time(1, Time::SERVER), ..SetAttr::NONE };
    let Reply::SetAttr(Ok(after)) = call(&mut w, &set(now)) else { panic!() };
    let server = w.now.as_secs_f64() as u32;
    assert!(after.atime.secs >= server && after.mtime.secs >= server, "{after:?}");
    assert_eq!((after.mode, after.size), (0o100_600, 9));
}

#[test]
fn sizes_end_where_32_bits_do() {
    let (mut w, root) = world();
    w.fs.set_file_max(1 << 40);
    let f = file(&mut w, root, "f");
    let id = w.fs.lookup(&ROOT, &w.fs.root(), b"f").unwrap().0;
    let size = nfs3::SetAttr { size: Some((1 << 32) + 10), ..nfs3::SetAttr::NONE };
    w.fs.setattr(&ROOT, &id, &size, None).unwrap();
    let Reply::GetAttr(Ok(attr)) = call(&mut w, &Call::GetAttr(f)) else { panic!() };
    assert_eq!(attr.size, u32::MAX);
    let Reply::Read(Ok(ok)) = call(&mut w, &read(f, u32::MAX - 3, 100)) else { panic!() };
    assert_eq!(ok.data.0.len(), 3);
    assert_eq!(call(&mut w, &write(f, u32::MAX - 3, b"four")), Reply::Write(Err(Status::FBig)));
    assert!(matches!(call(&mut w, &write(f, u32::MAX - 4, b"four")), Reply::Write(Ok(_))));
}

/// A READ asks for no more than the version has, whatever the limits for version 3 are, and
/// a WRITE, whose reply cannot say "less", is done whole.
#[test]
fn data_is_bounded_by_the_version_not_by_version_3s_limits() {
    let limits = Limits { datagram_io_max: 1024, ..Limits::default() };
    let mut w = World::with(cache::Config::full(), limits, |_| {});
    let root = root(&mut w);
    let f = file(&mut w, root, "f");
    static DATA: [u8; 8192] = [7; 8192];
    for offset in [0, 8192] {
        assert!(matches!(call(&mut w, &write(f, offset, &DATA)), Reply::Write(Ok(a)) if a.size == offset + 8192));
    }
    let Reply::Read(Ok(ok)) = call(&mut w, &read(f, 0, u32::MAX)) else { panic!() };
    assert_eq!(ok.data.0, &DATA[..]);
}

#[test]
fn writes_are_on_stable_storage_before_their_reply() {
    let (mut w, root) = world();
    let f = file(&mut w, root, "f");
    assert!(matches!(call(&mut w, &write(f, 0, b"safe")), Reply::Write(Ok(_))));
    w.fs.crash();
    assert_eq!(w.content("f"), "safe");
}

#[test]
fn create_makes_pipes_and_sockets_and_devices_for_root_only() {
    let (mut w, root) = world();
    let make = |name: &str, mode, size| {
        Call::Create(CreateArgs { at: at(root, name), attr: SetAttr { mode: Some(mode), size, ..SetAttr::NONE } })
    };
    let Reply::Create(Ok(pipe)) = call(&mut w, &make("pipe", 0o010_600, None)) else { panic!() };
    assert_eq!((pipe.attr.kind, pipe.attr.mode, pipe.attr.rdev), (FileType::Char, 0o010_600, Attr::NO_DEVICE));
    let Reply::Create(Ok(old)) = call(&mut w, &make("old pipe", 0o020_600, None)) else { panic!() };
    assert_eq!(old.attr.mode, 0o010_600);
    let Reply::Create(Ok(socket)) = call(&mut w, &make("socket", 0o140_600, None)) else { panic!() };
    assert_eq!(socket.attr.kind, FileType::Socket);
    let Reply::Create(Ok(file)) = call(&mut w, &make("file", 0xffff, None)) else { panic!("no mode is said") };
    assert_eq!(file.attr.kind, FileType::Regular);
    assert_eq!(call(&mut w, &make("dir", 0o040_700, None)), Reply::Create(Err(Status::Io)));
    let file = make("pipe", 0o100_600, Some(0));
    assert_eq!(call(&mut w, &file), Reply::Create(Err(Status::Exist)), "a file was meant");
}

#[test]
fn versions_share_files_and_accept_both_kinds_of_handle() {
    let (mut w, root) = world();
    let f = file(&mut w, root, "f");
    let v3_root = w.root();
    let nfs3::Reply::Lookup(Ok(found)) = w.call(&nfs3::Call::Lookup(crate::world::at(&v3_root, "f"))) else { panic!() };
    let short = nfs3::Fh(Bytes::copy_from_slice(&f.0));
    let attr = found.attr.clone().unwrap();
    assert_eq!(w.call(&nfs3::Call::GetAttr(short)), nfs3::Reply::GetAttr(Ok(attr)));
    assert_ne!(found.fh.0, f.0.as_slice(), "version 3 has handles with room for more");
}

#[test]
fn mount_1_and_2_bring_handles_of_version_2_and_the_lists() {
    let (mut w, root) = world();
    assert_eq!(mount(&mut w, 2, &mount::Call::Mnt("/".into())), mount::ReplyV1::Mnt(Ok(root)));
    let nothing = mount(&mut w, 1, &mount::Call::Mnt("/nothing".into()));
    assert_eq!(nothing, mount::ReplyV1::Mnt(Err(mount::MountError::NoEnt)));
    let line = mount::MountEntry { host: "10.0.0.1".into(), dir: "/".into() };
    assert_eq!(mount(&mut w, 1, &mount::Call::Dump), mount::ReplyV1::Dump(vec![line]));
    let export = mount::Export { dir: "/".into(), groups: vec![] };
    assert_eq!(mount(&mut w, 1, &mount::Call::Export), mount::ReplyV1::Export(vec![export]));
    assert_eq!(mount(&mut w, 1, &mount::Call::Umnt("/".into())), mount::ReplyV1::Void);
    assert_eq!(mount(&mut w, 1, &mount::Call::Dump), mount::ReplyV1::Dump(vec![]));
    assert_eq!(mount(&mut w, 1, &mount::Call::UmntAll), mount::ReplyV1::Void);
}

#[test]
fn export_for_others_is_refused_with_version_2_errors() {
    let (_, root) = world();
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| e.access = only(&["192.0.2.1"]));
    assert_eq!(call(&mut w, &Call::GetAttr(root)), Reply::GetAttr(Err(Status::Access)));
    let refused = mount(&mut w, 1, &mount::Call::Mnt("/".into()));
    assert_eq!(refused, mount::ReplyV1::Mnt(Err(mount::MountError::Access)));
}

/// Every procedure that changes something, about the name `n` in `dir` and the file `f`.
fn changes(dir: Fh, f: Fh) -> Vec<Call> {
    let (to, attr) = (at(dir, "n"), SetAttr::NONE);
    vec![
        Call::SetAttr(SetAttrArgs { fh: f, attr: SetAttr { size: Some(1), ..attr.clone() } }),
        write(f, 0, b"x"),
        create(dir, "n"),
        Call::Remove(to.clone()),
        Call::MkDir(CreateArgs { at: to.clone(), attr: attr.clone() }),
        Call::RmDir(to.clone()),
        Call::Link(LinkArgs { fh: f, at: to.clone() }),
        Call::Rename(RenameArgs { from: to, to: at(dir, "m") }),
        Call::SymLink(SymLinkArgs { at: at(dir, "l"), target: "t".into(), attr }),
    ]
}

#[test]
fn repeated_change_is_executed_once() {
    let (mut w, root) = world();
    let f = file(&mut w, root, "f");
    for (xid, change) in (1..).zip(changes(root, f)) {
        w.input(udp(), encode(xid, &change));
        w.input(udp(), encode(xid, &change));
        assert_eq!(w.jobs.len(), 1, "{change:?}");
        w.run_all();
        let first = w.sent.pop().expect("one reply");
        w.input(udp(), encode(xid, &change));
        assert!(w.jobs.is_empty() && w.sent == [first.clone()], "{change:?}");
        w.sent.clear();
        let mut r = Reader::new(first.payload.slice(24..));
        assert_eq!(Reply::decode(change.proc(), &mut r).unwrap().status(), None, "{change:?}");
    }
}

/// REMOVE has another number in version 3, but LINK's arguments, say, could be alike: what
/// one version did must never answer for the other.
#[test]
fn requests_of_two_versions_are_not_duplicates() {
    for config in [cache::Config::full(), cache::Config::juszczak(), cache::Config::reference()] {
        let mut w = World::new(config);
        let root = root(&mut w);
        let v3_root = w.root();
        file(&mut w, root, "f");
        assert_eq!(call_from(&mut w, udp(), 9, &Call::Remove(at(root, "f"))), Reply::Remove(Ok(())));
        w.send(udp(), 9, &nfs3::Call::Remove(crate::world::at(&v3_root, "f")));
        w.run_all();
        let reply = crate::world::decode(nfs3::Proc::Remove, 9, w.sent.pop().unwrap().payload);
        assert_eq!(reply.status(), Some(nfs3::Status::NoEnt), "{config:?}");
    }
}

#[test]
fn reference_cache_synthesizes_v2_success_without_a_handle() {
    let mut w = World::new(cache::Config::reference());
    let root = root(&mut w);
    let f = file(&mut w, root, "f");
    let mkdir = Call::MkDir(CreateArgs { at: at(root, "d"), attr: SetAttr::NONE });
    for (xid, twice, second) in [
        (1, Call::Link(LinkArgs { fh: f, at: at(root, "g") }), Reply::Link(Ok(()))),
        (2, Call::Remove(at(root, "f")), Reply::Remove(Ok(()))),
        (3, mkdir, Reply::MkDir(Err(Status::Exist))),
        (4, Call::RmDir(at(root, "d")), Reply::RmDir(Ok(()))),
    ] {
        assert_eq!(call_from(&mut w, udp(), xid, &twice).status(), None);
        assert_eq!(call_from(&mut w, udp(), xid, &twice), second);
    }
}

#[test]
fn juszczaks_cache_repeats_a_success_of_version_2() {
    let mut w = World::new(cache::Config::juszczak());
    let root = root(&mut w);
    let f = file(&mut w, root, "f");
    let first = call_from(&mut w, udp(), 1, &write(f, 0, b"first"));
    w.wait(std::time::Duration::from_secs(7));
    w.input(udp(), encode(1, &write(f, 0, b"first")));
    assert!(w.jobs.front().is_some_and(|e| e.job.is_cache_check()));
    w.run_all();
    let again = Reply::decode(Proc::Write, &mut results(&mut w, 1)).unwrap();
    assert_eq!((again, w.server.stats().cache.replays), (first, 1));
}

#[test]
fn version_2_without_room_gets_silence_or_io_by_transport() {
    let limits = Limits { in_flight_max: 1, ..Limits::default() };
    let mut w = World::with(cache::Config::full(), limits, |_| {});
    let root = root(&mut w);
    for (xid, from) in [(1, udp()), (2, udp()), (3, tcp(1))] {
        w.input(from, encode(xid, &Call::GetAttr(root)));
    }
    let stats = w.server.stats();
    assert_eq!((w.jobs.len(), stats.overload_dropped, stats.overload_deferred), (1, 1, 1));
    let told = Reply::decode(Proc::GetAttr, &mut results(&mut w, 3)).unwrap();
    assert_eq!(told.status(), Some(Status::Io));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn pages_of_a_directory_fit_and_bring_everything_once(
        names in prop::collection::vec(0usize..40, 0..60),
        count in 80u32..1200,
    ) {
        let (mut w, root) = world();
        for (i, len) in names.iter().enumerate() {
            let name = format!("{i:03}{}", "x".repeat(*len));
            w.fs.create(&ROOT, &w.fs.root(), name.as_bytes(), &nfs3::CreateHow::Guarded(nfs3::SetAttr::NONE)).unwrap();
        }
        let (mut seen, mut cookie, mut done) = (vec![], 0, false);
        while !done {
            let reply = call(&mut w, &list(root, cookie, count));
            let mut out = Vec::new();
            reply.encode(&mut out);
            prop_assert!(out.len() <= count as usize);
            let Reply::ReadDir(Ok(page)) = reply else { panic!("{reply:?}") };
            prop_assert!(page.eof || !page.list.is_empty());
            done = page.eof;
            cookie = page.list.last().map_or(cookie, |e| e.cookie);
            seen.extend(page.list.into_iter().map(|e| e.name));
        }
        seen.sort();
        prop_assert_eq!(seen.len(), names.len() + 2);
        seen.dedup();
        prop_assert_eq!(seen.len(), names.len() + 2);
    }

    #[test]
    fn whatever_comes_as_arguments_gets_a_reply_of_its_procedure(
        proc in 0..18u32,
        args in prop::collection::vec(any::<u8>(), 0..120),
        with_root: bool,
    ) {
        let (mut w, root) = world();
        w.input(udp(), message(5, PROGRAM, VERSION, proc, |out| {
            out.extend(if with_root { &root.0[..] } else { &[] });
            out.extend(&args);
        }));
        w.run_all();
        let mut r = Reader::new(w.sent.pop().expect("a reply").payload);
        let header: ReplyHeader = remora_wire::Xdr::decode(&mut r).unwrap();
        if header.outcome == Outcome::Success {
            prop_assert!(Reply::decode(Proc::from_number(proc).unwrap(), &mut r).is_ok());
        }
        prop_assert_eq!(r.remaining(), 0);
    }
}

#[test]
fn portmapper_answers_only_if_enabled() {
    let (mut w, _) = world();
    let ask = |w: &mut World, from, call: portmap::Call| {
        w.input(from, message(4, portmap::PROGRAM, portmap::VERSION, call.proc(), |out| call.encode(out)));
        let mut r = Reader::new(w.sent.pop().expect("a reply").payload);
        let header: ReplyHeader = remora_wire::Xdr::decode(&mut r).unwrap();
        (header.outcome, portmap::Reply::decode(call.proc(), &mut r).ok())
    };
    let nfs = portmap::Mapping { prog: PROGRAM, vers: 2, prot: portmap::IPPROTO_UDP, port: 2049 };
    assert_eq!(ask(&mut w, udp(), portmap::Call::GetPort(nfs)), (Outcome::ProgUnavail, None));
    let at = "0.0.0.0:2049".parse().unwrap();
    w.server.set_portmap(vec![Service { prog: nfs.prog, vers: nfs.vers, netid: Netid::Udp, at }]);
    let ok = |reply| (Outcome::Success, Some(reply));
    assert_eq!(ask(&mut w, udp(), portmap::Call::GetPort(nfs)), ok(portmap::Reply::Port(2049)));
    assert_eq!(ask(&mut w, udp(), portmap::Call::Set(nfs)), ok(portmap::Reply::Done(false)));
    assert_eq!(ask(&mut w, udp(), portmap::Call::Dump), (Outcome::ProcUnavail, None));
    assert_eq!(ask(&mut w, tcp(1), portmap::Call::Dump), ok(portmap::Reply::Dump(vec![nfs])));
    assert_eq!(w.server.stats().portmap_calls, 4);
}

#[test]
fn file_removed_during_read_is_stale() {
    let (mut w, root) = world();
    let f = file(&mut w, root, "f");
    for (status, want) in [(nfs3::Status::Stale, Status::Stale), (nfs3::Status::Io, Status::Io)] {
        w.fs.fail_next(OpKind::GetAttr, status, 1);
        assert_eq!(call(&mut w, &read(f, 0, 100)), Reply::Read(Err(want)));
    }
    assert!(matches!(call(&mut w, &read(f, 0, 100)), Reply::Read(Ok(_))));
}
