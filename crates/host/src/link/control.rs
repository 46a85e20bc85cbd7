//! The control socket of a running link: a Unix stream on which a program sends one line and
//! gets one line. `status` is answered with the figures as JSON; `handoff begin MILLISECONDS`
//! and `handoff end` announce a cell switch and are answered with `ok`.
//!
//! Sockets are in one directory that its owner alone enters: `/run/remora/link` for root,
//! else `$XDG_RUNTIME_DIR/remora/link`. Each is named after its device; in different network
//! namespaces there may be several of one name, which are numbered.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::daemon::Control;
use super::report::Report;
use crate::handoff::Signal;

/// The longest question, and the longest answer that is read.
const QUESTION_MAX: u64 = 256;
const ANSWER_MAX: u64 = 1 << 24;
/// Links with one device name on a machine.
const LINKS_MAX: u32 = 64;
/// Who is slower than this has gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers on a control socket until it is dropped; the socket goes with it.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Where the control sockets are; `None` for a user without a run-time directory.
pub fn directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/remora/link"));
    }
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_absolute())?;
    Some(dir.join("remora/link"))
}

impl ControlSocket {
    /// Listens in `dir` for a link on `device`.
    pub fn open(dir: &Path, device: &str, control: Control) -> io::Result<ControlSocket> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        // What processes that were killed left behind.
        sockets(dir)?;
        let (listener, path) = bind(dir, device)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("control".into());
        let thread = thread.spawn(move || serve(&listener, &stopped, &control))?;
        Ok(ControlSocket { path, stop, thread: Some(thread) })
    }

    /// Where it is.
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

/// Takes the first name that is free: `DEVICE.sock`, `DEVICE@2.sock`, ...
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

/// The device that a socket's name tells of.
pub fn device_of(path: &Path) -> &str {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    stem.split('@').next().unwrap_or_default()
}

/// One at a time: each takes at most twice [`PATIENCE`].
fn serve(listener: &UnixListener, stop: &OwnedFd, control: &Control) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let waited = poll(&mut fds, None);
        if waited.is_ok() && fds[1].revents().contains(PollFlags::IN) {
            return;
        }
        if let Ok((stream, _)) = listener.accept() {
            // Whoever asked has gone: nobody to tell.
            let _ = answer(stream, control);
        }
    }
}

fn answer(stream: UnixStream, control: &Control) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(QUESTION_MAX)).read_line(&mut line)?;
    let answer = match parse(&line) {
        Some(Question::Status) => serde_json::to_string(&control.report())?,
        Some(Question::HandOff(signal)) => {
            control.hand_off(signal);
            "ok".to_owned()
        }
        None => "error: expected status, handoff begin MILLISECONDS or handoff end".to_owned(),
    };
    (&stream).write_all(format!("{answer}\n").as_bytes())
}

/// What can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// The figures.
    Status,
    /// A cell switch, or its end, announced.
    HandOff(Signal),
}

fn parse(line: &str) -> Option<Question> {
    match line.trim().split_once(' ') {
        None if line.trim() == "status" => Some(Question::Status),
        Some(("handoff", signal)) => signal.parse().ok().map(Question::HandOff),
        _ => None,
    }
}

/// The sockets of running links in `dir`; those that nobody answers on any more are removed.
pub fn sockets(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut live = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "sock") {
            continue;
        }
        match UnixStream::connect(&path) {
            Ok(_) => live.push(path),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    live.sort();
    Ok(live)
}

/// The figures of the link that listens at `path`.
pub fn status(path: &Path) -> io::Result<Report> {
    Ok(serde_json::from_str(&ask(path, "status")?)?)
}

/// Has the link that listens at `path` announce a cell switch or its end.
pub fn hand_off(path: &Path, signal: Signal) -> io::Result<()> {
    match ask(path, &format!("handoff {signal}"))?.trim() {
        "ok" => Ok(()),
        other => Err(io::Error::other(other.to_owned())),
    }
}

fn ask(path: &Path, question: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
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

    #[test]
    fn questions_are_checked() {
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
