//! Files with several names on the local disk: a client that takes one of them away goes on with its
//! handle, and nothing is searched for it.

use remora_vfs::local::{LocalDisk, Options};
use remora_vfs::{FileId, Vfs};
use remora_wire::nfs3::Status;

use crate::bench::*;

/// An export in which searches find nothing, with the directories `a` and `b`.
struct World {
    dir: TempDir,
    fs: LocalDisk,
    a: FileId,
    b: FileId,
}

impl World {
    fn new() -> World {
        let dir = TempDir::new();
        let fs = LocalDisk::open(dir.path(), Options { search_max: 1, ..Options::new([0; 8]) }).unwrap();
        let (a, b) = (folder(&fs, &fs.root(), "a"), folder(&fs, &fs.root(), "b"));
        World { dir, fs, a, b }
    }

    /// `a/f`, which is `b/g` too.
    fn linked(&self) -> FileId {
        let f = file(&self.fs, &self.a, "f");
        self.fs.link(&me(), &f, &self.b, b"g").unwrap();
        f
    }

    fn remove(&self, dir: &FileId, name: &str) {
        self.fs.remove(&me(), dir, name.as_bytes()).unwrap();
    }

    fn links(&self, id: &FileId) -> Result<u32, Status> {
        self.fs.getattr(id).map(|attr| attr.nlink)
    }
}

#[test]
fn what_searches_would_find_is_not_found_here() {
    let w = World::new();
    let f = w.linked();
    std::fs::rename(w.dir.path().join("a/f"), w.dir.path().join("a/h")).unwrap();
    assert_eq!(w.links(&f), Ok(2), "it has another name");
    std::fs::remove_file(w.dir.path().join("b/g")).unwrap();
    assert_eq!(w.links(&f), Err(Status::Stale));
}

#[test]
fn the_old_name_goes_as_where_mail_is_delivered() {
    let w = World::new();
    let f = w.linked();
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Ok(1));
    assert_eq!(find(&w.fs, &w.b, "g"), Ok(f));
    w.remove(&w.b, "g");
    assert_eq!(w.links(&f), Err(Status::Stale));
}

#[test]
fn the_new_name_goes_as_that_of_a_lock_does() {
    let w = World::new();
    let f = w.linked();
    for _ in 0..3 {
        w.remove(&w.b, "g");
        assert_eq!(w.links(&f), Ok(1));
        w.fs.link(&me(), &f, &w.b, b"g").unwrap();
    }
    assert_eq!(find(&w.fs, &w.b, "g"), Ok(f), "and is looked at meanwhile");
    w.remove(&w.b, "g");
    assert_eq!(w.links(&f), Ok(1));
}

#[test]
fn a_name_is_known_from_a_listing() {
    let w = World::new();
    let f = w.linked();
    list(&w.fs, &w.b, usize::MAX, true, |_| {});
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Ok(1));
    // Not from the LINK either, as after a restart.
    let fs = LocalDisk::open(w.dir.path(), Options { search_max: 1, ..Options::new([0; 8]) }).unwrap();
    let (a, b) = (find(&fs, &fs.root(), "a").unwrap(), find(&fs, &fs.root(), "b").unwrap());
    fs.link(&me(), &find(&fs, &b, "g").unwrap(), &a, b"f").unwrap();
    for dir in [&a, &b] {
        list(&fs, dir, usize::MAX, true, |_| {});
    }
    fs.remove(&me(), &b, b"g").unwrap();
    assert_eq!(fs.getattr(&f).map(|attr| attr.nlink), Ok(1));
}

#[test]
fn a_name_is_replaced() {
    let w = World::new();
    let f = w.linked();
    file(&w.fs, &w.a, "new");
    w.fs.rename(&me(), (&w.a, b"new"), (&w.a, b"f")).unwrap();
    assert_eq!(w.links(&f), Ok(1));
}

#[test]
fn one_name_moves_and_the_other_goes() {
    let w = World::new();
    for (stays, goes) in [("f", "g"), ("g", "f")] {
        let f = w.linked();
        let home = |name| if name == "f" { &w.a } else { &w.b };
        w.fs.rename(&me(), (home(stays), stays.as_bytes()), (&w.fs.root(), b"moved")).unwrap();
        w.remove(home(goes), goes);
        assert_eq!(w.links(&f), Ok(1), "{goes} went");
        w.remove(&w.fs.root(), "moved");
    }
}

#[test]
fn the_directory_of_one_name_moves() {
    let w = World::new();
    let f = w.linked();
    w.fs.rename(&me(), (&w.fs.root(), b"b"), (&w.a, b"c")).unwrap();
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Ok(1));
}

#[test]
fn another_file_under_the_other_name_is_another_file() {
    let w = World::new();
    let f = w.linked();
    std::fs::remove_file(w.dir.path().join("b/g")).unwrap();
    std::fs::write(w.dir.path().join("b/g"), b"other").unwrap();
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Err(Status::Stale));
}
