//! The error of a system call for each NFS status.

use remora_wire::fuse::Errno;
use remora_wire::nfs3::Status;

/// The error that a program receives for `status`.
pub(crate) fn errno(status: Status) -> Errno {
    match status {
        Status::Perm => Errno::EPERM,
        Status::NoEnt => Errno::ENOENT,
        Status::NxIo => Errno::ENXIO,
        Status::Access => Errno::EACCES,
        Status::Exist => Errno::EEXIST,
        Status::XDev => Errno::EXDEV,
        Status::NoDev => Errno::ENODEV,
        Status::NotDir => Errno::ENOTDIR,
        Status::IsDir => Errno::EISDIR,
        Status::Inval => Errno::EINVAL,
        Status::FBig => Errno::EFBIG,
        Status::NoSpc => Errno::ENOSPC,
        Status::RoFs => Errno::EROFS,
        Status::MLink => Errno::EMLINK,
        Status::NameTooLong => Errno::ENAMETOOLONG,
        Status::NotEmpty => Errno::ENOTEMPTY,
        Status::DQuot => Errno::EDQUOT,
        Status::Stale | Status::BadHandle => Errno::ESTALE,
        Status::NotSupp => Errno::EOPNOTSUPP,
        Status::BadType => Errno::EOPNOTSUPP,
        Status::Io
        | Status::Remote
        | Status::NotSync
        | Status::BadCookie
        | Status::TooSmall
        | Status::ServerFault
        | Status::Jukebox => Errno::EIO,
    }
}
