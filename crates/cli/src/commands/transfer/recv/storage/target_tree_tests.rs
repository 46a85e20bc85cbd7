//! Directories under DIR, and what somebody else may have put there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;

const KEPT: Kept = Kept { mode: Some(0o7755), mtime: Some((1_000_000_000, 7)) };

fn guest(n: u8) -> Holder {
    Holder { key: PublicKey::from_bytes([n; 32]), host: None }
}

fn tree() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path().join("inbox"), 0o027);
    fs::create_dir(dir.path().join("inbox")).unwrap();
    (dir, tree)
}

#[test]
fn unknown_free_space_is_not_full() {
    assert_eq!(room(0, 0, 4096), None);
    assert_eq!(room(10, 0, 4096), Some(0));
    assert_eq!(room(10, 3, 4096), Some(12288));
    assert_eq!(room(u64::MAX, u64::MAX, 4096), Some(u64::MAX));
}

#[test]
fn directories_are_private_until_their_mode_is_known() {
    let (dir, mut tree) = tree();
    let at = dir.path().join("inbox/a/b");
    assert!(tree.find("a/b/c").unwrap().is_none());
    let target = tree.make(guest(1), "a/b/c").unwrap();
    fs::write(&target.path, "x").unwrap();
    target.sync_dir().unwrap();
    assert_eq!(fs::read(at.join("c")).unwrap(), b"x");
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o700);
    // Only whose files brought it about may say what mode it has.
    tree.make_dir(guest(2), "a/b", KEPT).unwrap();
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o700);
    tree.make_dir(guest(1), "a/b", KEPT).unwrap();
    let found = fs::metadata(&at).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o750, 1_000_000_000, 7));
    // One that was there before is nobody's here.
    fs::create_dir(dir.path().join("inbox/old")).unwrap();
    fs::set_permissions(dir.path().join("inbox/old"), fs::Permissions::from_mode(0o711)).unwrap();
    tree.make_dir(guest(1), "old", KEPT).unwrap();
    assert_eq!(fs::metadata(dir.path().join("inbox/old")).unwrap().mode() & 0o777, 0o711);
}

#[test]
fn planted_links_are_not_followed() {
    let (dir, mut tree) = tree();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(dir.path().join("inbox/a")).unwrap();
    symlink(&outside, dir.path().join("inbox/link")).unwrap();
    symlink("../../outside", dir.path().join("inbox/a/link")).unwrap();
    fs::write(dir.path().join("inbox/file"), "").unwrap();
    for name in ["link", "a/link", "file"] {
        let why = tree.make(guest(1), &format!("{name}/x")).unwrap_err();
        assert!(why.contains("is not a directory there"), "{why}");
        assert!(tree.find(&format!("{name}/x")).is_err(), "{name}");
        assert!(tree.make_dir(guest(1), name, KEPT).is_err(), "{name}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// A symbolic link stands for a file system that takes both names for one.
#[test]
fn folded_name_of_a_made_directory_is_refused() {
    let (dir, mut tree) = tree();
    let [first, second] = ["inbox/a/Dir", "inbox/a/dir"].map(|name| dir.path().join(name));
    tree.make_dir(guest(1), "a/Dir", KEPT).unwrap();
    fs::rename(&first, &second).unwrap();
    tree.make_dir(guest(1), "a/dir", KEPT).unwrap();
    symlink("dir", &first).unwrap();
    for why in [tree.make_dir(guest(1), "a/dir", KEPT), tree.make(guest(1), "a/dir/b/x").map(drop)] {
        let why = why.unwrap_err();
        assert!(why.contains("'a/dir'") && why.contains("'a/Dir'"), "{why}");
    }
    assert!(!second.join("b").exists());
}

/// Between the moment in which a file's place is found and that in which it gets its name.
#[test]
fn directory_that_is_swapped_for_a_link_is_not_left() {
    let (dir, mut tree) = tree();
    let [a, moved, outside] = ["inbox/a", "inbox/moved", "outside"].map(|name| dir.path().join(name));
    fs::create_dir(&outside).unwrap();
    let target = tree.make(guest(1), "a/x").unwrap();
    fs::rename(&a, &moved).unwrap();
    symlink(&outside, &a).unwrap();
    fs::write(&target.path, "x").unwrap();
    assert!(moved.join("x").exists() && !outside.join("x").exists());
}

#[test]
fn a_file_gets_its_mode_and_time_but_no_set_id_bit() {
    let (dir, tree) = tree();
    let path = dir.path().join("x");
    let file = fs::File::create(&path).unwrap();
    tree.dress(Kept { mode: Some(0o6755), mtime: Some((-1, 5)) }).put_on(&file);
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime()), (0o750, -1));
    tree.dress(Kept { mode: None, mtime: Some((0, 1_000_000_000)) }).put_on(&file);
    assert_eq!(fs::metadata(&path).unwrap().mtime(), -1, "no such time");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    tree.dress(Kept::default()).put_on(&file);
    assert_eq!(fs::metadata(&path).unwrap().mtime(), 1);
}
