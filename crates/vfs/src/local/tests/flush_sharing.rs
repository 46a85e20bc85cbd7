//! Which changes share a flush.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use remora_wire::nfs3::{CreateHow, NodeKind, SetAttr};
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use super::{ACL, disk, me};
use crate::local::creds::thread_creds::umask;
use crate::local::handles::file_id;
use crate::local::inode::fs_caps::FsCaps;
use crate::local::sync::flush::{DEPTH_ALL, separate_flushes};
use crate::local::{LocalDisk, Options};
use crate::{FileId, Flush, Ledger, NameIn, Vfs};

#[test]
fn names_and_attributes_share_a_flush_without_a_journal() {
    let (_dir, disk, [a, b]) = disk();
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    for file in [&a, &b] {
        view.setattr(&me(), file, &SetAttr { mode: Some(0o600), ..SetAttr::NONE }, None).unwrap();
    }
    view.remove(&me(), &disk.root(), b"b").unwrap();
    let dirty = ledger.take();
    let keys: Vec<_> = dirty.iter().map(Flush::key).collect();
    let shared = !disk.disk.caps().has_journal;
    assert_eq!([keys[0] == keys[1], keys[1] == keys[2]], [shared; 2], "{keys:?}");
    let [first, others @ ..] = &dirty[..] else { panic!("{dirty:?}") };
    for others in [&[][..], others] {
        let done = first.run(&others.iter().collect::<Vec<_>>());
        assert_eq!(first.verdict(done), Ok(()));
    }
}

/// The capabilities of a file system without a journal.
fn without_journal(root: &OwnedFd, device: u64) -> FsCaps {
    FsCaps { has_journal: false, syncfs_is_complete: true, ..FsCaps::of(root, device) }
}

#[test]
fn few_waiting_names_are_flushed_separately() {
    let top = tempfile::tempdir().unwrap();
    let disk = LocalDisk::open_with(top.path(), Options::new([1; 8]), without_journal).unwrap();
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    let [a, b] = [b"a", b"b"].map(|name| disk.mkdir(&me(), &disk.root(), name, &SetAttr::NONE).unwrap().id);
    let remove = |dir: &FileId, name: &str| {
        view.remove(&me(), dir, name.as_bytes()).unwrap();
    };
    let make = |dir: &FileId, name: &str| {
        view.create(&me(), dir, name.as_bytes(), &CreateHow::Guarded(SetAttr::NONE)).unwrap();
    };
    let separate = || {
        let due = ledger.take();
        let (objects, is_separate) = separate_flushes(&due);
        // A syncfs(2) may be slow, and change what the policy does next.
        if is_separate {
            let [first, others @ ..] = &due[..] else { panic!("{due:?}") };
            assert_eq!(first.verdict(first.run(&others.iter().collect::<Vec<_>>())), Ok(()));
        }
        (objects, is_separate)
    };
    let names: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    for name in &names {
        make(&a, name);
        assert_eq!(separate(), (2, true), "a file and its name");
    }
    names[..4].iter().for_each(|name| remove(&a, name));
    assert_eq!(separate(), (1, true), "names of one directory");
    remove(&a, "4");
    make(&a, "new");
    remove(&a, "5");
    assert_eq!(separate(), (2, true), "one file, and names of its directory");
    for name in &names[6..] {
        view.rename(&me(), NameIn::new(&a, name.as_bytes()), NameIn::new(&b, name.as_bytes())).unwrap();
    }
    assert_eq!(separate(), (2, true), "names of two directories");
    make(&a, "one");
    make(&a, "two");
    assert_eq!(separate(), (3, false), "two files");
    make(&a, "three");
    remove(&b, "6");
    assert_eq!(separate(), (3, false), "a file, its name and one elsewhere");
}

#[test]
fn mode_bits_restored_after_umask_need_a_second_flush() {
    if umask() & 0o022 == 0 {
        return skip::skipped(&skip::this_test(), "needs a umask");
    }
    let dir = tempfile::tempdir().unwrap();
    let kind = FsCaps {
        has_journal: true,
        syncfs_is_complete: true,
        acl_after_create: false,
        silly_renames: false,
        birth_grain: Duration::ZERO,
        volatile_cookies: false,
        local_permissions: true,
    };
    let disk = LocalDisk::open_with(dir.path(), Options::new([1; 8]), |_, _| kind).unwrap();
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    for (mode, flushes) in [(0o600, 1), (0o666, 2)] {
        let how = CreateHow::Guarded(SetAttr { mode: Some(mode), ..SetAttr::NONE });
        let made = view.create(&me(), &disk.root(), format!("{mode:o}").as_bytes(), &how).unwrap();
        assert_eq!((made.attr.mode, ledger.take().len()), (mode, flushes), "{mode:o}");
    }
}

