//! Objects that lose a name, with and without silly renames.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{CreateHow, SetAttr, Stable, Status};
use rustix::fs::AtFlags;

use super::me;
use crate::local::fd_cache::open_files::OpenMode;
use crate::local::handles::file_id;
use crate::local::inode::fs_caps::FsCaps;
use crate::local::sys::syscalls::{lose, open_at_removals, unlinkat};
use crate::local::{LocalDisk, Options};
use crate::{FileId, Ledger, NameIn, Vfs};

fn disk(silly_renames: bool) -> (tempfile::TempDir, LocalDisk) {
    let dir = tempfile::tempdir().unwrap();
    let kind = |root: &_, device| FsCaps { silly_renames, ..FsCaps::of(root, device) };
    let disk = LocalDisk::open_with(dir.path(), Options::new([1; 8]), kind).unwrap();
    (dir, disk)
}

/// Creates, writes and reads a file in the root.
fn file(disk: &LocalDisk, name: &[u8]) -> FileId {
    let made = disk.create(&me(), &disk.root(), name, &CreateHow::Guarded(SetAttr::NONE)).unwrap().id;
    disk.write(&me(), &made, 0, &Bytes::from_static(b"text"), Stable::Unstable).unwrap();
    disk.read(&me(), &made, 0, 4).unwrap();
    made
}

#[test]
fn object_is_closed_before_unlink_under_silly_renames() {
    for hides in [false, true] {
        let (_dir, disk) = disk(hides);
        let root = disk.root();
        for name in [b"removed", b"forgone", b"another"] {
            file(&disk, name);
        }
        let open_dir_of = disk.mkdir(&me(), &root, b"open_dir_of", &SetAttr::NONE).unwrap().id;
        disk.lookup(&me(), &open_dir_of, b"none").unwrap_err();
        let open = open_at_removals(|| {
            disk.remove(&me(), &root, b"removed").unwrap();
            disk.rename(&me(), NameIn::new(&root, b"another"), NameIn::new(&root, b"forgone")).unwrap();
            disk.rmdir(&me(), &root, b"open_dir_of").unwrap();
        });
        assert_eq!(open.len(), 3);
        assert!(open.iter().all(|open| (*open == 0) == hides), "{open:?}, hides: {hides}");
    }
}

#[test]
fn fsstat_examines_open_files_only_if_that_frees_space() {
    for hides in [false, true] {
        let (dir, disk) = disk(hides);
        let key = file_id::decode(&file(&disk, b"a")).unwrap().0;
        std::fs::remove_file(dir.path().join("a")).unwrap();
        disk.fsstat(&disk.root()).unwrap();
        assert_eq!(disk.disk.files().any_fd(key).is_some(), hides);
        disk.tidy();
        assert!(disk.disk.files().any_fd(key).is_none());
    }
}

#[test]
fn file_closed_before_unlink_lives_until_its_last_name() {
    let (_dir, disk) = disk(true);
    let root = disk.root();
    let id = file(&disk, b"a");
    disk.link(&me(), &id, &root, b"b").unwrap();
    disk.write(&me(), &id, 0, &Bytes::from_static(b"TEXT"), Stable::Unstable).unwrap();
    let (before, key) = (disk.verifier(), file_id::decode(&id).unwrap().0);
    lose(disk.disk.files().any_fd(key).unwrap());
    disk.remove(&me(), &root, b"a").unwrap();
    assert_ne!(disk.verifier(), before, "the loss cannot be reported later");
    assert_eq!(disk.read(&me(), &id, 0, 4).unwrap().0, b"TEXT"[..]);
    disk.rename(&me(), NameIn::new(&root, b"b"), NameIn::new(&root, b"b")).unwrap();
    disk.remove(&me(), &root, b"b").unwrap();
    assert_eq!(disk.getattr(&id), Err(Status::Stale));
    assert!(disk.disk.files().any_fd(key).is_none());
}

#[test]
fn file_linked_by_another_program_survives_unlink() {
    for beside in ["before", "after"] {
        let (dir, disk) = disk(true);
        let id = file(&disk, b"a");
        let root = disk.disk.tree.dir(&disk.root()).unwrap();
        let object = disk.disk.tree.open_child(&root, b"a").unwrap();
        let link = || std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        if beside == "before" {
            link();
        }
        let target = disk.prepare_unlink(object);
        if beside == "after" {
            link();
        }
        unlinkat(&root.fd, b"a", AtFlags::empty()).unwrap();
        disk.finish_unlink(&root, b"a", target);
        assert_eq!(disk.getattr(&id).map(|attr| attr.nlink), Ok(1), "linked {beside} the first look");
    }
}

#[test]
fn file_opened_during_its_removal_is_closed_when_idle() {
    let (_dir, disk) = disk(true);
    let id = file(&disk, b"a");
    let (object, key) = (disk.disk.tree.resolve(&id).unwrap(), file_id::decode(&id).unwrap().0);
    disk.remove(&me(), &disk.root(), b"a").unwrap();
    disk.open_file(&me(), &object, OpenMode::Read).unwrap();
    disk.close_idle(Duration::from_secs(3600));
    assert!(disk.disk.files().any_fd(key).is_some(), "it was used just now");
    disk.close_idle(Duration::ZERO);
    assert!(disk.disk.files().any_fd(key).is_none());
}

#[test]
fn loss_is_reported_only_if_the_file_stays() {
    let (dir, disk) = disk(true);
    let root = disk.root();
    let lost_writes = |name: &[u8]| {
        let id = file(&disk, name);
        lose(disk.disk.files().any_fd(file_id::decode(&id).unwrap().0).unwrap());
    };
    let before = disk.verifier();
    for change in ["REMOVE", "RENAME"] {
        lost_writes(b"a");
        file(&disk, b"b");
        let ledger = Arc::<Ledger>::default();
        let view = disk.deferring(&ledger).unwrap();
        match change {
            "REMOVE" => drop(view.remove(&me(), &root, b"a").unwrap()),
            _ => drop(view.rename(&me(), NameIn::new(&root, b"b"), NameIn::new(&root, b"a")).unwrap()),
        }
        let due = ledger.take();
        assert!(!due.is_empty());
        due.iter().for_each(|flush| assert_eq!(flush.verdict(flush.run(&[])), Ok(()), "{change}"));
        assert_eq!(disk.verifier(), before, "{change}");
        std::fs::read_dir(dir.path()).unwrap().for_each(|f| std::fs::remove_file(f.unwrap().path()).unwrap());
    }
    lost_writes(b"a");
    disk.rmdir(&me(), &root, b"a").unwrap_err();
    assert_ne!(disk.verifier(), before, "the file stays");
}
