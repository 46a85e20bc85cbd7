//! The control socket of a mount: one line asks, lines of JSON answer.
//!
//! `status` returns a [`MountReport`], `release` ends all held system calls, `unmount` detaches the mount and reports
//! its progress until all dirty data is sent; `unmount keep` keeps that data on disk, `unmount drop` drops it. `offline`
//! and `online` return a [`ConnectionReport`]. `conflicts` lists conflicts, `dismiss N` forgets one. `hoard` returns a
//! [`HoardReport`], `hoard reload` reads the profile anew before, `hoard walk` also walks over it; `hoard usage` returns
//! a [`HoardUsage`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::control_client::connect;
use super::report::{
    ConflictReport, ConnectionReport, Dismissed, HoardReport, HoardUsage, MountReport, Released, UnmountMode,
    UnmountProgress,
};
use super::runtime_dir::{self, MountNote};

/// The answer to anything else than a question.
const REFUSAL: &str = "error: expected status, release, offline, online, conflicts, dismiss N, hoard, unmount, unmount keep or unmount drop";
/// Longest question in bytes.
const QUESTION_MAX: usize = 256;
/// Clients served at a time; others wait in the backlog.
const CLIENTS_MAX: usize = 16;
/// Time within which a client must ask and read a line of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of progress.
const PROGRESS: Duration = Duration::from_millis(200);
/// How long a client that asked for the end may wait for it.
const LINGER: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const REST: Duration = Duration::from_millis(100);

/// What a control socket controls.
pub(super) trait Controlled: Send + Sync + 'static {
    fn report(&self) -> MountReport;

    /// Ends all held system calls. Returns how many.
    fn release(&self) -> usize;

    /// Works without the server.
    fn go_offline(&self) -> ConnectionReport;

    /// Uses the server again.
    fn go_online(&self) -> ConnectionReport;

    /// Conflicts that nobody has dismissed.
    fn conflicts(&self) -> Vec<ConflictReport>;

    /// Forgets a conflict. Returns whether there was one.
    fn dismiss(&self, id: u64) -> bool;

    /// Detaches the mount from its directory. The process ends when dirty data is where it shall be.
    fn unmount(&self, mode: UnmountMode);

    fn progress(&self) -> UnmountProgress;

    /// State of hoarding; `reads` the profile anew, `walks` over it.
    fn hoard(&self, reads: bool, walks: bool) -> HoardReport;

    /// What programs open.
    fn usage(&self) -> HoardUsage;
}

/// Serves a control socket until it is dropped, and removes the socket then.
#[derive(Debug)]
pub(super) struct ControlSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

/// A socket that is bound, and answers when it is served.
#[derive(Debug)]
pub(super) struct BoundSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl BoundSocket {
    /// Binds a socket in `dir` for the mount of `note`. Needs the runtime.
    pub(super) fn bind(dir: &Path, note: &MountNote) -> io::Result<BoundSocket> {
        runtime_dir::create(dir)?;
        let _turn = runtime_dir::lock(dir)?;
        for path in runtime_dir::socket_paths(dir, &note.dir) {
            // A dead process's socket refuses.
            if connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                runtime_dir::remove_socket(&path);
            }
            match UnixListener::bind(&path) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                Err(e) => return Err(e),
                Ok(listener) => {
                    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
                    runtime_dir::write_note(&path, note)?;
                    return Ok(BoundSocket { path, listener });
                }
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    pub(super) fn serve(self, mount: Arc<impl Controlled>) -> ControlSocket {
        let BoundSocket { path, listener } = self;
        ControlSocket { path, task: tokio::spawn(serve(listener, mount)) }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.task.abort();
        runtime_dir::remove_socket(&self.path);
    }
}

async fn serve(listener: UnixListener, mount: Arc<impl Controlled>) {
    let room = Arc::new(Semaphore::new(CLIENTS_MAX));
    while let Ok(turn) = room.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(REST).await;
            continue;
        };
        let mount = mount.clone();
        tokio::spawn(async move {
            // The client may have gone.
            let _ = answer(stream, mount).await;
            drop(turn);
        });
    }
}

