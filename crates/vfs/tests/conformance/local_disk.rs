//! What the local disk guarantees beyond the contract: restarts, concurrent changes by other programs, flushes.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remora_vfs::local::{LocalDisk, Options};
use remora_vfs::{self as vfs, DirQuery, FileId, Flush, Ledger, NameIn, OFFSET_MAX, Vfs};
use remora_wire::nfs3::{
    ACCESS_DELETE, ACCESS_MODIFY, ACCESS_READ, CreateHow, NfsTime, SetAttr, SetTime, Stable, Status,
};

use crate::bench::*;

/// Creates `d0/d1/.../file` with `depth` directories.
fn deep_file(fs: &dyn Vfs, depth: usize) -> FileId {
    let dir = (0..depth).fold(fs.root(), |dir, i| folder(fs, &dir, &format!("d{i}")));
    let f = file(fs, &dir, "file");
    write(fs, &f, 0, b"here").unwrap();
    f
}

#[test]
fn id_survives_restart_at_any_depth() {
    for depth in [0, 1, 3, 23, 24, 25, 40] {
        let dir = TempDir::new();
        let id = deep_file(&export(&dir), depth);
        // Other directories for the search to examine.
        (0..20).for_each(|i| std::fs::create_dir(dir.path().join(format!("other{i}"))).unwrap());
        let fs = export(&dir);
        assert_eq!(read(&fs, &id), b"here", "depth {depth}");
        assert_eq!(fs.verifier(), *b"verifier");
    }
}

#[test]
fn id_survives_restart_on_disk() {
    let dir = TempDir::on_disk();
    let id = deep_file(&export(&dir), 2);
    assert_eq!(read(&export(&dir), &id), b"here");
}

#[test]
fn id_is_the_same_after_restart() {
    let dir = TempDir::new();
    let before = export(&dir);
    let id = deep_file(&before, 3);
    let after = export(&dir);
    let d = (0..3).fold(after.root(), |d, i| find(&after, &d, &format!("d{i}")).unwrap());
    assert_eq!(find(&after, &d, "file"), Ok(id));
}

#[test]
fn path_longer_than_path_max_is_resolved() {
    let dir = TempDir::new();
    let fs = export(&dir);
    let name = "n".repeat(200);
    let bottom = (0..30).fold(fs.root(), |dir, _| folder(&fs, &dir, &name));
    assert_eq!(names(&fs, &bottom), [".", ".."], "6000 bytes of path");
    assert_eq!(names(&export(&dir), &bottom), [".", ".."]);
}

#[test]
fn file_is_found_after_another_program_renamed_it() {
    let dir = TempDir::new();
    let fs = export(&dir);
    let id = deep_file(&fs, 3);
    let path = |p: &str| dir.path().join(p);
    std::fs::rename(path("d0/d1"), path("d0/renamed")).unwrap();
    assert_eq!(read(&fs, &id), b"here", "still open");
    assert!(fs.getattr(&id).is_ok(), "found by the hint");
    std::fs::rename(path("d0/renamed/d2/file"), path("elsewhere")).unwrap();
    assert!(fs.getattr(&id).is_ok(), "found by a walk");
    assert!(export(&dir).getattr(&id).is_ok(), "and after a restart");
    // Another file under the old name is another file.
    std::fs::write(path("d0/renamed/d2/file"), b"other").unwrap();
    assert_eq!(read(&fs, &id), b"here");
    std::fs::remove_file(path("elsewhere")).unwrap();
    assert_eq!(fs.getattr(&id), Err(Status::Stale));
    assert_eq!(fs.read(&me(), &id, 0, 1), Err(Status::Stale), "even if still open");
}

