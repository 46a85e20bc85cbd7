//! Mount points: their paths, and what is mounted there.
//!
//! A mounted file system whose process is stopped answers nothing, and a dead one answers ENOTCONN. So nothing here asks
//! the file system at the mount point itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

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
    fs::read(MOUNT_TABLE).is_ok_and(|table| mounted(&table).iter().any(|at| at == dir))
}

/// Where file systems of this program are mounted.
pub fn all() -> io::Result<Vec<PathBuf>> {
    Ok(mounted(&fs::read(MOUNT_TABLE)?))
}

const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// The mount points of our type in a mountinfo (proc_pid_mountinfo(5)).
fn mounted(table: &[u8]) -> Vec<PathBuf> {
    table.split(|b| *b == b'\n').filter_map(mount_point).collect()
}

fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let is_ours = *fields.get(separator + 1)? == FILE_SYSTEM.as_bytes();
    is_ours.then(|| PathBuf::from(OsString::from_vec(unescaped(fields.get(4).copied().unwrap_or_default()))))
}

/// Without the octal escapes of the mount table, such as `\040` for a space.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match tail.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mount_table_lists_mounts_of_our_type() {
        let table = b"22 1 0:20 / /proc rw - proc proc rw\n\
            90 1 0:50 / /home/a\\040b rw,nosuid shared:1 - fuse.remora nas:/srv rw\n\
            91 1 0:51 / /mnt/other rw - fuse.sshfs nas: rw\nbroken\n";
        assert_eq!(mounted(table), [PathBuf::from("/home/a b")]);
        assert_eq!(unescaped(br"\134\12x\"), b"\\\\12x\\");
        assert!(!is_mounted(Path::new("/")));
    }

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
