//! The library as it runs: a table behind a lock, ATP's endpoint, and the one thread that takes
//! what comes, hears notices and makes the upcalls.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remora_atp::session::{Config, Guests, Identity};
use remora_atp::{Final, Upcall};
use remora_host::atp::{AtpEndpoint, AtpError, Notice, Remote, Settings};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::Interval;

use crate::code::Code;
use crate::ffi::Told;
use crate::table::Table;

/// Received objects that wait below the library's own queue, which holds what was asked for.
const BELOW_MAX: usize = 64;
/// How often connections are looked at whose end went unnoticed, for notices may be dropped.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// The library of this process, from `atp_init` to `atp_shutdown`.
static LIBRARY: Mutex<Option<Arc<Library>>> = Mutex::new(None);

thread_local! {
    /// Whether this thread is the library's own: then C's code runs in a callback.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// What `atp_init` asks for.
pub(crate) struct Start {
    /// `None`: any port of all addresses.
    pub(crate) listen: Option<std::net::SocketAddr>,
    pub(crate) identity: Identity,
    pub(crate) guests: Guests,
    pub(crate) received_max: usize,
    pub(crate) received_bytes_max: usize,
}

/// What all calls share.
pub(crate) struct Library {
    pub(crate) endpoint: AtpEndpoint,
    table: Mutex<Table>,
    /// Something in the table has changed that a call may wait for.
    changed: Condvar,
    /// An object was taken: there may be room for the next.
    pub(crate) room: Notify,
    /// A request of the library's thread has ended.
    told: Notify,
    runtime: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
    received_max: usize,
    received_bytes_max: usize,
    /// Bounds whose end the thread has not seen.
    pub(crate) bounds: AtomicUsize,
}

/// The library, if it runs.
pub(crate) fn current() -> Result<Arc<Library>, Code> {
    lock(&LIBRARY).clone().ok_or(Code::NOT_INIT)
}

/// For calls that wait.
pub(crate) fn may_wait() -> Result<(), Code> {
    if IS_OURS.get() { Err(Code::DEADLOCK) } else { Ok(()) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts it.
pub(crate) fn start(start: Start) -> Result<(), Code> {
    let mut place = lock(&LIBRARY);
    if place.is_some() {
        return Err(Code::ALREADY);
    }
    let received_max = if start.received_max == 0 { 0 } else { BELOW_MAX };
    let session = Config { guests: start.guests, ..Config::default() };
    let settings = Settings { session, received_max, received_bytes_max: 1, ..Settings::sender() };
    let endpoint = match start.listen {
        Some(listen) => AtpEndpoint::bind(Settings { listen, ..settings }, start.identity)?,
        None => AtpEndpoint::bind_anywhere(settings, start.identity)?,
    };
    let runtime = Builder::new_current_thread().enable_time().build().map_err(|_| Code::SYSTEM)?;
    let library = Arc::new(Library {
        endpoint,
        table: Mutex::default(),
        changed: Condvar::new(),
        room: Notify::new(),
        told: Notify::new(),
        runtime: runtime.handle().clone(),
        thread: Mutex::new(None),
        received_max: start.received_max,
        received_bytes_max: start.received_bytes_max,
        bounds: AtomicUsize::new(0),
    });
    let of_thread = library.clone();
    let run = move || of_thread.run(&runtime);
    let thread = std::thread::Builder::new().name("atp-upcalls".into()).spawn(run).map_err(|_| Code::SYSTEM)?;
    *lock(&library.thread) = Some(thread);
    *place = Some(library);
    Ok(())
}

/// Ends it, and waits until it has ended.
pub(crate) fn stop() -> Result<(), Code> {
    may_wait()?;
    let library = lock(&LIBRARY).take().ok_or(Code::NOT_INIT)?;
    library.table().is_closing = true;
    library.changed.notify_all();
    library.room.notify_one();
    let endpoint = library.endpoint.clone();
    library.spawn(async move { endpoint.close().await });
    let thread = lock(&library.thread).take();
    // It does not panic; if it did, there is nobody left to tell.
    thread.map_or(Ok(()), |t| t.join().map_err(|_| Code::INTERNAL))
}

/// Why `remote` is over, if it is. Its end comes right behind those of its requests: once the
/// endpoint's lock, which this takes, is free, both are known.
pub(crate) fn ended(remote: &Remote) -> Option<AtpError> {
    let _ = remote.status();
    remote.ended()
}

impl Library {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Waits until `look` finds something in the table, for `timeout_ms` at most; for ever below 0.
    pub(crate) fn wait<T>(
        &self,
        timeout_ms: i32,
        mut look: impl FnMut(&mut Table) -> Result<Option<T>, Code>,
    ) -> Result<T, Code> {
        let patience = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        if patience != Some(Duration::ZERO) {
            may_wait()?;
        }
        let begin = Instant::now();
        let mut table = self.table();
        loop {
            if let Some(found) = look(&mut table)? {
                return Ok(found);
            }
            if table.is_closing {
                return Err(Code::CLOSED);
            }
            table = match patience.map(|p| p.saturating_sub(begin.elapsed())) {
                None => self.changed.wait(table).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Err(Code::TIMED_OUT),
                Some(left) => self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Has the thread do it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// A request has ended: it leaves the table, and its callback hears of it.
    pub(crate) fn end(&self, number: i64, end: Result<Final, AtpError>) -> Result<(), Code> {
        let mut table = self.table();
        let asked = table.remove_request(number);
        let outcome = match end.as_ref().map(|end| Code::of_outcome(end.outcome)) {
            Ok(None) => Ok(()),
            // The library's end closes the connections, and what was under way on them is lost by that.
            Ok(Some(Code::LOST)) if table.is_closing => Err(Code::CLOSED),
            // Why it is lost is of interest if there never will be a connection.
            Ok(Some(Code::LOST)) => {
                let why = asked.as_ref().and_then(|a| ended(&table.peer(a.eid).ok()?.remote)).map(Code::from);
                Err(why.filter(|why| *why == Code::REFUSED).unwrap_or(Code::LOST))
            }
            Ok(Some(code)) => Err(code),
            Err(_) => Err(Code::CLOSED),
        };
        drop(table);
        if let Some(callback) = asked.and_then(|a| a.callback) {
            let (size, written) = end.map_or((0, 0), |end| (end.size, end.written));
            callback.call(Told::Final { request: number, outcome, size, written });
        }
        self.told.notify_one();
        outcome
    }

    /// The thread: runs until the endpoint is closed and every end has been told.
    fn run(&self, runtime: &Runtime) {
        IS_OURS.set(true);
        runtime.block_on(async {
            let mut rounds = tokio::time::interval(LOOK_AROUND);
            while self.step(&mut rounds).await.is_ok() {}
            self.changed.notify_all();
            while self.table().has_ends_to_tell() {
                self.told.notified().await;
            }
        });
    }

    /// Waits for one thing and does it; the error says that nothing comes any more.
    async fn step(&self, rounds: &mut Interval) -> Result<(), AtpError> {
        tokio::select! {
            received = self.receive() => {
                self.table().place(received?);
                self.changed.notify_all();
            }
            notice = self.endpoint.notice() => match notice? {
                Notice::Request(upcall) => self.advise(upcall),
                Notice::Down { .. } => self.look_around(),
                _ => {}
            },
            _ = rounds.tick() => self.look_around(),
        }
        Ok(())
    }

    /// The next object, once there is room for it.
    async fn receive(&self) -> Result<remora_host::atp::Received, AtpError> {
        loop {
            let has_room = {
                let table = self.table();
                table.is_closing || table.has_room(self.received_max, self.received_bytes_max)
            };
            if has_room {
                return self.endpoint.recv().await;
            }
            self.room.notified().await;
        }
    }

    /// Sees which connections are over. What came from them is placed first, whether or not there
    /// is room: it is no more than [`BELOW_MAX`] objects, for their ends came behind them. Taking
    /// one lets in the next, so they are counted before.
    fn look_around(&self) {
        let mut table = self.table();
        let over = table.over();
        for _ in 0..self.endpoint.waiting(|peer| over.iter().any(|(id, _)| *id == peer)) {
            let Some(received) = self.endpoint.try_recv() else { break };
            table.place(received);
        }
        for (id, why) in over {
            table.end_line(id, why);
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Tells a request's callback what is not its end.
    fn advise(&self, upcall: Upcall) {
        let (Upcall::InsufficientBandwidth { request, .. } | Upcall::Resumed { request }) = upcall else { return };
        let found = self.table().request_of(request).map(|(number, asked)| (number, asked.callback));
        let Some((request, Some(callback))) = found else { return };
        callback.call(match upcall {
            Upcall::InsufficientBandwidth { needed, available, .. } => {
                Told::Insufficient { request, needed: needed.bits() / 8, available: available.bits() / 8 }
            }
            _ => Told::Resumed { request },
        });
    }

    /// Counts a wait for bounds; false if there are too many.
    pub(crate) fn count_bounds(&self, max: usize) -> bool {
        let add = |n: usize| (n < max).then_some(n + 1);
        self.bounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}
