//! A process at its limit on open files: live files must not be stale, and no operation may be half done. In a process
//! of its own, because the limit is per process.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::path::Path;

use remora_vfs::local::{LocalDisk, Options, fd_exhaustion};
use remora_vfs::{Cred, FileId, Result, Vfs};
use remora_wire::nfs3::{CreateHow, NodeKind, SetAttr, Status};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most descriptors that an operation needs.
const ENOUGH: usize = 12;

fn me() -> Cred {
    Cred { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: Vec::new() }
}

fn open(dir: &Path) -> LocalDisk {
    LocalDisk::open(dir, Options::new([0; 8])).unwrap()
}

/// Runs `work` while the process may open `free` more files.
fn with_free<T>(free: usize, work: impl FnOnce() -> T) -> T {
    let all = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum: all.maximum }).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.truncate(taken.len() - free);
    let done = work();
    drop(taken);
    setrlimit(Resource::Nofile, all).unwrap();
    done
}

/// One test, because both parts change the limit.
#[test]
fn process_at_its_fd_limit_answers_jukebox() {
    let before = fd_exhaustion();
    live_files_are_not_stale();
    let after = fd_exhaustion();
    assert!(after.count > before.count && !after.system_wide, "{after:?}");
    what_is_not_opened_is_not_made();
}

fn live_files_are_not_stale() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<FileId> = {
        let fs = open(dir.path());
        let make = |at: &FileId, name: &str| fs.mkdir(&me(), at, name.as_bytes(), &SetAttr::NONE).unwrap().id;
        let file = |at: &FileId| fs.create(&me(), at, b"f", &CreateHow::Guarded(SetAttr::NONE)).unwrap().id;
        let deep = make(&make(&fs.root(), "a"), "b");
        vec![file(&deep), deep, file(&fs.root())]
    };
    for free in 0..ENOUGH {
        for id in &ids {
            // As after a restart: no path is cached.
            let fs = open(dir.path());
            let found = with_free(free, || fs.getattr(id)).map(drop);
            assert!(matches!(found, Ok(()) | Err(Status::Jukebox)), "{found:?} with {free} to open");
            assert!(fs.getattr(id).is_ok(), "once there are descriptors again");
        }
    }
}

fn what_is_not_opened_is_not_made() {
    type Make = fn(&LocalDisk, &[u8]) -> Result<()>;
    let ways: [(&str, Make); 4] = [
        ("mkdir", |fs, name| fs.mkdir(&me(), &fs.root(), name, &SetAttr::NONE).map(drop)),
        ("symlink", |fs, name| fs.symlink(&me(), &fs.root(), name, &SetAttr::NONE, b"to").map(drop)),
        ("mknod", |fs, name| fs.mknod(&me(), &fs.root(), name, &NodeKind::Fifo(SetAttr::NONE)).map(drop)),
        ("create", |fs, name| fs.create(&me(), &fs.root(), name, &CreateHow::Guarded(SetAttr::NONE)).map(drop)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let fs = open(dir.path());
    for (what, make) in ways {
        let mut refused = 0;
        for free in 0..ENOUGH {
            let name = format!("{what}{free}");
            let made = with_free(free, || make(&fs, name.as_bytes()));
            assert!(matches!(made, Ok(()) | Err(Status::Jukebox)), "{made:?}: {name}");
            let there = std::fs::symlink_metadata(dir.path().join(&name)).is_ok();
            assert_eq!(there, made.is_ok(), "{name}");
            if !there {
                refused += 1;
                assert_eq!(make(&fs, name.as_bytes()), Ok(()), "asked again: {name}");
            }
        }
        assert!(refused > 0, "{what} needs no descriptor: then this shows nothing");
    }
}