async fn answer(mut stream: UnixStream, mount: Arc<impl Controlled>) -> io::Result<()> {
    let question = timeout(PATIENCE, question(&mut stream)).await??;
    match question.trim() {
        "status" => say(&mut stream, &mount.report()).await,
        "release" => {
            let calls = mount.release();
            say(&mut stream, &Released { calls }).await
        }
        "hoard" => say(&mut stream, &mount.hoard(false, false)).await,
        "hoard reload" => say(&mut stream, &mount.hoard(true, false)).await,
        "hoard walk" => say(&mut stream, &mount.hoard(true, true)).await,
        "hoard usage" => say(&mut stream, &mount.usage()).await,
        "unmount" => unmount(stream, mount, UnmountMode::Send).await,
        "unmount keep" => unmount(stream, mount, UnmountMode::Keep).await,
        "unmount drop" => unmount(stream, mount, UnmountMode::Drop).await,
        "offline" => say(&mut stream, &mount.go_offline()).await,
        "online" => say(&mut stream, &mount.go_online()).await,
        "conflicts" => say(&mut stream, &mount.conflicts()).await,
        other => match other.strip_prefix("dismiss ").and_then(|id| id.parse().ok()) {
            Some(id) => say(&mut stream, &Dismissed { was_known: mount.dismiss(id) }).await,
            None => say(&mut stream, &REFUSAL).await,
        },
    }
}

async fn unmount(mut stream: UnixStream, mount: Arc<impl Controlled>, mode: UnmountMode) -> io::Result<()> {
    let asked = mount.clone();
    // The kernel forgets a million names for seconds.
    let unmounting = spawn_blocking(move || asked.unmount(mode));
    loop {
        let progress = mount.progress();
        say(&mut stream, &progress).await?;
        if progress.is_done {
            let _ = unmounting.await;
            // The end of the stream shows the client that the process has ended.
            sleep(LINGER).await;
            return Ok(());
        }
        sleep(PROGRESS).await;
    }
}

/// Reads one line, or less at the end of the stream.
async fn question(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < QUESTION_MAX && stream.read_buf(&mut line).await? > 0 {}
    Ok(String::from_utf8_lossy(&line).into_owned())
}

