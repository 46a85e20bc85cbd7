//! On the real disk, as if making a file there took long.

use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use remora_wire::nfs3::{CreateHow, SetAttr};
use rustix::fs::{XattrFlags, setxattr};

use super::super::flush_failure::{ACL, me};
use super::super::{Options, graveyard::Ways, kind::Kind};
use super::*;
use crate::{FileId, Vfs};

/// A disk with one directory, world-writable, on which files are made ahead.
fn disk(honour: bool) -> (tempfile::TempDir, LocalDisk, FileId) {
    let top = tempfile::tempdir().unwrap();
    std::fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let options = Options { honour_credentials: honour, ..Options::new([1; 8]) };
    let kind = Kind {
        has_journal: false,
        syncs_all: true,
        acl_apart: false,
        hides_open: false,
        ways: Ways { grain: Duration::ZERO, shuns: true },
        lists_anew: false,
        modes_decide: true,
    };
    let disk = LocalDisk::open_as(top.path(), options, |_, _| kind).unwrap();
    slow_down(&disk);
    std::fs::create_dir(top.path().join("dir")).unwrap();
    std::fs::set_permissions(top.path().join("dir"), PermissionsExt::from_mode(0o777)).unwrap();
    let (dir, _) = disk.lookup(&me(), &disk.root(), b"dir").unwrap();
    (top, disk, dir)
}

/// From here on making a file seems to take long, until it is seen that it does not.
fn slow_down(disk: &LocalDisk) {
    (0..200).for_each(|_| disk.disk.stock.made(Duration::from_millis(10)));
}

fn how(mode: u32) -> CreateHow {
    CreateHow::Guarded(SetAttr { mode: Some(mode), ..SetAttr::NONE })
}

/// Makes files until some are there that were made ahead. Whether that came about: some file systems cannot.
fn stock_up(disk: &LocalDisk, cred: &Cred, dir: &FileId, mode: u32) -> bool {
    disk.disk.stock.clear();
    let began = Instant::now();
    for n in 0.. {
        slow_down(disk);
        disk.create(cred, dir, format!("first {mode:o} {n}").as_bytes(), &how(mode)).unwrap();
        if disk.disk.stock.len() > 0 {
            return true;
        }
        if began.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    let there = disk.folder(dir).unwrap();
    let made = openat(&there.fd, c".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU);
    assert!(matches!(made, Err(Errno::OPNOTSUPP | Errno::ISDIR)), "nothing was made ahead, though it can be");
    skip::skipped(&skip::this_test(), "the file system has no files without names");
    false
}

/// Gives the next name to a file that was made ahead.
fn name_one(
    disk: &LocalDisk,
    cred: &Cred,
    dir: &FileId,
    name: &[u8],
    mode: u32,
) -> Option<rustix::io::Result<OwnedFd>> {
    let there = disk.folder(dir).unwrap();
    let attr = there.attr().unwrap();
    let _as_caller = disk.disk.identity.assume(cred).unwrap();
    disk.name_one(cred, (&there, &attr), name, Mode::from_raw_mode(mode))
}

/// A file made by open(2), by whom this process is.
fn ordinary(path: &Path, mode: u32) -> std::fs::Metadata {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap().metadata().unwrap()
}

#[test]
fn a_file_made_ahead_is_what_it_would_be_if_it_were_made_now() {
    let (top, disk, dir) = disk(false);
    let path = top.path().join("dir");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, None, Some(1234)).unwrap();
    }
    for (dir_mode, mode) in [(0o777, 0o640), (0o777, 0o666), (0o2777, 0o604)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(dir_mode)).unwrap();
        if !stock_up(&disk, &me(), &dir, mode) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
        let now = ordinary(&path.join(format!("now {mode:o}")), mode);
        let name = format!("ahead {mode:o}");
        name_one(&disk, &me(), &dir, name.as_bytes(), mode).unwrap().unwrap();
        let ahead = path.join(name).metadata().unwrap();
        let same = |m: &std::fs::Metadata| (m.mode(), m.uid(), m.gid(), m.nlink(), m.size());
        assert_eq!(same(&ahead), same(&now), "{dir_mode:o}");
        let times = |m: &std::fs::Metadata| {
            [(m.mtime(), m.mtime_nsec()), (m.atime(), m.atime_nsec()), (m.ctime(), m.ctime_nsec())]
        };
        assert!(times(&ahead).iter().zip(times(&now)).all(|(a, b)| *a >= b), "{:?} {:?}", times(&ahead), times(&now));
    }
}

