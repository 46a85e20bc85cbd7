//! What becomes of those who wait for a flush that fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{CreateHow, SetAttr, Stable, Status};
use rustix::io::Errno;

use crate::local::FailureHook;
use crate::local::LocalDisk;
use crate::local::Options;
use crate::local::fd_cache::open_files::OpenMode;
use crate::local::handles::file_id;
use crate::local::sys::disk_failure::DiskFailure;
use crate::local::sys::syscalls::{fail_next, fail_next_with, flushes, lose};
use crate::{Cred, FileId, Flush, Ledger, Vfs};

const DATA: Bytes = Bytes::from_static(b"data");

pub(crate) fn me() -> Cred {
    Cred { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: Vec::new() }
}

/// A default ACL with a mask as setfacl(1) writes it: rw for the owner, r for a user and the group, nothing for others.
pub(crate) const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 1, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0,
    255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// A disk with two files.
pub(crate) fn disk() -> (tempfile::TempDir, LocalDisk, [FileId; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let disk = LocalDisk::open(dir.path(), Options::new([1; 8])).unwrap();
    let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    let files = [b"a", b"b"].map(|name| disk.create(&me(), &disk.root(), name, &how).unwrap().id);
    (dir, disk, files)
}

/// Writes and gives the flush that is owed for it.
fn write(disk: &LocalDisk, file: &FileId, stable: Stable) -> Flush {
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    view.write(&me(), file, 0, &DATA, stable).unwrap();
    ledger.take().pop().unwrap()
}

#[test]
fn a_failed_flush_fails_all_who_shared_it_and_changes_the_verifier() {
    for stable in [Stable::FileSync, Stable::DataSync] {
        let (_dir, disk, [a, b]) = disk();
        let before = disk.verifier();
        let sharing = [write(&disk, &a, stable), write(&disk, &a, stable)];
        let elsewhere = write(&disk, &b, stable);
        assert_eq!(sharing[0].key(), sharing[1].key());
        fail_next(1);
        let result = sharing[0].run(&[&sharing[1]]);
        assert_eq!(result, Err(Status::Io));
        for flush in &sharing {
            assert_eq!(flush.verdict(result), Err(Status::Io));
        }
        assert_ne!(disk.verifier(), before, "what was not committed is to be written again");
        // The kernel tells of a failure once: a good flush of another file proves nothing about
        // changes from before it.
        assert_eq!(elsewhere.verdict(elsewhere.run(&[])), Err(Status::Io));
        // Whoever comes now is served.
        let after = disk.verifier();
        let fresh = write(&disk, &a, stable);
        assert_eq!(fresh.verdict(fresh.run(&[])), Ok(()));
        assert_eq!(disk.verifier(), after);
    }
}

#[test]
fn every_operation_that_promises_stable_storage_tells_of_a_failed_flush() {
    type Operation = fn(&LocalDisk, &FileId) -> crate::Result<()>;
    let operations: [(&str, Operation); 7] = [
        ("FILE_SYNC", |d, f| d.write(&me(), f, 0, &DATA, Stable::FileSync).map(drop)),
        ("DATA_SYNC", |d, f| d.write(&me(), f, 0, &DATA, Stable::DataSync).map(drop)),
        ("COMMIT", |d, f| d.commit(&me(), f, 0, 0).map(drop)),
        ("SETATTR", |d, f| d.setattr(&me(), f, &SetAttr { mode: Some(0o600), ..SetAttr::NONE }, None).map(drop)),
        ("CREATE", |d, _| d.create(&me(), &d.root(), b"new", &CreateHow::Guarded(SetAttr::NONE)).map(drop)),
        ("MKDIR", |d, _| d.mkdir(&me(), &d.root(), b"dir", &SetAttr::NONE).map(drop)),
        ("RENAME", |d, _| d.rename(&me(), (&d.root(), b"b"), (&d.root(), b"c")).map(drop)),
    ];
    for (name, operation) in operations {
        let (_dir, disk, [a, _]) = disk();
        disk.write(&me(), &a, 0, &DATA, Stable::Unstable).unwrap();
        let before = disk.verifier();
        fail_next(1);
        let failed = operation(&disk, &a);
        fail_next(0);
        assert_eq!((name, failed), (name, Err(Status::Io)));
        assert_ne!(disk.verifier(), before, "{name}");
    }
}

#[test]
fn the_operator_hears_of_each_failure_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let (hear, heard) = std::sync::mpsc::channel();
    let failure_hook = FailureHook::call(move |what| {
        let DiskFailure::Flush(why) = what else { panic!("{what:?}") };
        hear.send(why.raw_os_error()).unwrap();
    });
    let disk = LocalDisk::open(dir.path(), Options { on_failure: failure_hook, ..Options::new([1; 8]) }).unwrap();
    let made = disk.create(&me(), &disk.root(), b"a", &CreateHow::Guarded(SetAttr::NONE)).unwrap();
    assert!(heard.try_recv().is_err());
    for why in [Errno::IO, Errno::NOSPC] {
        fail_next_with(1, why);
        disk.commit(&me(), &made.id, 0, 0).unwrap_err();
        assert_eq!(heard.try_recv(), Ok(Some(why.raw_os_error())));
        assert!(heard.try_recv().is_err());
    }
}

