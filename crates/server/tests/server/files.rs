//! Procedures about one object.

use bytes::Bytes;
use remora_base::Peer;
use remora_server::{Limits, cache};
use remora_wire::nfs3::{
    ACCESS_EXTEND, ACCESS_MODIFY, ACCESS_READ, AccessArgs, Call, CommitArgs, Fh, FileType, NfsTime, ReadArgs, Reply,
    SetAttr, SetAttrArgs, Stable, Status, WriteArgs,
};

use crate::world::{World, at, everybody, tcp, udp, write};

fn world() -> (World, Fh, Fh) {
    let mut w = World::new(cache::Config::full());
    let root = w.root();
    let f = w.file(&root, "f");
    (w, root, f)
}

fn read(fh: &Fh, offset: u64, count: u32) -> Call {
    Call::Read(ReadArgs { fh: fh.clone(), offset, count })
}

#[test]
fn null_answers() {
    let (mut w, ..) = world();
    assert_eq!(w.call(&Call::Null), Reply::Null);
    assert_eq!(w.mount(udp(), &remora_wire::mount::Call::Null), remora_wire::mount::Reply::Void);
}

#[test]
fn getattr_setattr_and_lookup_agree() {
    let (mut w, root, f) = world();
    let args = |guard| SetAttrArgs { fh: f.clone(), attr: SetAttr { mode: Some(0o600), ..SetAttr::NONE }, guard };
    let Reply::SetAttr(Ok(wcc)) = w.call(&Call::SetAttr(args(None))) else { panic!() };
    let after = wcc.after.unwrap();
    assert_eq!((after.mode, after.kind), (0o600, FileType::Regular));
    assert_eq!(w.call(&Call::GetAttr(f.clone())), Reply::GetAttr(Ok(after.clone())));
    let Reply::Lookup(Ok(found)) = w.call(&Call::Lookup(at(&root, "f"))) else { panic!() };
    assert_eq!((&found.fh, found.attr), (&f, Some(after.clone())));
    assert_eq!(found.dir.unwrap().kind, FileType::Directory);
    let wrong = NfsTime { secs: 1, nanos: 1 };
    let Reply::SetAttr(Err(e)) = w.call(&Call::SetAttr(args(Some(wrong)))) else { panic!() };
    assert_eq!((e.status, e.info.after), (Status::NotSync, Some(after)));
    let Reply::Lookup(Err(e)) = w.call(&Call::Lookup(at(&root, "nothing"))) else { panic!() };
    assert_eq!((e.status, e.info.unwrap().kind), (Status::NoEnt, FileType::Directory));
}

#[test]
fn access_grants_no_more_than_asked() {
    let (mut w, _, f) = world();
    let Reply::Access(Ok(ok)) = w.call(&Call::Access(AccessArgs { fh: f, access: ACCESS_READ })) else { panic!() };
    assert_eq!((ok.access, ok.attr.is_some()), (ACCESS_READ, true));
}

#[test]
fn read_only_export_refuses_changes_and_reports_it_in_access() {
    let mut w = World::with(cache::Config::full(), Limits::default(), |e| e.access = everybody(|t| t.read_only = true));
    let root = w.root();
    let wanted = ACCESS_READ | ACCESS_MODIFY | ACCESS_EXTEND;
    let Reply::Access(Ok(ok)) = w.call(&Call::Access(AccessArgs { fh: root.clone(), access: wanted })) else {
        panic!()
    };
    assert_eq!(ok.access, ACCESS_READ);
    for call in crate::world::changes(&root) {
        assert_eq!(w.call(&call).status(), Some(Status::RoFs), "{call:?}");
    }
}

#[test]
fn read_returns_written_data() {
    let (mut w, _, f) = world();
    w.call(&write(&f, 0, b"0123456789"));
    for (offset, count, want, eof) in [
        (0, 10, "0123456789", true),
        (0, 100, "0123456789", true),
        (2, 3, "234", false),
        (10, 5, "", true),
        (99, 5, "", true),
        (u64::MAX, u32::MAX, "", true),
        (i64::MAX as u64, 1, "", true),
    ] {
        let Reply::Read(Ok(ok)) = w.call(&read(&f, offset, count)) else { panic!("{offset}") };
        assert_eq!((&ok.data[..], ok.count, ok.eof), (want.as_bytes(), want.len() as u32, eof), "{offset}");
        assert_eq!(ok.attr.unwrap().size, 10);
    }
}

