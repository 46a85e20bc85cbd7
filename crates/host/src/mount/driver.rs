//! The driver of a mount: moves requests, calls and replies between the kernel, the cache core and the server.
//!
//! A reader thread of the kernel connection takes the core's lock, hands the request over and writes the answers itself:
//! what is cached is answered without a task switch. Calls become tasks, and one task drives the core's timer. Nothing
//! here waits for the server while it holds a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use remora_base::Time;
use remora_cache::{
    BulkRoom, Cache, Call, CallFailure, CallId, Conflict, ConflictId, Connectivity, DirectoryUse, HoardPlan,
    HoardStatus, LinkState, LogRecord, LogStatus, QueueLengths, Status,
};
use remora_client::{FRAME_PAYLOAD, Transport};
use remora_wire::fuse::{Errno, Notification, Operation, Reply, Request};
use remora_wire::nfs3;
use remora_wire::rpc::OpaqueAuth;
use remora_wire::urgency::Urgency;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use tracing::{debug, info};

use super::caller_groups::CallerGroups;
use super::store::{DirtyStore, DiskCache, StoreDisk, StoreThread};
use crate::Clock;
use crate::client::{Blocks, ClientError, Session};
use crate::fuse::{has_ended, proc_file};

/// Calls without a reply; the core keeps the rest.
const CALLS_MAX: usize = 1024;
/// Interval at which the core learns the block sizes that suit the link.
const LINK_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of a page of a listing.
const LIST_PAGE_UDP: u32 = 8 << 10;
const LIST_PAGE_STREAM: u32 = 64 << 10;
/// Bytes of a file that are written synchronously unless the server is near.
const SYNC_MAX: u64 = 32 << 10;
/// Maximum read-ahead: in bytes, and in time of the link.
const AHEAD_MAX: u64 = 4 << 20;
const AHEAD_TIME: Duration = Duration::from_secs(4);
/// How often waiting calls look for room in the window, beside at each reply.
const ROOM_INTERVAL: Duration = Duration::from_millis(200);
/// How often held requests are looked at whose threads may have ended.
const ABANDONED_INTERVAL: Duration = Duration::from_secs(1);
/// How often the core learns how long the server has owed a reply.
const SILENCE_INTERVAL: Duration = Duration::from_millis(500);

/// The kernel's side of a mount.
pub(super) trait Kernel: Send + Sync + 'static {
    /// Answers request `unique`.
    fn reply(&self, unique: u64, result: Result<Reply, Errno>);

    /// Queues a notification.
    fn notify(&self, notification: Notification);
}

/// The server's side of a mount.
#[derive(Debug)]
pub(super) struct MountedServer {
    pub(super) session: Session,
    /// Handle of the mounted directory.
    pub(super) root: nfs3::Fh,
    /// Largest blocks that the server takes.
    pub(super) blocks_max: Blocks,
}

impl MountedServer {
    /// What suits the path to the server now.
    fn link(&self) -> LinkState {
        let Blocks { read, write } = self.session.blocks(self.blocks_max);
        // Over UDP a page is small, because one lost fragment loses all of it.
        let list_page = match self.session.transport() {
            Transport::Udp => self.session.reply_max().unwrap_or(LIST_PAGE_UDP),
            Transport::Tcp | Transport::Atp => LIST_PAGE_STREAM,
        };
        let sync_max = if self.session.is_near() { 0 } else { SYNC_MAX };
        let rate = self.session.frames_per_second().map(|frames| frames * f64::from(FRAME_PAYLOAD));
        let ahead_max = rate.map_or(AHEAD_MAX, |rate| (rate * AHEAD_TIME.as_secs_f64()) as u64);
        LinkState {
            read_block: read,
            write_block: write,
            list_page,
            sync_max,
            ahead_max: ahead_max.min(AHEAD_MAX),
            prefetch_max: LinkState::prefetch_max_of(rate, self.session.min_rtt()),
        }
    }
}

/// State of the connection to the server, as it is since a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionChange {
    pub connectivity: Connectivity,
    pub since: Time,
    /// The server does not know the handle of the mounted directory.
    pub is_root_stale: bool,
}

