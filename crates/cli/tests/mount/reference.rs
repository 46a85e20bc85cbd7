//! Random operations through the mount, compared with the same on a local directory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::common::noise;
use crate::kit::{Site, is_long};

/// The names that operations use: few, so that they meet.
const PATHS: [&str; 8] = ["a", "b", "d", "e", "d/a", "d/b", "e/a", "d/e"];
const OPEN_MAX: usize = 3;

/// An operation on some of [`PATHS`], or on one of the open files.
#[derive(Clone, Debug)]
enum Operation {
    Write { path: usize, offset: u64, len: usize },
    Append { path: usize, len: usize },
    Truncate { path: usize, len: u64 },
    Read { path: usize },
    CreateNew { path: usize },
    MakeDir { path: usize },
    RemoveDir { path: usize },
    Unlink { path: usize },
    Rename { from: usize, to: usize },
    Link { from: usize, to: usize },
    Symlink { target: usize, path: usize },
    ReadLink { path: usize },
    Chmod { path: usize, mode: u32 },
    Stat { path: usize },
    List { path: usize },
    Open { slot: usize, path: usize },
    WriteOpen { slot: usize, offset: u64, len: usize },
    ReadOpen { slot: usize },
    Sync { slot: usize },
    Close { slot: usize },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let path = || 0..PATHS.len();
    let slot = || 0..OPEN_MAX;
    let len = || prop_oneof![0..64usize, 4000..4200usize, 60_000..140_000usize];
    let offset = || prop_oneof![Just(0), 0..5000u64, 100_000..300_000u64];
    prop_oneof![
        3 => (path(), offset(), len()).prop_map(|(path, offset, len)| Write { path, offset, len }),
        1 => (path(), len()).prop_map(|(path, len)| Append { path, len }),
        2 => (path(), offset()).prop_map(|(path, len)| Truncate { path, len }),
        2 => path().prop_map(|path| Read { path }),
        1 => path().prop_map(|path| CreateNew { path }),
        2 => path().prop_map(|path| MakeDir { path }),
        1 => path().prop_map(|path| RemoveDir { path }),
        2 => path().prop_map(|path| Unlink { path }),
        3 => (path(), path()).prop_map(|(from, to)| Rename { from, to }),
        2 => (path(), path()).prop_map(|(from, to)| Link { from, to }),
        1 => (path(), path()).prop_map(|(target, path)| Symlink { target, path }),
        1 => path().prop_map(|path| ReadLink { path }),
        1 => (path(), 0..0o1000u32).prop_map(|(path, mode)| Chmod { path, mode }),
        2 => path().prop_map(|path| Stat { path }),
        1 => path().prop_map(|path| List { path }),
        2 => (slot(), path()).prop_map(|(slot, path)| Open { slot, path }),
        2 => (slot(), offset(), len()).prop_map(|(slot, offset, len)| WriteOpen { slot, offset, len }),
        2 => slot().prop_map(|slot| ReadOpen { slot }),
        1 => slot().prop_map(|slot| Sync { slot }),
        1 => slot().prop_map(|slot| Close { slot }),
    ]
}

/// A directory and the files that are open in it.
struct Tree {
    dir: PathBuf,
    open: [Option<File>; OPEN_MAX],
    was_open: bool,
}

impl Tree {
    fn new(dir: PathBuf) -> Tree {
        Tree { dir, open: Default::default(), was_open: false }
    }

    fn at(&self, path: usize) -> PathBuf {
        self.dir.join(PATHS[path])
    }

