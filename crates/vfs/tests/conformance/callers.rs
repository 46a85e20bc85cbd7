//! Permissions when operations have their callers' credentials: modes, ACLs, set-id bits.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use remora_vfs::local::{LocalDisk, Options};
use remora_vfs::{Acls, Cred, DirQuery, FileId, MemFs, NameIn, Vfs};
use remora_wire::nfs3::{
    ACCESS_EXTEND, ACCESS_MODIFY, ACCESS_READ, CreateHow, FileType, NfsTime, NodeKind, SetAttr, SetTime, SpecData,
    Stable, Status,
};
use remora_wire::nfsacl::{Entry, Tag};

use crate::bench::*;

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// An export that honours credentials; `None` without root.
fn open_honouring(dir: &TempDir) -> Option<LocalDisk> {
    let options = Options { honour_credentials: true, ..Options::new([0; 8]) };
    match LocalDisk::open(dir.path(), options) {
        Ok(fs) => Some(fs),
        Err(e) => {
            assert!(!is_root(), "{e}");
            skip::skipped(&skip::this_test(), &format!("needs root: {e}"));
            None
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a thread of its own has other secure bits")]
fn open_fails_if_callers_would_keep_root_capabilities() {
    if !is_root() {
        return skip::skipped(&skip::this_test(), "needs root");
    }
    let dir = TempDir::new();
    let open = || {
        let options = Options { honour_credentials: true, ..Options::new([0; 8]) };
        LocalDisk::open(dir.path(), options).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(open(), Ok(()));
    // In a thread of its own, because secure bits are per thread.
    let keeping = std::thread::scope(|scope| {
        let keep = || {
            let bits = rustix::thread::CapabilitiesSecureBits::NO_SETUID_FIXUP;
            rustix::thread::set_capabilities_secure_bits(bits).unwrap();
            let opened = open();
            assert!(rustix::process::geteuid().is_root(), "it is itself again");
            opened
        };
        scope.spawn(keep).join().unwrap()
    });
    assert!(keeping.as_ref().is_err_and(|why| why.contains("no-setuid-fixup")), "{keeping:?}");
}

#[test]
fn write_of_another_user_clears_set_id_bits() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let f = file(&fs, &fs.root(), "f");
    let stranger = Cred { uid: 5001, gid: 6001, gids: vec![] };
    let armed = mode(0o6777);
    fs.setattr(&me(), &f, &armed, None).unwrap();
    fs.write(&stranger, &f, 0, &b"x"[..].into(), Stable::Unstable).unwrap();
    assert_eq!(fs.getattr(&f).unwrap().mode, 0o777);
    fs.setattr(&me(), &f, &armed, None).unwrap();
    fs.setattr(&stranger, &f, &size(0), None).unwrap();
    assert_eq!(fs.getattr(&f).unwrap().mode, 0o777);
}

/// Runs `work` as the owner of the directory and not as root. Root uses a thread with another user's credentials.
#[expect(clippy::disallowed_methods, reason = "a thread of another user")]
fn unprivileged(dir: &TempDir, work: impl FnOnce() + Send) {
    if is_root() {
        std::os::unix::fs::chown(dir.path(), Some(5001), Some(6001)).unwrap();
    }
    let become_another = || {
        let (uid, gid) = (rustix::fs::Uid::from_raw(5001), rustix::fs::Gid::from_raw(6001));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(None, gid, None).unwrap();
        rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
    };
    let as_another = || {
        if is_root() {
            become_another();
        }
        work();
    };
    std::thread::scope(|scope| scope.spawn(as_another).join().unwrap());
}

#[test]
fn creator_fills_read_only_file_across_a_restart() {
    let dir = TempDir::new();
    unprivileged(&dir, || {
        let fs = export(&dir);
        let made = fs.create(&me(), &fs.root(), b"f", &CreateHow::Guarded(mode(0o444))).unwrap();
        write(&fs, &made.id, 0, b"four").unwrap();
        fs.setattr(&me(), &made.id, &mode(0o400), None).unwrap();
        write(&fs, &made.id, 4, b"teen").unwrap();
        fs.setattr(&me(), &made.id, &size(6), None).unwrap();
        fs.commit(&me(), &made.id, 0, 0).unwrap();
        assert_eq!(read(&fs, &made.id), b"fourte");
        let again = export(&dir);
        write(&again, &made.id, 6, b"x").unwrap();
        again.commit(&me(), &made.id, 0, 0).unwrap();
        let cut = export(&dir).setattr(&me(), &made.id, &size(5), None).unwrap();
        assert_eq!(cut.after.unwrap().mode, 0o400);
    });
}

#[test]
fn owner_write_is_not_added_if_it_cannot_be_undone() {
    let dir = TempDir::new();
    let theirs = "theirs";
    std::fs::write(dir.path().join(theirs), "text").unwrap();
    std::fs::set_permissions(dir.path().join(theirs), PermissionsExt::from_mode(0o444)).unwrap();
    unprivileged(&dir, || {
        let fs = export(&dir);
        if is_root() {
            let (theirs, _) = fs.lookup(&me(), &fs.root(), theirs.as_bytes()).unwrap();
            assert_eq!(write(&fs, &theirs, 0, b"x"), Err(Status::Access), "of another user");
            assert_eq!(read(&fs, &theirs), b"text");
        }
        let unreadable = file(&fs, &fs.root(), "unreadable");
        let group = file(&fs, &fs.root(), "group");
        fs.setattr(&me(), &unreadable, &mode(0), None).unwrap();
        fs.setattr(&me(), &group, &mode(0o2444), None).unwrap();
        let before = fs.getattr(&unreadable).unwrap();
        assert_eq!(fs.read(&me(), &unreadable, 0, 1), Err(Status::Access), "who may only read could not change it");
        assert_eq!(fs.getattr(&unreadable).unwrap(), before);
        let again = export(&dir);
        assert_eq!(write(&again, &group, 0, b"x"), Err(Status::Access), "the bit might be lost");
        assert_eq!(fs.getattr(&group).unwrap().mode, 0o2444);
    });
}

#[test]
fn setattr_during_owner_write_is_not_undone() {
    let dir = TempDir::new();
    unprivileged(&dir, || {
        let fs = LocalDisk::open(dir.path(), Options { open_max: 2, ..Options::new([0; 8]) }).unwrap();
        let f = file(&fs, &fs.root(), "f");
        let others = [file(&fs, &fs.root(), "a"), file(&fs, &fs.root(), "b")];
        let lend = || {
            for n in 0..2000 {
                write(&fs, &f, n, b"x").unwrap();
                others.iter().for_each(|other| _ = read(&fs, other));
            }
        };
        let set = || {
            for n in 0..2000 {
                let wanted = [0o400, 0o440, 0o404][n % 3];
                let lent = [wanted, wanted | 0o200];
                let after = fs.setattr(&me(), &f, &mode(wanted), None).unwrap().after.unwrap().mode;
                assert!(lent.contains(&after), "{n}: {after:o} for {wanted:o}");
                let later = fs.getattr(&f).unwrap().mode;
                assert!(lent.contains(&later), "{n}: {later:o} for {wanted:o}");
            }
        };
        in_threads(&[&lend, &set]);
        assert_eq!(fs.getattr(&f).unwrap().mode, 0o440, "the last one");
    });
}

/// Runs all closures concurrently.
#[expect(clippy::disallowed_methods, reason = "so that two are at work at once")]
fn in_threads(work: &[&(dyn Fn() + Sync)]) {
    std::thread::scope(|scope| work.iter().for_each(|work| _ = scope.spawn(work)));
}

/// A file that is created read-only, and one that Linux's client creates so with O_EXCL.
fn made_read_only(fs: &LocalDisk, name: &str) -> [FileId; 2] {
    let guarded = fs.create(&me(), &fs.root(), name.as_bytes(), &CreateHow::Guarded(mode(0o444))).unwrap().id;
    let (name, how) = (format!("exclusive {name}"), CreateHow::Exclusive([7; 8]));
    let exclusive = fs.create(&me(), &fs.root(), name.as_bytes(), &how).unwrap().id;
    fs.setattr(&me(), &exclusive, &mode(0o400), None).unwrap();
    [guarded, exclusive]
}

/// Creates, writes and reads this many files.
fn use_others(fs: &LocalDisk, when: u64, files: usize) {
    for name in (0..files).map(|n| format!("other {when} {n}")) {
        let id = file(fs, &fs.root(), &name);
        write(fs, &id, 0, b"text").unwrap();
        assert_eq!(read(fs, &id), b"text");
    }
}

#[test]
fn read_only_files_are_filled_beyond_the_cache_limit() {
    let dir = TempDir::new();
    unprivileged(&dir, || {
        let fs =
            LocalDisk::open(dir.path(), Options { open_max: 8, dirty_files_max: 8, ..Options::new([0; 8]) }).unwrap();
        let made: Vec<_> = (0..20).flat_map(|n| made_read_only(&fs, &n.to_string())).collect();
        for (offset, byte) in (0..).zip([b"a", b"b", b"c"]) {
            use_others(&fs, offset, 20);
            for id in &made {
                assert_eq!(write(&fs, id, offset, byte), Ok(()), "{offset}");
                fs.commit(&me(), id, 0, 0).unwrap();
            }
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fd.path().read_link().ok());
        let open: Vec<_> = open.filter(|path| path.starts_with(dir.path())).collect();
        assert!(open.len() <= 8 + 8 + 1, "those that owe a flush and the root, too: {open:?}");
        for id in &made {
            fs.setattr(&me(), id, &size(2), None).unwrap();
            assert_eq!(read(&fs, id), b"ab");
            assert!([0o444, 0o400].contains(&fs.getattr(id).unwrap().mode));
        }
    });
}

#[test]
fn writable_file_is_closed_after_commit() {
    let dir = TempDir::new();
    unprivileged(&dir, || {
        let fs = LocalDisk::open(dir.path(), Options { open_max: 8, ..Options::new([0; 8]) }).unwrap();
        for id in made_read_only(&fs, "f") {
            fs.setattr(&me(), &id, &mode(0o755), None).unwrap();
            write(&fs, &id, 0, b"x").unwrap();
            fs.commit(&me(), &id, 0, 0).unwrap();
        }
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fd.path().read_link().ok());
        let open: Vec<_> = links.filter(|path| path.starts_with(dir.path()) && path != dir.path()).collect();
        assert!(open.is_empty(), "{open:?}");
    });
}

#[test]
fn operations_have_their_callers_credentials() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let root = fs.root();
    fs.setattr(&me(), &root, &mode(0o1777), None).unwrap();
    let cred = |uid, gid, gids: &[u32]| Cred { uid, gid, gids: gids.to_vec() };
    let (ann, bob, eve) = (cred(5001, 6001, &[]), cred(5002, 6002, &[6001]), cred(5003, 6003, &[]));
    let d = fs.mkdir(&ann, &root, b"d", &mode(0o750)).unwrap();
    assert_eq!((d.attr.uid, d.attr.gid, d.attr.mode), (5001, 6001, 0o750));
    let f = fs.create(&ann, &d.id, b"f", &CreateHow::Guarded(mode(0o640))).unwrap();
    assert_eq!((f.attr.uid, f.attr.gid, f.attr.mode), (5001, 6001, 0o640));
    let (d, f, data) = (d.id, f.id, &b"x"[..].into());
    assert!(fs.lookup(&bob, &d, b"f").is_ok(), "by a further group");
    assert_eq!(fs.lookup(&eve, &d, b"f"), Err(Status::Access));
    assert_eq!(fs.lookup(&eve, &d, b".."), Err(Status::Access));
    fs.write(&ann, &f, 0, data, Stable::Unstable).unwrap();
    assert!(fs.read(&bob, &f, 0, 1).is_ok());
    assert_eq!(fs.read(&eve, &f, 0, 1), Err(Status::Access), "not by the file that was opened for bob");
    assert_eq!(fs.write(&bob, &f, 0, data, Stable::Unstable).unwrap_err(), Status::Access);
    assert_eq!(fs.access(&bob, &f, ACCESS_READ | ACCESS_MODIFY), Ok(ACCESS_READ));
    assert_eq!(fs.setattr(&bob, &f, &mode(0o666), None), Err(Status::Perm));
    assert_eq!(fs.remove(&bob, &d, b"f"), Err(Status::Access));
    assert_eq!(fs.remove(&eve, &d, b"none"), Err(Status::Access), "names are secret too");
    assert_eq!(
        fs.rename(&eve, NameIn::new(&root, b"d"), NameIn::new(&root, b"e")).unwrap_err(),
        Status::Perm,
        "sticky"
    );
    fs.setattr(&ann, &f, &mode(0o000), None).unwrap();
    assert!(fs.write(&ann, &f, 0, data, Stable::Unstable).is_ok(), "owners may have opened it before");
    assert!(fs.setattr(&ann, &f, &size(0), None).is_ok());
    assert_eq!(fs.read(&bob, &f, 0, 1), Err(Status::Access), "a change of mode closes the file");
    let give = SetAttr { uid: Some(5002), ..SetAttr::NONE };
    assert_eq!(fs.setattr(&ann, &f, &give, None), Err(Status::Perm));
    let nobody = SetAttr { uid: Some(u32::MAX), ..SetAttr::NONE };
    assert_eq!(fs.setattr(&me(), &f, &nobody, None), Err(Status::Inval));
    assert_eq!(fs.mkdir(&cred(u32::MAX, 0, &[]), &root, b"x", &mode(0)).unwrap_err(), Status::Inval);
    // The thread has its own credentials again.
    let own = fs.create(&me(), &root, b"own", &CreateHow::Guarded(mode(0o600))).unwrap();
    assert_eq!((own.attr.uid, own.attr.gid), (0, 0));
}

#[test]
fn user_with_write_permission_truncates_and_touches() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let f = file(&fs, &fs.root(), "f");
    fs.setattr(&me(), &f, &mode(0o666), None).unwrap();
    write(&fs, &f, 0, b"text").unwrap();
    let stranger = Cred { uid: 5001, gid: 6001, gids: vec![] };
    let now = SetAttr { mtime: SetTime::Server, ..SetAttr::NONE };
    // What Linux's client sends for O_TRUNC.
    fs.setattr(&stranger, &f, &SetAttr { size: Some(0), ..now.clone() }, None).unwrap();
    assert_eq!(fs.getattr(&f).unwrap().size, 0);
    let past = SetTime::To(NfsTime { secs: 7, nanos: 0 });
    let long_ago = SetAttr { atime: past, mtime: past, ..SetAttr::NONE };
    for only in [now, SetAttr { atime: SetTime::Server, ..SetAttr::NONE }] {
        fs.setattr(&me(), &f, &long_ago, None).unwrap();
        fs.setattr(&stranger, &f, &only, None).unwrap();
        let attr = fs.getattr(&f).unwrap();
        let moved = [(only.atime, attr.atime), (only.mtime, attr.mtime)].map(|(asked, is)| (asked, is.secs > 7));
        assert!(moved.iter().all(|(asked, moved)| *moved == (*asked == SetTime::Server)), "{moved:?}");
    }
    assert_eq!(fs.setattr(&stranger, &f, &long_ago, None), Err(Status::Perm), "other times are the owner's to set");
    fs.setattr(&me(), &f, &mode(0o644), None).unwrap();
    for attr in [SetAttr { mtime: SetTime::Server, ..SetAttr::NONE }, size(0)] {
        assert!(fs.setattr(&stranger, &f, &attr, None).is_err(), "{attr:?}");
    }
}

