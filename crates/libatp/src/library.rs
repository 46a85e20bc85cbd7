//! The running library: a table behind a lock, an ATP endpoint, and one thread that takes received objects and
//! notices and makes the upcalls.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remora_atp::session::{Config, Guests, Identity};
use remora_atp::{Final, Upcall};
use remora_host::atp::{AtpEndpoint, AtpError, AtpNotice, EndpointSettings, Remote};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::Interval;

use crate::code::Code;
use crate::ffi::CallbackEvent;
use crate::table::Table;

/// Received objects that wait in the endpoint, below the library's own queue.
const BELOW_MAX: usize = 64;
/// Interval at which connections are checked for an end whose notice was dropped.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The library of this process, from `atp_init` to `atp_shutdown`.
static LIBRARY: Mutex<Option<Arc<Library>>> = Mutex::new(None);

thread_local! {
    /// Whether this is the library's thread, which runs C's callbacks.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Settings of `atp_init`.
pub(crate) struct Start {
    /// `None`: any port of all addresses.
    pub(crate) listen: Option<std::net::SocketAddr>,
    pub(crate) identity: Identity,
    pub(crate) guests: Guests,
    pub(crate) received_max: usize,
    pub(crate) received_bytes_max: usize,
}

/// State shared by all calls.
pub(crate) struct Library {
    pub(crate) endpoint: AtpEndpoint,
    table: Mutex<Table>,
    /// The table has changed in a way that a call may wait for.
    changed: Condvar,
    /// An object was taken, so there may be room for the next.
    pub(crate) room: Notify,
    /// An asynchronous request has ended.
    request_ended: Notify,
    runtime: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
    received_max: usize,
    received_bytes_max: usize,
    /// Bandwidth waits whose end the thread has not seen.
    pub(crate) bounds: AtomicUsize,
}

/// The running library.
pub(crate) fn current() -> Result<Arc<Library>, Code> {
    lock(&LIBRARY).clone().ok_or(Code::NOT_INIT)
}

/// Fails on the library's thread, which must not block.
pub(crate) fn may_wait() -> Result<(), Code> {
    if IS_OURS.get() { Err(Code::DEADLOCK) } else { Ok(()) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the library and its thread.
pub(crate) fn start(start: Start) -> Result<(), Code> {
    let mut place = lock(&LIBRARY);
    if place.is_some() {
        return Err(Code::ALREADY);
    }
    let received_max = if start.received_max == 0 { 0 } else { BELOW_MAX };
    let session = Config { guests: start.guests, ..Config::default() };
    let settings = EndpointSettings { session, received_max, received_bytes_max: 1, ..EndpointSettings::sender() };
    let endpoint = match start.listen {
        Some(listen) => AtpEndpoint::bind(EndpointSettings { listen, ..settings }, start.identity)?,
        None => AtpEndpoint::bind_anywhere(settings, start.identity)?,
    };
    let runtime = Builder::new_current_thread().enable_time().build().map_err(|_| Code::SYSTEM)?;
    let library = Arc::new(Library {
        endpoint,
        table: Mutex::default(),
        changed: Condvar::new(),
        room: Notify::new(),
        request_ended: Notify::new(),
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

/// Stops the library and waits for its thread.
pub(crate) fn stop() -> Result<(), Code> {
    may_wait()?;
    let library = lock(&LIBRARY).take().ok_or(Code::NOT_INIT)?;
    library.table().is_closing = true;
    library.changed.notify_all();
    library.room.notify_one();
    let endpoint = library.endpoint.clone();
    library.spawn(async move { endpoint.close().await });
    let thread = lock(&library.thread).take();
    // The thread does not panic; if it did, no caller is left to learn of it.
    thread.map_or(Ok(()), |t| t.join().map_err(|_| Code::INTERNAL))
}

/// Why `remote` has ended. The end follows directly behind those of its requests: with the endpoint's lock, which
/// this takes, both are known.
pub(crate) fn ended(remote: &Remote) -> Option<AtpError> {
    let _ = remote.status();
    remote.ended()
}

impl Library {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Waits until `look` returns something from the table, at most `timeout_ms`; forever if negative.
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

    /// Runs a task on the library's thread.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Removes a request that has ended, and calls its callback.
    pub(crate) fn end(&self, number: i64, end: Result<Final, AtpError>) -> Result<(), Code> {
        let mut table = self.table();
        let asked = table.remove_request(number);
        let outcome = match end.as_ref().map(|end| Code::of_outcome(end.outcome)) {
            Ok(None) => Ok(()),
            // The end of the library closes the connections, which loses their requests.
            Ok(Some(Code::LOST)) if table.is_closing => Err(Code::CLOSED),
            // Return why it is lost if no connection was established.
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
            callback.call(CallbackEvent::Final { request: number, outcome, size, written });
        }
        self.request_ended.notify_one();
        outcome
    }

    /// The thread: runs until the endpoint is closed and all ends are reported.
    fn run(&self, runtime: &Runtime) {
        IS_OURS.set(true);
        runtime.block_on(async {
            let mut rounds = tokio::time::interval(CHECK_INTERVAL);
            while self.step(&mut rounds).await.is_ok() {}
            self.changed.notify_all();
            while self.table().has_ends_to_tell() {
                self.request_ended.notified().await;
            }
        });
    }

    /// Handles one event; an error means that no more follow.
    async fn step(&self, rounds: &mut Interval) -> Result<(), AtpError> {
        tokio::select! {
            received = self.receive() => {
                self.table().place(received?);
                self.changed.notify_all();
            }
            notice = self.endpoint.notice() => match notice? {
                AtpNotice::Request(upcall) => self.advise(upcall),
                AtpNotice::Down { .. } => self.check_connections(),
                _ => {}
            },
            _ = rounds.tick() => self.check_connections(),
        }
        Ok(())
    }

    /// The next object, once there is room.
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

    /// Checks for connections that have ended. Objects from them are placed first, even without room: at most
    /// [`BELOW_MAX`], since the ends follow them. Taking one admits the next, so they are counted before.
    fn check_connections(&self) {
        let mut table = self.table();
        let over = table.over();
        for _ in 0..self.endpoint.waiting(|peer| over.iter().any(|(id, _)| *id == peer)) {
            let Some(received) = self.endpoint.try_recv() else { break };
            table.place(received);
        }
        for (id, why) in over {
            table.end_connection(id, why);
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Calls a request's callback for an upcall that is not its end.
    fn advise(&self, upcall: Upcall) {
        let (Upcall::InsufficientBandwidth { request, .. }
        | Upcall::Resumed { request }
        | Upcall::Uncertain { request, .. }) = upcall
        else {
            return;
        };
        let found = self.table().request_of(request).map(|(number, asked)| (number, asked.callback));
        let Some((request, Some(callback))) = found else { return };
        callback.call(match upcall {
            Upcall::InsufficientBandwidth { needed, available, .. } => {
                CallbackEvent::Insufficient { request, needed: needed.bits() / 8, available: available.bits() / 8 }
            }
            Upcall::Uncertain { probability, .. } => CallbackEvent::Uncertain { request, probability },
            _ => CallbackEvent::Resumed { request },
        });
    }

    /// Counts a bandwidth wait; false beyond the maximum.
    pub(crate) fn count_bounds(&self, max: usize) -> bool {
        let add = |n: usize| (n < max).then_some(n + 1);
        self.bounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}
