//! What happens to requests that wait for a flush that fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{CreateHow, SetAttr, Stable, Status};
use rustix::io::Errno;

use super::{disk, me};
use crate::local::fd_cache::open_files::OpenMode;
use crate::local::handles::file_id;
use crate::local::sys::errors::{DiskFailure, FailureHook};
use crate::local::sys::syscalls::{fail_next, fail_next_with, flushes, lose};
use crate::local::{LocalDisk, Options};
use crate::{Cred, FileId, Flush, Ledger, NameIn, Vfs};

const DATA: Bytes = Bytes::from_static(b"data");

/// Writes and returns the flush that the write needs.
fn write(disk: &LocalDisk, file: &FileId, stable: Stable) -> Flush {
    let ledger = Arc::<Ledger>::default();
    let view = disk.deferring(&ledger).unwrap();
    view.write(&me(), file, 0, &DATA, stable).unwrap();
    ledger.take().pop().unwrap()
}

#[test]
fn failed_flush_fails_all_sharers_and_changes_verifier() {
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
        assert_ne!(disk.verifier(), before, "clients must repeat uncommitted writes");
        // The kernel reports a failure once: a good flush of another file proves nothing about earlier changes.
        assert_eq!(elsewhere.verdict(elsewhere.run(&[])), Err(Status::Io));
        let after = disk.verifier();
        let fresh = write(&disk, &a, stable);
        assert_eq!(fresh.verdict(fresh.run(&[])), Ok(()));
        assert_eq!(disk.verifier(), after);
    }
}

#[test]
fn stable_operation_reports_a_failed_flush() {
    type Operation = fn(&LocalDisk, &FileId) -> crate::Result<()>;
    let operations: [(&str, Operation); 7] = [
        ("FILE_SYNC", |d, f| d.write(&me(), f, 0, &DATA, Stable::FileSync).map(drop)),
        ("DATA_SYNC", |d, f| d.write(&me(), f, 0, &DATA, Stable::DataSync).map(drop)),
        ("COMMIT", |d, f| d.commit(&me(), f, 0, 0).map(drop)),
        ("SETATTR", |d, f| d.setattr(&me(), f, &SetAttr { mode: Some(0o600), ..SetAttr::NONE }, None).map(drop)),
        ("CREATE", |d, _| d.create(&me(), &d.root(), b"new", &CreateHow::Guarded(SetAttr::NONE)).map(drop)),
        ("MKDIR", |d, _| d.mkdir(&me(), &d.root(), b"dir", &SetAttr::NONE).map(drop)),
        ("RENAME", |d, _| d.rename(&me(), NameIn::new(&d.root(), b"b"), NameIn::new(&d.root(), b"c")).map(drop)),
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
fn failure_hook_gets_each_failure_with_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let (hear, heard) = std::sync::mpsc::channel();
    let failure_hook = FailureHook::call(move |what| {
        let DiskFailure::Flush(error) = what else { panic!("{what:?}") };
        hear.send(error.raw_os_error()).unwrap();
    });
    let disk = LocalDisk::open(dir.path(), Options { failure_hook, ..Options::new([1; 8]) }).unwrap();
    let made = disk.create(&me(), &disk.root(), b"a", &CreateHow::Guarded(SetAttr::NONE)).unwrap();
    assert!(heard.try_recv().is_err());
    for error in [Errno::IO, Errno::NOSPC] {
        fail_next_with(1, error);
        disk.commit(&me(), &made.id, 0, 0).unwrap_err();
        assert_eq!(heard.try_recv(), Ok(Some(error.raw_os_error())));
        assert!(heard.try_recv().is_err());
    }
}

#[test]
fn flush_without_space_reports_it() {
    for (error, status) in [
        (Errno::NOSPC, Status::NoSpc),
        (Errno::DQUOT, Status::DQuot),
        (Errno::IO, Status::Io),
        (Errno::NOMEM, Status::Io),
    ] {
        let (_dir, disk, [a, _]) = disk();
        disk.write(&me(), &a, 0, &DATA, Stable::Unstable).unwrap();
        let before = disk.verifier();
        fail_next_with(1, error);
        assert_eq!(disk.commit(&me(), &a, 0, 0), Err(status), "{error:?}");
        assert_ne!(disk.verifier(), before, "{error:?}: data may be lost");
    }
}

/// An export that keeps few files open, with `n` files that every user may write.
fn few_open(dirty_files_max: usize, n: usize) -> (tempfile::TempDir, LocalDisk, Vec<FileId>) {
    let dir = tempfile::tempdir().unwrap();
    let usual = Options { honour_credentials: rustix::process::geteuid().is_root(), ..Options::new([1; 8]) };
    let disk = LocalDisk::open(dir.path(), Options { open_max: 4, dirty_files_max, ..usual }).unwrap();
    let how = CreateHow::Guarded(SetAttr { mode: Some(0o666), ..SetAttr::NONE });
    let make = |n: usize| disk.create(&me(), &disk.root(), n.to_string().as_bytes(), &how).unwrap().id;
    let files = (0..n).map(make).collect();
    (dir, disk, files)
}

/// Writes to the file without a flush, and loses the data.
fn write_and_lose(disk: &LocalDisk, file: &FileId) {
    disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
    let (data, _) = disk.open_id(&me(), file, OpenMode::Write).unwrap();
    lose(&*data.fd);
}

fn is_open(disk: &LocalDisk, file: &FileId) -> bool {
    disk.disk.files().any_fd(file_id::decode(file).unwrap().0).is_some()
}

#[test]
fn commit_reports_loss_from_before_cache_eviction() {
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
        assert_eq!((flushes(), disk.verifier()), (so_far, before), "{how}: no flush is needed");
        assert_eq!(disk.commit(&me(), &files[0], 0, 0), Err(Status::Io), "{how}");
        let after = disk.verifier();
        assert_ne!(after, before, "{how}");
        for file in &files {
            assert_eq!(disk.commit(&me(), file, 0, 0).map(drop), Ok(()), "{how}");
        }
        assert_eq!(disk.verifier(), after, "{how}: reported once");
    }
}

