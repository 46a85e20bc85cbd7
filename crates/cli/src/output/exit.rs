//! Errors of a command: their text, hint and exit code.

use std::net::SocketAddr;
use std::num::TryFromIntError;
use std::{fmt, io};

use remora_atp::session::Refusal;
use remora_client::CallFailure;
use remora_host::atp::AtpError;
use remora_host::client::{ClientError, Target, TargetError};
use remora_host::server::StartError;
use remora_wire::mount::MountError;
use remora_wire::nfs3::Status;
use remora_wire::rpc::Outcome;
use rustix::io::Errno;

use crate::output::escape;

/// What `--help` says about exit codes; [`Error::code`] is the other half.
pub(crate) const HELP: &str = "\
Examples:
  remora demo                                watch a file cross a bad link
  remora serve ~/files                       share a directory of this machine
  remora ls -l nfs://127.0.0.1/
  remora cp -r photos nfs://nas/export/      to any NFSv3 server
  remora lab wireless --list                 experiments with bad links
  remora link keys                           first step to retransmit on a hop

Exit codes:
  0    success
  1    the operation failed (no such file, permission denied, disk full, ...)
  2    wrong usage or a bad URL
  3    no server there, no answer, or the connection was lost
  4    --verify found a difference
  5    send: missed the deadline
  6    hoard: something is missing
  130  interrupted (Ctrl-C); 129 hang-up; 143 terminated (0 from serve, recv,
       forward, gateway, link, mount -f and lab relay, which stop regularly)";

/// Hint for root after a permission error.
const SQUASHED: &str = ". Most servers take root for nobody (root squashing): run the command as another user, or have \
                        the server take root for root (remora serve: --squash none; exports(5): no_root_squash)";

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line makes no sense.
    Usage(String),
    /// The server said no, or nothing.
    Remote {
        /// What it was about: a URL mostly.
        what: String,
        source: ClientError,
    },
    /// Something on this machine failed.
    Local {
        /// What it was about: a path mostly.
        what: String,
        source: io::Error,
    },
    /// It cannot be done, for a reason of ours.
    Refused {
        /// What it was about.
        what: String,
        why: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Source and copy differ.
    Mismatch(String),
    /// The reader of standard output has closed it.
    Pipe,
    /// A signal of this number ended it.
    Interrupted(u8),
    /// Errors that were reported already, with the worst exit code.
    Reported(u8),
}

/// The result of a command or of a part of it.
pub(crate) type Result<T = (), E = Error> = std::result::Result<T, E>;

impl Error {
    /// A closure for `map_err` on what a server did.
    pub(crate) fn remote(what: impl fmt::Display) -> impl FnOnce(ClientError) -> Error {
        move |source| Error::Remote { what: what.to_string(), source }
    }

    /// A closure for `map_err` on what this machine did.
    pub(crate) fn local(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Local { what: escape::printable(what.to_string().as_bytes()), source }
    }

    /// It cannot be done, because of `why`.
    pub(crate) fn refused(what: impl fmt::Display, why: impl Into<String>) -> Error {
        let why = without_numbers(&why.into());
        Error::Refused { what: escape::printable(what.to_string().as_bytes()), why, hint: None }
    }

    /// `addr` cannot be listened on.
    pub(crate) fn listen(addr: SocketAddr, protocol: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::refused("cannot start", StartError::bind(addr, protocol, source).to_string())
    }

    /// An ATP endpoint cannot start.
    pub(crate) fn endpoint(e: AtpError) -> Error {
        match e {
            AtpError::Bind { addr, source } => Error::listen(addr, "UDP")(source),
            other => Error::refused("cannot start", other.to_string()),
        }
    }

