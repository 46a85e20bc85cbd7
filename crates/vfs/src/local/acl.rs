//! POSIX ACLs, for where the kernel cannot be asked.
//!
//! An ACL's mask stands where the mode has the group's bits, so those bits say nothing of the group, and nothing of users
//! whom an entry names.

use remora_wire::nfs3::Attr;
use rustix::fs::getxattr;
use rustix::io::Errno;

use super::resolve::Object;
use crate::{Cred, perm};

/// An access ACL as Linux keeps it (`linux/posix_acl_xattr.h`): a version of 4 bytes, then entries of 8.
const VERSION: u32 = 2;
/// An ACL has at most this many bytes: an extended attribute of Linux (XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 << 10;

const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    perm: u32,
    id: u32,
}

/// The permission bits that mode and ACL give `cred`; none if the ACL cannot be read.
pub(super) fn granted(cred: &Cred, object: &Object) -> u32 {
    let mut bytes = Vec::with_capacity(BYTES_MAX);
    let read = getxattr(object.proc_path(), c"system.posix_acl_access", rustix::buffer::spare_capacity(&mut bytes));
    match read {
        Ok(_) => parse(&bytes).map_or(0, |entries| by_entries(cred, &object.attr, &entries)),
        // There is none.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => perm::granted(cred, &object.attr),
        Err(_) => 0,
    }
}

fn parse(acl: &[u8]) -> Option<Vec<Entry>> {
    let (version, entries) = acl.split_first_chunk()?;
    let (entries, []) = entries.as_chunks::<8>() else { return None };
    let entry = |&[t0, t1, p0, p1, id @ ..]: &[u8; 8]| Entry {
        tag: u16::from_le_bytes([t0, t1]),
        perm: u32::from(u16::from_le_bytes([p0, p1])),
        id: u32::from_le_bytes(id),
    };
    (u32::from_le_bytes(*version) == VERSION).then(|| entries.iter().map(entry).collect())
}

/// The check of acl(5), in its order.
fn by_entries(cred: &Cred, attr: &Attr, entries: &[Entry]) -> u32 {
    if cred.uid == 0 || cred.uid == attr.uid {
        // Root's as without an ACL; the owner's entry is in the mode.
        return perm::granted(cred, attr);
    }
    let of = |tag: u16| entries.iter().filter(move |e| e.tag == tag);
    let mask = of(MASK).next().map_or(7, |e| e.perm);
    if let Some(named) = of(USER).find(|e| e.id == cred.uid) {
        return named.perm & mask;
    }
    let own = of(GROUP_OBJ).filter(|_| perm::in_group(cred, attr.gid));
    let mut groups = own.chain(of(GROUP).filter(|e| perm::in_group(cred, e.id))).peekable();
    if groups.peek().is_none() {
        return of(OTHER).next().map_or(0, |e| e.perm) & 7;
    }
    // Each permission from whichever group has it.
    groups.fold(0, |all, e| all | e.perm) & mask
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;

    const USER_OBJ: u16 = 0x01;
    const NOBODY: u32 = u32::MAX;

    fn encode(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entry = |(tag, perm, id): &(u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [VERSION.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
    }

    #[test]
    fn acl_decides_as_acl_5_says() {
        let zero = NfsTime { secs: 0, nanos: 0 };
        let (rdev, kind) = (SpecData { major: 0, minor: 0 }, FileType::Regular);
        let (mode, uid, gid, nlink, size, used, fsid, fileid) = (0o750, 10, 20, 1, 0, 0, 0, 1);
        let attr =
            Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime: zero, mtime: zero, ctime: zero };
        let acl = encode(&[
            (USER_OBJ, 7, NOBODY),
            (USER, 7, 11),
            (USER, 0, 12),
            (GROUP_OBJ, 1, NOBODY),
            (GROUP, 4, 21),
            (MASK, 5, NOBODY),
            (OTHER, 1, NOBODY),
        ]);
        let entries = parse(&acl).unwrap();
        for (uid, gids, want, who) in [
            (10, &[99][..], 7, "the owner"),
            (0, &[0], 7, "root"),
            (11, &[99], 5, "a named user, masked"),
            (12, &[20, 21], 0, "a named user who has nothing, whatever the groups have"),
            (13, &[20], 1, "the owning group"),
            (13, &[20, 21], 5, "two groups"),
            (13, &[99], 1, "others"),
        ] {
            let cred = Cred { uid, gid: gids[0], gids: gids[1..].to_vec() };
            assert_eq!(by_entries(&cred, &attr, &entries), want, "{who}");
        }
        for torn in [&acl[..3], &acl[..11], &[1, 0, 0, 0][..], &[]] {
            assert!(parse(torn).is_none(), "{torn:?}");
        }
    }
}