#[test]
fn parent_is_current_after_another_program_moved_dir() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    let fs = export(&dir);
    let [a, b] = ["a", "b"].map(|name| folder(&fs, &fs.root(), name));
    let d = folder(&fs, &a, "d");
    assert_eq!(find(&fs, &d, ".."), Ok(a));
    std::fs::rename(dir.path().join("a/d"), dir.path().join("b/d")).unwrap();
    assert_eq!(find(&fs, &d, ".."), Ok(b));
    std::fs::rename(dir.path().join("b/d"), dir.path().join("d")).unwrap();
    std::fs::remove_dir(dir.path().join("b")).unwrap();
    let up = |e: &remora_vfs::DirEntry| (&e.name[..] == b"..").then(|| e.object.as_ref().unwrap().0);
    assert_eq!(list(&fs, &d, usize::MAX, true, |_| {}).iter().find_map(up), Some(fs.root()));
    std::fs::rename(dir.path().join("d"), outside.path().join("d")).unwrap();
    assert_eq!(find(&fs, &d, ".."), Err(Status::Stale), "out of the export");
}

/// The file moves from a directory that the search has not examined into one that it has.
#[test]
#[expect(clippy::disallowed_methods, reason = "a concurrent thread moves it")]
fn file_moved_during_search_is_found() {
    let dir = TempDir::new();
    let path = |at: usize| dir.path().join(format!("{at}/d"));
    for at in 0..30 {
        std::fs::create_dir(dir.path().join(at.to_string())).unwrap();
        (0..30).for_each(|i| drop(std::fs::File::create(dir.path().join(format!("{at}/{i}"))).unwrap()));
    }
    let fs = export(&dir);
    let id = file(&fs, &folder(&fs, &fs.root(), "d"), "f");
    let mut last = dir.path().join("d");
    for n in 0..800 {
        // The hint describes the first path, and the present one is not cached.
        let fs = export(&dir);
        let next = path(n * 7 % 30);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(n as u64 * 17 % 1000));
                std::fs::rename(&last, &next).unwrap();
            });
            assert!(fs.getattr(&id).is_ok(), "in round {n}");
        });
        last = next;
    }
}

#[test]
fn search_ends_at_its_entry_limit() {
    let dir = TempDir::new();
    let id = file(&export(&dir), &folder(&export(&dir), &export(&dir).root(), "d"), "f");
    // Before and after, because the listing order is unknown.
    (0..100).for_each(|i| drop(std::fs::File::create(dir.path().join(format!("{i}"))).unwrap()));
    std::fs::rename(dir.path().join("d/f"), dir.path().join("hidden")).unwrap();
    (100..200).for_each(|i| drop(std::fs::File::create(dir.path().join(format!("{i}"))).unwrap()));
    let options = Options { search_max: 10, ..Options::new([0; 8]) };
    assert_eq!(LocalDisk::open(dir.path(), options).unwrap().getattr(&id), Err(Status::Stale));
}

#[test]
fn search_does_not_change_atime() {
    let dir = TempDir::on_disk();
    let fs = export(&dir);
    let [from, to] = ["from", "to"].map(|name| folder(&fs, &fs.root(), name));
    let f = file(&fs, &from, "f");
    let long_ago = SetAttr { atime: SetTime::To(NfsTime { secs: 7, nanos: 0 }), ..SetAttr::NONE };
    std::fs::rename(dir.path().join("from/f"), dir.path().join("to/f")).unwrap();
    for dir in [&fs.root(), &from, &to] {
        fs.setattr(&me(), dir, &long_ago, None).unwrap();
    }
    assert!(fs.getattr(&f).is_ok());
    for dir in [&fs.root(), &from, &to] {
        assert_eq!(fs.getattr(dir).unwrap().atime.secs, 7);
    }
}

#[test]
fn full_search_has_its_own_entry_limit() {
    let dir = TempDir::new();
    let id = {
        let fs = export(&dir);
        let [from, to] = ["from", "to"].map(|name| folder(&fs, &fs.root(), name));
        let id = file(&fs, &from, "f");
        fs.rename(&me(), NameIn::new(&from, b"f"), NameIn::new(&to, b"f")).unwrap();
        for dir in [&fs.root(), &from, &to] {
            for i in 0..60 {
                file(&fs, dir, &i.to_string());
            }
        }
        id
    };
    // The hint describes the old path. The tree has 190 entries.
    let options = Options { search_max: 190, ..Options::new([0; 8]) };
    assert!(LocalDisk::open(dir.path(), options).unwrap().getattr(&id).is_ok());
}

