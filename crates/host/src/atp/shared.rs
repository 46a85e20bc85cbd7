//! State shared by the handles of an endpoint and its thread: the core behind a lock held for its short calls only,
//! and the waiting callers.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Ending, Endpoint, Event, PeerId, PublicKey, Refusal};
use remora_atp::{Command, Final, Priority, Progress, RequestId, Upcall};
use remora_base::{Core, Time};
use tokio::sync::{Notify, oneshot, watch};
use tracing::debug;

use super::notice::{AtpNotice, Crossing, NoticeQueue};
use crate::Clock;

/// State of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ConnectionState {
    Connecting,
    Up { key: PublicKey, addr: SocketAddr },
    Refused(Refusal),
    Down(Ending),
}

/// A received object.
pub(super) struct ReceivedObject {
    pub(super) from: PeerId,
    pub(super) priority: Priority,
    pub(super) object: Bytes,
}

/// The core and the waiting callers.
pub(super) struct EndpointState {
    pub(super) core: Endpoint,
    pub(super) requests: BTreeMap<RequestId, oneshot::Sender<Final>>,
    pub(super) peers: BTreeMap<PeerId, watch::Sender<ConnectionState>>,
    pub(super) bounds: Option<oneshot::Sender<Crossing>>,
    pub(super) received: VecDeque<ReceivedObject>,
    pub(super) received_bytes: usize,
    pub(super) notices: NoticeQueue,
    /// A local address to bind to, for the thread.
    pub(super) rebind: Option<(SocketAddr, oneshot::Sender<std::io::Result<SocketAddr>>)>,
    pub(super) local: SocketAddr,
    limits: ReceiveLimits,
    pub(super) ignored: u64,
}

/// Bounds on objects that wait for the application.
#[derive(Clone, Copy)]
pub(super) struct ReceiveLimits {
    /// Number and bytes of objects; 0 objects if the application does not receive.
    pub(super) objects: usize,
    pub(super) bytes: usize,
}

/// State shared by all handles.
pub(super) struct SharedEndpoint {
    state: Mutex<EndpointState>,
    pub(super) clock: Clock,
    /// Wakes the thread (eventfd).
    waker: OwnedFd,
    is_woken: AtomicBool,
    /// The last handle was dropped, or the application closed the endpoint.
    closing: AtomicBool,
    /// The thread has ended.
    closed: AtomicBool,
    /// Signals objects, notices, and the end.
    pub(super) arrived: Notify,
    pub(super) noticed: Notify,
    pub(super) ended: Notify,
}

