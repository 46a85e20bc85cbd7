//! Every operation behaves as RFC 1813 says, on both file systems.

use remora_vfs::{FileId, NameIn, Vfs};
use remora_wire::nfs3::{
    ACCESS_DELETE, ACCESS_EXECUTE, ACCESS_LOOKUP, ACCESS_READ, CreateHow, FileType, NfsTime, NodeKind, SetAttr,
    SetTime, Stable, Status,
};

use crate::bench::*;

const LONG: &[u8] = &[b'x'; 256];

#[test]
fn read_returns_written_bytes() {
    on_each(|fs| {
        let f = file(fs, &fs.root(), "f");
        write(fs, &f, 0, b"hello world").unwrap();
        write(fs, &f, 6, b"there").unwrap();
        assert_eq!(read(fs, &f), b"hello there");
        let part = |offset, count| fs.read(&me(), &f, offset, count).unwrap();
        assert_eq!(part(0, 5), (b"hello"[..].into(), false));
        assert_eq!(part(6, 5), (b"there"[..].into(), true));
        assert_eq!(part(6, 4096), (b"there"[..].into(), true));
        assert_eq!(part(0, 0), (b""[..].into(), false));
        for beyond in [11, 12, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
            assert_eq!(part(beyond, u32::MAX), (b""[..].into(), true), "{beyond}");
        }
    });
}

#[test]
fn write_returns_stability_and_wcc() {
    on_each(|fs| {
        let f = file(fs, &fs.root(), "f");
        for asked in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
            let before = fs.getattr(&f).unwrap();
            let (wcc, got) = fs.write(&me(), &f, before.size, &b"abc"[..].into(), asked).unwrap();
            assert!(got >= asked);
            assert_eq!(wcc.before.unwrap(), before.wcc());
            assert_eq!(wcc.after.unwrap().size, before.size + 3);
        }
        let verifier = fs.verifier();
        assert_eq!(fs.commit(&me(), &f, 0, 0).unwrap().after.unwrap().size, 9);
        assert_eq!(fs.verifier(), verifier);
        let (wcc, _) = fs.write(&me(), &f, 100, &b""[..].into(), Stable::Unstable).unwrap();
        assert_eq!(wcc.after.unwrap().size, 9, "nothing written, nothing grown");
    });
}

#[test]
fn write_beyond_end_leaves_hole_and_beyond_limit_fails() {
    on_each(|fs| {
        let f = file(fs, &fs.root(), "f");
        write(fs, &f, 500_000_000, b"end").unwrap();
        let attr = fs.getattr(&f).unwrap();
        assert_eq!(attr.size, 500_000_003);
        assert!(attr.used < 1_000_000, "{} bytes for a hole", attr.used);
        assert_eq!(fs.read(&me(), &f, 499_999_999, 10).unwrap(), (b"\0end"[..].into(), true));
        for offset in [i64::MAX as u64, u64::MAX - 2, u64::MAX] {
            assert_eq!(write(fs, &f, offset, b"abc"), Err(Status::FBig), "{offset}");
        }
        assert_eq!(fs.setattr(&me(), &f, &size(u64::MAX), None), Err(Status::FBig));
    });
}

