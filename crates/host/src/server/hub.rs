//! Where everything meets: the core behind its lock, and who takes what comes out of it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Time, Transmit};
use remora_server::Server;
use tokio::sync::Notify;

use super::admission::{Admission, Permit};
use super::connection::Connection;
use super::counters::{Counters, Snapshot};
use super::datagram::DatagramSocket;
use super::executor::{Done, JobQueue, Task};
use super::options::Limits;
use super::outbox::Reply;
use super::routes::{Route, Routes};
use crate::Clock;

/// Stalled connections are given this long at most while room is short.
const STALL_MAX_SHORT: Duration = Duration::from_secs(5);

/// What all tasks and threads of a server share.
pub(super) struct Hub {
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    pub(super) core_limits: remora_server::Limits,
    pub(super) admission: Admission,
    pub(super) counters: Counters,
    pub(super) jobs: JobQueue,
    pub(super) sockets: Vec<DatagramSocket>,
    state: Mutex<State>,
    /// Told when the core's next timeout is earlier than the one waited for.
    timer: Notify,
}

struct State {
    core: Server,
    routes: Routes,
    connections: HashMap<u64, Arc<Connection>>,
    next_connection: u64,
    /// The timeout that is waited for.
    armed: Time,
}

/// What came out of the core, to be done without its lock.
#[derive(Default)]
struct Work {
    datagrams: Vec<(SocketAddr, Route, Bytes)>,
    /// By connection, in the order of its replies.
    streams: Vec<(Arc<Connection>, Vec<Reply>)>,
    jobs: Vec<Task>,
}

impl Hub {
    /// Around a fresh core, which `prepare` may change before anything comes in.
    pub(super) fn new(
        core: remora_server::Config,
        seed: u64,
        limits: Limits,
        sockets: Vec<DatagramSocket>,
        prepare: impl FnOnce(&mut Server),
    ) -> Hub {
        let clock = Clock::start();
        let core_limits = core.limits;
        let mut core = Server::new(core, seed, clock.now());
        prepare(&mut core);
        let state = State {
            core,
            routes: Routes::default(),
            connections: HashMap::new(),
            next_connection: 0,
            armed: Time::MAX,
        };
        Hub {
            clock,
            limits,
            core_limits,
            admission: Admission::new(&core_limits, limits.receive_bytes_max),
            counters: Counters::default(),
            jobs: JobQueue::default(),
            sockets,
            state: Mutex::new(state),
            timer: Notify::new(),
        }
    }

    /// A datagram came in.
    pub(super) fn datagram(&self, from: SocketAddr, route: Route, message: Bytes, permit: Permit) {
        self.with_core(Some(permit), |state, now| {
            state.routes.heard(from, route);
            state.core.handle_input(now, Peer::datagram(from), message);
        });
    }

    /// A record came in.
    pub(super) fn record(&self, from: Peer, message: Bytes, permit: Permit) {
        self.with_core(Some(permit), |state, now| state.core.handle_input(now, from, message));
    }

    /// Jobs are done. Their replies go out together.
    pub(super) fn complete(&self, done: impl IntoIterator<Item = Done>) {
        let mut work = Work::default();
        let mut state = self.lock();
        let now = self.clock.now();
        for Done { ticket, answer, permit } in done {
            state.core.complete(now, ticket, answer);
            drain(&mut state, now, permit, &mut work);
        }
        self.release(state, work);
    }

    /// A connection is there: `make` gets its number.
    pub(super) fn connect(&self, make: impl FnOnce(u64) -> Connection) -> Arc<Connection> {
        let mut state = self.lock();
        let id = state.next_connection;
        state.next_connection += 1;
        let connection = Arc::new(make(id));
        state.connections.insert(id, connection.clone());
        connection
    }

    /// A connection is gone.
    pub(super) fn disconnect(&self, id: u64, peer: Peer) {
        self.with_core(None, |state, _| {
            state.connections.remove(&id);
            state.core.disconnected(peer);
        });
    }