#[test]
fn small_path_cache_finds_every_file() {
    let dir = TempDir::new();
    let options = Options { path_cache_max: 4, open_max: 2, ..Options::new([0; 8]) };
    let fs = LocalDisk::open(dir.path(), options).unwrap();
    let ids: Vec<_> = (0..10)
        .map(|i| {
            let d = folder(&fs, &fs.root(), &format!("d{i}"));
            let f = file(&fs, &d, "f");
            write(&fs, &f, 0, &[i]).unwrap();
            f
        })
        .collect();
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(read(&fs, id), [i as u8]);
    }
}

#[test]
fn symlink_put_into_a_path_is_not_followed() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    std::fs::write(outside.path().join("file"), b"secret").unwrap();
    let options = Options { revalidate_after: Duration::ZERO, ..Options::new([0; 8]) };
    let fs = LocalDisk::open(dir.path(), options).unwrap();
    let d = folder(&fs, &fs.root(), "d");
    let f = file(&fs, &d, "file");
    std::fs::rename(dir.path().join("d"), outside.path().join("d")).unwrap();
    symlink(outside.path(), dir.path().join("d")).unwrap();
    assert_eq!(fs.getattr(&f), Err(Status::Stale), "moved out of the export");
    assert_eq!(find(&fs, &d, "file"), Err(Status::Stale));
    let link = find(&fs, &fs.root(), "d").unwrap();
    assert_eq!(find(&fs, &link, "file"), Err(Status::NotDir));
}

#[test]
fn protected_objects_are_inaccessible() {
    let (dir, elsewhere) = (TempDir::new(), TempDir::new());
    let keys = dir.path().join("state/keys");
    std::fs::create_dir_all(&keys).unwrap();
    for path in [keys.join("key"), dir.path().join("own.key"), dir.path().join("file")] {
        std::fs::write(path, b"secret").unwrap();
    }
    symlink(&keys, elsewhere.path().join("link")).unwrap();
    let name = |fs: &LocalDisk, path: &[&str]| path.iter().try_fold(fs.root(), |dir, name| find(fs, &dir, name));
    let open = export(&dir);
    let [state, dir_before, key_before] =
        [&["state"][..], &["state", "keys"], &["state", "keys", "key"]].map(|path| name(&open, path).unwrap());
    for path in [keys.clone(), elsewhere.path().join("link")] {
        let closed = vec![path.clone(), path.join("key"), dir.path().join("own.key"), dir.path().join("missing")];
        let fs = LocalDisk::open(dir.path(), Options { protected_paths: closed, ..Options::new([0; 8]) }).unwrap();
        let (root, ok) = (fs.root(), |done: vfs::Result<()>| done.unwrap_err());
        assert_eq!(name(&fs, &["state", "keys"]), Ok(dir_before), "it is seen");
        assert_eq!(name(&fs, &["state", "keys", "key"]), Err(Status::Access));
        let query = DirQuery { cookie: 0, verf: [0; 8], objects: true };
        assert_eq!(ok(fs.readdir(&me(), &dir_before, query, &mut |_| true).map(drop)), Status::Access);
        let own = find(&fs, &root, "own.key").unwrap();
        for file in [own, key_before] {
            assert_eq!(ok(fs.read(&me(), &file, 0, 9).map(drop)), Status::Access, "also by a handle from before");
            assert_eq!(ok(fs.setattr(&me(), &file, &size(0), None).map(drop)), Status::Access);
            assert_eq!(ok(fs.link(&me(), &file, &root, b"second").map(drop)), Status::Access);
        }
        let how = CreateHow::Unchecked(size(0));
        assert_eq!(ok(fs.create(&me(), &root, b"own.key", &how).map(drop)), Status::Access);
        assert_eq!(ok(fs.create(&me(), &dir_before, b"new", &how).map(drop)), Status::Access);
        assert_eq!(ok(fs.remove(&me(), &root, b"own.key").map(drop)), Status::Access);
        assert_eq!(
            ok(fs.rename(&me(), NameIn::new(&root, b"file"), NameIn::new(&root, b"own.key")).map(drop)),
            Status::Access
        );
        assert_eq!(
            ok(fs.rename(&me(), NameIn::new(&state, b"keys"), NameIn::new(&state, b"moved")).map(drop)),
            Status::Access
        );
        assert_eq!(read(&fs, &find(&fs, &root, "file").unwrap()), b"secret");
        // An export of the protected directory itself shows nothing.
        let itself = LocalDisk::open(&keys, Options { protected_paths: vec![path], ..Options::new([0; 8]) }).unwrap();
        assert_eq!(find(&itself, &itself.root(), "key"), Err(Status::Access));
    }
}