#[test]
fn names_must_be_single_components() {
    on_each(|fs| {
        let root = fs.root();
        let d = folder(fs, &root, "d");
        let f = file(fs, &d, "f");
        let cases: [(&[u8], Status); 6] = [
            (b"", Status::Access),
            (b"d/f", Status::Access),
            (b"/", Status::Access),
            (b"../d", Status::Access),
            (b"f\0g", Status::Access),
            (LONG, Status::NameTooLong),
        ];
        for (name, status) in cases {
            assert_eq!(fs.lookup(&me(), &root, name).unwrap_err(), status, "{name:?}");
        }
        let dots: [(&[u8], Status, Status); 2] =
            [(b".", Status::Exist, Status::Inval), (b"..", Status::Exist, Status::Inval)];
        for (name, new, old) in cases.map(|(n, s)| (n, s, s)).into_iter().chain(dots) {
            assert_eq!(fs.create(&me(), &d, name, &CreateHow::Unchecked(mode(0o600))).unwrap_err(), new);
            assert_eq!(fs.mkdir(&me(), &d, name, &SetAttr::NONE).unwrap_err(), new);
            assert_eq!(fs.symlink(&me(), &d, name, &SetAttr::NONE, b"t").unwrap_err(), new);
            assert_eq!(fs.mknod(&me(), &d, name, &NodeKind::Fifo(SetAttr::NONE)).unwrap_err(), new);
            assert_eq!(fs.link(&me(), &f, &d, name).unwrap_err(), new);
            assert_eq!(fs.remove(&me(), &d, name).unwrap_err(), old);
            assert_eq!(fs.rmdir(&me(), &d, name).unwrap_err(), old);
            assert_eq!(fs.rename(&me(), NameIn::new(&d, name), NameIn::new(&d, b"x")).unwrap_err(), old);
            assert_eq!(fs.rename(&me(), NameIn::new(&d, b"f"), NameIn::new(&d, name)).unwrap_err(), old);
        }
        let longest = [b'y'; 255];
        assert!(fs.create(&me(), &d, &longest, &CreateHow::Guarded(mode(0o600))).is_ok());
        let odd = b"\xff\xfe new\nline";
        assert!(fs.create(&me(), &d, odd, &CreateHow::Guarded(mode(0o600))).is_ok());
        assert!(fs.lookup(&me(), &d, odd).is_ok());
    });
}

#[test]
fn lookup_of_dots_stays_in_the_export() {
    on_each(|fs| {
        let root = fs.root();
        let a = folder(fs, &root, "a");
        let b = folder(fs, &a, "b");
        for (dir, name, want) in [(b, ".", b), (b, "..", a), (a, "..", root), (root, "..", root), (root, ".", root)] {
            assert_eq!(find(fs, &dir, name), Ok(want), "{name}");
        }
        let f = file(fs, &root, "f");
        assert_eq!(find(fs, &f, "x"), Err(Status::NotDir));
        assert_eq!(find(fs, &root, "none"), Err(Status::NoEnt));
    });
}

#[test]
fn symbolic_links_are_never_followed() {
    on_each(|fs| {
        let root = fs.root();
        let d = folder(fs, &root, "d");
        for target in ["/etc", "..", "d", "nowhere/at all"] {
            let link = fs.symlink(&me(), &root, b"link", &SetAttr::NONE, target.as_bytes()).unwrap();
            assert_eq!(link.attr.kind, FileType::SymLink);
            assert_eq!(fs.readlink(&me(), &link.id).unwrap(), target.as_bytes());
            assert_eq!(find(fs, &link.id, "passwd"), Err(Status::NotDir));
            assert_eq!(find(fs, &link.id, ".."), Err(Status::NotDir));
            assert_eq!(fs.read(&me(), &link.id, 0, 1), Err(Status::Inval));
            assert_eq!(write(fs, &link.id, 0, b"x"), Err(Status::Inval));
            assert_eq!(fs.setattr(&me(), &link.id, &size(0), None), Err(Status::Inval));
            fs.setattr(&me(), &link.id, &mode(0o600), None).unwrap();
            let times = SetAttr { mtime: SetTime::To(NfsTime { secs: 77, nanos: 0 }), ..SetAttr::NONE };
            fs.setattr(&me(), &link.id, &times, None).unwrap();
            assert_eq!(fs.getattr(&link.id).unwrap().mtime.secs, 77);
            let met = fs.create(&me(), &root, b"link", &CreateHow::Unchecked(size(0))).unwrap();
            assert_eq!((met.id, met.attr.kind), (link.id, FileType::SymLink), "not what it leads to");
            fs.remove(&me(), &root, b"link").unwrap();
        }
        assert_eq!(fs.readlink(&me(), &d), Err(Status::Inval));
        assert_eq!(fs.symlink(&me(), &root, b"l", &SetAttr::NONE, b"").unwrap_err(), Status::Inval);
        assert_eq!(fs.symlink(&me(), &root, b"l", &SetAttr::NONE, b"a\0b").unwrap_err(), Status::Inval);
        assert_eq!(fs.symlink(&me(), &root, b"l", &SetAttr::NONE, &[b'x'; 4096]).unwrap_err(), Status::NameTooLong);
    });
}

