//! The cost and depth of searches.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};

use crate::local::handles::file_id::PathHint;
use crate::local::handles::path_cache::DEPTH_MAX;
use crate::local::handles::search::{WalkOutcome, Walker, Wanted};
use crate::local::handles::search_limit::{DIR_COST, SearchBudget};
use crate::local::inode::stat::InodeKey;
use crate::local::{LocalDisk, Options};

/// Creates `d/d/...` and beside each `d` a directory `e`, which is examined after everything in `d`.
fn comb(top: &std::path::Path, depth: usize) {
    let mut at = std::fs::File::open(top).map(OwnedFd::from).unwrap();
    for _ in 0..depth {
        ["d", "e"].iter().for_each(|name| rustix::fs::mkdirat(&at, *name, Mode::RWXU).unwrap());
        at = openat(&at, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

#[test]
fn walk_cost_is_linear_in_directories_however_deep() {
    const DEPTH: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    comb(dir.path(), DEPTH);
    let fs = LocalDisk::open(dir.path(), Options::new([0; 8])).unwrap();
    let mut budget = SearchBudget::new(&fs.disk.tree.search_limit);
    let nothing = Wanted { key: InodeKey { ino: u64::MAX, birth_ns: 0 }, hint: PathHint::default() };
    let walk = Walker::new(&fs.disk.tree, nothing, usize::MAX, &mut budget).run(|_, _| true).unwrap();
    assert!(matches!(walk, WalkOutcome::NotFound | WalkOutcome::Changed));
    let entries = 2 * (2 * DEPTH + 1) + 2 * DEPTH;
    assert_eq!(budget.spent(), (2 * DEPTH + 1) * DIR_COST + entries);
}

#[test]
fn walk_stops_at_the_maximum_depth() {
    let dir = tempfile::tempdir().unwrap();
    comb(dir.path(), DEPTH_MAX + 50);
    let fs = LocalDisk::open(dir.path(), Options::new([0; 8])).unwrap();
    let mut budget = SearchBudget::new(&fs.disk.tree.search_limit);
    let nothing = Wanted { key: InodeKey { ino: u64::MAX, birth_ns: 0 }, hint: PathHint::default() };
    drop(Walker::new(&fs.disk.tree, nothing, usize::MAX, &mut budget).run(|_, _| true).unwrap());
    assert!(budget.spent() < (2 * DEPTH_MAX + 1) * (DIR_COST + 4));
    std::process::Command::new("rm").arg("-rf").arg(dir.path()).status().unwrap();
}