/// Moves requests, calls and replies.
pub(super) struct MountDriver {
    core: Mutex<TimedCore>,
    /// Held by the thread that takes calls from the core.
    sender: Mutex<CallSender>,
    server: MountedServer,
    kernel: Arc<dyn Kernel>,
    clock: Clock,
    runtime: Handle,
    groups: CallerGroups,
    /// Executes the core's store jobs, if the mount has a store.
    store: OnceLock<StoreThread<DirtyStore>>,
    /// The disk of that store.
    store_disk: OnceLock<StoreDisk>,
    /// Executes the core's jobs for the disk cache, if the mount has one.
    disk: OnceLock<StoreThread<DiskCache>>,
    in_flight: AtomicUsize,
    connection: watch::Sender<ConnectionChange>,
    /// The core knows of a silence.
    was_silent: AtomicBool,
    /// File data that the server has sent and taken, in bytes.
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Notified when the core's timer is due earlier.
    timer_moved: Notify,
    /// True from the end of the mount on: calls are dropped.
    closed: watch::Sender<bool>,
}

/// The core and the time for which its timer is set.
struct TimedCore {
    cache: Cache,
    due: Option<Time>,
}

/// State of the thread that takes calls from the core.
#[derive(Debug, Default)]
struct CallSender {
    link_checked: Option<Time>,
}

/// What the core wants to say to the kernel.
struct CoreOutput {
    answers: Vec<(u64, Result<Reply, Errno>)>,
    notifications: Vec<Notification>,
}

impl CoreOutput {
    fn drain(cache: &mut Cache) -> CoreOutput {
        CoreOutput {
            answers: std::iter::from_fn(|| cache.poll_answer()).collect(),
            notifications: std::iter::from_fn(|| cache.poll_notification()).collect(),
        }
    }
}

impl MountDriver {
    /// Starts the core's timer. Needs the runtime.
    pub(super) fn start(
        cache: Cache,
        server: MountedServer,
        kernel: Arc<dyn Kernel>,
        clock: Clock,
    ) -> Arc<MountDriver> {
        let connection =
            ConnectionChange { connectivity: cache.connectivity(), since: clock.now(), is_root_stale: false };
        let driver = Arc::new(MountDriver {
            core: Mutex::new(TimedCore { cache, due: None }),
            sender: Mutex::default(),
            server,
            kernel,
            clock,
            runtime: Handle::current(),
            groups: CallerGroups::default(),
            store: OnceLock::new(),
            store_disk: OnceLock::new(),
            disk: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            connection: watch::Sender::new(connection),
            was_silent: AtomicBool::new(false),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            timer_moved: Notify::new(),
            closed: watch::Sender::new(false),
        });
        tokio::spawn(driver.clone().run_timer());
        driver
    }

    /// Executes the core's store jobs on `store` from now on.
    pub(super) fn use_store(self: &Arc<Self>, store: DirtyStore) -> std::io::Result<()> {
        let driver = Arc::downgrade(self);
        let disk = store.disk()?;
        let thread = StoreThread::start(store, move |done| {
            let Some(driver) = Weak::upgrade(&driver) else { return };
            let _runtime = driver.runtime.enter();
            driver.change(|cache, now| done.into_iter().for_each(|(id, done)| cache.handle_store_done(now, id, done)));
        })?;
        // It is called once.
        _ = self.store.set(thread);
        _ = self.store_disk.set(disk);
        self.change(|_, _| {});
        Ok(())
    }

    /// Executes the core's jobs for the disk cache on `cache` from now on.
    pub(super) fn use_disk(self: &Arc<Self>, cache: DiskCache) -> std::io::Result<()> {
        let driver = Arc::downgrade(self);
        let thread = StoreThread::start(cache, move |done| {
            let Some(driver) = Weak::upgrade(&driver) else { return };
            let _runtime = driver.runtime.enter();
            driver.change(|cache, now| done.into_iter().for_each(|(id, done)| cache.handle_disk_done(now, id, done)));
        })?;
        // It is called once.
        _ = self.disk.set(thread);
        self.change(|_, _| {});
        Ok(())
    }

    /// Saves what the disk cache lacks.
    pub(super) fn save(self: &Arc<Self>) {
        self.change(|cache, now| cache.save_all(now));
    }