#[test]
fn a_flush_that_finds_no_room_says_so() {
    for (why, told) in [
        (Errno::NOSPC, Status::NoSpc),
        (Errno::DQUOT, Status::DQuot),
        (Errno::IO, Status::Io),
        (Errno::NOMEM, Status::Io),
    ] {
        let (_dir, disk, [a, _]) = disk();
        disk.write(&me(), &a, 0, &DATA, Stable::Unstable).unwrap();
        let before = disk.verifier();
        fail_next_with(1, why);
        assert_eq!(disk.commit(&me(), &a, 0, 0), Err(told), "{why:?}");
        assert_ne!(disk.verifier(), before, "{why:?}: what was written may be lost all the same");
    }
}

/// A disk that keeps few files open, and `n` files of it that anybody may write.
fn few_open(dirty_files_max: usize, n: usize) -> (tempfile::TempDir, LocalDisk, Vec<FileId>) {
    let dir = tempfile::tempdir().unwrap();
    let usual = Options { honour_credentials: rustix::process::geteuid().is_root(), ..Options::new([1; 8]) };
    let disk = LocalDisk::open(dir.path(), Options { open_max: 4, dirty_files_max, ..usual }).unwrap();
    let how = CreateHow::Guarded(SetAttr { mode: Some(0o666), ..SetAttr::NONE });
    let make = |n: usize| disk.create(&me(), &disk.root(), n.to_string().as_bytes(), &how).unwrap().id;
    let files = (0..n).map(make).collect();
    (dir, disk, files)
}

/// Writes to the file, without a flush, and what was written is lost.
fn write_and_lose(disk: &LocalDisk, file: &FileId) {
    disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
    let (data, _) = disk.data(&me(), file, OpenMode::Write).unwrap();
    lose(&*data.fd);
}

fn is_open(disk: &LocalDisk, file: &FileId) -> bool {
    disk.disk.files.held(file_id::decode(file).unwrap().0).is_some()
}

#[test]
fn a_commit_speaks_for_what_was_written_before_the_file_left_the_cache() {
    type Leave = fn(&LocalDisk, &[FileId]);
    let evicted: Leave = |disk, files| {
        for file in &files[1..] {
            disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
        }
        assert!(!is_open(disk, &files[0]));
    };
    let another_user: Leave = |disk, files| {
        let another = Cred { uid: 5001, gid: 5001, gids: Vec::new() };
        disk.write(&another, &files[0], 1, &DATA, Stable::Unstable).unwrap();
    };
    for (how, leave) in [("evicted", evicted), ("another user's", another_user)] {
        let (_dir, disk, files) = few_open(100, 12);
        if how != "evicted" && !disk.disk.creds.impersonates() {
            return skip::skipped(&skip::this_test(), "needs root for two users");
        }
        write_and_lose(&disk, &files[0]);
        let (before, so_far) = (disk.verifier(), flushes());
        leave(&disk, &files);
        assert_eq!((flushes(), disk.verifier()), (so_far, before), "{how}: nothing needs to be flushed");
        assert_eq!(disk.commit(&me(), &files[0], 0, 0), Err(Status::Io), "{how}");
        let after = disk.verifier();
        assert_ne!(after, before, "{how}");
        for file in &files {
            assert_eq!(disk.commit(&me(), file, 0, 0).map(drop), Ok(()), "{how}");
        }
        assert_eq!(disk.verifier(), after, "{how}: told once");
    }
}

