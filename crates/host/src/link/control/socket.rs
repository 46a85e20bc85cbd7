//! The control socket of a running link: a Unix stream for one request line and one response line. `status` returns
//! the counters as JSON. `handoff begin MILLISECONDS` and `handoff end` announce a handoff and return `ok`.
//!
//! Sockets are in one directory that only its owner can enter: `/run/remora/link` for root, else
//! `$XDG_RUNTIME_DIR/remora/link`. Each is named after its device. Devices of the same name in different network
//! namespaces are numbered.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::command::LinkControl;
use crate::handoff::Signal;
use crate::link::diagnostics::LinkReport;

/// Longest request, and longest response that is read.
const QUESTION_MAX: usize = 256;
const ANSWER_MAX: u64 = 1 << 24;
/// Most links with the same device name on a machine.
const LINKS_MAX: u32 = 64;
/// Time within which a client must send its request and read the response.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const REST: Duration = Duration::from_millis(100);

/// Serves a control socket until it is dropped, and removes the socket then.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The directory of the control sockets; `None` for a user without a run-time directory.
pub fn directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/remora/link"));
    }
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_absolute())?;
    Some(dir.join("remora/link"))
}

impl ControlSocket {
    /// Opens a socket in `dir` for a link on `device`.
    pub fn open(dir: &Path, device: &str, control: LinkControl) -> io::Result<ControlSocket> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        let (listener, path) = {
            // Locked: between `bind` and `listen` a socket looks stale.
            let turn =
                OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join("lock"))?;
            flock(&turn, FlockOperation::LockExclusive)?;
            // Removes the sockets of killed processes.
            scan(dir)?.1.iter().for_each(|dead| drop(fs::remove_file(dead)));
            bind(dir, device)?
        };
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("control".into());
        let thread = thread.spawn(move || serve(&listener, &stopped, &control))?;
        Ok(ControlSocket { path, stop, thread: Some(thread) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds the first free name: `DEVICE.sock`, `DEVICE@2.sock`, ...
fn bind(dir: &Path, device: &str) -> io::Result<(UnixListener, PathBuf)> {
    for n in 1..=LINKS_MAX {
        let name = if n == 1 { format!("{device}.sock") } else { format!("{device}@{n}.sock") };
        let path = dir.join(name);
        match UnixListener::bind(&path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound.map(|listener| (listener, path)),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The device that a socket's name contains.
pub fn device_of(path: &Path) -> &str {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    stem.split('@').next().unwrap_or_default()
}

/// The result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waited {
    Ready,
    TooLong,
    Stop,
}

/// Waits until `fd` is readable or writable, until the deadline, or until `stop`.
fn wait(fd: impl AsFd, events: PollFlags, stop: &OwnedFd, until: Option<Instant>) -> Waited {
    loop {
        let left = until.map(|u| u.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|l| Timespec::try_from(l).ok());
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(&fd, events)];
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            // Without `poll` no client can be served.
            Err(_) => return Waited::Stop,
            Ok(0) => return Waited::TooLong,
            Ok(_) if !fds[0].revents().is_empty() => return Waited::Stop,
            Ok(_) => return Waited::Ready,
        }
    }
}

/// Serves clients one at a time, each for at most [`PATIENCE`].
fn serve(listener: &UnixListener, stop: &OwnedFd, control: &LinkControl) {
    while wait(listener, PollFlags::IN, stop, None) == Waited::Ready {
        match listener.accept() {
            Ok((stream, _)) => {
                let asker = Asker { stream, stop, until: Instant::now() + PATIENCE };
                // The client has disconnected.
                let _ = asker.answer(control);
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // Descriptors may be exhausted. The client stays in the queue and would wake `poll` again immediately.
            Err(_) => {
                if wait(stop, PollFlags::IN, stop, Some(Instant::now() + REST)) == Waited::Stop {
                    return;
                }
            }
        }
    }
}

/// A client and the deadline for its request and response.
struct Asker<'a> {
    stream: UnixStream,
    stop: &'a OwnedFd,
    until: Instant,
}

impl Asker<'_> {
    fn answer(&self, control: &LinkControl) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let answer = match parse(&self.question()?) {
            Some(Question::Status) => serde_json::to_string(&control.report())?,
            Some(Question::HandOff(signal)) => {
                control.hand_off(signal);
                "ok".to_owned()
            }
            None => "error: expected status, handoff begin MILLISECONDS or handoff end".to_owned(),
        };
        self.say(&format!("{answer}\n"))
    }

    /// Reads one line, or less at the end of the stream.
    fn question(&self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") && line.len() < QUESTION_MAX {
            let mut more = [0; QUESTION_MAX];
            let n = self.patiently(PollFlags::IN, || (&self.stream).read(&mut more))?;
            if n == 0 {
                break;
            }
            line.extend_from_slice(more.get(..n).unwrap_or_default());
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn say(&self, text: &str) -> io::Result<()> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let n = self.patiently(PollFlags::OUT, || (&self.stream).write(rest))?;
            rest = rest.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// Repeats `work` until it completes or the deadline passes.
    fn patiently(&self, events: PollFlags, mut work: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        while wait(&self.stream, events, self.stop, Some(self.until)) == Waited::Ready {
            match work() {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                done => return done,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// The requests of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// Returns the counters.
    Status,
    /// Announces the beginning or end of a handoff.
    HandOff(Signal),
}

fn parse(line: &str) -> Option<Question> {
    match line.trim().split_once(' ') {
        None if line.trim() == "status" => Some(Question::Status),
        Some(("handoff", signal)) => signal.parse().ok().map(Question::HandOff),
        _ => None,
    }
}

/// The sockets of the running links in `dir`.
pub fn sockets(dir: &Path) -> io::Result<Vec<PathBuf>> {
    scan(dir).map(|(live, _)| live)
}

/// The sockets in `dir` that accept connections, and the stale ones.
fn scan(dir: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut live, mut dead) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((live, dead)),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "sock") {
            continue;
        }
        match connect(&path) {
            Ok(_) => live.push(path),
            // Its backlog is full, so it is running.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => live.push(path),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => dead.push(path),
            Err(_) => {}
        }
    }
    live.sort();
    Ok((live, dead))
}

/// Connects without waiting: a stopped link accepts as many clients as its backlog holds.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The counters of the link that listens at `path`.
pub fn status(path: &Path) -> io::Result<LinkReport> {
    Ok(serde_json::from_str(&ask(path, "status")?)?)
}

/// Requests the link that listens at `path` to announce the beginning or end of a handoff.
pub fn hand_off(path: &Path, signal: Signal) -> io::Result<()> {
    match ask(path, &format!("handoff {signal}"))?.trim() {
        "ok" => Ok(()),
        other => Err(io::Error::other(other.to_owned())),
    }
}

fn ask(path: &Path, question: &str) -> io::Result<String> {
    let mut stream = connect(path)?;
    stream.set_read_timeout(Some(PATIENCE * 3))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> ControlSocket {
        ControlSocket::open(dir, "rlink0", LinkControl::of_nothing()).unwrap()
    }

    #[test]
    fn slow_client_is_disconnected() {
        let dir = tempfile::tempdir().unwrap();
        let socket = open(dir.path());
        let mut slow = UnixStream::connect(socket.path()).unwrap();
        let began = Instant::now();
        while slow.write_all(b"x").is_ok() {
            assert!(began.elapsed() < PATIENCE * 5, "a byte at a time is not cut off");
            std::thread::sleep(PATIENCE / 5);
        }
        assert_eq!(status(socket.path()).unwrap(), LinkReport::default());
        let _slow = UnixStream::connect(socket.path()).unwrap();
        let began = Instant::now();
        drop(socket);
        assert!(began.elapsed() < PATIENCE / 2, "the end waits for whoever asks slowly");
        assert_eq!(sockets(dir.path()).unwrap(), Vec::<PathBuf>::new());
    }

    /// The backlog is full.
    #[test]
    fn stopped_link_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rlink0.sock");
        let still = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&still, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&still, 0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        let (tell, hear) = std::sync::mpsc::channel();
        let (at, dir_path) = (path.clone(), dir.path().to_owned());
        std::thread::spawn(move || tell.send((sockets(&dir_path).unwrap(), status(&at).unwrap_err().kind())));
        let answer = hear.recv_timeout(PATIENCE * 10).expect("asking takes for ever");
        assert_eq!(answer, (vec![path], io::ErrorKind::WouldBlock));
        let _running = open(dir.path());
    }

    #[test]
    fn concurrent_links_keep_their_sockets() {
        let dir = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(dir.path().join("rlink0@3.sock")).unwrap());
        let all = std::thread::scope(|s| {
            let starts: Vec<_> = (0..8).map(|_| s.spawn(|| open(dir.path()))).collect();
            starts.into_iter().map(|s| s.join().unwrap()).collect::<Vec<_>>()
        });
        let mut paths: Vec<_> = all.iter().map(|s| s.path().to_owned()).collect();
        paths.sort();
        assert_eq!(sockets(dir.path()).unwrap(), paths);
        assert!(all.iter().all(|s| status(s.path()).is_ok()));
    }

    #[test]
    fn malformed_requests_are_refused() {
        let begin = |ms| Some(Question::HandOff(Signal::Begin(Duration::from_millis(ms))));
        for (line, question) in [
            ("status\n", Some(Question::Status)),
            ("handoff begin 5000\n", begin(5000)),
            ("handoff begin 60000", begin(60_000)),
            ("handoff end", Some(Question::HandOff(Signal::End))),
            ("handoff begin 60001", None),
            ("handoff begin -1", None),
            ("handoff begin", None),
            ("status please", None),
            ("", None),
        ] {
            assert_eq!(parse(line), question, "{line}");
        }
    }
}