    /// TCP connections open.
    pub(super) fn connections(&self) -> usize {
        self.lock().connections.len()
    }

    /// Tells every connection to end when its requests are answered.
    pub(super) fn stop_connections(&self) {
        self.lock().connections.values().for_each(|c| c.stop());
    }

    /// Tells the connection that has been idle longest to end, if it has been so for
    /// [`Limits::evict_min`]; whether there was one.
    pub(super) fn evict_idle(&self) -> bool {
        let now = self.clock.now();
        let state = self.lock();
        let idle = state.connections.values().filter(|c| c.idle_for(now) >= self.limits.evict_min);
        let oldest = idle.max_by_key(|c| c.idle_for(now));
        oldest.inspect(|c| c.evict()).is_some()
    }

    /// How long a connection may leave replies waiting.
    pub(super) fn stall_max(&self) -> Duration {
        let max = self.limits.stall_max;
        if self.admission.is_short() { max.min(STALL_MAX_SHORT) } else { max }
    }

    /// Everything in numbers.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        Snapshot {
            sockets: self.counters.read(),
            core: state.core.stats(),
            connections: state.connections.len(),
            under_way: self.admission.under_way(),
            executing: state.core.in_flight(),
            core_memory: state.core.memory(),
        }
    }

    /// Acts on the core's timeouts, for ever.
    pub(super) async fn run_timer(&self) {
        loop {
            let due = {
                let mut state = self.lock();
                state.armed = state.core.poll_timeout().unwrap_or(Time::MAX);
                state.armed
            };
            // A millisecond at least, so that a timeout that stays due cannot spin.
            let due = due.max(self.clock.now() + Duration::from_millis(1));
            tokio::select! {
                () = self.timer.notified() => {}
                () = tokio::time::sleep_until(self.clock.instant(due).into()) => {
                    self.with_core(None, |state, now| state.core.handle_timeout(now));
                }
            }
        }
    }

    /// Lets `act` change the core, then takes what comes out. The permit goes with it: to the
    /// job, or else to the first reply; if nothing comes out it is given back.
    fn with_core(&self, permit: Option<Permit>, act: impl FnOnce(&mut State, Time)) {
        let mut work = Work::default();
        let mut state = self.lock();
        // Read under the lock: time never goes backwards for the core.
        let now = self.clock.now();
        act(&mut state, now);
        drain(&mut state, now, permit, &mut work);
        self.release(state, work);
    }

    /// Gives the core back and does what came out of it.
    fn release(&self, state: MutexGuard<'_, State>, work: Work) {
        if state.core.poll_timeout().is_some_and(|t| t < state.armed) {
            self.timer.notify_one();
        }
        drop(state);
        for task in work.jobs {
            self.jobs.push(task);
        }
        for (connection, replies) in work.streams {
            connection.outbox.send(replies);
        }
        for (to, route, payload) in work.datagrams {
            let sent = self.sockets.get(route.socket).map(|s| s.send(to, route.local, &payload));
            match sent {
                Some(Ok(())) => self.counters.datagrams_out.count(),
                Some(Err(_)) | None => self.counters.datagram_errors.count(),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds what comes out of the core to `work`. The permit goes to the first job, or else to the
/// first reply.
fn drain(state: &mut State, now: Time, mut permit: Option<Permit>, work: &mut Work) {
    while let Some(execute) = state.core.poll_event() {
        work.jobs.push(Task::Execute(execute, permit.take()));
    }
    while let Some(Transmit { to, payload }) = state.core.poll_transmit(now) {
        match to.path {
            Path::Datagram => work.datagrams.push((to.addr, state.routes.to(&to.addr), payload)),
            Path::Stream(id) => {
                let reply = Reply { payload, permit: permit.take() };
                match work.streams.iter_mut().find(|(connection, _)| connection.id() == id) {
                    Some((_, replies)) => replies.push(reply),
                    None => work.streams.extend(state.connections.get(&id).map(|c| (c.clone(), vec![reply]))),
                }
            }
        }
    }
}
