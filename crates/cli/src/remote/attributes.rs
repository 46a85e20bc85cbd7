//! A remote object as `ls` and `stat` show it.

use remora_host::json::as_digits;
use remora_wire::nfs3::{Attr, FileType, NfsTime};
use serde::Serialize;

use crate::config::units;
use crate::output::escape;

/// What `--json` prints of an object. Fields are added, never changed.
#[derive(Serialize, Debug)]
pub(crate) struct Object {
    /// Its name; bytes that are not UTF-8 are replaced, and `name_hex` has them all.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    /// `file`, `directory`, `symlink`, `block`, `char`, `socket` or `fifo`.
    r#type: &'static str,
    /// What a symbolic link points at.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// Bytes on the disk.
    used: u64,
    #[serde(serialize_with = "as_digits")]
    fsid: u64,
    #[serde(serialize_with = "as_digits")]
    fileid: u64,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    /// The URL that led to it, where several were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// A time since 1970. In one number of nanoseconds it would be more than a double holds.
#[derive(Serialize, Debug)]
struct Timestamp {
    seconds: u32,
    nanoseconds: u32,
}

impl From<NfsTime> for Timestamp {
    fn from(t: NfsTime) -> Timestamp {
        Timestamp { seconds: t.secs, nanoseconds: t.nanos }
    }
}

impl Object {
    pub(crate) fn new(name: &[u8], attr: &Attr, target: Option<&[u8]>) -> Object {
        let is_text = std::str::from_utf8(name).is_ok();
        Object {
            name: String::from_utf8_lossy(name).into_owned(),
            name_hex: (!is_text).then(|| name.iter().map(|b| format!("{b:02x}")).collect()),
            r#type: type_name(attr.kind),
            target: target.map(|t| String::from_utf8_lossy(t).into_owned()),
            mode: attr.mode & 0o7777,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            used: attr.used,
            fsid: attr.fsid,
            fileid: attr.fileid,
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
            url: None,
        }
    }

    /// One of several URLs led to it.
    pub(crate) fn found_by(self, url: &str) -> Object {
        Object { url: Some(url.to_owned()), ..self }
    }
}

/// What people call a type.
pub(crate) fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::SymLink => "symlink",
        FileType::Block => "block",
        FileType::Char => "char",
        FileType::Socket => "socket",
        FileType::Fifo => "fifo",
    }
}

/// `drwxr-xr-x`, as `ls` has it.
pub(crate) fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::SymLink => 'l',
        FileType::Block => 'b',
        FileType::Char => 'c',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// The line of `ls -l`.
pub(crate) fn long_line(name: &[u8], attr: &Attr, target: Option<&[u8]>, is_human: bool) -> String {
    let size = if is_human { format!("{:>5}", units::human_as_ls(attr.size)) } else { format!("{:>12}", attr.size) };
    let arrow = target.map(|t| format!(" -> {}", escape::printable(t))).unwrap_or_default();
    format!(
        "{} {:>3} {:>5} {:>5} {size} {} {}{arrow}\n",
        mode_text(attr),
        attr.nlink,
        attr.uid,
        attr.gid,
        units::date(attr.mtime.secs),
        escape::printable(name),
    )
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::SpecData;

    use super::*;

    fn attr(kind: FileType, mode: u32) -> Attr {
        let t = NfsTime { secs: 1_795_263_218, nanos: 7 };
        Attr {
            kind,
            mode,
            nlink: 2,
            uid: 1000,
            gid: 100,
            size: 5,
            used: 4096,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 1,
            fileid: 9,
            atime: t,
            mtime: t,
            ctime: t,
        }
    }

    #[test]
    fn modes_read_as_in_ls() {
        for (kind, mode, text) in [
            (FileType::Regular, 0o644, "-rw-r--r--"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Regular, 0o4750, "-rwsr-x---"),
            (FileType::Regular, 0o2600, "-rw---S---"),
        ] {
            assert_eq!(mode_text(&attr(kind, mode)), text);
        }
    }

    #[test]
    fn names_that_are_not_text_keep_their_bytes() {
        let json = |name| serde_json::to_value(Object::new(name, &attr(FileType::Regular, 0o644), None)).unwrap();
        assert_eq!(json(b"a b")["name"], "a b");
        assert!(json(b"a b").get("name_hex").is_none());
        assert_eq!(json(b"\xff\n")["name_hex"], "ff0a");
        let time = serde_json::json!({ "seconds": 1_795_263_218u32, "nanoseconds": 7 });
        for name in ["atime", "mtime", "ctime"] {
            assert_eq!(json(b"x")[name], time, "{name}");
        }
    }

    #[test]
    fn extreme_attributes_fit_into_doubles() {
        let most = NfsTime { secs: u32::MAX, nanos: 999_999_999 };
        let attr = |id, size| {
            let usual = attr(FileType::Regular, 0o644);
            Attr { size, used: size, fsid: id, fileid: id, mtime: most, ..usual }
        };
        for (id, size) in [(0, 0), (1 << 53, 1 << 53), ((1 << 53) + 1, i64::MAX as u64), (u64::MAX, u64::MAX)] {
            let line = crate::output::stdio::json_line(&Object::new(b"x", &attr(id, size), None)).unwrap();
            let object: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(
                (&object["fsid"], &object["fileid"]),
                (&id.to_string().into(), &id.to_string().into()),
                "{line}"
            );
            let shown = if size <= 1 << 53 { size.into() } else { size.to_string().into() };
            assert_eq!(
                (&object["size"], &object["used"], &object["mtime"]["seconds"]),
                (&shown, &shown, &u32::MAX.into())
            );
        }
    }
}
