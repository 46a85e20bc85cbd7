//! The kernel's errors as NFS's (RFC 1813, section 2.6).

use remora_wire::nfs3::Status;
use rustix::io::Errno;

use crate::local::sys::fd_exhaustion::note_fd_exhaustion;

/// What a client is told when a system call failed with `errno`.
pub(crate) fn status(errno: Errno) -> Status {
    note_fd_exhaustion(errno.raw_os_error());
    match errno {
        Errno::PERM => Status::Perm,
        Errno::NOENT => Status::NoEnt,
        Errno::IO => Status::Io,
        Errno::NXIO => Status::NxIo,
        // NFSv3 has no "busy": a mount point or a running program is not the client's to change.
        Errno::ACCESS | Errno::BUSY | Errno::TXTBSY => Status::Access,
        Errno::EXIST => Status::Exist,
        Errno::XDEV => Status::XDev,
        Errno::NODEV => Status::NoDev,
        Errno::NOTDIR => Status::NotDir,
        Errno::ISDIR => Status::IsDir,
        // Nothing here follows a symbolic link, so meeting one where it cannot be is an
        // invalid request.
        Errno::INVAL | Errno::LOOP => Status::Inval,
        Errno::FBIG | Errno::OVERFLOW => Status::FBig,
        Errno::NOSPC => Status::NoSpc,
        Errno::ROFS => Status::RoFs,
        Errno::MLINK => Status::MLink,
        Errno::NAMETOOLONG => Status::NameTooLong,
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::DQuot,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NotSupp,
        // The server is short of something for the moment.
        Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NFILE | Errno::MFILE | Errno::TIMEDOUT => Status::Jukebox,
        _ => Status::Io,
    }
}

/// OpenMode `?` on system calls: `.nfs()?`.
pub(crate) trait OrStatus<T> {
    /// The result with the error as NFS's.
    fn nfs(self) -> crate::Result<T>;
}

impl<T> OrStatus<T> for rustix::io::Result<T> {
    fn nfs(self) -> crate::Result<T> {
        self.map_err(status)
    }
}