#[test]
fn path_to_protected_object_keeps_its_names() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    let top = dir.path();
    std::fs::create_dir_all(top.join("home/state/keys")).unwrap();
    std::fs::write(top.join("home/state/keys/key"), b"secret").unwrap();
    for (link, target) in [("first", "home/../second"), ("second", "home/state"), ("other", "home")] {
        symlink(target, top.join(link)).unwrap();
    }
    symlink(top, outside.path().join("export")).unwrap();
    for path in ["first/keys", "first/keys/key", "first/keys/missing"] {
        // By two paths, one of them from outside.
        for path in [top.join(path), outside.path().join("export").join(path)] {
            let fs =
                LocalDisk::open(top, Options { protected_paths: vec![path.clone()], ..Options::new([0; 8]) }).unwrap();
            let root = fs.root();
            let home = find(&fs, &root, "home").unwrap();
            for (dir, name) in [(&root, "home"), (&root, "first"), (&root, "second"), (&home, "state")] {
                let name = name.as_bytes();
                let what = format!("{} {}", path.display(), name.escape_ascii());
                assert_eq!(
                    fs.rename(&me(), NameIn::new(dir, name), NameIn::new(&root, b"moved")).err(),
                    Some(Status::Access),
                    "{what}"
                );
                assert_eq!(
                    fs.rename(&me(), NameIn::new(&root, b"other"), NameIn::new(dir, name)).err(),
                    Some(Status::Access),
                    "{what}"
                );
                assert_eq!(fs.remove(&me(), dir, name).err(), Some(Status::Access), "{what}");
                assert_eq!(fs.rmdir(&me(), dir, name).err(), Some(Status::Access), "{what}");
            }
            fs.rename(&me(), NameIn::new(&root, b"other"), NameIn::new(&root, b"others")).unwrap();
            fs.rename(&me(), NameIn::new(&root, b"others"), NameIn::new(&root, b"other")).unwrap();
            let beside = folder(&fs, &home, "beside");
            file(&fs, &beside, "f");
            fs.remove(&me(), &beside, b"f").unwrap();
            fs.rmdir(&me(), &home, b"beside").unwrap();
        }
    }
    assert_eq!(std::fs::read(top.join("first/keys/key")).unwrap(), b"secret");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "open files are trusted for real time")]
fn open_file_is_revalidated() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    let options = Options { revalidate_after: Duration::from_millis(50), ..Options::new([0; 8]) };
    let fs = LocalDisk::open(dir.path(), options).unwrap();
    let (gone, stays) = (file(&fs, &fs.root(), "gone"), file(&fs, &fs.root(), "stays"));
    for id in [&gone, &stays] {
        write(&fs, id, 0, b"secret").unwrap();
        assert_eq!(read(&fs, id), b"secret");
    }
    std::fs::rename(dir.path().join("gone"), outside.path().join("gone")).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while fs.read(&me(), &gone, 0, 6).is_ok() || write(&fs, &gone, 0, b"x").is_ok() {
        assert!(Instant::now() < until, "still reachable");
        // Being used does not keep it.
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read(&fs, &stays), b"secret");
    write(&fs, &stays, 0, b"public").unwrap();
}

