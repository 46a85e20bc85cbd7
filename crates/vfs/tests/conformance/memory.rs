//! What the memory file system models beyond the contract: a volatile cache, faults, space.

use remora_base::Time;
use remora_vfs::memory::{MemFs, OpKind};
use remora_vfs::{Cred, NameIn, Vfs};
use remora_wire::nfs3::{CreateHow, NodeKind, SetAttr, SpecData, Stable, Status};

use crate::bench::*;

fn stable(fs: &MemFs, id: &remora_vfs::FileId, offset: u64, data: &'static [u8]) {
    fs.write(&me(), id, offset, &data.into(), Stable::DataSync).unwrap();
}

#[test]
fn crash_loses_uncommitted_writes() {
    let fs = MemFs::new(1);
    let f = file(&fs, &fs.root(), "f");
    write(&fs, &f, 0, b"first").unwrap();
    fs.commit(&me(), &f, 0, 0).unwrap();
    let committed = fs.getattr(&f).unwrap();
    write(&fs, &f, 0, b"second").unwrap();
    assert_eq!((read(&fs, &f), fs.volatile_files()), (b"second".to_vec(), 1));
    assert_eq!(fs.read_durable(&f).unwrap(), &b"first"[..]);
    let verifier = fs.verifier();
    fs.crash();
    assert_ne!(fs.verifier(), verifier);
    assert_eq!((read(&fs, &f), fs.volatile_files()), (b"first".to_vec(), 0));
    assert_eq!(fs.getattr(&f).unwrap(), committed, "times go back with the data");
}

#[test]
fn stable_write_saves_its_own_bytes_only() {
    let fs = MemFs::new(1);
    let f = file(&fs, &fs.root(), "f");
    write(&fs, &f, 0, b"aaaa").unwrap();
    stable(&fs, &f, 2, b"BB");
    assert_eq!(read(&fs, &f), b"aaBB");
    fs.crash();
    assert_eq!(read(&fs, &f), b"\0\0BB");
}

#[test]
fn names_and_sizes_survive_a_crash() {
    let fs = MemFs::new(1);
    let f = file(&fs, &fs.root(), "f");
    write(&fs, &f, 0, b"volatile").unwrap();
    fs.setattr(&me(), &f, &size(3), None).unwrap();
    fs.rename(&me(), NameIn::new(&fs.root(), b"f"), NameIn::new(&fs.root(), b"g")).unwrap();
    fs.crash();
    assert_eq!(find(&fs, &fs.root(), "g"), Ok(f));
    assert_eq!(read(&fs, &f), b"\0\0\0");
}

#[test]
fn failing_flush_loses_data_and_reports_it() {
    for op in ["commit", "stable write"] {
        let fs = MemFs::new(1);
        let f = file(&fs, &fs.root(), "f");
        stable(&fs, &f, 0, b"good");
        write(&fs, &f, 0, b"lost").unwrap();
        let verifier = fs.verifier();
        fs.fail_next(OpKind::Flush, Status::Io, 1);
        let failed = match op {
            "commit" => fs.commit(&me(), &f, 0, 0).map(drop),
            _ => fs.write(&me(), &f, 1, &b"x"[..].into(), Stable::FileSync).map(drop),
        };
        assert_eq!(failed, Err(Status::Io), "{op}");
        assert_ne!(fs.verifier(), verifier, "{op}");
        assert_eq!(read(&fs, &f), b"good", "{op}");
        fs.commit(&me(), &f, 0, 0).unwrap();
    }
}

#[test]
fn faulted_operation_has_no_effect() {
    let fs = MemFs::new(1);
    fs.fail_next(OpKind::Create, Status::Jukebox, 2);
    let create = || fs.create(&me(), &fs.root(), b"f", &CreateHow::Guarded(SetAttr::NONE)).map(drop);
    assert_eq!([create(), create(), create()], [Err(Status::Jukebox), Err(Status::Jukebox), Ok(())]);
    let mut nth = 0;
    fs.set_fault(move |kind| {
        nth += 1;
        (kind == OpKind::Remove && nth % 2 == 1).then_some(Status::Io)
    });
    assert_eq!(fs.remove(&me(), &fs.root(), b"f"), Err(Status::Io));
    assert!(fs.remove(&me(), &fs.root(), b"f").is_ok());
    fs.clear_fault();
}