#[test]
fn create_unchecked_and_guarded_differ_on_existing_file() {
    on_each(|fs| {
        let root = fs.root();
        let wish = SetAttr { size: Some(5), ..mode(0o640) };
        let made = fs.create(&me(), &root, b"f", &CreateHow::Unchecked(wish)).unwrap();
        assert_eq!((made.attr.mode, made.attr.size, made.attr.nlink), (0o640, 5, 1));
        assert!(made.dir.before.unwrap().ctime <= made.dir.after.unwrap().ctime);
        write(fs, &made.id, 0, b"12345678").unwrap();
        assert_eq!(fs.create(&me(), &root, b"f", &CreateHow::Guarded(size(0))), Err(Status::Exist));
        let again = fs.create(&me(), &root, b"f", &CreateHow::Unchecked(mode(0o777))).unwrap();
        assert_eq!((again.id, again.attr.mode, again.attr.size), (made.id, 0o640, 8), "only a size is applied");
        let cut = fs.create(&me(), &root, b"f", &CreateHow::Unchecked(size(2))).unwrap();
        assert_eq!((cut.id, cut.attr.size), (made.id, 2));
        assert_eq!(read(fs, &made.id), b"12");
        assert_eq!(fs.create(&me(), &made.id, b"x", &CreateHow::Unchecked(size(0))), Err(Status::NotDir));
        let all_bits = fs.create(&me(), &root, b"open", &CreateHow::Guarded(mode(0o666))).unwrap();
        assert_eq!(all_bits.attr.mode, 0o666, "the client's umask counts, not the server's");
    });
}

/// So that open(2) on a client fails with EISDIR or ELOOP, or opens the pipe. knfsd does the same.
#[test]
fn unchecked_create_returns_an_existing_non_file() {
    on_each(|fs| {
        let root = fs.root();
        folder(fs, &root, "dir");
        fs.symlink(&me(), &root, b"link", &SetAttr::NONE, b"dir").unwrap();
        fs.mknod(&me(), &root, b"pipe", &NodeKind::Fifo(mode(0o622))).unwrap();
        fs.mknod(&me(), &root, b"socket", &NodeKind::Socket(mode(0o622))).unwrap();
        let time = SetTime::To(NfsTime { secs: 7, nanos: 0 });
        for name in [&b"dir"[..], b"link", b"pipe", b"socket"] {
            let (id, attr) = fs.lookup(&me(), &root, name).unwrap();
            let wish = SetAttr { size: Some(5), mtime: time, ..mode(0o777) };
            let met = fs.create(&me(), &root, name, &CreateHow::Unchecked(wish)).unwrap();
            assert_eq!((met.id, met.attr), (id, attr.clone()), "nothing of it changes");
            assert_eq!(met.dir.after, fs.getattr(&root).ok());
            assert_eq!(fs.getattr(&id), Ok(attr));
            for how in [CreateHow::Guarded(size(0)), CreateHow::Exclusive([0; 8])] {
                assert_eq!(fs.create(&me(), &root, name, &how), Err(Status::Exist));
            }
        }
    });
}