impl EndpointState {
    pub(super) fn new(core: Endpoint, limits: ReceiveLimits, local: SocketAddr) -> EndpointState {
        EndpointState {
            core,
            requests: BTreeMap::new(),
            peers: BTreeMap::new(),
            bounds: None,
            received: VecDeque::new(),
            received_bytes: 0,
            notices: NoticeQueue::default(),
            rebind: None,
            local,
            limits,
            ignored: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.received.is_empty()
            || (self.received.len() < self.limits.objects && self.received_bytes < self.limits.bytes)
    }

    fn receive(&mut self, arrived: ReceivedObject) {
        self.received_bytes += arrived.object.len();
        self.received.push_back(arrived);
    }

    /// Advances the deadlines of all requests by `by`.
    pub(super) fn advance_deadlines(&mut self, now: Time, by: Duration) {
        for request in self.requests.keys() {
            // Fails only for a request that has ended.
            if let Ok(Progress { deadline: Some(at), .. }) = self.core.control(now, *request, Command::Inspect) {
                let left = (at - by).since(now);
                let _ = self.core.control(now, *request, Command::Deadline(Some(left)));
            }
        }
    }

    /// Takes the next received object, which makes room for another.
    pub(super) fn take_received(&mut self) -> Option<ReceivedObject> {
        let arrived = self.received.pop_front()?;
        self.received_bytes -= arrived.object.len();
        Some(arrived)
    }
}

impl SharedEndpoint {
    pub(super) fn new(state: EndpointState, clock: Clock, waker: OwnedFd) -> Arc<SharedEndpoint> {
        Arc::new(SharedEndpoint {
            state: Mutex::new(state),
            clock,
            waker,
            is_woken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            arrived: Notify::new(),
            noticed: Notify::new(),
            ended: Notify::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn waker(&self) -> &OwnedFd {
        &self.waker
    }

    /// Wakes the thread; several calls before it runs wake it once.
    pub(super) fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is full, which wakes the thread too.
            let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
        }
    }

    /// Resets the waker: the thread is awake and checks everything.
    pub(super) fn acknowledge_wake(&self) {
        if self.is_woken.load(Ordering::Acquire) {
            self.drain_waker();
        }
    }

    /// Drains the waker when it is readable. It may be readable without being marked, if `acknowledge_wake` ran
    /// between the two steps of `wake`; undrained, it would wake the thread forever.
    pub(super) fn drain_waker(&self) {
        // In this order: otherwise a wake in between would be marked but not readable, and later ones lost.
        let _ = rustix::io::read(&self.waker, &mut [0u8; 8]);
        self.is_woken.swap(false, Ordering::AcqRel);
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends all waits: nothing follows.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        self.closed.store(true, Ordering::Release);
        state.requests.clear();
        state.peers.clear();
        (state.bounds, state.rebind) = (None, None);
        drop(state);
        for notify in [&self.arrived, &self.noticed, &self.ended] {
            notify.notify_waiters();
            notify.notify_one(); // and who is about to wait
        }
    }

    /// Passes the core's events to the waiting callers. Objects without room stay in the core, whose bounds slow
    /// the peer down.
    pub(super) fn deliver(&self, state: &mut EndpointState) {
        loop {
            let event = if state.has_room() { state.core.poll_event() } else { state.core.poll_event_but_objects() };
            let Some(event) = event else { return };
            self.event(state, event);
        }
    }

    fn event(&self, state: &mut EndpointState, event: Event) {
        let notice = match event {
            Event::Upcall(Upcall::Final(end)) => {
                state.notices.ended(end.request);
                if let Some(waiter) = state.requests.remove(&end.request) {
                    // The caller has dropped its request.
                    let _ = waiter.send(end);
                }
                return;
            }
            Event::Upcall(Upcall::Bandwidth { rate, side }) => {
                if let Some(waiter) = state.bounds.take() {
                    let _ = waiter.send(Crossing { rate, side });
                }
                return;
            }
            Event::Received { .. } if state.limits.objects == 0 => {
                state.ignored += 1;
                return;
            }
            Event::Received { peer, priority, object } => {
                state.receive(ReceivedObject { from: peer, priority, object });
                self.arrived.notify_one();
                return;
            }
            Event::Upcall(advice) => AtpNotice::Request(advice),
            Event::Up { peer, key, addr } => {
                state.peer(peer).send_replace(ConnectionState::Up { key, addr });
                AtpNotice::Up { peer, key, addr }
            }
            Event::Silent { peer, .. } => AtpNotice::Silent { peer },
            Event::Heard { peer } => AtpNotice::Heard { peer },
            Event::Moved { peer, addr } => {
                state.peer(peer).send_if_modified(|line| match line {
                    ConnectionState::Up { addr: known, .. } => std::mem::replace(known, addr) != addr,
                    _ => false,
                });
                AtpNotice::Moved { peer, addr }
            }
            Event::Down { peer, why } => {
                let text = why.to_string();
                state.remove_peer(peer, ConnectionState::Down(why));
                AtpNotice::Down { peer, why: text }
            }
            Event::Refused { peer, why } => {
                let text = why.to_string();
                state.remove_peer(peer, ConnectionState::Refused(why));
                AtpNotice::Down { peer, why: text }
            }
        };
        debug!(?notice, "ATP session");
        state.notices.push_back(notice);
        self.noticed.notify_one();
    }
}

impl EndpointState {
    /// The entry of a peer, created for an incoming connection.
    pub(super) fn peer(&mut self, id: PeerId) -> &watch::Sender<ConnectionState> {
        self.peers.entry(id).or_insert_with(|| watch::Sender::new(ConnectionState::Connecting))
    }