    /// The same, with what to do about it.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Error {
        match self {
            Error::Refused { what, why, .. } => Error::Refused { what, why, hint: Some(hint.into()) },
            other => other,
        }
    }

    /// The copy `what` is whole and in its place, and that is all.
    pub(crate) fn bare(what: impl fmt::Display, why: impl fmt::Display) -> Error {
        Error::refused(what, format!("the copy is complete, but its mode and time cannot be set: {why}"))
    }

    /// What the system makes up when it is asked, as in /proc, has no size.
    pub(crate) fn not_empty(what: impl fmt::Display) -> Error {
        let hint = "copy its data to a file first (cat FILE > OTHER), then copy that file";
        Error::refused(what, "has size 0 but is not empty").with_hint(hint)
    }

    /// The copy of `what` is in its place, and what is in it may be.
    pub(crate) fn mixed(what: impl fmt::Display) -> Error {
        let why = "changed during the copy; the copy stays, and may mix old and new data";
        Error::refused(what, why).with_hint("--resume copies it again")
    }

    /// The same, and the only sign of it is the time of change.
    pub(crate) fn perhaps_mixed(what: impl fmt::Display) -> Error {
        let why = "may have changed during the copy (its ctime did, and its mtime did not); the copy is there, \
                   and may be a mixture of old and new";
        Error::refused(what, why).with_hint("--resume --verify compares the copy with it")
    }

    /// The exit code; see [`HELP`].
    pub(crate) fn code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Remote { source: ClientError::NoKey { .. }, .. } => 2,
            // The server answers and grants no access to this user.
            Error::Remote { source: ClientError::Rpc(CallFailure::Rpc(Outcome::AuthError(_))), .. } => 1,
            Error::Remote { .. } if self.is_lost() => 3,
            Error::Remote { .. } | Error::Local { .. } | Error::Refused { .. } => 1,
            Error::Mismatch(_) => 4,
            Error::Pipe => 0,
            Error::Interrupted(signal) => 128 + signal,
            Error::Reported(code) => *code,
        }
    }

    /// Whether the server is out of reach: nothing else will work now either.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Error::Remote { source, .. } if is_lost(source))
    }

    /// Whether the server is in trouble that may pass: what has arrived is worth keeping.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Error::Remote { source: ClientError::Rpc(e), .. } => is_trouble(e),
            _ => matches!(self.status(), Some(Status::Jukebox | Status::Io | Status::ServerFault | Status::Stale)),
        }
    }

    /// Whether there is no room: further files will not fit either.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Error::Remote { source: ClientError::Local(e), .. } | Error::Local { source: e, .. } => {
                matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Error::Remote { source, .. } => matches!(source.status(), Some(Status::NoSpc | Status::DQuot)),
            _ => false,
        }
    }

    /// The NFS status behind it.
    pub(crate) fn status(&self) -> Option<Status> {
        match self {
            Error::Remote { source, .. } => source.status(),
            _ => None,
        }
    }

    /// What to do about it, where that is not obvious.
    pub(crate) fn hint(&self) -> Option<String> {
        let (what, source) = match self {
            Error::Remote { what, source } => (what, source),
            Error::Refused { hint, .. } => return hint.clone(),
            _ => return None,
        };
        let text = match source {
            ClientError::Connect { source, .. } if is_short(source) => {
                "this process has too many open files: raise ulimit -n".to_owned()
            }
            ClientError::Connect { .. } => {
                "is the server running? A URL without :PORT means port 2049".to_owned()
            }
            ClientError::Silent { .. } => {
                "the link may be down: try again later, or wait longer with --timeout SECONDS (0: without limit)"
                    .to_owned()
            }
            ClientError::Mount { reason: MountError::NoEnt, .. } => {
                format!("the path must begin with an export of the server; to list the exports: {}", exports_of(what))
            }
            ClientError::Status(Status::Access | Status::Perm) => {
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                let root = if uid.is_root() { SQUASHED } else { "" };
                format!("remora asked as user {} and group {}{root}", uid.as_raw(), gid.as_raw())
            }
            ClientError::Mount { reason: MountError::Access | MountError::Perm, .. } => {
                format!("to list the exports and their clients: {}", exports_of(what))
            }
            ClientError::Rpc(CallFailure::Rpc(Outcome::ProgUnavail)) => {
                "MOUNT or NFS is on another port, and no portmapper (port 111) answers; give MOUNT's port with ?mountport=N"
                    .to_owned()
            }
            ClientError::Rpc(CallFailure::Rpc(Outcome::AuthError(Outcome::AUTH_BADCRED))) => {
                "Linux servers also return this to hosts that were removed from all exports".to_owned()
            }
            ClientError::Status(Status::Stale) => "the file was replaced or removed: try again".to_owned(),
            _ => return None,
        };
        Some(text)
    }
}

/// The command that lists the exports of the server that `what`, a URL, is about.
fn exports_of(what: &str) -> String {
    let url = if Target::is_url(what) { what } else { "HOST" };
    shlex::try_join(["remora", "exports", url]).unwrap_or_default()
}

/// Whether this is what it comes to when the server is out of reach.
pub(crate) fn is_lost(e: &ClientError) -> bool {
    use ClientError::*;
    match e {
        // The server is there, and it is not the one meant or does not want us; or no packet reaches it from here.
        Atp { source: AtpError::Refused(Refusal::WrongKey | Refusal::NotAdmitted | Refusal::Mtu { .. }), .. } => false,
        // It is there, and does not know what to do with this, or we do not with its answer.
        Rpc(CallFailure::Rpc(Outcome::ProcUnavail)) => false,
        Rpc(e) if is_trouble(e) => false,
        // It was not asked.
        Connect { source, .. } if is_short(source) => false,
        Resolve { .. } | Connect { .. } | Atp { .. } | Silent { .. } | Rpc(_) | Closed => true,
        _ => false,
    }
}

/// Whether no more files may be open here.
fn is_short(e: &io::Error) -> bool {
    matches!(e.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether it is this one call that the server, or we, could make nothing of.
fn is_trouble(e: &CallFailure) -> bool {
    matches!(e, CallFailure::Rpc(Outcome::GarbageArgs | Outcome::SystemErr) | CallFailure::Garbled(_))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(why) => f.write_str(why),
            // That names it itself.
            Error::Remote { what, source: source @ ClientError::Resolve { host, .. } } if host == what => {
                f.write_str(&remote_text(source))
            }
            Error::Remote { what, source } => write!(f, "{what}: {}", remote_text(source)),
            Error::Local { what, source } => write!(f, "{what}: {}", io_text(source)),
            Error::Refused { what, why, .. } => write!(f, "{what}: {why}"),
            Error::Mismatch(what) => write!(f, "{what}: the copy differs from its source and was removed"),
            Error::Pipe => f.write_str("standard output is closed"),
            Error::Interrupted(1) => f.write_str("hung up"),
            Error::Interrupted(15) => f.write_str("terminated"),
            Error::Interrupted(_) => f.write_str("interrupted"),
            Error::Reported(_) => f.write_str("some operations failed"),
        }
    }
}

