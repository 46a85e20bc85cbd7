//! Tests of the local disk that need a whole export.
//!
//! The helpers here open an export in a temporary directory.

#[expect(clippy::disallowed_methods, reason = "a close that blocks takes real time")]
#[expect(clippy::disallowed_types, reason = "of the objects of an unprivileged test only sockets take long to close")]
mod closing;
mod flush_failure;
mod flush_sharing;
mod permissions;
mod search;
mod unlink;

use remora_wire::nfs3::{CreateHow, SetAttr};

use crate::local::{LocalDisk, Options};
use crate::{Cred, FileId, Vfs};

/// The credential of the test's process.
fn me() -> Cred {
    Cred { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: Vec::new() }
}

/// A default ACL as setfacl(1) writes it: rw for the owner, r for a user and the group, nothing for others.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 1, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0,
    255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// An export with two files, `a` and `b`.
fn disk() -> (tempfile::TempDir, LocalDisk, [FileId; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let disk = LocalDisk::open(dir.path(), Options::new([1; 8])).unwrap();
    let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    let files = [b"a", b"b"].map(|name| disk.create(&me(), &disk.root(), name, &how).unwrap().id);
    (dir, disk, files)
}
