//! The hand-off signal among the programs of a machine: something that knows of an imminent
//! cell switch (a link daemon, a modem manager's script) tells every client beforehand, and
//! again when it is over (planned in NFS/W 95 and 97). `docs/guide/handoff.md` is the protocol.
//!
//! Each client binds a datagram socket `PID-N.sock` in one of a few known directories that
//! only their owner may enter; the announcer sends a line of text to every socket there.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram as Sender;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio::net::UnixDatagram;

/// The longest switch that may be announced.
pub const EXPECTED_MAX: Duration = Duration::from_secs(60);
/// Names the directory instead of the usual places.
const DIR_VARIABLE: &str = "REMORA_HANDOFF_DIR";
/// Longer messages are garbage.
const MESSAGE_MAX: usize = 64;
/// The most names in a client directory that are looked at.
const SOCKETS_MAX: usize = 1024;
/// The least time between two announcements of a [`Herald`].
const ANNOUNCE_EVERY: Duration = Duration::from_millis(20);
/// How long its last one is waited for: directories may hang.
const FINISH_MAX: Duration = Duration::from_millis(500);

/// What is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// The link goes away; it is expected back after this long (1 ms to 60 s).
    Begin(Duration),
    /// The same, said by a link that keeps what is under way and delivers it afterwards.
    Kept(Duration),
    /// The link is back.
    End,
}

/// A line that is no signal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected 'begin MILLISECONDS [kept]' (1 to 60000) or 'end'")]
pub struct NotASignal;

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |expected: &Duration| expected.min(&EXPECTED_MAX).as_millis().max(1);
        match self {
            Signal::Begin(expected) => write!(f, "begin {}", ms(expected)),
            Signal::Kept(expected) => write!(f, "begin {} kept", ms(expected)),
            Signal::End => f.write_str("end"),
        }
    }
}

impl FromStr for Signal {
    type Err = NotASignal;

    fn from_str(line: &str) -> Result<Signal, NotASignal> {
        let mut words = line.split_ascii_whitespace();
        let signal = match (words.next(), words.next(), words.next()) {
            (Some("end"), None, None) => Signal::End,
            (Some("begin"), Some(ms), kept @ (None | Some("kept"))) => {
                let expected = ms.parse().map(Duration::from_millis).map_err(|_| NotASignal)?;
                if expected.is_zero() || expected > EXPECTED_MAX {
                    return Err(NotASignal);
                }
                if kept.is_some() { Signal::Kept(expected) } else { Signal::Begin(expected) }
            }
            _ => return Err(NotASignal),
        };
        if words.next().is_some() { Err(NotASignal) } else { Ok(signal) }
    }
}

/// A client's ear. Its socket goes when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixDatagram,
    path: PathBuf,
    /// Whether the name is still its own.
    is_there: AtomicBool,
    ignored: AtomicU64,
}

impl Listener {
    /// Listens in this user's directory, which is made if it is not there. Call it within a
    /// tokio runtime.
    pub fn open() -> io::Result<Listener> {
        Listener::open_in(&own_dir()?)
    }

