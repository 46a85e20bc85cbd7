//! Files with several names on the local disk: after the removal of one, the handle is valid without a search.

use remora_vfs::local::{LocalDisk, Options};
use remora_vfs::{FileId, NameIn, Vfs};
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

    /// Creates `a/f` with a link `b/g`.
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
fn export_without_searches_finds_nothing() {
    let w = World::new();
    let f = w.linked();
    std::fs::rename(w.dir.path().join("a/f"), w.dir.path().join("a/h")).unwrap();
    assert_eq!(w.links(&f), Ok(2), "it has another name");
    std::fs::remove_file(w.dir.path().join("b/g")).unwrap();
    assert_eq!(w.links(&f), Err(Status::Stale));
}

#[test]
fn handle_survives_removal_of_the_old_name() {
    let w = World::new();
    let f = w.linked();
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Ok(1));
    assert_eq!(find(&w.fs, &w.b, "g"), Ok(f));
    w.remove(&w.b, "g");
    assert_eq!(w.links(&f), Err(Status::Stale));
}

#[test]
fn handle_survives_removal_of_the_new_name() {
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
fn name_from_a_listing_is_cached() {
    let w = World::new();
    let f = w.linked();
    list(&w.fs, &w.b, usize::MAX, true, |_| {});
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Ok(1));
    // After a restart the LINK is not cached, either.
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
fn handle_survives_replacement_of_one_name() {
    let w = World::new();
    let f = w.linked();
    file(&w.fs, &w.a, "new");
    w.fs.rename(&me(), NameIn::new(&w.a, b"new"), NameIn::new(&w.a, b"f")).unwrap();
    assert_eq!(w.links(&f), Ok(1));
}

#[test]
fn handle_survives_rename_and_removal() {
    let w = World::new();
    for (stays, removed) in [("f", "g"), ("g", "f")] {
        let f = w.linked();
        let home = |name| if name == "f" { &w.a } else { &w.b };
        w.fs.rename(&me(), NameIn::new(home(stays), stays.as_bytes()), NameIn::new(&w.fs.root(), b"moved")).unwrap();
        w.remove(home(removed), removed);
        assert_eq!(w.links(&f), Ok(1), "after {removed} was removed");
        w.remove(&w.fs.root(), "moved");
    }
}

#[test]
fn handle_survives_rename_of_its_directory() {
    let w = World::new();
    let f = w.linked();
    w.fs.rename(&me(), NameIn::new(&w.fs.root(), b"b"), NameIn::new(&w.a, b"c")).unwrap();
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Ok(1));
}

#[test]
fn other_file_under_the_cached_name_is_not_found() {
    let w = World::new();
    let f = w.linked();
    std::fs::remove_file(w.dir.path().join("b/g")).unwrap();
    std::fs::write(w.dir.path().join("b/g"), b"other").unwrap();
    w.remove(&w.a, "f");
    assert_eq!(w.links(&f), Err(Status::Stale));
}
