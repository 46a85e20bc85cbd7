//! ACCESS (RFC 1813, section 3.3.4), and the permissions of a caller.
//!
//! The kernel decides: it knows ACLs, read-only mounts and immutable files, which the mode does not show.

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use remora_wire::nfs3::{ACCESS_DELETE, ACCESS_EXTEND, ACCESS_MODIFY, FileType};
use rustix::fs::{StatVfsMountFlags, fstatvfs, getxattr};

use crate::local::disk::LocalDisk;
use crate::local::handles::tree::OpenObject;
use crate::local::ops::acls::ACCESS;
use crate::perm::{self, R, W, X};
use crate::types::{Cred, FileId, Result};

impl LocalDisk {
    pub(crate) fn do_access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        let object = self.disk.tree.resolve(id)?;
        let granted = self.granted(cred, &object, R | W | X)?;
        let changes = ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE;
        let possible = if self.disk.read_only { !changes } else { !0 };
        Ok(perm::access(granted, object.attr.kind) & possible & wanted)
    }

    /// The permissions of `wanted` (`R | W | X`) that the caller is granted.
    pub(crate) fn granted(&self, cred: &Cred, object: &OpenObject, wanted: u32) -> Result<u32> {
        let effective = self.disk.creds.effective(cred);
        if object.attr.kind == FileType::SymLink {
            return Ok(perm::granted(effective, &object.attr) & wanted);
        }
        let wanted = wanted & perm::conceivable(effective, &object.attr);
        // Not by the path in /proc, for which the kernel would allocate an inode.
        let flags = AtFlags::AT_EACCESS | AtFlags::AT_EMPTY_PATH;
        let check = |bits: u32| faccessat(&object.fd, c"", AccessFlags::from_bits_retain(bits as i32), flags);
        let _as_caller = self.disk.creds.assume(cred)?;
        let granted = match check(wanted) {
            Ok(()) => return Ok(wanted),
            // Some sandboxes do not support these flags.
            Err(Errno::ENOSYS | Errno::EINVAL) => return Ok(self.granted_by_mode(effective, object) & wanted),
            Err(_) => [R, W, X].into_iter().filter(|bit| wanted & bit != 0 && check(*bit).is_ok()).sum::<u32>(),
        };
        // On a noexec mount this machine executes nothing, but clients may.
        let is_executable = wanted & X != 0 && object.attr.kind == FileType::Regular && self.is_noexec();
        Ok(if is_executable { granted | self.granted_by_mode(effective, object) & X } else { granted })
    }

    /// The permissions that the mode grants, for where the kernel cannot check them. Grants nothing where an ACL or
    /// another machine may decide.
    pub(crate) fn granted_by_mode(&self, effective: &Cred, object: &OpenObject) -> u32 {
        let mode_decides = self.disk.caps().local_permissions || !self.disk.creds.impersonates();
        if mode_decides && !has_acl(object) { perm::granted(effective, &object.attr) } else { 0 }
    }

    fn is_noexec(&self) -> bool {
        fstatvfs(&self.disk.tree.root).is_ok_and(|s| s.f_flag.contains(StatVfsMountFlags::NOEXEC))
    }
}

/// Whether an access ACL limits the mode. True if unknown.
fn has_acl(object: &OpenObject) -> bool {
    let length = getxattr(object.proc_path(), ACCESS, &mut [0u8; 0]);
    !matches!(length, Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP))
}
