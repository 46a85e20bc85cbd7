//! What a caller may do with an object (RFC 1813, section 3.3.4). The kernel is asked: it knows of
//! ACLs, of read-only mounts and of files that nobody may change, of which mode bits say nothing.

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use remora_wire::nfs3::{ACCESS_DELETE, ACCESS_EXTEND, ACCESS_MODIFY, FileType};
use rustix::fs::{StatVfsMountFlags, fstatvfs, getxattr};

use crate::local::LocalDisk;
use crate::local::handles::resolve::OpenObject;
use crate::perm::{self, R, W, X};
use crate::{Cred, FileId, Result};

impl LocalDisk {
    pub(crate) fn do_access(&self, cred: &Cred, id: &FileId, wanted: u32) -> Result<u32> {
        let object = self.resolve(id)?;
        let has = self.granted(cred, &object, R | W | X)?;
        let changes = ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE;
        let possible = if self.disk.read_only { !changes } else { !0 };
        Ok(perm::access(has, object.attr.kind) & possible & wanted)
    }

    /// Which of these permissions (`R | W | X`) the caller has.
    pub(crate) fn granted(&self, cred: &Cred, object: &OpenObject, asked: u32) -> Result<u32> {
        let acting = self.disk.creds.effective(cred);
        if object.attr.kind == FileType::SymLink {
            return Ok(perm::granted(acting, &object.attr) & asked);
        }
        let asked = asked & perm::conceivable(acting, &object.attr);
        // Not by its path in /proc, for which the kernel would make an inode each time.
        let how = AtFlags::AT_EACCESS | AtFlags::AT_EMPTY_PATH;
        let may = |bits: u32| faccessat(&object.fd, c"", AccessFlags::from_bits_retain(bits as i32), how);
        let _as_caller = self.disk.creds.assume(cred)?;
        let has = match may(asked) {
            Ok(()) => return Ok(asked),
            // Linux before 5.8, and some sandboxes, can only be asked for others than the caller.
            Err(Errno::ENOSYS | Errno::EINVAL) => return Ok(self.granted_on_disk(acting, object) & asked),
            Err(_) => [R, W, X].into_iter().filter(|bit| asked & bit != 0 && may(*bit).is_ok()).sum::<u32>(),
        };
        // Where this machine executes nothing the clients still may.
        let runs_elsewhere = asked & X != 0 && object.attr.kind == FileType::Regular && self.is_noexec();
        Ok(if runs_elsewhere { has | self.granted_on_disk(acting, object) & X } else { has })
    }

    /// The permissions that the mode grants, for where the kernel cannot check them. Grants nothing where an ACL or
    /// another machine may decide.
    fn granted_on_disk(&self, acting: &Cred, object: &OpenObject) -> u32 {
        let local_permissions = self.disk.caps.local_permissions || !self.disk.creds.impersonates();
        if local_permissions && !has_acl(object) { perm::granted(acting, &object.attr) } else { 0 }
    }

    fn is_noexec(&self) -> bool {
        fstatvfs(&self.disk.root).is_ok_and(|s| s.f_flag.contains(StatVfsMountFlags::NOEXEC))
    }
}

/// Whether an access ACL limits the mode. If that cannot be read, it does.
fn has_acl(object: &OpenObject) -> bool {
    let length = getxattr(object.proc_path(), c"system.posix_acl_access", &mut [0u8; 0]);
    !matches!(length, Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::Vfs;
    use crate::local::Options;
    use crate::local::inode::fs_caps::FsCaps;

    #[test]
    fn mode_bits_give_nothing_on_unknown_file_systems() {
        // procfs is no file system of the table.
        let known = FsCaps::of(fs::File::open("/proc").unwrap(), 0);
        assert!(!known.local_permissions);
        if !rustix::process::geteuid().is_root() {
            return skip::skipped(&skip::this_test(), "needs root");
        }
        let top = tempfile::tempdir().unwrap();
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(top.path().join("f"), "x").unwrap();
        fs::set_permissions(top.path().join("f"), fs::Permissions::from_mode(0o711)).unwrap();
        let cred = Cred { uid: 5001, gid: 5001, gids: Vec::new() };
        for (local_permissions, want) in [(true, X), (false, 0)] {
            let kind = |root: &_, device| FsCaps { local_permissions, ..FsCaps::of(root, device) };
            let options = Options { honour_credentials: true, ..Options::new([1; 8]) };
            let disk = LocalDisk::open_as(top.path(), options, kind).unwrap();
            let (file, _) = disk.lookup(&cred, &disk.root(), b"f").unwrap();
            let object = disk.resolve(&file).unwrap();
            assert_eq!(disk.granted_on_disk(&cred, &object), want, "{local_permissions}");
        }
    }
}