#[test]
fn fsstat_frees_space_of_files_removed_by_others() {
    frees_space(|fs| assert!(fs.fsstat(&fs.root()).is_ok()));
}

#[test]
fn tidy_frees_space_of_files_removed_by_others() {
    frees_space(|fs| fs.tidy());
}

fn frees_space(when: impl Fn(&LocalDisk)) {
    let a_file = |fs: &LocalDisk, name: &str| {
        let f = file(fs, &fs.root(), name);
        write(fs, &f, 0, b"text").unwrap();
        assert_eq!(read(fs, &f), b"text");
    };
    frees_space_of(a_file, |path| std::fs::remove_file(path), &when);
    let a_folder = |fs: &LocalDisk, name: &str| {
        let d = folder(fs, &fs.root(), name);
        file(fs, &d, "file");
    };
    frees_space_of(a_folder, |path| std::fs::remove_dir_all(path), &when);
}

fn frees_space_of(
    use_one: impl Fn(&LocalDisk, &str),
    remove: impl Fn(&Path) -> std::io::Result<()>,
    when: impl Fn(&LocalDisk),
) {
    let dir = TempDir::new();
    let fs = export(&dir);
    // The tests of this process share /proc/self/fd.
    let name = format!("removed-from-{}", dir.path().file_name().unwrap().display());
    use_one(&fs, &name);
    remove(&dir.path().join(&name)).unwrap();
    let gone = format!("/{name} (deleted)");
    let held = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .filter(|to| to.to_string_lossy().ends_with(&gone))
            .count()
    };
    assert!(held() > 0);
    when(&fs);
    assert_eq!(held(), 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "open files are trusted for real time")]
fn open_directory_is_revalidated() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    let options = Options { revalidate_after: Duration::from_millis(50), ..Options::new([0; 8]) };
    let fs = LocalDisk::open(dir.path(), options).unwrap();
    let d = folder(&fs, &fs.root(), "d");
    let inner = folder(&fs, &d, "inner");
    let f = file(&fs, &inner, "file");
    std::fs::rename(dir.path().join("d"), outside.path().join("d")).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    for id in [d, inner, f] {
        while fs.getattr(&id) != Err(Status::Stale) {
            assert!(Instant::now() < until, "still reachable");
            // Use does not extend the trust.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // A removal, unlike a move, is noticed at once.
    let d = folder(&fs, &fs.root(), "d");
    assert_eq!(find(&fs, &d, "none"), Err(Status::NoEnt));
    std::fs::remove_dir(dir.path().join("d")).unwrap();
    let new = fs.create(&me(), &d, b"new", &CreateHow::Guarded(mode(0o644)));
    assert_eq!(new.unwrap_err(), Status::Stale);
    assert_eq!(find(&fs, &d, "none"), Err(Status::Stale));
    assert_eq!(fs.remove(&me(), &d, b"none"), Err(Status::Stale));
    assert_eq!(fs.getattr(&d), Err(Status::Stale));
}

#[test]
fn parent_of_the_root_is_the_root() {
    let dir = TempDir::new();
    let sub = dir.path().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let fs = LocalDisk::open(&sub, Options::new([0; 8])).unwrap();
    assert_eq!(find(&fs, &fs.root(), ".."), Ok(fs.root()));
    let up = std::fs::metadata(dir.path()).unwrap().ino();
    assert!(list(&fs, &fs.root(), 10, false, |_| {}).iter().all(|e| e.fileid != up));
}

#[test]
fn file_max_is_the_limit_of_the_disk() {
    for dir in [TempDir::new(), TempDir::on_disk()] {
        let fs = export(&dir);
        let f = file(&fs, &fs.root(), "f");
        let end = fs.file_max();
        assert!(end > 1 << 40 && end <= OFFSET_MAX, "{end}");
        write(&fs, &f, end - 1, b"x").unwrap();
        if end < OFFSET_MAX {
            assert_eq!(write(&fs, &f, end, b"x").unwrap_err(), Status::FBig);
        }
    }
}

#[test]
fn flushed_file_is_closed_for_writing() {
    let dir = TempDir::new();
    let fs = export(&dir);
    let made = fs.create(&me(), &fs.root(), b"program", &CreateHow::Guarded(mode(0o755))).unwrap().id;
    let of = |path: &std::path::Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let program = of(&dir.path().join("program")).unwrap();
    let is_open = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        fds.flatten().any(|fd| of(&fd.path()).is_ok_and(|open| open == program))
    };
    for _ in 0..2 {
        fs.write(&me(), &made, 0, &b"x"[..].into(), Stable::Unstable).unwrap();
        assert!(is_open(), "more will come");
        fs.commit(&me(), &made, 0, 0).unwrap();
        assert!(!is_open(), "it must be executable here");
        fs.write(&me(), &made, 0, &b"x"[..].into(), Stable::FileSync).unwrap();
        assert!(!is_open());
        let write = |fs: &dyn Vfs| fs.write(&me(), &made, 0, &"x".into(), Stable::FileSync).unwrap();
        let flushes = deferred_flushes(&fs, |fs| [(); 3].map(|()| write(fs)));
        flushes[0].run(&[&flushes[1], &flushes[2]]).unwrap();
        drop(flushes);
        assert!(!is_open(), "the flush was shared");
    }
}

