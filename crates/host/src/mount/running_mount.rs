//! A mount from its beginning to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, thread};

use remora_base::Time;
use remora_cache::{Cache, ConflictId, Connectivity, Refusal};
use remora_client::Transport;
use remora_wire::fuse::{Errno, Notification, Operation, Reply, Request};
use remora_wire::nfs3::{Attr, Fh};
use tokio::sync::watch;

use super::control_server::{BoundSocket, ControlSocket, Controlled};
use super::driver::{ConnectionChange, Kernel, MountDriver, MountedServer};
use super::hoard::{self, HoardSource};
use super::log_report;
use super::predictor_file;
use super::report::{
    ConflictReport, ConnectionReport, DiskReport, HeldReport, HoardReport, HoardUsage, MountReport, MountState,
    QueueReport, ServerReport, UnmountMode, UnmountProgress, UnsentReport,
};
use super::runtime_dir::{self, MountNote};
use super::store::{self, DiskCache, DiskFigures, Opened};
use crate::Clock;
use crate::client::{Blocks, Session};
use crate::fuse::{Connection, FuseError, MountOptions, is_exiting};

/// Threads that read requests. None of them waits for the server.
const READERS: usize = 3;
/// How often a flush is looked at.
const FLUSH_LOOK: Duration = Duration::from_millis(50);
/// How often a store is looked at that saves what is left, at most: 30 s.
const KEEP_LOOKS: u32 = 600;
/// How often the disk cache is looked at while it saves, at most: 2 s.
const SAVE_LOOKS: u32 = 40;
/// Unsent files in a report, and changes of names that are looked through for refused ones.
const UNSENT_MAX: usize = 1000;
const RECORDS_MAX: usize = 1000;
/// Directories in a report of use.
const USED_MAX: usize = 200;
/// Bits of a full Ethernet frame.
const FRAME_BITS: f64 = 1500.0 * 8.0;

/// What to mount, and how.
pub struct MountPlan {
    pub url: String,
    /// Where, without symbolic links.
    pub dir: PathBuf,
    pub session: Session,
    /// Clock of the session.
    pub clock: Clock,
    pub root: MountRoot,
    /// Largest blocks that the server takes.
    pub blocks_max: Blocks,
    pub cache: remora_cache::Config,
    /// Name of the consistency policy.
    pub policy: String,
    /// What close(2) waits for: `through` or `back`.
    pub writes: String,
    /// Silence after which calls fail; `None` for a hard mount.
    pub soft: Option<Duration>,
    pub kernel: MountOptions,
    /// Where unsent data is kept, and what an earlier mount left there.
    pub store: Option<Opened>,
    /// Where what can be fetched again is kept.
    pub disk: Option<DiskCache>,
    /// What is hoarded.
    pub hoard: HoardSource,
}

/// The directory on the server.
pub struct MountRoot {
    pub fh: Fh,
    pub attr: Attr,
}