/// Sets an ACL of (tag, permissions, id), as in Linux's posix_acl_xattr.h.
fn set_acl(path: &Path, which: &str, entries: &[(u16, u16, u32)]) -> bool {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        acl.extend([&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    match rustix::fs::setxattr(path, which, &acl, rustix::fs::XattrFlags::empty()) {
        Ok(()) => true,
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let why = format!("{} is on a file system without ACLs", path.display());
            skip::skipped(&skip::this_test(), &why);
            false
        }
        Err(e) => panic!("{e}"),
    }
}

const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";
const NO_ID: u32 = u32::MAX;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

#[test]
fn access_acl_applies_to_callers() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let f = file(&fs, &fs.root(), "f");
    let gid = SetAttr { gid: Some(6001), mode: Some(0o660), ..SetAttr::NONE };
    fs.setattr(&me(), &f, &gid, None).unwrap();
    let acl = [
        (USER_OBJ, 6, NO_ID),
        (USER, 6, 5001),
        (USER, 0, 5002),
        (GROUP_OBJ, 4, NO_ID),
        (MASK, 6, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    if !set_acl(&dir.path().join("f"), ACCESS_ACL, &acl) {
        return;
    }
    assert_eq!(fs.getattr(&f).unwrap().mode, 0o660, "the mask is where the group's bits are");
    let (named, banned, member) = ((5001, 9), (5002, 6001), (5003, 6001));
    let stranger = (5004, 9);
    for ((uid, gid), reads, writes) in
        [(named, true, true), (banned, false, false), (member, true, false), (stranger, false, false)]
    {
        let cred = Cred { uid, gid, gids: vec![] };
        let answer = if reads { ACCESS_READ } else { 0 } | if writes { ACCESS_MODIFY | ACCESS_EXTEND } else { 0 };
        assert_eq!(fs.access(&cred, &f, 0x3f), Ok(answer), "{cred:?}");
        assert_eq!(fs.read(&cred, &f, 0, 1).is_ok(), reads, "{cred:?}");
        assert_eq!(fs.write(&cred, &f, 0, &b"x"[..].into(), Stable::Unstable).is_ok(), writes, "{cred:?}");
        assert_eq!(fs.setattr(&cred, &f, &size(0), None).is_ok(), writes, "{cred:?}");
    }
}

/// The entries of an ACL on the disk.
fn entries_on_disk(path: &Path, which: &str) -> Option<Vec<(u16, u16, u32)>> {
    let mut value = [0; 512];
    let length = match rustix::fs::getxattr(path, which, &mut value) {
        Ok(length) => length,
        Err(rustix::io::Errno::NODATA) => return None,
        Err(e) => panic!("{e}"),
    };
    let number = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    let entry = |b: &[u8]| (number(b), number(&b[2..]), u32::from_le_bytes([b[4], b[5], b[6], b[7]]));
    Some(value[4..length].chunks(8).map(entry).collect())
}

#[test]
fn owner_sets_acls_and_others_do_not() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let (ann, bob) = (Cred { uid: 5001, gid: 9, gids: vec![] }, Cred { uid: 5002, gid: 9, gids: vec![] });
    fs.setattr(&me(), &fs.root(), &mode(0o777), None).unwrap();
    let d = fs.mkdir(&ann, &fs.root(), b"d", &mode(0o755)).unwrap().id;
    let entry = |tag, id, perm| Entry { tag, id, perm };
    let own = |mask| {
        let (user, group, other) = (Tag::UserObj, Tag::GroupObj, Tag::Other);
        let (user, group, other) = (entry(user, NO_ID, 7), entry(group, NO_ID, 0), entry(other, NO_ID, 0));
        Some(vec![user, entry(Tag::User, 5002, 5), group, entry(Tag::Mask, NO_ID, mask), other])
    };
    let acls = Acls { access: own(5), default: own(7) };
    if !set_acl(&dir.path().join("d"), DEFAULT_ACL, &[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 7, NO_ID), (OTHER, 7, NO_ID)]) {
        return;
    }
    assert_eq!(fs.set_acls(&bob, &d, &acls), Err(Status::Perm));
    assert_eq!(fs.acls(&bob, &d).unwrap().access, None, "nothing changed");
    fs.set_acls(&ann, &d, &acls).unwrap();
    assert_eq!(fs.acls(&bob, &d), Ok(acls));
    assert_eq!(fs.getattr(&d).unwrap().mode, 0o750, "the mask is where the group's bits are");
    let on_disk = |mask| {
        vec![(USER_OBJ, 7, NO_ID), (USER, 5, 5002), (GROUP_OBJ, 0, NO_ID), (MASK, mask, NO_ID), (OTHER, 0, NO_ID)]
    };
    let path = dir.path().join("d");
    assert_eq!(entries_on_disk(&path, ACCESS_ACL), Some(on_disk(5)));
    assert_eq!(entries_on_disk(&path, DEFAULT_ACL), Some(on_disk(7)));
    // A new file inherits the default ACL, as far as its mode goes.
    let f = fs.create(&ann, &d, b"f", &CreateHow::Guarded(mode(0o664))).unwrap();
    assert_eq!((f.attr.mode, fs.access(&bob, &f.id, 0x3f)), (0o660, Ok(ACCESS_READ)));
    // Root may, too. What is absent stays; what has no entries is removed.
    fs.set_acls(&me(), &d, &Acls { access: None, default: Some(vec![]) }).unwrap();
    assert_eq!(fs.acls(&bob, &d), Ok(Acls { access: own(5), default: None }));
    fs.set_acls(&ann, &d, &Acls { access: Some(vec![]), default: Some(vec![]) }).unwrap();
    assert_eq!((fs.acls(&bob, &d), entries_on_disk(&path, ACCESS_ACL)), (Ok(Acls::default()), None));
}

