//! The mounts that this process sees: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A FUSE mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FuseMount {
    pub(crate) dir: PathBuf,
    /// Type of the file system: `fuse` or `fuse.NAME`.
    pub(crate) kind: String,
    /// Number of the connection below `/sys/fs/fuse/connections`: the device number of the file system.
    pub(crate) connection: u32,
    /// What is mounted.
    pub(crate) source: String,
}

/// All FUSE mounts that no other mount covers at the same directory.
pub(crate) fn fuse_mounts() -> io::Result<Vec<FuseMount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The FUSE mount at `dir`, an absolute path without symbolic links; `None` if there is none, or if something else
/// covers it.
pub(super) fn fuse_mount_at(dir: &Path) -> io::Result<Option<FuseMount>> {
    Ok(fuse_mounts()?.into_iter().find(|mount| mount.dir == dir))
}

fn parse(table: &[u8]) -> Vec<FuseMount> {
    let mut mounts: Vec<FuseMount> = Vec::new();
    for line in table.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let Some(dir) = fields.get(4).map(|dir| PathBuf::from(OsString::from_vec(unescaped(dir)))) else { continue };
        // The uppermost mount at a directory stands last.
        mounts.retain(|mount| mount.dir != dir);
        mounts.extend(fuse_mount(&fields, dir));
    }
    mounts
}

fn fuse_mount(fields: &[&[u8]], dir: PathBuf) -> Option<FuseMount> {
    let (_, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    // Optional fields end with a dash; type and source follow.
    let after = fields.iter().position(|field| *field == b"-")? + 1;
    let [kind, source] = fields.get(after..after + 2)? else { return None };
    if *kind != b"fuse" && !kind.starts_with(b"fuse.") {
        return None;
    }
    let text = |field| String::from_utf8_lossy(&unescaped(field)).into_owned();
    Some(FuseMount { dir, kind: text(kind), connection: minor.parse().ok()?, source: text(source) })
}

/// Replaces `\ooo` by the byte with that octal number.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                rest = &after[3..];
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 22 0:51 / /mnt/nas rw,nosuid,nodev shared:7 - fuse.remora nas:/ex\040port rw,user_id=0
91 22 0:52 / /mnt/with\040space rw,nosuid - fuse.sshfs host: rw
92 22 0:53 / /mnt/covered rw - fuse.remora below rw
93 22 0:54 / /mnt/covered rw - tmpfs above rw
";

    #[test]
    fn only_uppermost_fuse_mounts_are_listed() {
        let mount = |dir: &str, kind: &str, connection, source: &str| FuseMount {
            dir: dir.into(),
            kind: kind.into(),
            connection,
            source: source.into(),
        };
        let expected =
            [mount("/mnt/nas", "fuse.remora", 51, "nas:/ex port"), mount("/mnt/with space", "fuse.sshfs", 52, "host:")];
        assert_eq!(parse(TABLE.as_bytes()), expected);
        assert_eq!(parse(b"broken\n90 1 0:x / /mnt rw - fuse a rw\n"), []);
        assert_eq!(unescaped(br"\134\12x\"), b"\\\\12x\\");
    }
}