#[test]
fn inherited_acl_needs_a_second_flush_on_xfs() {
    for acl_after_create in [false, true] {
        let top = tempfile::tempdir().unwrap();
        let kind = FsCaps {
            has_journal: true,
            syncfs_is_complete: true,
            acl_after_create,
            silly_renames: false,
            volatile_cookies: false,
            local_permissions: true,
            birth_grain: Duration::ZERO,
        };
        let disk = LocalDisk::open_with(top.path(), Options::new([1; 8]), |_, _| kind).unwrap();
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), ..SetAttr::NONE });
        let dir = disk.root();
        view.create(&me(), &dir, b"without", &how).unwrap();
        assert_eq!(ledger.take().len(), 1, "no ACL");
        let set = setxattr(top.path(), c"system.posix_acl_default", &ACL, XattrFlags::empty());
        if set == Err(Errno::OPNOTSUPP) {
            return skip::skipped(&skip::this_test(), "the file system has no ACLs");
        }
        let flushes = if acl_after_create { 2 } else { 1 };
        view.create(&me(), &dir, b"file", &how).unwrap();
        assert_eq!(ledger.take().len(), flushes, "a file");
        view.mkdir(&me(), &dir, b"dir", &SetAttr::NONE).unwrap();
        assert_eq!(ledger.take().len(), flushes, "a directory");
        view.symlink(&me(), &dir, b"link", &SetAttr::NONE, b"file").unwrap();
        assert_eq!(ledger.take().len(), 1, "a link has no ACL");
    }
}

/// A directory's fsync(2) writes the names in it, not the objects.
#[test]
fn unopenable_object_is_flushed_with_the_file_system() {
    let (_dir, disk, _) = disk();
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    let root = disk.root();
    let flushes_all = || {
        let due = ledger.take();
        due.iter().for_each(|flush| assert_eq!(flush.verdict(flush.run(&[])), Ok(())));
        due.iter().any(|flush| flush.key().depth == DEPTH_ALL)
    };
    let link = view.symlink(&me(), &root, b"link", &SetAttr::NONE, b"a").unwrap();
    let at_once = disk.disk.caps().has_journal;
    assert_eq!(flushes_all(), !at_once, "a symbolic link");
    view.mknod(&me(), &root, b"pipe", &NodeKind::Fifo(SetAttr::NONE)).unwrap();
    assert_eq!(flushes_all(), !at_once, "a pipe");
    view.link(&me(), &link.id, &root, b"another").unwrap();
    assert_eq!(flushes_all(), !at_once, "its link count");
    view.remove(&me(), &root, b"another").unwrap();
    assert!(!flushes_all(), "a removed name needs no object");
}

/// syncfs(2) would leave something of each of these off the disk.
#[test]
fn incomplete_syncfs_flushes_each_directory_itself() {
    let top = tempfile::tempdir().unwrap();
    let kind = |root: &_, device| FsCaps { has_journal: false, syncfs_is_complete: false, ..FsCaps::of(root, device) };
    let disk = LocalDisk::open_with(top.path(), Options::new([1; 8]), kind).unwrap();
    let attr = SetAttr { mode: Some(0o755), ..SetAttr::NONE };
    let dir = disk.mkdir(&me(), &disk.root(), b"dir", &attr).unwrap().id;
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    let object = |id: &FileId| {
        let key = file_id::decode(id).unwrap().0;
        u128::from(key.ino) << 64 | u128::from(key.birth_ns)
    };
    let flushed = || -> Vec<u128> {
        let due = ledger.take();
        let run = |flush: &Flush| flush.verdict(flush.run(&[]));
        due.iter().for_each(|flush| assert_eq!(run(flush), Ok(())));
        due.iter().map(|flush| flush.key().object).collect()
    };
    let make = |name: &[u8]| view.create(&me(), &dir, name, &CreateHow::Guarded(attr.clone())).unwrap().id;
    let (a, b) = (make(b"a"), make(b"b"));
    assert_eq!(flushed(), [object(&a), object(&dir), object(&b), object(&dir)]);
    view.remove(&me(), &dir, b"b").unwrap();
    view.setattr(&me(), &a, &attr, None).unwrap();
    assert_eq!(flushed(), [object(&dir), object(&a)]);

    const ALL: u128 = 0;
    let link = view.symlink(&me(), &dir, b"link", &SetAttr::NONE, b"a").unwrap().id;
    assert_eq!(flushed(), [object(&dir), ALL], "a symbolic link");
    let pipe = view.mknod(&me(), &dir, b"pipe", &NodeKind::Fifo(attr.clone())).unwrap().id;
    assert_eq!(flushed(), [object(&dir), ALL], "a pipe");
    view.setattr(&me(), &pipe, &attr, None).unwrap();
    assert_eq!(flushed(), [object(&dir), ALL], "its mode");
    view.link(&me(), &link, &disk.root(), b"another").unwrap();
    assert_eq!(flushed(), [object(&disk.root()), ALL], "its new name");
}