#[test]
fn impossible_acls_are_refused() {
    let dir = TempDir::new();
    let fs = LocalDisk::open(dir.path(), Options::new([0; 8])).unwrap();
    let path = dir.path().join("f");
    let f = file(&fs, &fs.root(), "f");
    if !set_acl(&path, ACCESS_ACL, &[(USER_OBJ, 6, NO_ID), (GROUP_OBJ, 4, NO_ID), (OTHER, 0, NO_ID)]) {
        return;
    }
    let entry = |tag| Entry { tag, id: 7, perm: 4 };
    let minimal = || Some([Tag::UserObj, Tag::GroupObj, Tag::Other].map(entry).to_vec());
    let ownerless = Acls { access: Some(vec![entry(Tag::Other)]), default: None };
    assert_eq!(fs.set_acls(&me(), &f, &ownerless), Err(Status::Inval));
    let default_of_a_file = Acls { access: None, default: minimal() };
    assert_eq!(fs.set_acls(&me(), &f, &default_of_a_file), Err(Status::Access));
    let link = fs.symlink(&me(), &fs.root(), b"link", &SetAttr::NONE, b"f").unwrap().id;
    let acls = Acls { access: minimal(), default: None };
    assert_eq!(fs.set_acls(&me(), &link, &acls), Err(Status::NotSupp));
    assert_eq!((fs.acls(&me(), &link), fs.getattr(&f).unwrap().mode), (Ok(Acls::default()), 0o640));
    let options = Options { read_only: true, ..Options::new([0; 8]) };
    let fs = LocalDisk::open(dir.path(), options).unwrap();
    let (f, _) = fs.lookup(&me(), &fs.root(), b"f").unwrap();
    assert_eq!(fs.set_acls(&me(), &f, &acls), Err(Status::RoFs));
}

