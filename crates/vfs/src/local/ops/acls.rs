//! POSIX ACLs, by the extended attributes in which Linux shows them (`include/uapi/linux/posix_acl_xattr.h`).

use std::ffi::CStr;

use remora_wire::nfs3::{FileType, Status};
use remora_wire::nfsacl::{ENTRIES_MAX, Entry, Tag};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::local::disk::LocalDisk;
use crate::local::handles::tree::OpenObject;
use crate::local::sys::errors::OrStatus;
use crate::types::{Acls, Cred, FileId, Result};

/// The attribute of the access ACL.
pub(crate) const ACCESS: &CStr = c"system.posix_acl_access";
/// The attribute of a directory's default ACL.
pub(crate) const DEFAULT: &CStr = c"system.posix_acl_default";

/// The version of the attributes' format, their first four bytes.
const VERSION: [u8; 4] = 2u32.to_le_bytes();
/// Bytes of an entry: tag and permissions in two bytes each, then the id. All numbers are little-endian.
const ENTRY_BYTES: usize = 8;
/// The id of an entry that is for no particular user or group.
const NO_ID: u32 = u32::MAX;

impl LocalDisk {
    pub(crate) fn do_acls(&self, cred: &Cred, id: &FileId) -> Result<Acls> {
        let object = self.disk.tree.resolve(id)?;
        let _as_caller = self.disk.creds.assume(cred)?;
        let is_dir = object.attr.kind == FileType::Directory;
        Ok(Acls { access: get(&object, ACCESS)?, default: if is_dir { get(&object, DEFAULT)? } else { None } })
    }

    pub(crate) fn do_set_acls(&self, cred: &Cred, id: &FileId, acls: &Acls) -> Result<()> {
        self.begin_change()?;
        let object = self.disk.tree.resolve(id)?;
        self.disk.tree.protected.check(object.key)?;
        {
            let _locks = self.disk.op_locks.lock(&[object.key.ino]);
            let _as_caller = self.disk.creds.assume(cred)?;
            // An access ACL changes the mode.
            let _mode_lock = self.disk.mode_locks.lock(&[object.key.ino]);
            for (name, entries) in [(ACCESS, &acls.access), (DEFAULT, &acls.default)] {
                entries.as_ref().map_or(Ok(()), |entries| set(&object, name, entries))?;
            }
        }
        // As after a change of the mode.
        if self.disk.creds.impersonates() {
            self.disk.files().close(object.key);
        }
        self.flush_object(&object)
    }
}

/// An ACL of an object; `None` where the mode says everything, or the file system has no ACLs.
fn get(object: &OpenObject, name: &CStr) -> Result<Option<Vec<Entry>>> {
    let mut value = vec![0; VERSION.len() + ENTRY_BYTES * ENTRIES_MAX as usize];
    match getxattr(object.proc_path(), name, &mut value) {
        Ok(length) => value.get(..length).and_then(decode).map(Some).ok_or(Status::Io),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        // More entries than the protocol can name.
        Err(Errno::RANGE) => Err(Status::FBig),
        Err(e) => Err(e).nfs(),
    }
}

fn set(object: &OpenObject, name: &CStr, entries: &[Entry]) -> Result<()> {
    if !entries.is_empty() {
        return setxattr(object.proc_path(), name, &encode(entries), XattrFlags::empty()).nfs();
    }
    match removexattr(object.proc_path(), name) {
        Err(Errno::NODATA) => Ok(()),
        done => done.nfs(),
    }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut value = VERSION.to_vec();
    for Entry { tag, id, perm } in entries {
        let id = if matches!(tag, Tag::User | Tag::Group) { *id } else { NO_ID };
        value.extend((*tag as u16).to_le_bytes());
        value.extend((*perm as u16).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// The entries of an attribute; `None` if its format is unknown.
fn decode(value: &[u8]) -> Option<Vec<Entry>> {
    let (entries, []) = value.strip_prefix(&VERSION)?.as_chunks::<ENTRY_BYTES>() else { return None };
    let entry = |&[t0, t1, p0, p1, id @ ..]: &[u8; ENTRY_BYTES]| {
        let tag = Tag::from_number(u16::from_le_bytes([t0, t1]).into())?;
        Some(Entry { tag, perm: u16::from_le_bytes([p0, p1]).into(), id: u32::from_le_bytes(id) })
    };
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_has_the_format_of_linux() {
        let entries = [(Tag::UserObj, NO_ID, 7), (Tag::User, 1000, 6), (Tag::Other, NO_ID, 0)];
        let entries = entries.map(|(tag, id, perm)| Entry { tag, id, perm });
        // As getfattr(1) shows it.
        let value = [
            &[2, 0, 0, 0][..],
            &[1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
            &[2, 0, 6, 0, 0xe8, 3, 0, 0],
            &[0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(encode(&entries), value);
        assert_eq!(decode(&value), Some(entries.to_vec()));
        for malformed in [&value[..value.len() - 1], &[1, 0, 0, 0], b"", &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(decode(malformed), None, "{malformed:?}");
        }
    }
}