    /// The model of the files that programs open.
    pub(super) fn predictor(&self) -> bytes::Bytes {
        self.core().cache.export_predictor()
    }

    /// Whether the disk cache lacks nothing.
    pub(super) fn is_saved(&self) -> bool {
        self.disk.get().is_none() || self.core().cache.is_saved()
    }

    /// Executes the queued jobs and closes the stores; with `drops`, removes that of unsent data with all that it has.
    pub(super) fn end_store(&self, drops: bool) {
        drop(self.disk.get().and_then(StoreThread::end));
        let Some(store) = self.store.get().and_then(StoreThread::end) else { return };
        if let Err(error) = if drops { store.remove() } else { store.close() } {
            tracing::warn!(%error, "the store of unsent data cannot be removed");
        }
    }

    /// Saves all that the server does not have.
    pub(super) fn keep(self: &Arc<Self>) {
        self.change(|cache, now| cache.keep_all(now));
    }

    /// Whether the store has all that the server does not have.
    pub(super) fn is_kept(&self) -> bool {
        self.core().cache.is_kept()
    }

    /// Files that the server lacks something of, at most `max`.
    pub(super) fn unsent(&self, max: usize) -> Vec<remora_cache::Unsent> {
        self.core().cache.unsent(max)
    }

    /// Takes a request of the kernel. Returns whether it was answered at once.
    pub(super) fn take_request(self: &Arc<Self>, request: Request) -> bool {
        let _runtime = self.runtime.enter();
        let (header, unique) = (request.header, request.header.unique);
        let groups = match request.op {
            Operation::Forget { .. } | Operation::BatchForget(_) => Arc::default(),
            _ => self.groups.of(header.pid, header.uid),
        };
        // Not kept as the groups are: a process gets another name when it executes a program.
        let is_open = matches!(request.op, Operation::Open { .. });
        let program = if is_open { proc_file(header.pid, "comm").unwrap_or_default() } else { String::new() };
        let program = program.trim_end().to_owned();
        let writes = matches!(request.op, Operation::Write { .. });
        // If it cannot be known, the store's own error comes.
        let room = self.store_disk.get().filter(|_| writes).and_then(|disk| disk.room().ok());
        let answered = self.change(|cache, now| {
            room.into_iter().for_each(|room| cache.set_store_room(room));
            if is_open {
                cache.note_open(header.nodeid, &program);
            }
            cache.handle_request_of(now, request, &groups, program.as_bytes());
        });
        answered.contains(&unique)
    }

    /// Ends request `unique` with EINTR, if it is not answered.
    pub(super) fn interrupt(self: &Arc<Self>, unique: u64) {
        let _runtime = self.runtime.enter();
        self.change(|cache, now| cache.handle_interrupt(now, unique));
    }

    /// Ends all held requests. Returns how many.
    pub(super) fn release(self: &Arc<Self>) -> usize {
        self.end_abandoned();
        self.change(|cache, now| cache.release_all(now)).len()
    }

    /// Drops all calls, and ends all tasks.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// What the core reports.
    pub(super) fn status(&self) -> Status {
        self.core().cache.status()
    }

    /// Requests of programs that wait for the server.
    pub(super) fn held(self: &Arc<Self>) -> Vec<remora_cache::Held> {
        self.end_abandoned();
        self.core().cache.held()
    }

    /// Ends the requests of threads that have ended. The kernel has few READs outstanding that read ahead, and others wait
    /// for these.
    fn end_abandoned(self: &Arc<Self>) {
        let held = self.core().cache.held();
        held.iter().filter(|held| has_ended(held.pid)).for_each(|held| self.interrupt(held.unique));
    }

    /// Whether the server has everything but what it refused.
    pub(super) fn is_clean(&self) -> bool {
        let core = self.core();
        let log = core.cache.log_status();
        core.cache.is_clean() && log.records == log.refused
    }

    /// Works without the server.
    pub(super) fn go_offline(self: &Arc<Self>) {
        self.change(|cache, now| cache.go_offline(now));
    }

    /// Uses the server again.
    pub(super) fn go_online(self: &Arc<Self>) {
        self.change(|cache, now| cache.go_online(now));
    }

