//! The mounts that this process sees: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A FUSE mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FuseMount {
    /// Number of the connection below `/sys/fs/fuse/connections`: the device number of the file system.
    pub(super) connection: u32,
    /// What is mounted.
    pub(super) source: String,
}

/// The FUSE mount at `dir`, an absolute path without symbolic links; `None` if there is none, or if something else
/// covers it.
pub(super) fn fuse_mount_at(dir: &Path) -> io::Result<Option<FuseMount>> {
    Ok(find(&fs::read("/proc/self/mountinfo")?, dir))
}

/// The uppermost mount at `dir`, which stands last.
fn find(table: &[u8], dir: &Path) -> Option<FuseMount> {
    let mut lines = table.split(|&byte| byte == b'\n').rev();
    lines.find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        (unescaped(fields.get(4)?) == dir.as_os_str().as_bytes()).then(|| fuse_mount(&fields))
    })?
}

fn fuse_mount(fields: &[&[u8]]) -> Option<FuseMount> {
    let (_, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    // Optional fields end with a dash; type and source follow.
    let after = fields.iter().position(|field| *field == b"-")? + 1;
    let [kind, source] = fields.get(after..after + 2)? else { return None };
    if *kind != b"fuse" && !kind.starts_with(b"fuse.") {
        return None;
    }
    let source = OsString::from_vec(unescaped(source)).to_string_lossy().into_owned();
    Some(FuseMount { connection: minor.parse().ok()?, source })
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
    fn the_uppermost_mount_at_a_directory_is_found() {
        let find = |dir: &str| find(TABLE.as_bytes(), Path::new(dir));
        let mount = |connection, source: &str| Some(FuseMount { connection, source: source.into() });
        assert_eq!(find("/mnt/nas"), mount(51, "nas:/ex port"));
        assert_eq!(find("/mnt/with space"), mount(52, "host:"));
        for none in ["/mnt/covered", "/", "/mnt", "/mnt/nas/below", ""] {
            assert_eq!(find(none), None, "{none}");
        }
    }
}