    /// What the operation returns, for people to compare.
    fn perform(&mut self, n: usize, operation: &Operation) -> String {
        use Operation::*;
        let data = |len: usize| noise(len, n as u64 + 1);
        let done: io::Result<String> = match *operation {
            Write { path, offset, len } => OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(self.at(path))
                .and_then(|file| file.write_all_at(&data(len), offset))
                .map(empty),
            Append { path, len } => OpenOptions::new()
                .append(true)
                .open(self.at(path))
                .and_then(|mut file| io::Write::write_all(&mut file, &data(len)))
                .map(empty),
            Truncate { path, len } => {
                OpenOptions::new().write(true).open(self.at(path)).and_then(|file| file.set_len(len)).map(empty)
            }
            Read { path } => fs::read(self.at(path)).map(|bytes| summary(&bytes)),
            CreateNew { path } => File::create_new(self.at(path)).map(empty),
            MakeDir { path } => fs::create_dir(self.at(path)).map(empty),
            // A file that is removed while open keeps a hidden name in its directory.
            RemoveDir { .. } if self.has_open() => Ok("left out".into()),
            RemoveDir { path } => fs::remove_dir(self.at(path)).map(empty),
            Unlink { path } => fs::remove_file(self.at(path)).map(empty),
            // The same for the directory that is replaced.
            Rename { to, .. } if self.has_open() && self.at(to).is_dir() => Ok("left out".into()),
            Rename { from, to } => fs::rename(self.at(from), self.at(to)).map(empty),
            Link { from, to } => fs::hard_link(self.at(from), self.at(to)).map(empty),
            Symlink { target, path } => symlink(PATHS[target], self.at(path)).map(empty),
            ReadLink { path } => fs::read_link(self.at(path)).map(|target| target.display().to_string()),
            Chmod { path, mode } => fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).map(empty),
            Stat { path } => fs::symlink_metadata(self.at(path)).map(|metadata| self.describe(&metadata)),
            List { path } => list(&self.at(path)).map(|names| names.join(" ")),
            Open { slot, path } => File::options().read(true).write(true).open(self.at(path)).map(|file| {
                self.open[slot] = Some(file);
                self.was_open = true;
                String::new()
            }),
            WriteOpen { slot, offset, len } => {
                self.file(slot).and_then(|file| file.write_all_at(&data(len), offset)).map(empty)
            }
            ReadOpen { slot } => self.file(slot).and_then(|file| {
                let mut bytes = vec![0; file.metadata()?.len() as usize];
                file.read_exact_at(&mut bytes, 0).map(|()| summary(&bytes))
            }),
            Sync { slot } => self.file(slot).and_then(File::sync_all).map(empty),
            Close { slot } => {
                self.open[slot] = None;
                Ok(String::new())
            }
        };
        done.unwrap_or_else(|e| e.to_string())
    }

    fn has_open(&self) -> bool {
        self.open.iter().any(Option::is_some)
    }

    fn file(&self, slot: usize) -> io::Result<&File> {
        self.open[slot].as_ref().ok_or_else(|| io::Error::other("not open"))
    }

    /// What all file systems agree on. A file that is removed while open has a hidden link until a moment after its close.
    fn describe(&self, metadata: &fs::Metadata) -> String {
        let size = if metadata.is_dir() { 0 } else { metadata.len() };
        let links = if metadata.is_dir() || self.was_open { 0 } else { metadata.nlink() };
        format!("mode {:o}, {links} links, {size} bytes", metadata.mode())
    }

    /// All that is below a directory.
    fn contents(&self, dir: &Path) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut left = vec![dir.to_owned()];
        while let Some(next) = left.pop() {
            for name in list(&next).unwrap() {
                let path = next.join(name);
                let metadata = fs::symlink_metadata(&path).unwrap();
                let bytes = match metadata.file_type() {
                    kind if kind.is_file() => summary(&fs::read(&path).unwrap()),
                    kind if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
                    _ => String::new(),
                };
                if metadata.is_dir() {
                    left.push(path.clone());
                }
                all.insert(
                    path.strip_prefix(dir).unwrap().to_owned(),
                    format!("{}: {bytes}", self.describe(&metadata)),
                );
            }
        }
        all
    }
}

fn empty<T>(_: T) -> String {
    String::new()
}

/// Length, last byte that is not zero, and a checksum.
fn summary(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    format!("{} bytes, {end} until zeros, {}", bytes.len(), blake3::hash(bytes).to_hex())
}

/// Names in a directory but those of removed files.
fn list(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with(".nfs"));
    names.sort();
    Ok(names)
}

#[test]
fn random_operations_agree_with_a_local_directory() {
    let Some((site, mount)) = Site::mounted(&[]) else { return };
    let cases = if is_long() { 2000 } else { 40 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let number = Cell::new(0);
    let outcome = runner.run(&vec(operation(), 1..80), |operations| {
        number.set(number.get() + 1);
        let name = format!("case-{}", number.get());
        let model = tempfile::tempdir().unwrap();
        fs::create_dir(mount.at(&name)).unwrap();
        let (mut local, mut remote) = (Tree::new(model.path().to_owned()), Tree::new(mount.at(&name)));
        for (n, operation) in operations.iter().enumerate() {
            let (expected, found) = (local.perform(n, operation), remote.perform(n, operation));
            prop_assert_eq!(found, expected, "operation {}: {:?}", n, operation);
        }
        local.open = Default::default();
        remote.open = Default::default();
        let expected = local.contents(&local.dir);
        prop_assert_eq!(&remote.contents(&remote.dir), &expected, "through the mount at the end");
        prop_assert_eq!(&remote.contents(&site.place.srv(&name)), &expected, "on the server at the end");
        Ok(())
    });
    match outcome {
        Ok(()) => println!("{cases} cases agree"),
        Err(TestError::Fail(why, operations)) => panic!("{why}\n{operations:#?}"),
        Err(e) => panic!("{e}"),
    }
}
