//! MOUNT's MNT (RFC 1094, appendix A; RFC 1813, appendix I): looks up the handle of a path.

use bytes::Bytes;
use remora_wire::mount::{MountError, Mounted};
use remora_wire::nfs3::{FileType, Status};
use remora_wire::rpc::OpaqueAuth;

use super::context::Exec;

/// Looks up the directory at `path`, with the caller's rights, from the export with the longest name that is a
/// prefix. Follows no symbolic links; `..` is resolved in the text of the path.
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

/// The error that the client gets. `None` for a temporary failure: MOUNT has no error for it, and clients ask again
/// when no reply comes.
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
