//! Directory listings in pages, while the directory changes.

use std::collections::BTreeSet;

use remora_vfs::{DirQuery, Vfs};
use remora_wire::nfs3::Status;

use crate::bench::*;

#[test]
fn readdir_returns_objects_on_request() {
    on_each(|fs| {
        let root = fs.root();
        let d = folder(fs, &root, "d");
        let f = file(fs, &d, "f");
        let entries = list(fs, &d, usize::MAX, true, |_| {});
        let object = |name: &str| entries.iter().find(|e| e.name == name.as_bytes()).unwrap().object.clone().unwrap();
        assert_eq!((object(".").0, object("..").0, object("f").0), (d, root, f));
        assert_eq!(object("f").1, fs.getattr(&f).unwrap());
        assert!(entries.iter().all(|e| e.fileid == e.object.as_ref().unwrap().1.fileid && e.cookie != 0));
        assert!(list(fs, &d, usize::MAX, false, |_| {}).iter().all(|e| e.object.is_none()));
        let top = list(fs, &root, usize::MAX, true, |_| {});
        assert!(top.iter().filter(|e| e.name.starts_with(b".")).all(|e| e.object.as_ref().unwrap().0 == root));
        let nowhere = DirQuery { cookie: 0, verf: [0; 8], objects: false };
        assert_eq!(fs.readdir(&me(), &f, nowhere, &mut |_| true), Err(Status::NotDir));
    });
}

#[test]
fn page_ends_when_take_returns_false() {
    on_each(|fs| {
        let d = folder(fs, &fs.root(), "d");
        for i in 0..7 {
            file(fs, &d, &format!("f{i}"));
        }
        for page in 1..12 {
            let all = list(fs, &d, page, false, |_| {});
            let names: BTreeSet<_> = all.iter().map(|e| e.name.clone()).collect();
            assert_eq!((all.len(), names.len()), (9, 9), "pages of {page}");
        }
        let query = DirQuery { cookie: 0, verf: [0; 8], objects: false };
        assert!(!fs.readdir(&me(), &d, query, &mut |_| false).unwrap().eof);
    });
}

/// Removes and adds names between pages. Names that stay are listed exactly once.
fn list_while_it_changes(fs: &dyn Vfs, total: usize, make: impl Fn(&str), remove: impl Fn(&str)) {
    let dir = find(fs, &fs.root(), "d").unwrap();
    (0..total).for_each(|i| make(&format!("f{i:05}")));
    let entries = list(fs, &dir, 500, false, |page| {
        for i in (page * 300..page * 300 + 150).filter(|i| i % 3 == 0 && *i < total) {
            remove(&format!("f{i:05}"));
            make(&format!("new{i:05}"));
        }
    });
    let mut seen = BTreeSet::new();
    for entry in entries.iter().filter(|e| !e.name.starts_with(b"new")) {
        assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
    }
    for i in (0..total).filter(|i| i % 3 != 0) {
        assert!(seen.contains(format!("f{i:05}").as_bytes()), "f{i:05} is missing");
    }
    assert!(seen.contains(&b"."[..]) && seen.contains(&b".."[..]));
}

#[test]
fn changing_directory_is_listed_completely_in_memory() {
    let fs = remora_vfs::MemFs::new(3);
    let d = folder(&fs, &fs.root(), "d");
    let make = |name: &str| {
        file(&fs, &d, name);
    };
    let remove = |name: &str| {
        fs.remove(&me(), &d, name.as_bytes()).unwrap();
    };
    list_while_it_changes(&fs, 10_000, make, remove);
}

#[cfg(target_os = "linux")]
#[test]
fn changing_directory_is_listed_completely_on_disk() {
    // Fewer where creation is slow, but enough for an ext4 directory index.
    for (dir, total) in [(TempDir::new(), 10_000), (TempDir::on_disk(), 2_000)] {
        let fs = export(&dir);
        let d = dir.path().join("d");
        std::fs::create_dir(&d).unwrap();
        // Not through the server, to avoid the flushes.
        let make = |name: &str| drop(std::fs::File::create(d.join(name)).unwrap());
        list_while_it_changes(&fs, total, make, |name| std::fs::remove_file(d.join(name)).unwrap());
    }
}

/// The kernel returns many names at once. A name may be reused before the server stats it.
#[cfg(target_os = "linux")]
#[test]
fn entry_is_consistent_when_its_name_is_reused() {
    let dir = TempDir::new();
    let fs = export(&dir);
    let d = folder(&fs, &fs.root(), "d");
    for i in 0..20 {
        file(&fs, &d, &format!("f{i}"));
    }
    let (mut entries, mut replaced) = (Vec::new(), false);
    let query = DirQuery { cookie: 0, verf: [0; 8], objects: true };
    fs.readdir(&me(), &d, query, &mut |entry| {
        if !std::mem::replace(&mut replaced, true) {
            for i in 0..20 {
                std::fs::write(dir.path().join("new"), b"").unwrap();
                std::fs::rename(dir.path().join("new"), dir.path().join(format!("d/f{i}"))).unwrap();
            }
        }
        entries.push(entry);
        true
    })
    .unwrap();
    entries.retain(|entry| entry.name.starts_with(b"f"));
    assert_eq!(entries.len(), 20);
    for entry in entries.iter().skip(1) {
        let (id, attr) = entry.object.clone().unwrap();
        assert_eq!((entry.fileid, fs.getattr(&id)), (attr.fileid, Ok(attr)), "{:?}", entry.name);
    }
}