#[test]
fn of_too_many_uncommitted_files_the_oldest_is_flushed_and_its_failure_told() {
    let (_dir, disk, files) = few_open(3, 5);
    write_and_lose(&disk, &files[0]);
    let (before, so_far) = (disk.verifier(), flushes());
    for (n, file) in files.iter().enumerate().skip(1) {
        disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
        assert_eq!(flushes() - so_far, (n as u32).saturating_sub(2), "with {n} more files");
        assert_eq!(disk.verifier() == before, n < 3, "with {n} more files");
    }
}

#[test]
fn what_a_client_left_uncommitted_is_flushed_after_a_while_and_closed() {
    let (_dir, disk, files) = few_open(100, 4);
    for file in &files {
        disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
    }
    let (before, so_far) = (disk.verifier(), flushes());
    assert!(!disk.disk.flush_idle(Duration::from_secs(3600)), "they were written to just now");
    assert_eq!(flushes(), so_far);
    assert!(disk.disk.flush_idle(Duration::ZERO) && !disk.disk.flush_idle(Duration::ZERO), "each once");
    disk.close_idle(Duration::ZERO);
    assert!(files.iter().all(|file| !is_open(&disk, file)), "a program can be run");
    assert_eq!((flushes() - so_far, disk.verifier()), (4, before));
    for file in &files {
        disk.write(&me(), file, 4, &DATA, Stable::Unstable).unwrap();
        disk.commit(&me(), file, 0, 0).unwrap();
    }
    assert_eq!(disk.verifier(), before, "who comes back later has nothing to write again");
}

#[test]
fn what_was_lost_before_a_client_committed_is_told_by_the_verifier() {
    let (_dir, disk, files) = few_open(100, 1);
    write_and_lose(&disk, &files[0]);
    let before = disk.verifier();
    assert!(disk.disk.flush_idle(Duration::ZERO));
    let after = disk.verifier();
    assert_ne!(after, before);
    assert_eq!(disk.commit(&me(), &files[0], 0, 0).map(drop), Ok(()));
    assert_eq!(disk.verifier(), after, "told once");
}

#[test]
fn who_commits_what_it_writes_needs_no_other_flush() {
    let (_dir, disk, files) = few_open(2, 20);
    let so_far = flushes();
    for file in &files {
        for _ in 0..3 {
            disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
        }
        disk.commit(&me(), file, 0, 0).unwrap();
        assert!(!is_open(&disk, file), "nothing is left to flush: a program can be run");
    }
    assert_eq!(flushes() - so_far, 20);
}

#[test]
fn what_nobody_writes_to_is_closed_unless_it_owes() {
    let (_dir, disk, files) = few_open(2, 2);
    disk.write(&me(), &files[0], 0, &DATA, Stable::Unstable).unwrap();
    disk.close_idle(Duration::from_secs(3600));
    assert!(files.iter().all(|file| is_open(&disk, file)), "they were used just now");
    disk.close_idle(Duration::ZERO);
    assert_eq!([0, 1].map(|n| is_open(&disk, &files[n])), [true, false], "the first owes a flush");
    disk.commit(&me(), &files[0], 0, 0).unwrap();
    disk.setattr(&me(), &files[0], &SetAttr { size: Some(0), ..SetAttr::NONE }, None).unwrap();
    assert!(is_open(&disk, &files[0]));
    disk.close_idle(Duration::ZERO);
    assert!(!is_open(&disk, &files[0]), "it was cut short and not written to");

    let how = CreateHow::Guarded(SetAttr { mode: Some(0o444), ..SetAttr::NONE });
    let made = disk.create(&me(), &disk.root(), b"read-only", &how).unwrap().id;
    disk.close_idle(Duration::ZERO);
    assert!(!is_open(&disk, &made), "nor is one that its owner may not write, for its maker may all the same");
    disk.write(&me(), &made, 0, &DATA, Stable::FileSync).unwrap();
}
