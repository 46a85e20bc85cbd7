//! The procedures of NFSv3 (RFC 1813, section 3.3), which also execute NFSv2's, on a [`Vfs`](remora_vfs::Vfs).
//!
//! [`context`] maps a handle to an object that the caller may use. `files` has the procedures on one object, `names`
//! those that change a directory, `dirs` the listings, `acls` NFSACL's procedures, and `mnt` MOUNT's path lookup.

#![expect(clippy::result_large_err, reason = "a failure carries attributes, as its reply does")]

mod acls;
mod context;
mod dirs;
mod files;
pub(crate) mod mnt;
mod names;

use remora_wire::nfs3::{Call, Reply};

pub(crate) use context::Exec;

impl Exec<'_> {
    pub(crate) fn run(&self, call: &Call) -> Reply {
        match call {
            Call::Null => Reply::Null,
            Call::GetAttr(fh) => Reply::GetAttr(self.get_attr(fh)),
            Call::SetAttr(a) => Reply::SetAttr(self.set_attr(a)),
            Call::Lookup(a) => Reply::Lookup(self.lookup(a)),
            Call::Access(a) => Reply::Access(self.access(a)),
            Call::ReadLink(fh) => Reply::ReadLink(self.read_link(fh)),
            Call::Read(a) => Reply::Read(self.read(a)),
            Call::Write(a) => Reply::Write(self.write(a)),
            Call::Create(a) => Reply::Create(self.create(a)),
            Call::MkDir(a) => Reply::MkDir(self.mkdir(a)),
            Call::SymLink(a) => Reply::SymLink(self.symlink(a)),
            Call::MkNod(a) => Reply::MkNod(self.mknod(a)),
            Call::Remove(a) => Reply::Remove(self.remove(a)),
            Call::RmDir(a) => Reply::RmDir(self.rmdir(a)),
            Call::Rename(a) => Reply::Rename(self.rename(a)),
            Call::Link(a) => Reply::Link(self.link(a)),
            Call::ReadDir(a) => Reply::ReadDir(self.read_dir(a)),
            Call::ReadDirPlus(a) => Reply::ReadDirPlus(self.read_dir_plus(a)),
            Call::FsStat(fh) => Reply::FsStat(self.fs_stat(fh)),
            Call::FsInfo(fh) => Reply::FsInfo(self.fs_info(fh)),
            Call::PathConf(fh) => Reply::PathConf(self.path_conf(fh)),
            Call::Commit(a) => Reply::Commit(self.commit(a)),
        }
    }
}