/// Why a mount did not begin.
#[derive(Debug, thiserror::Error)]
pub enum MountStartError {
    #[error(transparent)]
    Kernel(#[from] FuseError),
    #[error("cannot make a control socket in {}: {source}", .dir.display())]
    Control { dir: PathBuf, source: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Why a mount ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountEnd {
    /// Another program unmounted it: `umount`, `fusermount3 -u`.
    Unmounted,
    /// A program asked for it over the control socket.
    Asked(UnmountMode),
}

/// A mount that serves requests. Dropping it detaches it.
pub struct RunningMount {
    shared: Arc<MountShared>,
    _control: ControlSocket,
}

struct MountShared {
    connection: Arc<Connection>,
    driver: Arc<MountDriver>,
    note: MountNote,
    policy: String,
    writes: String,
    read_only: bool,
    soft: Option<Duration>,
    is_detached: AtomicBool,
    end: watch::Sender<Option<MountEnd>>,
    /// The flush has ended.
    is_flushed: AtomicBool,
    /// Where unsent data is kept.
    store_dir: Option<PathBuf>,
    /// The disk cache and its limit in bytes.
    disk: Option<(Arc<DiskFigures>, u64)>,
    hoard: HoardSource,
    /// Where the disk cache is.
    cache_dir: Option<PathBuf>,
    /// What is kept for the next mount, once that is done.
    kept_files: AtomicUsize,
    kept_changes: AtomicUsize,
}

/// What is kept for the next mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptWork {
    /// Files that the server lacks something of.
    pub files: usize,
    /// Changes of names that the server lacks.
    pub changes: usize,
}

/// Time since 1970 when `clock` was at zero.
pub fn wall_at_zero(clock: &Clock) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(clock.now().since(Time::ZERO))
}

impl RunningMount {
    /// Mounts. Needs the runtime.
    pub fn start(plan: MountPlan) -> Result<RunningMount, MountStartError> {
        let note = MountNote { url: plan.url, dir: plan.dir, pid: std::process::id() };
        let connection = Arc::new(Connection::mount(&note.dir, &plan.kernel)?);
        let dir = runtime_dir::path();
        let control = BoundSocket::bind(&dir, &note).map_err(|source| MountStartError::Control { dir, source })?;
        let read_only = plan.cache.read_only;
        let disk_file_max = plan.disk.as_ref().map_or(0, |disk| disk.limit() / 2);
        let config = remora_cache::Config { disk_file_max, ..plan.cache };
        let root = plan.root.fh.clone();
        let mut cache = Cache::new(config, plan.root.fh, plan.clock.now());
        cache.set_root(plan.clock.now(), &plan.root.attr);
        let cache_dir = plan.disk.as_ref().map(|disk| disk.path().to_owned());
        if let Some(dir) = &cache_dir {
            predictor_file::load(dir, &mut cache);
        }
        let store = plan.store.map(|Opened { store, objects, log, .. }| {
            cache.restore_log(plan.clock.now(), log);
            cache.restore(plan.clock.now(), objects);
            store
        });
        let store_dir = store.as_ref().map(|store| store.path().to_owned());
        let server = MountedServer { session: plan.session, root, blocks_max: plan.blocks_max };
        let shared = Arc::new(MountShared {
            driver: MountDriver::start(cache, server, connection.clone(), plan.clock),
            connection,
            note,
            policy: plan.policy,
            writes: plan.writes,
            read_only,
            soft: plan.soft,
            is_detached: AtomicBool::new(false),
            end: watch::Sender::new(None),
            is_flushed: AtomicBool::new(false),
            store_dir,
            disk: plan.disk.as_ref().map(|disk| (disk.figures(), disk.limit())),
            hoard: plan.hoard,
            cache_dir,
            kept_files: AtomicUsize::new(0),
            kept_changes: AtomicUsize::new(0),
        });
        if let Some(store) = store {
            shared.driver.use_store(store).map_err(MountStartError::Thread)?;
        }
        if let Some(disk) = plan.disk {
            shared.driver.use_disk(disk).map_err(MountStartError::Thread)?;
        }
        // Without a profile there may still be pins.
        if let Some(error) = shared.hoard(true, false).error {
            tracing::warn!(%error, "nothing is hoarded");
        }
        let serving = shared.clone();
        let thread = thread::Builder::new().name("fuse".into());
        thread.spawn(move || serving.serve()).map_err(MountStartError::Thread)?;
        let control = control.serve(shared.clone());
        Ok(RunningMount { shared, _control: control })
    }

    /// Waits for the end of the mount.
    pub async fn ended(&self) -> MountEnd {
        let mut end = self.shared.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.unwrap_or(MountEnd::Unmounted),
            Err(_) => MountEnd::Unmounted,
        }
    }

    /// Returns the report that the control socket gives.
    pub fn watch(&self) -> impl Fn() -> MountReport + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.report()
    }

    /// Detaches the mount from its directory, even if programs use it.
    pub fn detach(&self) -> Result<(), FuseError> {
        self.shared.detach()
    }

    /// Waits until the server has everything.
    pub async fn flush(&self) {
        let driver = &self.shared.driver;
        driver.flush();
        while !driver.is_clean() {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
    }

    /// Saves all that the server does not have; the next mount sends it. Returns `None` if there is no store, or it
    /// fails.
    pub async fn keep(&self) -> Option<KeptWork> {
        self.shared.store_dir.as_ref()?;
        let driver = &self.shared.driver;
        driver.keep();
        for _ in 0..KEEP_LOOKS {
            if driver.is_kept() {
                let kept = KeptWork { files: driver.status().dirty_files, changes: driver.log_status().records };
                self.shared.kept_files.store(kept.files, Ordering::Relaxed);
                self.shared.kept_changes.store(kept.changes, Ordering::Relaxed);
                return Some(kept);
            }
            tokio::time::sleep(FLUSH_LOOK).await;
        }
        None
    }

    /// Saves what the disk cache lacks, if that takes no longer than the end of a mount may.
    pub async fn save(&self) {
        for _ in 0..SAVE_LOOKS {
            // More is due when a save is done.
            self.shared.driver.save();
            if self.shared.driver.is_saved() {
                return;
            }
            tokio::time::sleep(FLUSH_LOOK).await;
        }
    }

    /// File data that the server has not committed, in bytes.
    pub fn dirty_bytes(&self) -> u64 {
        self.shared.driver.status().dirty_bytes
    }

    /// System calls that wait for the server, the oldest first.
    pub fn held(&self) -> Vec<HeldReport> {
        self.shared.held_reports()
    }

    /// Where unsent data is kept, if it is.
    pub fn store_dir(&self) -> Option<&Path> {
        self.shared.store_dir.as_deref()
    }

    /// How long the server has owed a reply.
    pub fn silence(&self) -> Duration {
        self.shared.driver.session().silence()
    }

    /// The state of the connection and its changes.
    pub fn connection(&self) -> watch::Receiver<ConnectionChange> {
        self.shared.driver.connection()
    }

    /// Whether `remora offline` asked the mount to work without the server.
    pub fn is_offline_asked(&self) -> bool {
        self.connection().borrow().connectivity == Connectivity::Disconnected { is_asked: true }
    }

    /// Changes of names that the server does not have.
    pub fn log_len(&self) -> usize {
        self.shared.driver.log_status().records
    }

    /// Name of the server for messages.
    pub fn server(&self) -> &str {
        self.shared.driver.session().server()
    }

    /// Drops what is left, in the store, too.
    pub fn drop_unsent(&self) {
        self.shared.driver.close();
        self.shared.driver.end_store(true);
    }

    /// Tells those who wait for the end that it has come. What the store does not have is lost.
    pub fn close(&self) {
        self.shared.driver.close();
        if let Some(dir) = &self.shared.cache_dir {
            predictor_file::save(dir, &self.shared.driver.predictor());
        }
        self.shared.driver.end_store(false);
        self.shared.is_flushed.store(true, Ordering::Relaxed);
    }

    pub fn dir(&self) -> &Path {
        &self.shared.note.dir
    }
}

