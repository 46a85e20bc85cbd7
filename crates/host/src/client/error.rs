//! Errors of client operations.

use std::io;
use std::path::PathBuf;

use remora_atp::session::Refusal;
use remora_client::{Busy, CallFailure, TransferError};
use remora_wire::mount::MountError;
use remora_wire::nfs3::Status;
use remora_wire::rpc::Outcome;

use crate::atp::AtpError;

/// Why an operation on a server failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The host name does not resolve.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        host: String,
        /// What the system said.
        source: io::Error,
    },
    /// No connection or no socket.
    #[error("cannot reach {server}: {source}")]
    Connect {
        server: String,
        /// What the system said.
        source: io::Error,
    },
    /// No connection over ATP.
    #[error("cannot reach {server} over ATP: {source}{}", atp_hint(.source))]
    Atp { server: String, source: AtpError },
    /// The client's own key for ATP is missing or unreadable.
    #[error("the key {}: {source}", .path.display())]
    Key { path: PathBuf, source: crate::KeyFileError },
    /// An ATP URL without the server's key.
    #[error("cannot reach {server} over ATP without its key: give it as proto=atp&key=KEY in the URL")]
    NoKey { server: String },
    /// The server was silent for too long.
    #[error("{server} does not answer{}", hint(.what))]
    Silent {
        server: String,
        /// What the client asked for.
        what: &'static str,
    },
    /// The server refused to mount.
    #[error("{server} refuses to mount {path}: {}", mount_reason(.reason))]
    Mount { server: String, path: String, reason: MountError },
    /// An NFS procedure failed.
    #[error("{}", status_text(*.0))]
    Status(Status),
    /// An RPC failed.
    #[error("{0}")]
    Rpc(CallFailure),
    /// The server's replies contradict each other.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A directory has too many entries.
    #[error("the directory has more than {max} entries")]
    Endless { max: usize },
    /// A name in a directory is too long.
    #[error("the server lists a name of {len} bytes in the directory; {max} are taken")]
    LongName {
        /// Its length in bytes.
        len: usize,
        /// Longest name in bytes.
        max: usize,
    },
    /// A directory listing needs too much memory.
    #[error("the directory is too large: its first {entries} entries take more than {} MiB here", max >> 20)]
    Vast {
        entries: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A directory listing makes no progress.
    #[error("the server lists the same entries of the directory again and again: it is broken")]
    Circular,
    /// Too many requests are waiting.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The local file could not be read or written.
    #[error("{0}")]
    Local(#[from] io::Error),
    /// The session is closed.
    #[error("the connection to the server was closed")]
    Closed,
}

/// A hint on what to do.
fn atp_hint(e: &AtpError) -> &'static str {
    match e {
        AtpError::Refused(Refusal::WrongKey) => {
            "; compare key= in the URL with what `remora serve --atp` or `remora gateway` printed there: it has a new \
             key, or it is not who is meant"
        }
        AtpError::Refused(Refusal::NotAdmitted) => {
            "; its owner must let our key in: `remora serve --atp-allow KEY` or `remora gateway --allow KEY`, with what \
             `remora keys` prints"
        }
        _ => "",
    }
}

impl From<Status> for ClientError {
    fn from(s: Status) -> ClientError {
        ClientError::Status(s)
    }
}

impl ClientError {
    /// The NFS status, if there is one.
    pub fn status(&self) -> Option<Status> {
        match self {
            ClientError::Status(s) => Some(*s),
            _ => None,
        }
    }

    /// Whether a server may be restarting: its port is closed, or its portmapper does not know the program yet.
    pub fn is_restart(&self) -> bool {
        match self {
            ClientError::Connect { source, .. } => source.kind() == io::ErrorKind::ConnectionRefused,
            ClientError::Rpc(failure) => matches!(failure, CallFailure::Rpc(Outcome::ProgUnavail)),
            _ => false,
        }
    }
}

fn hint(what: &str) -> String {
    match what {
        "" => String::new(),
        what => format!(" ({what}); is the server running, and are host and port right?"),
    }
}

fn mount_reason(e: &MountError) -> &'static str {
    match e {
        MountError::Perm | MountError::Access if rustix::process::geteuid().is_root() => {
            "permission denied (is this host on the export's list?)"
        }
        MountError::Perm | MountError::Access => {
            "permission denied (is this host on the export's list? Linux's servers also want root to ask, unless the \
             export says insecure)"
        }
        MountError::NoEnt => "no such export or directory",
        MountError::NotDir => "not a directory",
        MountError::NameTooLong => "the name is too long",
        MountError::Io => "an I/O error on the server",
        MountError::Inval => "the server does not understand the path",
        MountError::NotSupp => "the server does not support this",
        MountError::ServerFault => "the server failed",
    }
}

/// A status in plain words.
fn status_text(status: Status) -> &'static str {
    match status {
        Status::Perm => "operation not permitted",
        Status::NoEnt => "no such file or directory",
        Status::Io => "input/output error on the server's disk",
        Status::NxIo => "no such device or address",
        Status::Access => "permission denied",
        Status::Exist => "file exists",
        Status::XDev => "cannot move or link across file systems",
        Status::NoDev => "no such device",
        Status::NotDir => "not a directory",
        Status::IsDir => "is a directory",
        Status::Inval => "invalid argument",
        Status::FBig => "file too large for the server",
        Status::NoSpc => "no space left on the server's disk",
        Status::RoFs => "the export is read-only",
        Status::MLink => "too many links",
        Status::NameTooLong => "file name too long",
        Status::NotEmpty => "directory not empty",
        Status::DQuot => "disk quota exceeded on the server",
        Status::Stale => "stale file handle (the file was removed on the server)",
        Status::Remote => "too many levels of remote in path",
        Status::BadHandle => "the server does not know this file handle",
        Status::NotSync => "the file was changed by somebody else",
        Status::BadCookie => "the directory changed while it was being listed",
        Status::NotSupp => "the server does not support this operation",
        Status::TooSmall => "buffer too small",
        Status::ServerFault => "the server failed",
        Status::BadType => "the server does not support this file type",
        Status::Jukebox => "the server asks to try again later",
    }
}
