//! The file systems under test, and short forms of their operations.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use remora_vfs::{Cred, DirEntry, DirQuery, FileId, MemFs, Result, Vfs};
use remora_wire::nfs3::{CreateHow, SetAttr, Stable};

/// A directory that is removed with the value.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// In /dev/shm if it exists, where fsync(2) is free.
    pub(crate) fn new() -> TempDir {
        let shm = Path::new("/dev/shm");
        TempDir::under(if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() })
    }

    /// On the disk of temporary files.
    pub(crate) fn on_disk() -> TempDir {
        TempDir::under(std::env::temp_dir())
    }

    fn under(top: PathBuf) -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = top.join(format!("remora-vfs-{}-{n}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        TempDir(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test on each kind of file system.
pub(crate) fn on_each(test: impl Fn(&dyn Vfs)) {
    test(&MemFs::new(1));
    #[cfg(target_os = "linux")]
    {
        let dir = TempDir::new();
        test(&export(&dir));
    }
}

/// Exports a temporary directory.
#[cfg(target_os = "linux")]
pub(crate) fn export(dir: &TempDir) -> remora_vfs::LocalDisk {
    remora_vfs::LocalDisk::open(dir.path(), remora_vfs::local::Options::new(*b"verifier")).unwrap()
}

/// The user of the tests. Root may do everything on both file systems; another user may in a directory of its own.
pub(crate) fn me() -> Cred {
    Cred { uid: 0, gid: 0, gids: vec![] }
}

pub(crate) fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::NONE }
}

pub(crate) fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::NONE }
}

pub(crate) fn file(fs: &dyn Vfs, dir: &FileId, name: &str) -> FileId {
    fs.create(&me(), dir, name.as_bytes(), &CreateHow::Guarded(mode(0o644))).unwrap().id
}

pub(crate) fn folder(fs: &dyn Vfs, dir: &FileId, name: &str) -> FileId {
    fs.mkdir(&me(), dir, name.as_bytes(), &mode(0o755)).unwrap().id
}

pub(crate) fn find(fs: &dyn Vfs, dir: &FileId, name: &str) -> Result<FileId> {
    fs.lookup(&me(), dir, name.as_bytes()).map(|(id, _)| id)
}

pub(crate) fn write(fs: &dyn Vfs, id: &FileId, offset: u64, data: &[u8]) -> Result<()> {
    fs.write(&me(), id, offset, &Bytes::copy_from_slice(data), Stable::Unstable).map(drop)
}

pub(crate) fn read(fs: &dyn Vfs, id: &FileId) -> Vec<u8> {
    let (data, eof) = fs.read(&me(), id, 0, 1 << 20).unwrap();
    assert!(eof);
    data.to_vec()
}

/// Lists a directory in pages of `page` entries; `between` is called after each.
pub(crate) fn list(
    fs: &dyn Vfs,
    dir: &FileId,
    page: usize,
    objects: bool,
    mut between: impl FnMut(usize),
) -> Vec<DirEntry> {
    let mut all: Vec<DirEntry> = Vec::new();
    let mut query = DirQuery { cookie: 0, verf: [0; 8], objects };
    for n in 0.. {
        let from = all.len();
        let end = fs.readdir(&me(), dir, query, &mut |entry| {
            let room = all.len() - from < page;
            if room {
                all.push(entry);
            }
            room
        });
        let end = end.unwrap();
        if end.eof {
            return all;
        }
        query = DirQuery { cookie: all.last().map_or(0, |e| e.cookie), verf: end.verf, objects };
        assert!(query.cookie != 0, "a page of nothing");
        between(n);
    }
    unreachable!("directories end")
}

pub(crate) fn names(fs: &dyn Vfs, dir: &FileId) -> Vec<String> {
    let entries = list(fs, dir, usize::MAX, false, |_| {});
    let mut names: Vec<_> = entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
    names.sort();
    names
}