impl Drop for RunningMount {
    fn drop(&mut self) {
        // It may have been unmounted already.
        let _ = self.detach();
        self.close();
    }
}

impl MountShared {
    /// Hands requests over until the mount is unmounted and no program uses it.
    fn serve(&self) {
        let handler = |request: Request| self.take(request);
        if let Err(error) = self.connection.run(handler, READERS) {
            tracing::error!(%error, "the mount ends");
        }
        self.is_detached.store(true, Ordering::Relaxed);
        self.end.send_modify(|end| _ = end.get_or_insert(MountEnd::Unmounted));
    }

    fn take(&self, request: Request) {
        if let Operation::Interrupt { unique } = request.op {
            return self.driver.interrupt(unique);
        }
        let (unique, pid) = (request.header.unique, request.header.pid);
        let closes = matches!(request.op, Operation::Flush { .. });
        let is_answered = self.driver.take_request(request);
        if closes && !is_answered && is_exiting(pid) {
            self.driver.interrupt(unique);
        }
    }

    fn detach(&self) -> Result<(), FuseError> {
        self.is_detached.store(true, Ordering::Relaxed);
        self.connection.unmount()
    }

    fn server_report(&self) -> ServerReport {
        let session = self.driver.session();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let transport = match session.transport() {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Atp => "atp",
        };
        ServerReport {
            address: session.server().to_owned(),
            transport: transport.to_owned(),
            silent_ms: ms(session.silence()),
            deferred_ms: ms(session.deferral()),
            window: session.pace().0,
            rtt_ms: session.min_rtt().map(|rtt| rtt.as_secs_f64() * 1e3),
            rate_bits: session.frames_per_second().map(|frames| (frames * FRAME_BITS) as u64),
            loss: session.loss(),
        }
    }

    fn connection_report(&self) -> ConnectionReport {
        let change = *self.driver.connection().borrow();
        log_report::connection(change, self.driver.now())
    }

    fn unsent_reports(&self) -> Vec<UnsentReport> {
        let data = |object: remora_cache::ObjectId| Some(store::data_path(self.store_dir.as_ref()?, object));
        let report = |unsent: remora_cache::Unsent| UnsentReport {
            path: String::from_utf8_lossy(&unsent.path).into_owned(),
            bytes: unsent.bytes,
            refused: unsent.refusal.map(|refusal| match refusal {
                Refusal::Changed => "another client changed the file".to_owned(),
                Refusal::Refused(errno) => io::Error::from_raw_os_error(errno.0).to_string(),
            }),
            data: unsent.object.and_then(data),
        };
        self.driver.unsent(UNSENT_MAX).into_iter().map(report).collect()
    }

    fn held_reports(&self) -> Vec<HeldReport> {
        let now = self.driver.now();
        let report = |held: remora_cache::Held| HeldReport {
            pid: held.pid,
            program: program(held.pid),
            operation: held.operation.to_owned(),
            path: String::from_utf8_lossy(&held.path).into_owned(),
            waits_ms: u64::try_from(now.since(held.since).as_millis()).unwrap_or(u64::MAX),
        };
        self.driver.held().into_iter().map(report).collect()
    }
}