/// The flushes that `change` on a deferring view needs.
fn deferred_flushes<T>(fs: &LocalDisk, change: impl FnOnce(&dyn Vfs) -> T) -> Vec<Flush> {
    let ledger = Arc::new(Ledger::default());
    change(&*fs.deferring(&ledger).unwrap());
    ledger.take()
}

#[test]
fn flush_keys_tell_which_changes_share_a_flush() {
    let dir = TempDir::new();
    let fs = export(&dir);
    let (root, me) = (fs.root(), me());
    let (f, g) = (file(&fs, &root, "f"), file(&fs, &root, "g"));
    let d = folder(&fs, &root, "d");
    let write = |id: FileId, stable| deferred_flushes(&fs, |fs| fs.write(&me, &id, 0, &"x".into(), stable).unwrap());
    let remove = |dir: FileId, name: &str| deferred_flushes(&fs, |fs| fs.remove(&me, &dir, name.as_bytes()).unwrap());

    assert_eq!(write(f, Stable::Unstable).len(), 0);
    let (one, two, other) = (write(f, Stable::FileSync), write(f, Stable::FileSync), write(g, Stable::FileSync));
    assert_eq!((one.len(), one[0].key()), (1, two[0].key()));
    assert_ne!(one[0].key(), other[0].key());
    assert_ne!(one[0].key(), write(f, Stable::DataSync)[0].key(), "a flush that does less cannot stand in");
    let commit = deferred_flushes(&fs, |fs| fs.commit(&me, &f, 0, 0).unwrap());
    assert_eq!(commit[0].key(), one[0].key());
    assert_eq!(
        deferred_flushes(&fs, |fs| assert!(fs.getattr(&file(fs, &root, "h")).is_ok())).last().map(Flush::key),
        remove(root, "f").last().map(Flush::key)
    );

    file(&fs, &d, "n");
    let rename = deferred_flushes(&fs, |fs| fs.rename(&me, NameIn::new(&d, b"n"), NameIn::new(&root, b"n")).unwrap());
    assert_eq!(rename.len(), 2);
    assert_eq!(rename[0].key(), remove(root, "g")[0].key(), "the new name first");
    for flush in one.iter().chain(&rename) {
        assert_eq!(flush.verdict(flush.run(&[])), Ok(()));
    }
    assert!(deferred_flushes(&fs, |fs| fs.remove(&me, &root, b"none")).is_empty(), "nothing was changed");
}

