//! Attributes of a file, for unit tests.

use remora_wire::nfs3::{Attr, FileType, NfsTime, SpecData};

/// A time of the server.
pub(crate) const TIME: NfsTime = NfsTime { secs: 5, nanos: 0 };

/// A file of one byte with one name that belongs to root, number 7, last changed at `at`.
pub(crate) fn file(at: NfsTime) -> Attr {
    Attr {
        kind: FileType::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 1,
        used: 0,
        rdev: SpecData { major: 0, minor: 0 },
        fsid: 1,
        fileid: 7,
        atime: at,
        mtime: at,
        ctime: at,
    }
}