    /// Listens in `dir`.
    pub fn open_in(dir: &Path) -> io::Result<Listener> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if check_private(dir)? != rustix::process::geteuid().as_raw() {
            return Err(not_private(dir));
        }
        remove_stale(dir);
        for _ in 0..SOCKETS_MAX {
            let name = format!("{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = dir.join(name);
            match UnixDatagram::bind(&path) {
                // In another container a process has our number.
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                bound => {
                    let (socket, is_there, ignored) = (bound?, AtomicBool::new(true), AtomicU64::new(0));
                    return Ok(Listener { socket, path, is_there, ignored });
                }
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Removes the socket from the directory: no announcement reaches it any more.
    pub fn unlink(&self) {
        // Once: then another may take the name.
        if self.is_there.swap(false, Ordering::Relaxed) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// The next signal. Anything else is counted and passed over.
    pub async fn next(&self) -> io::Result<Signal> {
        let mut buffer = [0; MESSAGE_MAX + 1];
        loop {
            let n = self.socket.recv(&mut buffer).await?;
            let line = buffer.get(..n).filter(|l| l.len() <= MESSAGE_MAX).and_then(|l| std::str::from_utf8(l).ok());
            match line.map(Signal::from_str) {
                Some(Ok(signal)) => return Ok(signal),
                _ => self.ignored.fetch_add(1, Ordering::Relaxed),
            };
        }
    }

    /// Messages that were no signals.
    pub fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Tells the clients of this user, or for root of all users; returns how many were told. One
/// that takes nothing is passed over, so this never waits.
pub fn announce(signal: Signal) -> io::Result<usize> {
    let own = own_dir()?;
    let mut told = announce_in(&own, signal)?;
    if rustix::process::geteuid().is_root() && std::env::var_os(DIR_VARIABLE).is_none() {
        told += announce_to_users(Path::new("/proc"), Path::new("/run/user"), &std::env::temp_dir(), &own, signal);
    }
    Ok(told)
}

/// Announces from a thread of its own, for callers that cannot wait for directories to be read.
#[derive(Debug)]
pub struct Herald {
    latest: SyncSender<()>,
    signal: Arc<Mutex<Option<Signal>>>,
    /// Until when clients wait for the end of a switch.
    held_until: Mutex<Option<Instant>>,
    /// Ends with the thread.
    thread: Receiver<Infallible>,
}

impl Herald {
    /// Begins; announcements that are under way when it is dropped are still made.
    pub fn start() -> io::Result<Herald> {
        Herald::start_with(|signal| drop(announce(signal)))
    }

    fn start_with(mut announce: impl FnMut(Signal) + Send + 'static) -> io::Result<Herald> {
        let (latest, news) = sync_channel(1);
        let signal = Arc::new(Mutex::new(None));
        let shared = signal.clone();
        let (at_work, thread) = channel();
        std::thread::Builder::new().name("hand-off".into()).spawn(move || {
            let _at_work = at_work;
            while news.recv().is_ok() {
                let signal = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(signal) = signal {
                    announce(signal);
                    std::thread::sleep(ANNOUNCE_EVERY);
                }
            }
        })?;
        Ok(Herald { latest, signal, held_until: Mutex::new(None), thread })
    }

    /// Has it announced soon, unless another takes its place before: then that one alone.
    pub fn tell(&self, signal: Signal) {
        *self.held_until.lock().unwrap_or_else(PoisonError::into_inner) = match signal {
            Signal::Begin(expected) | Signal::Kept(expected) => Some(Instant::now() + expected.min(EXPECTED_MAX)),
            Signal::End => None,
        };
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        // Full: it is about to look anyway.
        let _ = self.latest.try_send(());
    }

    /// Ends a switch that was told of and is not over: who told of it goes. Waits until all that was told is announced, for a
    /// process that ends takes the thread with it.
    pub fn finish(self) {
        let until = *self.held_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| until > Instant::now()) {
            self.tell(Signal::End);
        }
        drop(self.latest);
        let _ = self.thread.recv_timeout(FINISH_MAX);
    }
}

/// Tells the clients that listen in `dir`; returns how many were told.
pub fn announce_in(dir: &Path, signal: Signal) -> io::Result<usize> {
    let sockets = match sockets(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        sockets => sockets?,
    };
    let sender = Sender::unbound()?;
    sender.set_nonblocking(true)?;
    let line = format!("{signal}\n");
    Ok(sockets.iter().filter(|path| sender.send_to(line.as_bytes(), path).is_ok()).count())
}

/// The sockets of clients in `dir`.
fn sockets(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let owner = check_private(dir)?;
    let is_client = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".sock"));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let named = name.and_then(|n| n.split_once('-')).is_some_and(|(pid, n)| digits(pid) && digits(n));
        // No link: root sends into directories of others.
        named && fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket() && m.uid() == owner)
    };
    let entries = fs::read_dir(dir)?.take(SOCKETS_MAX).filter_map(Result::ok).map(|e| e.path());
    Ok(entries.filter(is_client).collect())
}

/// Removes the sockets of processes that are gone.
fn remove_stale(dir: &Path) {
    // One at a time: what another has removed may be there anew, and live.
    let Ok(turn) = File::open(dir) else { return };
    if flock(&turn, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let (Ok(sockets), Ok(sender)) = (sockets(dir), Sender::unbound()) else { return };
    for path in sockets {
        let refused = sender.connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            let _ = fs::remove_file(&path);
        }
    }
}

/// A user who can enter the directory can hold its clients up, so it must be its owner's alone.
/// That is this user, or anybody if this user is root. Returns the owner.
fn check_private(dir: &Path) -> io::Result<u32> {
    let meta = fs::symlink_metadata(dir)?;
    let own = rustix::process::geteuid();
    let is_ours = meta.uid() == own.as_raw() || own.is_root();
    if meta.is_dir() && is_ours && meta.mode() & 0o077 == 0 { Ok(meta.uid()) } else { Err(not_private(dir)) }
}