#[test]
fn oldest_dirty_file_is_flushed_beyond_the_limit() {
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
fn uncommitted_files_are_flushed_and_closed_when_idle() {
    let (_dir, disk, files) = few_open(100, 4);
    for file in &files {
        disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
    }
    let (before, so_far) = (disk.verifier(), flushes());
    assert!(!disk.disk.flushes.flush_idle(Duration::from_secs(3600)), "they were written just now");
    assert_eq!(flushes(), so_far);
    assert!(disk.disk.flushes.flush_idle(Duration::ZERO) && !disk.disk.flushes.flush_idle(Duration::ZERO), "each once");
    disk.close_idle(Duration::ZERO);
    assert!(files.iter().all(|file| !is_open(&disk, file)), "they are closed");
    assert_eq!((flushes() - so_far, disk.verifier()), (4, before));
    for file in &files {
        disk.write(&me(), file, 4, &DATA, Stable::Unstable).unwrap();
        disk.commit(&me(), file, 0, 0).unwrap();
    }
    assert_eq!(disk.verifier(), before, "a later client repeats nothing");
}

#[test]
fn loss_before_commit_changes_the_verifier() {
    let (_dir, disk, files) = few_open(100, 1);
    write_and_lose(&disk, &files[0]);
    let before = disk.verifier();
    assert!(disk.disk.flushes.flush_idle(Duration::ZERO));
    let after = disk.verifier();
    assert_ne!(after, before);
    assert_eq!(disk.commit(&me(), &files[0], 0, 0).map(drop), Ok(()));
    assert_eq!(disk.verifier(), after, "reported once");
}

#[test]
fn committed_files_need_no_other_flush() {
    let (_dir, disk, files) = few_open(2, 20);
    let so_far = flushes();
    for file in &files {
        for _ in 0..3 {
            disk.write(&me(), file, 0, &DATA, Stable::Unstable).unwrap();
        }
        disk.commit(&me(), file, 0, 0).unwrap();
        assert!(!is_open(&disk, file), "a clean file is closed");
    }
    assert_eq!(flushes() - so_far, 20);
}

#[test]
fn idle_file_is_closed_unless_dirty() {
    let (_dir, disk, files) = few_open(2, 2);
    disk.write(&me(), &files[0], 0, &DATA, Stable::Unstable).unwrap();
    disk.close_idle(Duration::from_secs(3600));
    assert!(files.iter().all(|file| is_open(&disk, file)), "they were used just now");
    disk.close_idle(Duration::ZERO);
    assert_eq!([0, 1].map(|n| is_open(&disk, &files[n])), [true, false], "the first is dirty");
    disk.commit(&me(), &files[0], 0, 0).unwrap();
    disk.setattr(&me(), &files[0], &SetAttr { size: Some(0), ..SetAttr::NONE }, None).unwrap();
    assert!(is_open(&disk, &files[0]));
    disk.close_idle(Duration::ZERO);
    assert!(!is_open(&disk, &files[0]), "truncated and not written");

    let how = CreateHow::Guarded(SetAttr { mode: Some(0o444), ..SetAttr::NONE });
    let made = disk.create(&me(), &disk.root(), b"read-only", &how).unwrap().id;
    disk.close_idle(Duration::ZERO);
    assert!(!is_open(&disk, &made), "a read-only file that its creator may write");
    disk.write(&me(), &made, 0, &DATA, Stable::FileSync).unwrap();
}