impl Kernel for Connection {
    fn reply(&self, unique: u64, result: Result<Reply, Errno>) {
        Connection::reply(self, unique, result);
    }

    fn notify(&self, notification: Notification) {
        Connection::notify(self, notification);
    }
}

impl Controlled for MountShared {
    fn report(&self) -> MountReport {
        let status = self.driver.status();
        let (read_bytes, written_bytes) = self.driver.traffic();
        let is_detached = self.is_detached.load(Ordering::Relaxed);
        MountReport {
            url: self.note.url.clone(),
            dir: self.note.dir.clone(),
            pid: self.note.pid,
            state: if is_detached { MountState::Unmounting } else { MountState::Mounted },
            cache: self.policy.clone(),
            read_only: self.read_only,
            writes: self.writes.clone(),
            soft_ms: self.soft.map(|soft| u64::try_from(soft.as_millis()).unwrap_or(u64::MAX)),
            server: self.server_report(),
            connection: self.connection_report(),
            log: log_report::log(self.driver.log_status(), &self.driver.log_records(RECORDS_MAX), self.driver.missed()),
            dirty_bytes: status.dirty_bytes,
            unsent_files: status.dirty_files,
            unsent: self.unsent_reports(),
            cached_bytes: status.cached_bytes,
            disk: self.disk.as_ref().map(|(figures, limit)| DiskReport {
                bytes: figures.bytes(),
                limit: *limit,
                read_bytes: status.figures.disk_bytes,
                error: figures.error().map(str::to_owned),
            }),
            nodes: status.nodes,
            calls_waiting: status.calls_queued,
            queue: queue_report(self.driver.queue_lengths()),
            calls_in_flight: self.driver.calls_in_flight(),
            hits: status.figures.hits,
            misses: status.figures.misses,
            read_bytes,
            written_bytes,
            held: self.held_reports(),
        }
    }

    fn release(&self) -> usize {
        self.driver.release()
    }

    fn go_offline(&self) -> ConnectionReport {
        // Without a store no change could be answered.
        if self.store_dir.is_some() || self.read_only {
            self.driver.go_offline();
        }
        self.connection_report()
    }

    fn go_online(&self) -> ConnectionReport {
        self.driver.go_online();
        self.connection_report()
    }

    fn conflicts(&self) -> Vec<ConflictReport> {
        self.driver.conflicts().iter().map(log_report::conflict).collect()
    }

    fn dismiss(&self, id: u64) -> bool {
        self.driver.dismiss(ConflictId(id))
    }

    fn unmount(&self, mode: UnmountMode) {
        if let Err(error) = self.detach() {
            tracing::warn!(%error, "cannot unmount");
        }
        // A later request may drop what an earlier one wanted to send.
        self.end.send_modify(|end| {
            let before = match end {
                Some(MountEnd::Asked(before)) => *before,
                _ => UnmountMode::Send,
            };
            *end = Some(MountEnd::Asked(mode.max(before)));
        });
    }

    fn progress(&self) -> UnmountProgress {
        let is_done = self.is_flushed.load(Ordering::Relaxed);
        let (kept_files, kept_changes) = (&self.kept_files, &self.kept_changes);
        UnmountProgress {
            dirty_bytes: self.driver.status().dirty_bytes,
            kept_files: kept_files.load(Ordering::Relaxed),
            kept_changes: kept_changes.load(Ordering::Relaxed),
            is_done,
        }
    }

    fn hoard(&self, reads: bool, walks: bool) -> HoardReport {
        let mut error = None;
        if let Some((_, limit)) = self.disk.as_ref().filter(|_| reads) {
            match self.hoard.plan(*limit) {
                Ok(plan) => self.driver.set_hoard(plan, walks),
                Err(why) => error = Some(why),
            }
        }
        let rate_bits = self.server_report().rate_bits;
        HoardReport { error, ..hoard::report(self.driver.hoard_status(), self.driver.now(), rate_bits) }
    }

    fn usage(&self) -> HoardUsage {
        let (used, missed) = self.driver.usage(USED_MAX);
        HoardUsage {
            used: used.into_iter().map(hoard::use_report).collect(),
            missed: missed.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
        }
    }
}

fn queue_report(lengths: remora_cache::QueueLengths) -> QueueReport {
    let remora_cache::QueueLengths { foreground, durable, write_back, read_ahead, prefetch } = lengths;
    QueueReport { foreground, durable, write_back, read_ahead, prefetch }
}

/// Name of the program that thread `pid` runs; empty if it cannot be seen.
fn program(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}