fn not_private(dir: &Path) -> io::Error {
    let why = format!("{} is not a directory of this user's alone", dir.display());
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// `$REMORA_HANDOFF_DIR`, or else a directory under the first of `$XDG_RUNTIME_DIR`,
/// `/run/user/UID` and the directory for temporary files that there is.
fn own_dir() -> io::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        let dir = PathBuf::from(dir);
        let relative =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("{DIR_VARIABLE} is not an absolute path"));
        return if dir.is_absolute() { Ok(dir) } else { Err(relative()) };
    }
    let uid = rustix::process::geteuid().as_raw();
    let runtime = [absolute("XDG_RUNTIME_DIR"), Some(PathBuf::from(format!("/run/user/{uid}")))];
    let is_own = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    Ok(match runtime.into_iter().flatten().find(is_own) {
        Some(dir) => dir.join("remora/handoff"),
        None => std::env::temp_dir().join(format!("remora-handoff-{uid}")),
    })
}

/// Tells the clients of each user that has a process, but for those in `own`; returns how many were told. The names of
/// a user's directories follow from the user id, so no directory is listed in which others can make entries.
fn announce_to_users(proc: &Path, runtime: &Path, temporary: &Path, own: &Path, signal: Signal) -> usize {
    let places = |uid: u32| {
        [runtime.join(format!("{uid}/remora/handoff")), temporary.join(format!("remora-handoff-{uid}"))]
            .map(|dir| (uid, dir))
    };
    let dirs = users(proc).into_iter().flat_map(places).filter(|(_, dir)| dir != own);
    // One that is wrong, or another user's, is that user's concern.
    let is_owned = |(uid, dir): &(u32, PathBuf)| fs::symlink_metadata(dir).is_ok_and(|m| m.uid() == *uid);
    dirs.filter(is_owned).filter_map(|(_, dir)| announce_in(&dir, signal).ok()).sum()
}

