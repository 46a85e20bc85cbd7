//! The side of the control sockets that asks: which mounts there are, how they are, and what they shall do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::de::DeserializeOwned;

use super::report::{
    ConflictReport, ConnectionReport, Dismissed, HoardReport, HoardUsage, MountReport, Released, UnmountMode,
    UnmountProgress,
};
use super::runtime_dir::{self, MountNote};

/// Longest answer that is read, in bytes.
const ANSWER_MAX: u64 = 16 << 20;
/// Time within which a mount must answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A mount with a control socket.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownMount {
    pub note: MountNote,
    socket: PathBuf,
}

/// The mounts of this user whose processes exist, in `dir`, the directory of the control sockets. Removes the sockets
/// of dead processes.
pub fn mounts(dir: &Path) -> io::Result<Vec<KnownMount>> {
    let sockets = runtime_dir::sockets(dir)?;
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let _turn = runtime_dir::lock(dir)?;
    let mut found = Vec::new();
    for socket in sockets {
        match connect(&socket) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => runtime_dir::remove_socket(&socket),
            // A stopped process accepts as many connections as its backlog holds.
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => {}
            _ => found.extend(runtime_dir::read_note(&socket).ok().map(|note| KnownMount { note, socket })),
        }
    }
    Ok(found)
}

impl KnownMount {
    /// What the mount reports of itself.
    pub fn report(&self) -> io::Result<MountReport> {
        self.ask("status")
    }

    /// Ends all system calls that wait for the server. Returns how many.
    pub fn release(&self) -> io::Result<usize> {
        self.ask("release").map(|released: Released| released.calls)
    }

    /// Has it work without the server.
    pub fn go_offline(&self) -> io::Result<ConnectionReport> {
        self.ask("offline")
    }

    /// Has it use the server again.
    pub fn go_online(&self) -> io::Result<ConnectionReport> {
        self.ask("online")
    }

    /// Conflicts that nobody has dismissed, the oldest first.
    pub fn conflicts(&self) -> io::Result<Vec<ConflictReport>> {
        self.ask("conflicts")
    }

    /// Forgets a conflict. Returns whether there was one.
    pub fn dismiss(&self, id: u64) -> io::Result<bool> {
        self.ask(&format!("dismiss {id}")).map(|dismissed: Dismissed| dismissed.was_known)
    }

    /// State of hoarding.
    pub fn hoard(&self) -> io::Result<HoardReport> {
        self.ask("hoard")
    }

    /// Has it read the profile anew.
    pub fn reload_hoard(&self) -> io::Result<HoardReport> {
        self.ask("hoard reload")
    }

    /// Has it read the profile anew and walk over it.
    pub fn walk_hoard(&self) -> io::Result<HoardReport> {
        self.ask("hoard walk")
    }

    /// What programs open.
    pub fn usage(&self) -> io::Result<HoardUsage> {
        self.ask("hoard usage")
    }

    /// Detaches it from its directory and waits until its dirty data is sent, kept or dropped.
    /// Passes on the progress.
    pub fn unmount(&self, mode: UnmountMode, mut progress: impl FnMut(UnmountProgress)) -> io::Result<()> {
        let question = match mode {
            UnmountMode::Send => "unmount",
            UnmountMode::Keep => "unmount keep",
            UnmountMode::Drop => "unmount drop",
        };
        let mut answer = BufReader::new(self.send(question)?.take(ANSWER_MAX));
        let mut line = String::new();
        while answer.read_line(&mut line)? > 0 {
            let step: UnmountProgress = parse(&line)?;
            progress(step);
            if step.is_done {
                // The process ends now; if that takes long, it has still done its work.
                let _ = answer.read_line(&mut line);
                return Ok(());
            }
            line.clear();
            // Progress comes several times a second, and may go on for days.
            answer.get_mut().set_limit(ANSWER_MAX);
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn ask<T: DeserializeOwned>(&self, question: &str) -> io::Result<T> {
        let mut answer = String::new();
        self.send(question)?.take(ANSWER_MAX).read_to_string(&mut answer)?;
        parse(&answer)
    }

    fn send(&self, question: &str) -> io::Result<UnixStream> {
        let mut stream = connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{question}\n").as_bytes())?;
        Ok(stream)
    }
}

/// Whether `error` means that the process is stopped or too busy to answer.
pub fn is_silent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn parse<T: DeserializeOwned>(answer: &str) -> io::Result<T> {
    serde_json::from_str(answer).map_err(|_| io::Error::other(answer.trim().to_owned()))
}

/// Connects without waiting for room in the backlog.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