#[test]
fn what_has_a_name_keeps_it_and_the_file_waits_for_another() {
    let (top, disk, dir) = disk(false);
    if !stock_up(&disk, &me(), &dir, 0o644) {
        return;
    }
    std::fs::write(top.path().join("dir/taken"), b"old").unwrap();
    std::os::unix::fs::symlink("nowhere", top.path().join("dir/link")).unwrap();
    for name in [&b"taken"[..], b"link"] {
        let before = disk.disk.stock.len();
        assert_eq!(name_one(&disk, &me(), &dir, name, 0o644).unwrap().unwrap_err(), Errno::EXIST);
        assert!(disk.disk.stock.len() >= before);
        assert_eq!(disk.create(&me(), &dir, name, &how(0o644)), Err(Status::Exist));
    }
    assert_eq!(std::fs::read(top.path().join("dir/taken")).unwrap(), b"old");
}

#[test]
fn a_directory_with_a_default_acl_has_the_last_word() {
    let (top, disk, dir) = disk(false);
    if !stock_up(&disk, &me(), &dir, 0o666) {
        return;
    }
    let path = top.path().join("dir");
    if setxattr(&path, c"system.posix_acl_default", &ACL, XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
        return skip::skipped(&skip::this_test(), "the file system has no ACLs");
    }
    let now = ordinary(&path.join("now"), 0o666);
    assert_eq!(now.mode() & 0o777, 0o640, "the ACL's, whatever the umask");
    let made = disk.create(&me(), &dir, b"made", &how(0o666)).unwrap();
    assert_eq!(made.attr.mode, 0o640);
    let acl = |name: &str| rustix::fs::getxattr(path.join(name), c"system.posix_acl_access", &mut [0u8; 64]);
    assert!(acl("now").is_ok());
    assert_eq!(acl("made"), acl("now"));
}

#[test]
fn many_threads_make_and_remove_files_as_themselves() {
    let root = rustix::process::geteuid().is_root();
    let (top, disk, dir) = disk(root);
    let creds: Vec<_> =
        (0..3).map(|n| if root { Cred { uid: 1000 + n, gid: 2000 + n, gids: vec![3000] } } else { me() }).collect();
    std::thread::scope(|scope| {
        for (n, cred) in creds.iter().enumerate() {
            let (disk, dir) = (&disk, &dir);
            scope.spawn(move || {
                let ledger = Arc::default();
                let view = disk.deferring(&ledger).unwrap();
                for i in 0..1500 {
                    let name = format!("{n} {i}");
                    let made = view.create(cred, dir, name.as_bytes(), &how(0o600 + n as u32)).unwrap();
                    let got = (made.attr.uid, made.attr.gid, made.attr.mode, made.attr.nlink);
                    assert_eq!(got, (cred.uid, cred.gid, 0o600 + n as u32, 1));
                    assert_eq!(view.getattr(&made.id).unwrap(), made.attr);
                    if i % 2 == 0 {
                        view.remove(cred, dir, name.as_bytes()).unwrap();
                        assert_eq!(view.getattr(&made.id), Err(Status::Stale));
                    }
                    ledger.take();
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(top.path().join("dir")).unwrap().count(), 3 * 750);
}

#[test]
fn nothing_stays_open_of_a_directory_or_a_disk_that_is_gone() {
    let (top, disk, dir) = disk(false);
    let nameless = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets: Vec<_> = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        targets.iter().filter(|to| to.starts_with(top.path().join("dir"))).count()
    };
    let is_soon = |what: &dyn Fn() -> bool| {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            what()
        })
    };
    if !stock_up(&disk, &me(), &dir, 0o644) {
        return;
    }
    for entry in std::fs::read_dir(top.path().join("dir")).unwrap().flatten() {
        disk.remove(&me(), &dir, entry.file_name().as_encoded_bytes()).unwrap();
    }
    disk.rmdir(&me(), &disk.root(), b"dir").unwrap();
    assert!(is_soon(&|| disk.disk.stock.len() == 0));
    assert_eq!(disk.create(&me(), &dir, b"late", &how(0o644)), Err(Status::Stale));
    drop(disk);
    assert!(is_soon(&|| nameless() == 0));
}

#[test]
fn a_keeper_comes_when_there_is_something_to_do_and_goes_when_there_is_not() {
    let (_top, disk, dir) = disk(false);
    let keeper = || disk.disk.stock.0.lock().keeper;
    assert!(keeper() == Keeper::None, "many exports need none");
    let comes = (0..1000).any(|n| {
        slow_down(&disk);
        disk.create(&me(), &dir, format!("{n}").as_bytes(), &how(0o600)).unwrap();
        keeper() == Keeper::There
    });
    assert!(comes);
    let shared =
        Shared { state: Mutex::new(State { keeper: Keeper::There, ..State::default() }), wanted: Condvar::new() };
    assert!(shared.next_order(Duration::ZERO).is_none());
    assert!(shared.lock().keeper == Keeper::None, "another one can come");
}