#[test]
fn read_only_export_rejects_every_change() {
    let dir = TempDir::new();
    let id = file(&export(&dir), &export(&dir).root(), "f");
    let fs = LocalDisk::open(dir.path(), Options { read_only: true, ..Options::new([0; 8]) }).unwrap();
    let root = fs.root();
    let changes = [
        fs.setattr(&me(), &id, &mode(0), None).map(drop),
        write(&fs, &id, 0, b"x"),
        fs.create(&me(), &root, b"g", &CreateHow::Guarded(SetAttr::NONE)).map(drop),
        fs.mkdir(&me(), &root, b"g", &SetAttr::NONE).map(drop),
        fs.symlink(&me(), &root, b"g", &SetAttr::NONE, b"t").map(drop),
        fs.remove(&me(), &root, b"f").map(drop),
        fs.rmdir(&me(), &root, b"f").map(drop),
        fs.rename(&me(), NameIn::new(&root, b"f"), NameIn::new(&root, b"g")).map(drop),
        fs.link(&me(), &id, &root, b"g").map(drop),
    ];
    assert!(changes.iter().all(|c| *c == Err(Status::RoFs)), "{changes:?}");
    assert_eq!(fs.access(&me(), &root, ACCESS_READ | ACCESS_MODIFY | ACCESS_DELETE), Ok(ACCESS_READ));
    assert_eq!(read(&fs, &id), b"");
}

#[test]
fn reused_inode_number_gets_a_new_id() {
    // ext4 reuses the inode number at once.
    let dir = TempDir::on_disk();
    let fs = export(&dir);
    let mut dead = Vec::new();
    for _ in 0..40 {
        let id = fs.symlink(&me(), &fs.root(), b"brief", &SetAttr::NONE, b"t").unwrap().id;
        assert!(!dead.contains(&id), "an id was reused");
        fs.remove(&me(), &fs.root(), b"brief").unwrap();
        dead.push(id);
    }
}

#[test]
fn ids_of_short_lived_files_are_never_reused() {
    let dir = TempDir::on_disk();
    let fs = export(&dir);
    let ledger = Arc::<Ledger>::default();
    let view = fs.deferring(&ledger).unwrap();
    let mut seen = BTreeSet::new();
    let how = CreateHow::Guarded(SetAttr::NONE);
    // Without flushes, many files are created within a clock tick. (From Linux 6.13 on most birth times differ within a
    // tick.)
    for round in 0..100 {
        for n in 0..10 {
            let name = format!("brief{n}");
            let id = view.create(&me(), &fs.root(), name.as_bytes(), &how).unwrap().id;
            assert!(seen.insert(id), "an id was reused in round {round}");
        }
        for n in 0..10 {
            view.remove(&me(), &fs.root(), format!("brief{n}").as_bytes()).unwrap();
        }
        ledger.take();
    }
}

#[expect(clippy::disallowed_methods, reason = "a server's executor has threads")]
#[test]
fn concurrent_renames_in_one_directory_succeed() {
    let dir = TempDir::new();
    let fs = &export(&dir);
    let root = fs.root();
    let done = &AtomicBool::new(false);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..4)
            .map(|t| {
                s.spawn(move || {
                    for i in 0..40 {
                        let (a, b) = (format!("{t}.{i}"), format!("{t}.{i}.moved"));
                        let f = file(fs, &root, &a);
                        fs.rename(&me(), NameIn::new(&root, a.as_bytes()), NameIn::new(&root, b.as_bytes())).unwrap();
                        write(fs, &f, 0, a.as_bytes()).unwrap();
                        // All threads rename onto the same name, too.
                        fs.rename(&me(), NameIn::new(&root, b.as_bytes()), NameIn::new(&root, b"shared")).unwrap();
                    }
                })
            })
            .collect();
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                names(fs, &root);
            }
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(fs, &root), [".", "..", "shared"]);
}