#[test]
fn repeated_exclusive_create_succeeds_by_verifier() {
    on_each(|fs| {
        let root = fs.root();
        for verf in [*b"\0\0\0\0\0\0\0\x01", *b"\xff\xff\xff\xff\xff\xff\xff\xff", *b"\x80abc\x80def"] {
            let how = CreateHow::Exclusive(verf);
            let made = fs.create(&me(), &root, b"x", &how).unwrap();
            assert_eq!(fs.create(&me(), &root, b"x", &how).unwrap().id, made.id, "a retransmission");
            let other = CreateHow::Exclusive([verf[0] ^ 0x80, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(fs.create(&me(), &root, b"x", &other), Err(Status::Exist));
            let now = SetAttr { atime: SetTime::Server, mtime: SetTime::Server, ..mode(0o644) };
            fs.setattr(&me(), &made.id, &now, None).unwrap();
            assert_eq!(fs.create(&me(), &root, b"x", &how), Err(Status::Exist), "set free by SETATTR");
            let set = |time: NfsTime| SetTime::To(time);
            let back = SetAttr { atime: set(made.attr.atime), mtime: set(made.attr.mtime), ..SetAttr::NONE };
            fs.write(&me(), &made.id, 0, &b"data"[..].into(), Stable::FileSync).unwrap();
            fs.setattr(&me(), &made.id, &back, None).unwrap();
            assert_eq!(fs.create(&me(), &root, b"x", &how), Err(Status::Exist), "no new file has data");
            fs.remove(&me(), &root, b"x").unwrap();
        }
    });
}

#[test]
fn setattr_sets_each_attribute() {
    on_each(|fs| {
        let f = file(fs, &fs.root(), "f");
        write(fs, &f, 0, b"0123456789").unwrap();
        let time = |secs| SetTime::To(NfsTime { secs, nanos: 123_456_789 });
        let all = SetAttr { atime: time(1000), mtime: time(4_000_000_000), size: Some(4), ..mode(0o4751) };
        let wcc = fs.setattr(&me(), &f, &all, None).unwrap();
        let attr = fs.getattr(&f).unwrap();
        assert_eq!(wcc.after.unwrap(), attr);
        assert_eq!((wcc.before.unwrap().size, attr.size, attr.mode), (10, 4, 0o4751));
        assert_eq!((attr.atime.secs, attr.mtime.secs, attr.mtime.nanos), (1000, 4_000_000_000, 123_456_789));
        let server = SetAttr { mtime: SetTime::Server, ..SetAttr::NONE };
        fs.setattr(&me(), &f, &server, None).unwrap();
        let attr = fs.getattr(&f).unwrap();
        assert!(attr.mtime.secs < 4_000_000_000 && attr.atime.secs == 1000);
        assert_eq!(fs.setattr(&me(), &f, &SetAttr::NONE, None).unwrap().after.unwrap().ctime, attr.ctime);
        fs.setattr(&me(), &f, &size(6), None).unwrap();
        assert_eq!(read(fs, &f), b"0123\0\0");
        let bad = SetAttr { mtime: SetTime::To(NfsTime { secs: 0, nanos: 1_000_000_000 }), ..SetAttr::NONE };
        assert_eq!(fs.setattr(&me(), &f, &bad, None), Err(Status::Inval));
        assert_eq!(fs.setattr(&me(), &fs.root(), &size(0), None), Err(Status::IsDir));
    });
}

#[test]
fn setattr_guard_requires_matching_ctime() {
    on_each(|fs| {
        let f = file(fs, &fs.root(), "f");
        let ctime = fs.getattr(&f).unwrap().ctime;
        let wrong = NfsTime { secs: ctime.secs, nanos: ctime.nanos ^ 1 };
        assert_eq!(fs.setattr(&me(), &f, &mode(0o600), Some(wrong)), Err(Status::NotSync));
        assert_eq!(fs.getattr(&f).unwrap().mode, 0o644);
        fs.setattr(&me(), &f, &mode(0o600), Some(ctime)).unwrap();
        assert_eq!(fs.getattr(&f).unwrap().mode, 0o600);
    });
}

#[test]
fn remove_and_rmdir_check_the_type() {
    on_each(|fs| {
        let root = fs.root();
        let (d, f) = (folder(fs, &root, "d"), file(fs, &root, "f"));
        let inner = file(fs, &d, "inner");
        assert_eq!(fs.getattr(&root).unwrap().nlink, 3);
        assert_eq!(fs.remove(&me(), &root, b"d"), Err(Status::IsDir));
        assert_eq!(fs.rmdir(&me(), &root, b"f"), Err(Status::NotDir));
        assert_eq!(fs.rmdir(&me(), &root, b"d"), Err(Status::NotEmpty));
        assert_eq!(fs.remove(&me(), &root, b"none"), Err(Status::NoEnt));
        assert_eq!(fs.rmdir(&me(), &root, b"none"), Err(Status::NoEnt));
        assert_eq!(fs.remove(&me(), &f, b"x"), Err(Status::NotDir));
        fs.remove(&me(), &d, b"inner").unwrap();
        let wcc = fs.rmdir(&me(), &root, b"d").unwrap();
        assert_eq!(wcc.after.unwrap().nlink, 2);
        fs.remove(&me(), &root, b"f").unwrap();
        for gone in [d, f, inner] {
            stale_everywhere(fs, &gone);
        }
        assert_eq!(names(fs, &root), [".", ".."]);
    });
}

fn stale_everywhere(fs: &dyn Vfs, id: &FileId) {
    let root = fs.root();
    assert_eq!(fs.getattr(id), Err(Status::Stale));
    assert_eq!(fs.setattr(&me(), id, &mode(0), None), Err(Status::Stale));
    assert_eq!(find(fs, id, "x"), Err(Status::Stale));
    assert_eq!(find(fs, id, ".."), Err(Status::Stale));
    assert_eq!(fs.access(&me(), id, 1), Err(Status::Stale));
    assert_eq!(fs.read(&me(), id, 0, 1), Err(Status::Stale));
    assert_eq!(write(fs, id, 0, b"x"), Err(Status::Stale));
    assert_eq!(fs.commit(&me(), id, 0, 0), Err(Status::Stale));
    assert_eq!(fs.create(&me(), id, b"x", &CreateHow::Unchecked(mode(0))), Err(Status::Stale));
    assert_eq!(fs.link(&me(), id, &root, b"x"), Err(Status::Stale));
    assert_eq!(fs.rename(&me(), NameIn::new(id, b"x"), NameIn::new(&root, b"x")), Err(Status::Stale));
    assert_eq!(fs.fsstat(id), Err(Status::Stale));
}

#[test]
fn id_of_removed_object_stays_stale() {
    on_each(|fs| {
        let root = fs.root();
        let mut dead = Vec::new();
        for i in 0..50 {
            let f = file(fs, &root, "same");
            write(fs, &f, 0, format!("{i}").as_bytes()).unwrap();
            assert!(!dead.contains(&f), "an id was reused");
            fs.remove(&me(), &root, b"same").unwrap();
            dead.push(f);
        }
        file(fs, &root, "same");
        assert!(dead.iter().all(|id| fs.getattr(id) == Err(Status::Stale)));
        for junk in [&b""[..], b"x", &[7; 15], &[9; 17], &[0xff; 40]] {
            let got = fs.getattr(&FileId::new(junk).unwrap()).unwrap_err();
            assert!(matches!(got, Status::Stale | Status::BadHandle), "{junk:?}: {got:?}");
        }
    });
}

#[test]
fn id_survives_rename() {
    on_each(|fs| {
        let root = fs.root();
        let (a, b) = (folder(fs, &root, "a"), folder(fs, &root, "b"));
        let sub = folder(fs, &a, "sub");
        let f = file(fs, &sub, "f");
        write(fs, &f, 0, b"me").unwrap();
        fs.rename(&me(), NameIn::new(&a, b"sub"), NameIn::new(&b, b"moved")).unwrap();
        fs.rename(&me(), NameIn::new(&root, b"b"), NameIn::new(&root, b"c")).unwrap();
        assert_eq!(read(fs, &f), b"me");
        assert_eq!(find(fs, &b, "moved"), Ok(sub));
        assert_eq!(find(fs, &sub, "f"), Ok(f));
        assert_eq!(find(fs, &sub, ".."), Ok(b));
        assert_eq!((fs.getattr(&a).unwrap().nlink, fs.getattr(&b).unwrap().nlink), (2, 3));
    });
}

#[test]
fn rename_replaces_only_the_same_type() {
    on_each(|fs| {
        let root = fs.root();
        let (f, g) = (file(fs, &root, "f"), file(fs, &root, "g"));
        let (d, e) = (folder(fs, &root, "d"), folder(fs, &root, "e"));
        let full = folder(fs, &root, "full");
        let deep = folder(fs, &full, "deep");
        let rename = |from: &str, to: &str| {
            fs.rename(&me(), NameIn::new(&root, from.as_bytes()), NameIn::new(&root, to.as_bytes())).map(|_| ())
        };
        assert_eq!(rename("none", "x"), Err(Status::NoEnt));
        assert_eq!(rename("f", "d"), Err(Status::IsDir));
        assert_eq!(rename("d", "f"), Err(Status::NotDir));
        assert_eq!(rename("d", "full"), Err(Status::NotEmpty));
        assert_eq!(fs.rename(&me(), NameIn::new(&root, b"full"), NameIn::new(&deep, b"x")).unwrap_err(), Status::Inval);
        assert_eq!(
            fs.rename(&me(), NameIn::new(&full, b"deep"), NameIn::new(&root, b"full")).unwrap_err(),
            Status::NotEmpty
        );
        assert_eq!(fs.rename(&me(), NameIn::new(&f, b"x"), NameIn::new(&root, b"y")).unwrap_err(), Status::NotDir);
        rename("f", "f").unwrap();
        rename("f", "g").unwrap();
        rename("d", "e").unwrap();
        assert_eq!((find(fs, &root, "g"), find(fs, &root, "e")), (Ok(f), Ok(d)));
        assert_eq!((fs.getattr(&g), fs.getattr(&e)), (Err(Status::Stale), Err(Status::Stale)));
        assert_eq!(fs.getattr(&root).unwrap().nlink, 4);
    });
}

#[test]
fn link_adds_a_name_of_the_same_file() {
    on_each(|fs| {
        let root = fs.root();
        let d = folder(fs, &root, "d");
        let f = file(fs, &root, "f");
        let linked = fs.link(&me(), &f, &d, b"other").unwrap();
        assert_eq!(linked.attr.unwrap().nlink, 2);
        assert_eq!(find(fs, &d, "other"), Ok(f));
        assert_eq!(fs.link(&me(), &f, &d, b"other").unwrap_err(), Status::Exist);
        assert_eq!(fs.link(&me(), &d, &root, b"loop").unwrap_err(), Status::IsDir);
        assert_eq!(fs.link(&me(), &f, &f, b"x").unwrap_err(), Status::NotDir);
        fs.rename(&me(), NameIn::new(&root, b"f"), NameIn::new(&d, b"other")).unwrap();
        assert_eq!(names(fs, &root), [".", "..", "d", "f"], "two names of one file: nothing to do");
        fs.remove(&me(), &root, b"f").unwrap();
        write(fs, &f, 0, b"lives").unwrap();
        assert_eq!((read(fs, &f), fs.getattr(&f).unwrap().nlink), (b"lives".to_vec(), 1));
        fs.remove(&me(), &d, b"other").unwrap();
        assert_eq!(fs.getattr(&f), Err(Status::Stale));
        let sym = fs.symlink(&me(), &root, b"sym", &SetAttr::NONE, b"/etc/passwd").unwrap().id;
        fs.link(&me(), &sym, &root, b"sym2").unwrap();
        assert_eq!(find(fs, &root, "sym2"), Ok(sym), "a link to the link, not to what it points at");
    });
}

#[test]
fn special_files_are_created_but_not_opened() {
    on_each(|fs| {
        let root = fs.root();
        let kinds = [(NodeKind::Fifo(mode(0o622)), FileType::Fifo), (NodeKind::Socket(mode(0o622)), FileType::Socket)];
        for (what, kind) in kinds {
            let made = fs.mknod(&me(), &root, b"n", &what).unwrap();
            assert_eq!((made.attr.kind, made.attr.mode), (kind, 0o622));
            assert_eq!(fs.read(&me(), &made.id, 0, 1), Err(Status::Inval));
            assert_eq!(fs.mknod(&me(), &root, b"n", &what).unwrap_err(), Status::Exist);
            fs.setattr(&me(), &made.id, &mode(0o600), None).unwrap();
            assert_eq!(fs.getattr(&made.id).unwrap().mode, 0o600);
            fs.remove(&me(), &root, b"n").unwrap();
        }
        let other = NodeKind::Other(FileType::Directory as u32);
        assert_eq!(fs.mknod(&me(), &root, b"n", &other).unwrap_err(), Status::BadType);
        assert_eq!(fs.read(&me(), &root, 0, 1), Err(Status::IsDir));
        assert_eq!(write(fs, &root, 0, b"x"), Err(Status::IsDir));
    });
}

#[test]
fn access_returns_requested_bits_only() {
    on_each(|fs| {
        let d = folder(fs, &fs.root(), "d");
        let asked = ACCESS_READ | ACCESS_LOOKUP | ACCESS_DELETE | ACCESS_EXECUTE;
        assert_eq!(fs.access(&me(), &d, asked), Ok(ACCESS_READ | ACCESS_LOOKUP | ACCESS_DELETE));
        assert_eq!(fs.access(&me(), &d, ACCESS_LOOKUP), Ok(ACCESS_LOOKUP));
        assert_eq!(fs.access(&me(), &d, 0), Ok(0));
    });
}

#[test]
fn fsstat_and_pathconf_are_plausible() {
    on_each(|fs| {
        let stat = fs.fsstat(&fs.root()).unwrap();
        assert!(stat.attr.is_none() && stat.total >= stat.free && stat.free >= stat.avail);
        let conf = fs.pathconf(&fs.root()).unwrap();
        assert!(conf.name_max == 255 && conf.no_trunc && conf.case_preserving && !conf.case_insensitive);
    });
}