#[test]
fn space_is_counted_in_blocks() {
    let fs = MemFs::new(1);
    fs.set_capacity(3 * 4096);
    let (f, g) = (file(&fs, &fs.root(), "f"), file(&fs, &fs.root(), "g"));
    write(&fs, &f, 0, &[1; 8192]).unwrap();
    assert_eq!(write(&fs, &g, 0, &[2; 4097]), Err(Status::NoSpc));
    assert_eq!(fs.getattr(&g).unwrap().size, 0, "nothing of it went in");
    write(&fs, &g, 0, &[2; 4096]).unwrap();
    write(&fs, &f, 0, &[3; 8192]).unwrap();
    assert_eq!(fs.fsstat(&f).unwrap().free, 0);
    fs.crash();
    assert_eq!(fs.fsstat(&f).unwrap().free, 3 * 4096, "volatile blocks went with the crash");
    write(&fs, &f, 4096, &[1; 8192]).unwrap();
    fs.setattr(&me(), &f, &size(4096), None).unwrap();
    assert_eq!(fs.fsstat(&f).unwrap().free, 3 * 4096, "a hole takes no room");
    stable(&fs, &g, 0, b"x");
    fs.remove(&me(), &fs.root(), b"g").unwrap();
    assert_eq!(fs.fsstat(&f).unwrap().free, 3 * 4096);
    fs.set_file_max(10);
    assert_eq!(write(&fs, &f, 8, b"abc"), Err(Status::FBig));
}

#[test]
fn each_change_has_a_later_time() {
    let fs = MemFs::new(1);
    fs.set_time(Time::from_secs(1_000));
    let f = file(&fs, &fs.root(), "f");
    let mut last = fs.getattr(&f).unwrap().ctime;
    assert_eq!(last.secs, 1_000);
    for _ in 0..5 {
        write(&fs, &f, 0, b"x").unwrap();
        let now = fs.getattr(&f).unwrap();
        assert!(now.ctime > last && now.mtime == now.ctime);
        last = now.ctime;
    }
    fs.set_time(Time::from_secs(999));
    fs.setattr(&me(), &f, &mode(0o600), None).unwrap();
    assert!(fs.getattr(&f).unwrap().ctime > last, "the clock does not go back");
}

#[test]
fn same_calls_give_the_same_state() {
    let world = |seed| {
        let fs = MemFs::new(seed);
        let d = folder(&fs, &fs.root(), "d");
        let f = file(&fs, &d, "f");
        write(&fs, &f, 3, b"abc").unwrap();
        fs.crash();
        (fs.tree(), fs.verifier())
    };
    assert_eq!(world(5), world(5));
    assert_ne!(world(5), world(6));
}

#[test]
fn mode_bits_apply_to_all_but_root() {
    let fs = MemFs::new(1);
    let root = fs.root();
    let cred = |uid, gid| Cred { uid, gid, gids: vec![] };
    let (ann, bob, eve) = (cred(1, 10), cred(2, 10), cred(3, 30));
    let d = fs.mkdir(&ann, &root, b"d", &mode(0o750)).unwrap().id;
    let f = fs.create(&ann, &d, b"f", &CreateHow::Guarded(mode(0o640))).unwrap();
    assert_eq!((f.attr.uid, f.attr.gid), (1, 10));
    let f = f.id;
    assert_eq!(fs.lookup(&bob, &d, b"f").map(|(id, _)| id), Ok(f));
    for name in [&b"f"[..], b".", b".."] {
        assert_eq!(fs.lookup(&eve, &d, name), Err(Status::Access));
    }
    assert!(fs.read(&bob, &f, 0, 1).is_ok());
    assert_eq!(fs.read(&eve, &f, 0, 1), Err(Status::Access));
    let data = &b"x"[..].into();
    assert_eq!(fs.write(&bob, &f, 0, data, Stable::Unstable).unwrap_err(), Status::Access);
    assert_eq!(fs.setattr(&bob, &f, &mode(0o666), None), Err(Status::Perm));
    assert_eq!(fs.remove(&bob, &d, b"f"), Err(Status::Access));
    fs.setattr(&ann, &f, &mode(0o000), None).unwrap();
    assert!(fs.write(&ann, &f, 0, data, Stable::Unstable).is_ok(), "owners may have opened it before");
    let give = SetAttr { uid: Some(2), ..SetAttr::NONE };
    assert_eq!(fs.setattr(&ann, &f, &give, None), Err(Status::Perm));
    assert!(fs.setattr(&me(), &f, &give, None).is_ok());
    fs.setattr(&me(), &root, &mode(0o1777), None).unwrap();
    assert_eq!(
        fs.rename(&bob, NameIn::new(&root, b"d"), NameIn::new(&root, b"e")).unwrap_err(),
        Status::Perm,
        "sticky"
    );
    let device = |minor| NodeKind::Char(mode(0o600), SpecData { major: 0, minor });
    assert!(fs.mknod(&bob, &root, b"whiteout", &device(0)).is_ok(), "which is no device");
    assert_eq!(fs.mknod(&bob, &root, b"device", &device(1)).unwrap_err(), Status::Perm);
}