#[test]
fn fsinfo_sizes_apply_to_the_path() {
    let (mut w, root, f) = world();
    let peers: [(Peer, u32); 2] = [(udp(), 32 << 10), (tcp(1), 1 << 20)];
    w.call(&Call::SetAttr(SetAttrArgs {
        fh: f.clone(),
        attr: SetAttr { size: Some(4 << 20), ..SetAttr::NONE },
        guard: None,
    }));
    for (peer, max) in peers {
        let Reply::FsInfo(Ok(info)) = w.call_from(peer, &Call::FsInfo(root.clone())) else { panic!() };
        assert_eq!([info.read_max, info.read_pref, info.write_max, info.write_pref], [max; 4]);
        let Reply::Read(Ok(ok)) = w.call_from(peer, &read(&f, 0, 2 << 20)) else { panic!() };
        assert_eq!((ok.data.len(), ok.eof), (max as usize, false));
        let data = Bytes::from(vec![1; max as usize + 5]);
        let args = WriteArgs { fh: f.clone(), offset: 0, count: data.len() as u32, stable: Stable::Unstable, data };
        let Reply::Write(Ok(ok)) = w.call_from(peer, &Call::Write(args)) else { panic!() };
        assert_eq!(ok.count, max);
    }
}

#[test]
fn a_datagram_reply_always_fits_a_datagram() {
    let limits = Limits { datagram_io_max: u32::MAX, ..Limits::default() };
    let mut w = World::with(cache::Config::full(), limits, |_| {});
    let root = w.root();
    let f = w.file(&root, "f");
    w.call(&crate::world::set_size(&f, 1 << 20));
    w.send(udp(), 1, &read(&f, 0, u32::MAX));
    w.run_all();
    assert!((60_000..65_507).contains(&w.sent.pop().unwrap().payload.len()));
}

#[test]
fn counts_that_disagree_with_the_data() {
    let (mut w, _, f) = world();
    let call = |offset, count, data: &'static [u8]| {
        let data = Bytes::from_static(data);
        Call::Write(WriteArgs { fh: f.clone(), offset, count, stable: Stable::FileSync, data })
    };
    for (offset, count, want) in [
        (0, 4, Ok(4)),
        (0, 2, Ok(2)),
        (0, 0, Ok(0)),
        (0, 5, Err(Status::Inval)),
        (u64::MAX, 4, Err(Status::FBig)),
        (i64::MAX as u64 - 3, 4, Err(Status::FBig)),
    ] {
        let Reply::Write(got) = w.call(&call(offset, count, b"data")) else { panic!() };
        assert_eq!(got.map(|ok| ok.count).map_err(|e| e.status), want, "{offset} {count}");
    }
    assert_eq!(w.content("f"), "data");
}

#[test]
fn the_verifier_of_write_and_commit_is_the_file_systems() {
    let (mut w, _, f) = world();
    let verifiers = |w: &mut World| {
        let Reply::Write(Ok(wrote)) = w.call(&write(&f, 0, b"x")) else { panic!() };
        assert_eq!(wrote.committed, Stable::FileSync);
        assert!(wrote.wcc.after.is_some());
        let args = CommitArgs { fh: f.clone(), offset: 0, count: 0 };
        let Reply::Commit(Ok(done)) = w.call(&Call::Commit(args)) else { panic!() };
        assert_eq!(wrote.verf, done.verf);
        done.verf
    };
    let before = verifiers(&mut w);
    assert_eq!(verifiers(&mut w), before);
    w.fs.restart();
    assert_ne!(verifiers(&mut w), before);
}

#[test]
fn file_system_facts_come_with_attributes() {
    let (mut w, root, _) = world();
    let Reply::FsStat(Ok(stat)) = w.call(&Call::FsStat(root.clone())) else { panic!() };
    assert_eq!(stat.attr.unwrap().kind, FileType::Directory);
    let Reply::PathConf(Ok(conf)) = w.call(&Call::PathConf(root)) else { panic!() };
    assert!(conf.attr.is_some() && conf.no_trunc && conf.name_max > 0);
}

#[test]
fn a_removed_file_is_stale_and_a_forged_handle_too() {
    let (mut w, root, f) = world();
    w.call(&Call::Remove(at(&root, "f")));
    let mut forged = root.0.to_vec();
    *forged.last_mut().unwrap() ^= 1;
    for (fh, want) in [
        (f, Status::Stale),
        (Fh(forged.into()), Status::Stale),
        (Fh(Bytes::new()), Status::BadHandle),
        (Fh(Bytes::from_static(&[0; 64])), Status::BadHandle),
    ] {
        for call in crate::world::every_procedure(&fh) {
            assert_eq!(w.call(&call).status(), Some(want), "{call:?}");
        }
    }
    assert!(w.server.stats().bad_handles > 0);
}