    /// Sets a peer's final state and removes its entry; handles keep the state.
    fn remove_peer(&mut self, id: PeerId, line: ConnectionState) {
        if let Some(place) = self.peers.remove(&id) {
            place.send_replace(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use remora_atp::session::Config;
    use remora_atp::{Dest, Options, Outcome};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

    use remora_base::Rate;

    use super::*;

    fn shared() -> Arc<SharedEndpoint> {
        let identity = crate::atp::keys::generate().unwrap();
        let core = Endpoint::new(Config::default(), identity, Instant::now(), Time::ZERO, 7).unwrap();
        let state = EndpointState::new(core, ReceiveLimits { objects: 0, bytes: 0 }, "127.0.0.1:1".parse().unwrap());
        SharedEndpoint::new(state, Clock::start(), eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
    }

    /// Whether the waker is readable within `seconds`.
    fn sounds(shared: &SharedEndpoint, seconds: i64) -> bool {
        let mut fds = [PollFd::new(shared.waker(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })) == Ok(1)
    }

    #[test]
    fn bell_checked_while_rung_sounds_once() {
        let shared = shared();
        // `wake`, with `acknowledge_wake` between its two steps.
        assert!(!shared.is_woken.swap(true, Ordering::AcqRel));
        shared.acknowledge_wake();
        rustix::io::write(shared.waker(), &1u64.to_ne_bytes()).unwrap();
        assert!(sounds(&shared, 0));
        shared.drain_waker();
        assert!(!sounds(&shared, 0), "it sounds for ever");
        shared.wake();
        assert!(sounds(&shared, 0), "it still can be rung");
    }

    #[test]
    fn deadlines_brought_forward_pass_or_come_nearer() {
        let shared = shared();
        let mut state = shared.lock();
        let (key, now) = (crate::atp::keys::generate().unwrap().public(), Time::from_secs(1));
        let peer = state.core.connect(now, "127.0.0.1:9".parse().unwrap(), key).unwrap();
        let mut request = |seconds: Option<u64>| {
            let options = Options { deadline: seconds.map(Duration::from_secs), ..Options::default() };
            let id = state.core.send(now, peer, Bytes::from_static(b"object"), options).unwrap();
            state.requests.insert(id, oneshot::channel().0);
            id
        };
        let [past, left, free] = [Some(10), Some(60), None].map(&mut request);
        state.advance_deadlines(now, Duration::from_secs(39));
        state.core.handle_timeout(now);
        let mut deadline = |request| state.core.control(now, request, Command::Inspect).map(|p| p.deadline);
        assert_eq!([left, free].map(&mut deadline), [Ok(Some(now + Duration::from_secs(21))), Ok(None)]);
        let mut ended = std::iter::from_fn(|| state.core.poll_event()).filter_map(|event| match event {
            Event::Upcall(Upcall::Final(end)) => Some((end.request, end.outcome)),
            _ => None,
        });
        assert_eq!((ended.next(), ended.next()), (Some((past, Outcome::Expired)), None));
    }

    /// Each application gets the notice of its own request, however many are suspended, and none of a request that
    /// ended.
    #[test]
    fn latest_notice_of_each_request_waits_until_its_end() {
        let shared = shared();
        let mut state = shared.lock();
        let rate = Rate::mbit(1);
        let short = |n| Upcall::InsufficientBandwidth { request: RequestId(n), needed: rate, available: rate };
        let peer = PeerId::from(Dest(1));
        for n in 0..2000 {
            shared.event(&mut state, Event::Upcall(short(n)));
            shared.event(&mut state, Event::Heard { peer });
        }
        shared.event(&mut state, Event::Upcall(Upcall::Resumed { request: RequestId(7) }));
        let ended = Final {
            request: RequestId(9),
            dest: Dest(1),
            outcome: Outcome::Cancelled,
            at: Time::ZERO,
            written: 0,
            size: 1,
        };
        shared.event(&mut state, Event::Upcall(Upcall::Final(ended)));
        let all: Vec<AtpNotice> = std::iter::from_fn(|| state.notices.pop_front()).collect();
        let told: Vec<Upcall> =
            all.iter().filter_map(|n| if let AtpNotice::Request(u) = n { Some(*u) } else { None }).collect();
        let said = |n| if n == 7 { Upcall::Resumed { request: RequestId(7) } } else { short(n) };
        let expected: Vec<Upcall> = (0..2000).filter(|n| *n != 9).map(said).collect();
        assert_eq!((told.len(), told == expected), (1999, true));
        assert_eq!(all.len() - told.len(), 1024, "of all else the newest");
    }
}
