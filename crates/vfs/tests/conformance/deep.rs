//! Trees deeper than the limit. MKDIR cannot create one, but RENAME can.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use remora_vfs::local::{LocalDisk, Options};
use remora_vfs::{FileId, NameIn, Vfs};
use remora_wire::nfs3::{SetAttr, Status};

use crate::bench::*;

/// The maximum depth of a directory with reachable entries.
const DEPTH_MAX: usize = 4096;
/// Two chains of this length exceed the limit.
const CHAIN: usize = 2100;

/// A temporary directory that may be deeper than the standard library can remove.
struct Deep(TempDir);

impl Drop for Deep {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(self.0.path()).status();
    }
}

/// An export that revalidates everything.
fn wary(dir: &TempDir) -> LocalDisk {
    let options = Options { revalidate_after: Duration::ZERO, ..Options::new([0; 8]) };
    LocalDisk::open(dir.path(), options).unwrap()
}

/// `name/d/d/...`, [`CHAIN`] directories.
fn chain(fs: &dyn Vfs, name: &str) -> Vec<FileId> {
    let mut at = fs.root();
    let names = std::iter::once(name).chain(std::iter::repeat_n("d", CHAIN - 1));
    names
        .map(|name| {
            at = folder(fs, &at, name);
            at
        })
        .collect()
}

#[test]
fn tree_renamed_too_deep_is_refused_until_it_moves_up() {
    let Deep(dir) = &Deep(TempDir::new());
    let mut made = Vec::new();
    {
        let fs = LocalDisk::open(dir.path(), Options::new([0; 8])).unwrap();
        made.extend([chain(&fs, "upper"), chain(&fs, "lower")]);
    }
    let [upper, lower] = &made[..] else { unreachable!() };
    let (bottom, deepest) = (upper[CHAIN - 1], lower[CHAIN - 1]);
    let fs = wary(dir);
    assert!(fs.getattr(&deepest).is_ok() && fs.getattr(&bottom).is_ok());
    let f = file(&fs, &deepest, "f");
    fs.rename(&me(), NameIn::new(&fs.root(), b"lower"), NameIn::new(&bottom, b"lower")).unwrap();

    let last = lower[DEPTH_MAX - CHAIN - 1];
    assert_eq!(names(&fs, &last), [".", "..", "d"]);
    let beyond = find(&fs, &last, "d").unwrap();
    for id in [beyond, deepest] {
        assert_eq!(fs.lookup(&me(), &id, b"d").map(drop), Err(Status::NameTooLong));
        assert_eq!(fs.mkdir(&me(), &id, b"new", &SetAttr::NONE).map(drop), Err(Status::NameTooLong));
    }
    for id in [deepest, f] {
        assert_eq!(fs.getattr(&id), Err(Status::NameTooLong));
        let again = wary(dir);
        assert_eq!(again.getattr(&id), Err(Status::Stale), "after a restart its path is not cached");
    }

    // Only a rename of something above brings objects there.
    folder(&fs, &fs.root(), "new");
    assert_eq!(fs.mkdir(&me(), &last, b"new", &SetAttr::NONE).map(drop), Err(Status::NameTooLong));
    let moved = fs.rename(&me(), NameIn::new(&fs.root(), b"new"), NameIn::new(&last, b"new"));
    assert_eq!(moved.map(drop), Err(Status::NameTooLong));
    let g = file(&fs, &last, "g");
    fs.rename(&me(), NameIn::new(&last, b"g"), NameIn::new(&last, b"h")).unwrap();
    fs.rename(&me(), NameIn::new(&last, b"d"), NameIn::new(&last, b"e")).unwrap();
    assert!(fs.getattr(&g).is_ok());

    fs.rename(&me(), NameIn::new(&bottom, b"lower"), NameIn::new(&fs.root(), b"lower")).unwrap();
    assert!(fs.getattr(&deepest).is_ok() && fs.getattr(&f).is_ok());
}
