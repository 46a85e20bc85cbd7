//! Permissions where the kernel does not check them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use super::ACL;
use crate::local::inode::fs_caps::FsCaps;
use crate::local::{LocalDisk, Options};
use crate::perm::X;
use crate::{Cred, Vfs};

#[test]
fn mode_grants_only_with_local_permissions_and_no_acl() {
    if !rustix::process::geteuid().is_root() {
        return skip::skipped(&skip::this_test(), "needs root");
    }
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = top.path().join("f");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o711)).unwrap();
    let cred = Cred { uid: 5001, gid: 5001, gids: Vec::new() };
    let granted = |local_permissions| {
        let caps = |root: &_, device| FsCaps { local_permissions, ..FsCaps::of(root, device) };
        let options = Options { honour_credentials: true, ..Options::new([1; 8]) };
        let disk = LocalDisk::open_with(top.path(), options, caps).unwrap();
        let (file, _) = disk.lookup(&cred, &disk.root(), b"f").unwrap();
        let object = disk.disk.tree.resolve(&file).unwrap();
        disk.granted_by_mode(&cred, &object)
    };
    assert_eq!((granted(true), granted(false)), (X, 0));
    let set = setxattr(&file, c"system.posix_acl_access", &ACL, XattrFlags::empty());
    if set == Err(Errno::OPNOTSUPP) {
        return skip::skipped(&skip::this_test(), "the file system has no ACLs");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o711)).unwrap();
    assert_eq!(granted(true), 0, "with an ACL");
}