/// What a server did, or the system on the way to it.
pub(crate) fn remote_text(e: &ClientError) -> String {
    match e {
        ClientError::Resolve { host, source } => format!("cannot find the address of {host}: {}", io_text(source)),
        ClientError::Connect { server, source } => format!("cannot reach {server}: {}", io_text(source)),
        ClientError::Local(source) => io_text(source),
        ClientError::Key { .. } => without_numbers(&e.to_string()),
        other => other.to_string(),
    }
}

/// What the system said, without its number, in lower case as our other messages are.
pub(crate) fn io_text(e: &io::Error) -> String {
    // Of a size or offset that does not even fit its calls the standard library says so in words of its own.
    if e.get_ref().is_some_and(|e| e.is::<TryFromIntError>()) {
        return io_text(&io::ErrorKind::FileTooLarge.into());
    }
    // A temporary file's error adds the random name, which the user did not choose.
    if let Some(source) = e.get_ref().and_then(|e| e.source()).and_then(|e| e.downcast_ref::<io::Error>()) {
        return io_text(source);
    }
    let text = without_numbers(&e.to_string());
    let mut chars = text.chars();
    // "I/O error" and its like stay as they are.
    match (chars.next(), chars.next()) {
        (Some(a), Some(b)) if b.is_lowercase() => format!("{}{}", a.to_lowercase(), &text[a.len_utf8()..]),
        _ => text,
    }
}

/// Without what the standard library puts behind the system's words, the number of the error.
fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |told, piece| told + piece.split_once(')').map_or("", |(_, rest)| rest))
}

impl From<TargetError> for Error {
    fn from(e: TargetError) -> Error {
        Error::Usage(e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_help() {
        let remote = |source| Error::Remote { what: "nfs://nas/x".into(), source };
        let atp = |source| ClientError::Atp { server: "nas:4049".into(), source };
        let gone = || io::Error::from(io::ErrorKind::ConnectionRefused);
        for (error, code) in [
            (Error::Usage(String::new()), 2),
            (remote(ClientError::Status(Status::NoEnt)), 1),
            (remote(ClientError::Connect { server: "nas:2049".into(), source: gone() }), 3),
            (remote(ClientError::Silent { server: "nas:2049".into(), what: "" }), 3),
            (remote(ClientError::Closed), 3),
            (remote(ClientError::Rpc(CallFailure::Rpc(Outcome::ProgUnavail))), 3),
            (remote(ClientError::Rpc(CallFailure::Rpc(Outcome::ProcUnavail))), 1),
            (remote(ClientError::NoKey { server: "nas:4049".into() }), 2),
            (remote(atp(AtpError::Refused(Refusal::Silent))), 3),
            (remote(atp(AtpError::Refused(Refusal::WrongKey))), 1),
            (Error::local("x")(gone()), 1),
            (Error::refused("x", "no"), 1),
            (Error::Mismatch("x".into()), 4),
            (Error::Pipe, 0),
            (Error::Interrupted(2), 130),
            (Error::Interrupted(15), 143),
        ] {
            assert_eq!(error.code(), code, "{error:?}");
            // At the start of a line: 130 ends in what 0 is, too.
            let documented = HELP.contains(&format!("\n  {code} ")) || HELP.contains(&format!("; {code} "));
            assert!(documented, "{code} is not documented");
        }
    }

    #[test]
    fn messages_read_as_sentences() {
        let full = remora_error(Status::NoSpc);
        assert_eq!(full.to_string(), "nfs://nas/x: no space left on the server's disk");
        assert!(full.is_full() && !full.is_lost() && !full.may_pass());
        assert!(remora_error(Status::Jukebox).may_pass() && !remora_error(Status::Access).may_pass());
        let e = Error::local("a b")(io::Error::from_raw_os_error(2));
        assert_eq!(e.to_string(), "a b: no such file or directory");
        let twice = "a: Operation not permitted (os error 1) (it takes root); b: Is a directory (os error 21)";
        let e = Error::refused("cannot emulate", twice);
        assert_eq!(
            e.to_string(),
            "cannot emulate: a: Operation not permitted (it takes root); b: Is a directory",
            "words stay, numbers go"
        );
        let e = std::fs::File::open("/dev/null").and_then(|f| f.set_len(u64::MAX)).unwrap_err();
        assert_eq!(Error::local("a")(e).to_string(), "a: file too large");
        assert_eq!(Error::refused("x\x1b[2J\n", "is a directory").to_string(), "x\\u{1b}[2J\\n: is a directory");
    }

    fn remora_error(status: Status) -> Error {
        Error::remote("nfs://nas/x")(status.into())
    }
}