/// The effective user ids of all processes, by their status files: `Uid:`, then the real and the effective one.
fn users(proc: &Path) -> BTreeSet<u32> {
    let effective =
        |status: String| status.lines().find_map(|l| l.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok();
    let processes = fs::read_dir(proc).into_iter().flatten().filter_map(Result::ok);
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let statuses =
        processes.filter(|e| is_process(&e.file_name())).map(|e| fs::read_to_string(e.path().join("status")));
    statuses.filter_map(|status| effective(status.ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn signals_are_lines_of_text() {
        let begin = |ms| Ok(Signal::Begin(Duration::from_millis(ms)));
        for (line, signal) in [
            ("begin 1500\n", begin(1500)),
            (" begin  60000 ", begin(60_000)),
            ("end\n", Ok(Signal::End)),
            ("begin 60001", Err(NotASignal)),
            ("begin 0", Err(NotASignal)),
            ("begin", Err(NotASignal)),
            ("begin -1", Err(NotASignal)),
            ("begin 1 2", Err(NotASignal)),
            ("begin 1 kept", Ok(Signal::Kept(Duration::from_millis(1)))),
            ("begin 1 kept 2", Err(NotASignal)),
            ("begin kept", Err(NotASignal)),
            ("end kept", Err(NotASignal)),
            ("end now", Err(NotASignal)),
            ("", Err(NotASignal)),
        ] {
            assert_eq!(line.parse::<Signal>(), signal, "{line:?}");
        }
        let ms = Duration::from_millis(7);
        for signal in [Signal::End, Signal::Begin(ms), Signal::Kept(ms)] {
            assert_eq!(signal.to_string().parse(), Ok(signal));
        }
        assert_eq!(Signal::Begin(Duration::MAX).to_string(), "begin 60000");
    }

    #[tokio::test]
    async fn every_listener_gets_the_signal_and_garbage_is_counted() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("handoff");
        assert_eq!(announce_in(&dir, Signal::End).unwrap(), 0, "nobody there");
        let ears = [Listener::open_in(&dir).unwrap(), Listener::open_in(&dir).unwrap()];
        let raw = Sender::unbound().unwrap();
        for garbage in [&b"begin tomorrow"[..], b"\xff\xfe", b"", &[b' '; 500]] {
            raw.send_to(garbage, &ears[0].path).unwrap();
        }
        let signal = Signal::Begin(Duration::from_secs(5));
        assert_eq!(announce_in(&dir, signal).unwrap(), 2);
        for ear in &ears {
            assert_eq!(ear.next().await.unwrap(), signal);
        }
        assert_eq!(ears[0].ignored(), 4);
        drop(ears);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "sockets go with their owners");
    }

    #[test]
    fn herald_skips_outdated_signals() {
        let (told, heard) = channel();
        let began = Instant::now();
        let herald = Herald::start_with(move |signal| told.send((began.elapsed(), signal)).unwrap()).unwrap();
        let signal = |ms| Signal::Begin(Duration::from_millis(ms));
        for ms in 1..10_000 {
            herald.tell(signal(ms));
        }
        herald.tell(Signal::End);
        drop(herald);
        let heard: Vec<_> = heard.iter().collect();
        assert_eq!(heard.last().unwrap().1, Signal::End);
        let bound = began.elapsed().as_millis() / ANNOUNCE_EVERY.as_millis() + 1;
        assert!(heard.len() as u128 <= bound, "{} announcements in {:?}", heard.len(), began.elapsed());
    }

    #[test]
    fn dropped_herald_ends_its_handoff() {
        let begin = Signal::Kept(EXPECTED_MAX);
        let soon_over = Signal::Begin(Duration::from_millis(1));
        for (told, is_on) in [(vec![begin], true), (vec![begin, Signal::End], true), (vec![soon_over], false)] {
            let (tell, heard) = channel();
            let herald = Herald::start_with(move |signal| {
                std::thread::sleep(Duration::from_millis(50));
                // Too late for this test.
                let _ = tell.send(signal);
            });
            let herald = herald.unwrap();
            told.iter().for_each(|signal| herald.tell(*signal));
            std::thread::sleep(Duration::from_millis(10));
            herald.finish();
            assert_eq!(heard.try_iter().last() == Some(Signal::End), is_on, "{told:?}");
        }
    }

    #[tokio::test]
    async fn socket_of_same_pid_in_other_container_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("handoff");
        DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let theirs = |n| Sender::bind(dir.join(format!("{}-{n}.sock", std::process::id()))).unwrap();
        let others: Vec<_> = (0..100).map(theirs).collect();
        let ear = Listener::open_in(&dir).unwrap();
        assert_eq!(announce_in(&dir, Signal::End).unwrap(), others.len() + 1);
        assert_eq!(ear.next().await.unwrap(), Signal::End);
        for other in &others {
            other.set_nonblocking(true).unwrap();
            assert_eq!(other.recv(&mut [0; MESSAGE_MAX]).unwrap(), "end\n".len());
        }
        ear.unlink();
        let heir = Sender::bind(&ear.path).unwrap();
        drop(ear);
        assert_eq!(announce_in(&dir, Signal::End).unwrap(), others.len() + 1, "the name was another's by then");
        drop(heir);
    }

    #[tokio::test]
    async fn only_sockets_of_dead_processes_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("handoff");
        let first = Listener::open_in(&dir).unwrap();
        drop(Sender::bind(dir.join("1-0.sock")).unwrap());
        fs::write(dir.join("2-0.sock"), "a file").unwrap();
        drop(Sender::bind(dir.join("mine.sock")).unwrap());
        let _second = Listener::open_in(&dir).unwrap();
        let left = |name: &str| dir.join(name).exists();
        assert!(!left("1-0.sock") && left("2-0.sock") && left("mine.sock") && first.path.exists());
    }

    /// Root looks where each user's clients are, and nowhere else: however many directories and links a user makes,
    /// the sockets of others receive the announcement.
    #[tokio::test]
    async fn decoy_directories_hide_no_client() {
        let home = tempfile::tempdir().unwrap();
        let [proc, runtime, temporary] = ["proc", "run", "tmp"].map(|name| home.path().join(name));
        let own = rustix::process::geteuid().as_raw();
        for (pid, uid) in [("7", own), ("8", own), ("9", own.wrapping_add(1)), ("self", 1)] {
            fs::create_dir_all(proc.join(pid)).unwrap();
            fs::write(proc.join(pid).join("status"), format!("Name:\tx\nUid:\t0\t{uid}\t0\t0\n")).unwrap();
        }
        fs::create_dir_all(proc.join("10")).unwrap();
        assert_eq!(users(&proc), [own, own.wrapping_add(1)].into());
        fs::create_dir(&temporary).unwrap();
        for n in 0..20 {
            DirBuilder::new().mode(0o700).create(temporary.join(format!("remora-handoff-{n}x"))).unwrap();
        }
        // Another user's name, taken by this one.
        let squatted = Listener::open_in(&temporary.join(format!("remora-handoff-{}", own.wrapping_add(1)))).unwrap();
        let ears = [temporary.join(format!("remora-handoff-{own}")), runtime.join(format!("{own}/remora/handoff"))]
            .map(|dir| Listener::open_in(&dir).unwrap());
        let tell = |own: &Path| announce_to_users(&proc, &runtime, &temporary, own, Signal::End);
        assert_eq!((tell(Path::new("/nowhere")), tell(ears[0].path.parent().unwrap())), (2, 1));
        for ear in &ears {
            assert_eq!(ear.next().await.unwrap(), Signal::End);
        }
        drop(squatted);
    }

    #[tokio::test]
    async fn directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Listener::open_in(dir.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(announce_in(dir.path(), Signal::End).is_err());
    }
}