    /// The state of the connection and its changes.
    pub(super) fn connection(&self) -> watch::Receiver<ConnectionChange> {
        self.connection.subscribe()
    }

    pub(super) fn log_status(&self) -> LogStatus {
        self.core().cache.log_status()
    }

    /// Changes that the server does not have, at most `max`.
    pub(super) fn log_records(&self, max: usize) -> Vec<LogRecord> {
        self.core().cache.log_records(max)
    }

    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        self.core().cache.conflicts()
    }

    /// Forgets a conflict. Returns whether there was one.
    pub(super) fn dismiss(self: &Arc<Self>, id: ConflictId) -> bool {
        let mut was_known = false;
        self.change(|cache, now| was_known = cache.dismiss_conflict(now, id));
        was_known
    }

    /// Paths that the cache lacked while disconnected.
    pub(super) fn missed(&self) -> Vec<Vec<u8>> {
        self.core().cache.missed()
    }

    pub(super) fn calls_in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Calls that wait for room in the window.
    pub(super) fn queue_lengths(&self) -> QueueLengths {
        self.core().cache.queue_lengths()
    }

    /// Bytes of file data that the server has sent, and those that it has taken.
    pub(super) fn traffic(&self) -> (u64, u64) {
        (self.read_bytes.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
    }

    /// Hoards by this plan, and walks over it if `walks`.
    pub(super) fn set_hoard(self: &Arc<Self>, plan: HoardPlan, walks: bool) {
        let _runtime = self.runtime.enter();
        self.change(|cache, now| {
            cache.set_hoard(now, plan);
            if walks {
                cache.start_hoard_walk(now);
            }
        });
    }

    /// State of hoarding.
    pub(super) fn hoard_status(&self) -> HoardStatus {
        self.core().cache.hoard_status()
    }

    /// What programs opened, at most `max` directories, and what they missed.
    pub(super) fn usage(&self, max: usize) -> (Vec<DirectoryUse>, Vec<Vec<u8>>) {
        let core = self.core();
        (core.cache.usage(max), core.cache.missed())
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn session(&self) -> &Session {
        &self.server.session
    }

    fn core(&self) -> MutexGuard<'_, TimedCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends all that was written.
    pub(super) fn flush(self: &Arc<Self>) {
        self.change(|cache, now| cache.flush_all(now));
    }

    /// Changes the core once and drains it. Returns the numbers of the answered requests. Needs the runtime.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Cache, Time)) -> Vec<u64> {
        let CoreOutput { answers, notifications } = {
            let mut core = self.core();
            change(&mut core.cache, self.clock.now());
            self.set_timer(&mut core);
            if let Some(store) = self.store.get() {
                // In their order, so within the lock; the queue has room for all that the core has in flight.
                std::iter::from_fn(|| core.cache.poll_store_job()).for_each(|job| store.push(job));
            }
            if let Some(disk) = self.disk.get() {
                std::iter::from_fn(|| core.cache.poll_disk_job()).for_each(|job| disk.push(job));
            }
            let connectivity = core.cache.connectivity();
            self.connection.send_if_modified(|known| {
                let is_new = known.connectivity != connectivity;
                if is_new {
                    info!(?connectivity, before = ?known.connectivity, "the connection changed");
                    (known.connectivity, known.since) = (connectivity, self.clock.now());
                }
                is_new
            });
            CoreOutput::drain(&mut core.cache)
        };
        notifications.into_iter().for_each(|notification| self.kernel.notify(notification));
        let answered = answers.iter().map(|(unique, _)| *unique).collect();
        answers.into_iter().for_each(|(unique, result)| self.kernel.reply(unique, result));
        self.send_calls();
        answered
    }

    fn set_timer(&self, core: &mut TimedCore) {
        let due = core.cache.poll_timeout();
        let is_earlier = due.is_some_and(|due| core.due.is_none_or(|before| due < before));
        core.due = due;
        if is_earlier {
            self.timer_moved.notify_one();
        }
    }

    async fn run_timer(self: Arc<Self>) {
        let mut closed = self.closed.subscribe();
        let mut abandoned = tokio::time::interval(ABANDONED_INTERVAL);
        abandoned.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = tokio::time::interval(SILENCE_INTERVAL);
        silence.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (due, status) = {
                let core = self.core();
                (core.due, core.cache.status())
            };
            tokio::select! {
                _ = closed.wait_for(|closed| *closed) => return,
                () = self.timer_moved.notified() => {}
                () = until(&self.clock, due) => drop(self.change(|cache, now| cache.handle_timeout(now))),
                () = tokio::time::sleep(ROOM_INTERVAL), if status.calls_queued > 0 => self.send_calls(),
                _ = abandoned.tick(), if status.held > 0 => self.end_abandoned(),
                _ = silence.tick(), if self.calls_in_flight() > 0 || self.was_silent.load(Ordering::Relaxed) => {
                    self.look_at_silence();
                }
            }
        }
    }

    /// Tells the core how long the server has owed a reply, and once that it owes none.
    fn look_at_silence(self: &Arc<Self>) {
        let silence = self.server.session.silence();
        if self.was_silent.swap(!silence.is_zero(), Ordering::Relaxed) || !silence.is_zero() {
            self.change(|cache, now| cache.set_silence(now, silence));
        }
    }

    /// Sends the calls that the core has, while there is room.
    fn send_calls(self: &Arc<Self>) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if sender.link_checked.is_none_or(|at| now >= at + LINK_INTERVAL) {
            sender.link_checked = Some(now);
            let link = self.server.link();
            self.core().cache.set_link(link);
        }
        while self.calls_in_flight() < CALLS_MAX {
            let room = match self.server.session.bulk_room() {
                None => BulkRoom::None,
                Some(Urgency::Bulk | Urgency::WriteBack) => BulkRoom::All,
                Some(Urgency::Sync | Urgency::Foreground) => BulkRoom::Urgent,
            };
            let Some(call) = self.core().cache.poll_call(room) else { return };
            self.send(call);
        }
    }

    fn send(self: &Arc<Self>, Call { id, priority, credential, call }: Call) {
        let is_of_root = call.target() == Some(&self.server.root);
        let reply = self.server.session.call_as(OpaqueAuth::unix(&credential), priority.urgency(), call);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let (driver, mut closed) = (self.clone(), self.closed.subscribe());
        tokio::spawn(async move {
            let reply = tokio::select! {
                reply = reply => reply,
                _ = closed.wait_for(|closed| *closed) => return,
            };
            driver.in_flight.fetch_sub(1, Ordering::Relaxed);
            if let (true, Ok(reply)) = (is_of_root, &reply) {
                driver.note_root(reply.status());
            }
            driver.take_reply(id, reply);
        });
    }

    /// The server has answered a call on the mounted directory.
    fn note_root(&self, status: Option<nfs3::Status>) {
        let is_stale = status == Some(nfs3::Status::Stale);
        self.connection.send_if_modified(|known| std::mem::replace(&mut known.is_root_stale, is_stale) != is_stale);
    }

    fn take_reply(self: &Arc<Self>, id: CallId, reply: Result<nfs3::Reply, ClientError>) {
        match &reply {
            Ok(nfs3::Reply::Read(Ok(ok))) => _ = self.read_bytes.fetch_add(ok.data.len() as u64, Ordering::Relaxed),
            Ok(nfs3::Reply::Write(Ok(ok))) => {
                self.written_bytes.fetch_add(u64::from(ok.count), Ordering::Relaxed);
            }
            _ => {}
        }
        let reply = reply.map_err(|error| {
            debug!(%error, "a call failed");
            failure(&error)
        });
        let silence = self.server.session.silence();
        let was_silent = self.was_silent.swap(!silence.is_zero(), Ordering::Relaxed);
        self.change(|cache, now| {
            if was_silent {
                cache.set_silence(now, silence);
            }
            cache.handle_reply(now, id, reply);
        });
    }
}

async fn until(clock: &Clock, due: Option<Time>) {
    match due {
        Some(due) => clock.until(due).await,
        None => std::future::pending().await,
    }
}

/// A server that is silent for longer than a soft mount waits may have executed the call.
fn failure(error: &ClientError) -> CallFailure {
    match error {
        ClientError::Silent { .. } | ClientError::Rpc(remora_client::CallFailure::TimedOut) => CallFailure::TimedOut,
        _ => CallFailure::Failed,
    }
}