async fn say(stream: &mut UnixStream, line: &impl Serialize) -> io::Result<()> {
    let text = format!("{}\n", serde_json::to_string(line)?);
    timeout(PATIENCE, stream.write_all(text.as_bytes())).await?
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::mount::control_client::{self, mounts};
    use crate::mount::report::{ConflictName, ConnectionState, LogReport, MountState, QueueReport, ServerReport};

    /// Has 3 bytes to send, and sends one at each look.
    #[derive(Default)]
    struct Fake {
        dirty: AtomicU64,
        unmounts: Mutex<Vec<UnmountMode>>,
        /// Unmounting waits for it.
        slow: Option<Mutex<Receiver<()>>>,
    }

    impl Controlled for Fake {
        fn report(&self) -> MountReport {
            MountReport {
                url: "nfs://nas/".into(),
                dir: "/mnt".into(),
                pid: 1,
                state: MountState::Mounted,
                cache: "default".into(),
                read_only: false,
                writes: "through".into(),
                soft_ms: None,
                server: ServerReport {
                    address: "nas:2049".into(),
                    transport: "udp".into(),
                    silent_ms: 0,
                    deferred_ms: 0,
                    rtt_ms: Some(1.5),
                    window: 2,
                    rate_bits: None,
                    loss: None,
                },
                connection: connection(ConnectionState::Weak),
                log: LogReport { records: 3, ..LogReport::default() },
                dirty_bytes: 0,
                unsent_files: 0,
                unsent: Vec::new(),
                cached_bytes: 0,
                disk: None,
                nodes: 1,
                calls_waiting: 0,
                queue: QueueReport::default(),
                calls_in_flight: 0,
                hits: 3,
                misses: 1,
                read_bytes: 0,
                written_bytes: 0,
                held: Vec::new(),
            }
        }

        fn release(&self) -> usize {
            2
        }

        fn go_offline(&self) -> ConnectionReport {
            connection(ConnectionState::Disconnected)
        }

        fn go_online(&self) -> ConnectionReport {
            connection(ConnectionState::Connected)
        }

        fn conflicts(&self) -> Vec<ConflictReport> {
            vec![ConflictReport {
                id: 4,
                kind: ConflictName::RemovedThere,
                path: "/a".into(),
                copy: Some("/b".into()),
                at_ms: 5,
            }]
        }

        fn dismiss(&self, id: u64) -> bool {
            id == 4
        }

        fn unmount(&self, mode: UnmountMode) {
            if let Some(slow) = &self.slow {
                slow.lock().unwrap().recv().unwrap();
            }
            self.unmounts.lock().unwrap().push(mode);
        }

        fn progress(&self) -> UnmountProgress {
            let sent = |n: u64| n.checked_sub(1);
            let before = self.dirty.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sent).unwrap_or_default();
            UnmountProgress { dirty_bytes: before, kept_files: 0, kept_changes: 0, is_done: before == 0 }
        }

        fn hoard(&self, reads: bool, walks: bool) -> HoardReport {
            HoardReport { has_disk: reads, is_paused: walks, ..HoardReport::default() }
        }

        fn usage(&self) -> HoardUsage {
            HoardUsage { missed: vec!["/a".into()], ..HoardUsage::default() }
        }
    }

    fn connection(state: ConnectionState) -> ConnectionReport {
        ConnectionReport { state, since_ms: 6, is_asked: true, problem: None }
    }

    fn note() -> MountNote {
        MountNote { url: "nfs://nas/".into(), dir: "/mnt".into(), pid: 1 }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn mount_is_listed_and_obeys() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("remora/mount");
        assert_eq!(mounts(&dir).unwrap(), []);
        let fake = Arc::new(Fake { dirty: AtomicU64::new(3), ..Fake::default() });
        let socket = BoundSocket::bind(&dir, &note()).unwrap().serve(fake.clone());
        let other = BoundSocket::bind(&dir, &note()).unwrap().serve(fake.clone());
        let known = mounts(&dir).unwrap();
        assert!(known.len() == 2 && known.iter().all(|mount| mount.note == note()));
        drop(other);
        let [known] = &mounts(&dir).unwrap()[..] else { panic!("one is left") };
        assert_eq!(known.report().unwrap(), fake.report());
        assert_eq!(known.release().unwrap(), 2);
        assert_eq!(known.go_offline().unwrap(), fake.go_offline());
        assert_eq!(known.go_online().unwrap(), fake.go_online());
        assert_eq!(known.conflicts().unwrap(), fake.conflicts());
        assert_eq!([4, 5].map(|id| known.dismiss(id).unwrap()), [true, false]);
        let asked = [known.hoard(), known.reload_hoard(), known.walk_hoard()].map(Result::unwrap);
        assert_eq!(asked.map(|hoard| (hoard.has_disk, hoard.is_paused)), [(false, false), (true, false), (true, true)]);
        assert_eq!(known.usage().unwrap().missed, ["/a"]);
        let mut steps = Vec::new();
        known.unmount(UnmountMode::Send, |step| steps.push(step.dirty_bytes)).unwrap();
        known.unmount(UnmountMode::Drop, |step| steps.push(step.dirty_bytes)).unwrap();
        let modes = [UnmountMode::Send, UnmountMode::Drop];
        assert_eq!((steps, &fake.unmounts.lock().unwrap()[..]), (vec![3, 2, 1, 0, 0], &modes[..]));
        drop(socket);
        assert_eq!(mounts(&dir).unwrap(), []);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn unmounting_is_watched_while_the_kernel_works() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("remora/mount");
        let (go_on, slow) = channel();
        let fake = Arc::new(Fake { dirty: AtomicU64::new(1), slow: Some(Mutex::new(slow)), ..Fake::default() });
        let _socket = BoundSocket::bind(&dir, &note()).unwrap().serve(fake.clone());
        let [known] = &mounts(&dir).unwrap()[..] else { panic!("it is listed") };
        known.unmount(UnmountMode::Keep, |_| go_on.send(()).unwrap()).unwrap();
        assert_eq!(fake.unmounts.lock().unwrap()[..], [UnmountMode::Keep]);
    }

    /// The backlog takes connections that nobody serves.
    #[tokio::test]
    async fn stopped_mount_is_listed_and_silent() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("remora/mount");
        let bound = BoundSocket::bind(&dir, &note()).unwrap();
        let [known] = &mounts(&dir).unwrap()[..] else { panic!("it is listed") };
        assert!(control_client::is_silent(&known.report().unwrap_err()));
        drop(bound);
        assert_eq!(mounts(&dir).unwrap(), [], "a dead process's socket is removed");
    }
}
