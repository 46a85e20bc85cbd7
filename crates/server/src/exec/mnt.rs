//! MOUNT's MNT (RFC 1094, appendix A; RFC 1813, appendix I): from a path to the handle of a directory.

use bytes::Bytes;
use remora_wire::mount::{MountError, Mounted};
use remora_wire::nfs3::{FileType, Status};
use remora_wire::rpc::OpaqueAuth;

use super::context::Exec;

/// The directory at `path`: the export with the longest matching name, and from there name by
/// name with the caller's own rights. No symbolic link is followed, and `..` is resolved in the text of the path.
pub(crate) fn mount(exec: &Exec, path: &Bytes) -> Result<Mounted, Status> {
    let (exported, rest) = exec.exports.find(path).ok_or(Status::NoEnt)?;
    let export = &exported.export;
    let terms = export.access.terms(exec.peer.addr).ok_or(Status::Access)?;
    let cred = terms.cred(exec.caller);
    let mut id = export.vfs.root();
    let mut kind = export.vfs.getattr(&id)?.kind;
    for name in rest {
        if kind != FileType::Directory {
            return Err(Status::NotDir);
        }
        let (next, attr) = export.vfs.lookup(&cred, &id, name)?;
        (id, kind) = (next, attr.kind);
    }
    if kind != FileType::Directory {
        return Err(Status::NotDir);
    }
    Ok(Mounted {
        fh: exec.exports.handle(exported, &id, exec.version),
        flavors: vec![OpaqueAuth::UNIX, OpaqueAuth::NONE],
    })
}

/// What a client is told of a failure; nothing of one that is over soon: MOUNT has no word for "later", and clients ask
/// again after silence.
pub(crate) fn error(status: Status) -> Option<MountError> {
    Some(match status {
        Status::Jukebox => return None,
        Status::Perm => MountError::Perm,
        Status::NoEnt | Status::Stale => MountError::NoEnt,
        Status::Access => MountError::Access,
        Status::NotDir => MountError::NotDir,
        Status::Inval => MountError::Inval,
        Status::NameTooLong => MountError::NameTooLong,
        Status::NotSupp => MountError::NotSupp,
        Status::Io => MountError::Io,
        _ => MountError::ServerFault,
    })
}
