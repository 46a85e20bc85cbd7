//! Mount points: their paths, and what is mounted there.
//!
//! A mounted file system whose process is stopped answers nothing, and a dead one answers ENOTCONN. So nothing here asks
//! the file system at the mount point itself.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::fuse::mount_table::fuse_mounts;

/// Symbolic links followed at the end of a path.
const LINKS_MAX: usize = 40;
/// Type of the file system in the mount table.
pub const FILE_SYSTEM: &str = "fuse.remora";

/// The absolute path of `dir` without symbolic links.
pub fn resolve(dir: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(dir)?;
    for _ in 0..LINKS_MAX {
        // A name before `..` may be a symbolic link.
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        let (false, Some(parent), Some(name)) = (goes_up, path.parent(), path.file_name()) else {
            return fs::canonicalize(&path);
        };
        let parent = fs::canonicalize(parent)?;
        let whole = parent.join(name);
        match fs::read_link(&whole) {
            Ok(target) => path = parent.join(target),
            Err(_) => return Ok(whole),
        }
    }
    Err(io::Error::from(rustix::io::Errno::LOOP))
}

/// Whether a file system of this program is mounted at exactly `dir`.
pub fn is_mounted(dir: &Path) -> bool {
    all().is_ok_and(|dirs| dirs.iter().any(|at| at == dir))
}

/// Where file systems of this program are mounted.
pub fn all() -> io::Result<Vec<PathBuf>> {
    let ours = fuse_mounts()?.into_iter().filter(|mount| mount.kind == FILE_SYSTEM);
    Ok(ours.map(|mount| mount.dir).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn path_is_resolved_without_a_look_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        symlink("a", top.join("to-a")).unwrap();
        symlink("to-a/b", top.join("to-b")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        for path in ["a/b", "to-a/b", "to-b", "a/../to-b", "a/./b/"] {
            assert_eq!(resolve(&top.join(path)).unwrap(), top.join("a/b"), "{path}");
        }
        assert_eq!(resolve(&top.join("a/missing")).unwrap(), top.join("a/missing"));
        assert!(resolve(&top.join("missing/b")).is_err() && resolve(&top.join("loop")).is_err());
    }
}
