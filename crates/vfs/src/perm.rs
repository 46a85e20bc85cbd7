//! Permissions by mode bits (RFC 1813, sections 3.3.4 and 4.4).

use remora_wire::nfs3::{
    ACCESS_DELETE, ACCESS_EXECUTE, ACCESS_EXTEND, ACCESS_LOOKUP, ACCESS_MODIFY, ACCESS_READ, Attr, FileType,
};

use crate::types::Cred;

/// Read a file or list a directory.
pub(crate) const R: u32 = 4;
/// Write a file or change the names in a directory.
pub(crate) const W: u32 = 2;
/// Execute a file or search a directory.
pub(crate) const X: u32 = 1;

/// The permission bits (`R | W | X`) that the mode grants `cred`. Root has all, but executes a file only if its mode
/// lets some user execute it.
pub(crate) fn granted(cred: &Cred, attr: &Attr) -> u32 {
    if cred.uid == 0 {
        let runs = attr.kind == FileType::Directory || attr.mode & 0o111 != 0;
        return if runs { R | W | X } else { R | W };
    }
    let class = if cred.uid == attr.uid {
        attr.mode >> 6
    } else if in_group(cred, attr.gid) {
        attr.mode >> 3
    } else {
        attr.mode
    };
    class & 7
}

/// Whether `cred` is in group `gid`.
pub(crate) fn in_group(cred: &Cred, gid: u32) -> bool {
    cred.gid == gid || cred.gids.contains(&gid)
}

/// Whether `cred` is the owner or root.
pub(crate) fn owns(cred: &Cred, attr: &Attr) -> bool {
    cred.uid == 0 || cred.uid == attr.uid
}

/// Whether `cred` may read a file's data. NFS checks permissions at every READ, a local file system only at open. So
/// the owner may read whatever the mode is (it may have opened the file before a chmod), and users who may execute the
/// file may read it, because a client reads a program to run it.
pub(crate) fn may_read(cred: &Cred, attr: &Attr) -> bool {
    owns(cred, attr) || granted(cred, attr) & (R | X) != 0
}

/// Whether `cred` may write a file's data. The owner may always, as in [`may_read`].
pub(crate) fn may_write(cred: &Cred, attr: &Attr) -> bool {
    owns(cred, attr) || granted(cred, attr) & W != 0
}

/// Whether the sticky bit of directory `dir` forbids `cred` to remove `object` from it.
pub(crate) fn stuck(cred: &Cred, dir: &Attr, object: &Attr) -> bool {
    dir.mode & 0o1000 != 0 && !owns(cred, object) && !owns(cred, dir)
}

/// An upper bound of the permission bits of `cred` under any ACL: those that the mode grants some user (its group bits
/// are the ACL's mask), and root's.
pub(crate) fn conceivable(cred: &Cred, attr: &Attr) -> u32 {
    let any_user = (attr.mode >> 6 | attr.mode >> 3 | attr.mode) & 7;
    any_user | if cred.uid == 0 { granted(cred, attr) } else { 0 }
}

/// The ACCESS reply for the permission bits `has`. Lookup and delete apply to directories only, execute to other
/// objects only.
pub(crate) fn access(has: u32, kind: FileType) -> u32 {
    let pick = |need: u32, bits: u32| if has & need == need { bits } else { 0 };
    match kind {
        FileType::Directory => {
            pick(R, ACCESS_READ) | pick(X, ACCESS_LOOKUP) | pick(W | X, ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE)
        }
        _ => pick(R, ACCESS_READ) | pick(W, ACCESS_MODIFY | ACCESS_EXTEND) | pick(X, ACCESS_EXECUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::nfs3::{NfsTime, SpecData};

    fn attr(kind: FileType, mode: u32) -> Attr {
        let zero = NfsTime { secs: 0, nanos: 0 };
        let rdev = SpecData { major: 0, minor: 0 };
        let (uid, gid) = (10, 20);
        let (nlink, size, used, fsid, fileid) = (1, 0, 0, 0, 1);
        Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime: zero, mtime: zero, ctime: zero }
    }

    #[test]
    fn granted_uses_first_matching_class() {
        let cred = |uid, gid, gids: &[u32]| Cred { uid, gid, gids: gids.to_vec() };
        let cases = [
            (cred(10, 20, &[]), 0o077, 0),
            (cred(10, 99, &[]), 0o700, 7),
            (cred(11, 20, &[]), 0o707, 0),
            (cred(11, 99, &[20]), 0o750, 5),
            (cred(11, 99, &[]), 0o754, 4),
            (cred(0, 0, &[]), 0o000, 6),
            (cred(0, 0, &[]), 0o001, 7),
        ];
        for (cred, mode, want) in cases {
            assert_eq!(granted(&cred, &attr(FileType::Regular, mode)), want, "{cred:?} {mode:o}");
        }
    }

    #[test]
    fn access_reports_bits_of_the_file_type() {
        assert_eq!(access(R | W | X, FileType::Directory), 0x1f);
        assert_eq!(access(R | W, FileType::Directory), ACCESS_READ);
        assert_eq!(access(R | W | X, FileType::Regular), 0x2d);
    }
}