#[test]
fn new_object_inherits_group_of_set_gid_directory() {
    fn test(fs: &dyn Vfs) {
        let shared = SetAttr { gid: Some(6001), ..mode(0o2777) };
        let shared = fs.mkdir(&me(), &fs.root(), b"shared", &shared).unwrap();
        assert_eq!((shared.attr.mode, shared.attr.gid), (0o2777, 6001));
        let maker = Cred { uid: 5001, gid: 9, gids: vec![] };
        for (name, wish) in [("a", 0o755), ("b", 0o775), ("c", 0o1777), ("d", 0o4755), ("e", 0o5755)] {
            let made = fs.mkdir(&maker, &shared.id, name.as_bytes(), &mode(wish)).unwrap();
            assert_eq!((made.attr.mode, made.attr.gid), (0o2000 | wish, 6001), "{wish:o}");
        }
        let f = fs.create(&maker, &shared.id, b"f", &CreateHow::Guarded(mode(0o644))).unwrap();
        assert_eq!((f.attr.mode, f.attr.gid), (0o644, 6001));
    }
    test(&MemFs::new(1));
    let dir = TempDir::new();
    if let Some(fs) = open_honouring(&dir) {
        test(&fs);
    }
}

#[test]
fn default_acl_applies_to_new_objects() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let root = fs.root();
    let maker = Cred { uid: 5001, gid: 9, gids: vec![] };
    let private = fs.mkdir(&me(), &root, b"private", &mode(0o777)).unwrap();
    let acl = [(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 0, NO_ID), (OTHER, 0, NO_ID)];
    if !set_acl(&dir.path().join("private"), DEFAULT_ACL, &acl) {
        return;
    }
    let f = fs.create(&maker, &private.id, b"f", &CreateHow::Guarded(mode(0o644))).unwrap();
    let d = fs.mkdir(&maker, &private.id, b"d", &mode(0o755)).unwrap();
    assert_eq!((f.attr.mode, d.attr.mode), (0o600, 0o700));
}

#[test]
fn readable_unsearchable_directory_is_listed() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let d = fs.mkdir(&me(), &fs.root(), b"d", &mode(0o744)).unwrap();
    file(&fs, &d.id, "f");
    let stranger = Cred { uid: 5001, gid: 6001, gids: vec![] };
    let query = DirQuery { cookie: 0, verf: [0; 8], objects: true };
    let mut seen = Vec::new();
    fs.readdir(&stranger, &d.id, query, &mut |entry| {
        seen.push((entry.name.clone(), entry.object.is_some()));
        true
    })
    .unwrap();
    assert!(seen.iter().any(|(name, object)| &name[..] == b"f" && !object), "{seen:?}");
    for name in [&b"f"[..], b".", b".."] {
        assert_eq!(fs.lookup(&stranger, &d.id, name), Err(Status::Access));
    }
}

#[test]
fn mknod_keeps_device_numbers_or_fails() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    for (major, minor) in [(4104, 1), (8, 1 << 20), (1 << 31, 0)] {
        let what = NodeKind::Block(mode(0o600), SpecData { major, minor });
        assert_eq!(fs.mknod(&me(), &fs.root(), b"disk", &what).unwrap_err(), Status::Inval, "{major}:{minor}");
    }
}

/// A whiteout of overlayfs. Since Linux 5.8 every user may create one.
#[test]
fn whiteout_is_created_by_any_user() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    fs.setattr(&me(), &fs.root(), &mode(0o777), None).unwrap();
    let stranger = Cred { uid: 5001, gid: 6001, gids: vec![] };
    let whiteout = |minor| NodeKind::Char(mode(0o600), SpecData { major: 0, minor });
    let made = fs.mknod(&stranger, &fs.root(), b"whiteout", &whiteout(0)).unwrap();
    assert_eq!((made.attr.kind, made.attr.uid), (FileType::Char, 5001));
    assert_eq!(fs.mknod(&stranger, &fs.root(), b"device", &whiteout(1)).unwrap_err(), Status::Perm);
    let block = NodeKind::Block(mode(0o600), SpecData { major: 0, minor: 0 });
    assert_eq!(fs.mknod(&stranger, &fs.root(), b"device", &block).unwrap_err(), Status::Perm);
}

/// As docs/reference/exports.md says, and as for a local process.
#[test]
fn link_to_file_of_another_user_follows_the_kernel() {
    let dir = TempDir::new();
    let Some(fs) = open_honouring(&dir) else { return };
    let root = fs.root();
    fs.setattr(&me(), &root, &mode(0o777), None).unwrap();
    let is_guarded = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap().trim() != "0";
    let stranger = Cred { uid: 5001, gid: 6001, gids: vec![] };
    for (bits, may) in [(0o644, !is_guarded), (0o622, !is_guarded), (0o666, true)] {
        let f = file(&fs, &root, "f");
        fs.setattr(&me(), &f, &mode(bits), None).unwrap();
        let linked = fs.link(&stranger, &f, &root, b"link").map(drop);
        assert_eq!(linked, if may { Ok(()) } else { Err(Status::Perm) }, "{bits:o}");
        for name in [&b"f"[..], b"link"].iter().take(1 + usize::from(may)) {
            fs.remove(&me(), &root, name).unwrap();
        }
    }
}
