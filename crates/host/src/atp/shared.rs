//! What the handles of an endpoint and its thread share: the core behind a lock that is held for
//! its own short calls only, and who waits for what.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Ending, Endpoint, Event, PeerId, PublicKey, Refusal};
use remora_atp::{Command, Final, Priority, Progress, RequestId, Side, Upcall};
use remora_base::{Core, Rate, Time};
use tokio::sync::{Notify, oneshot, watch};
use tracing::debug;

use super::notices::Notices;
use crate::Clock;

/// How a connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Connecting,
    Up { key: PublicKey, addr: SocketAddr },
    Refused(Refusal),
    Down(Ending),
}

/// An object that came in.
pub(super) struct Arrived {
    pub(super) from: PeerId,
    pub(super) priority: Priority,
    pub(super) object: Bytes,
}

/// Something an application may want to know, and may miss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The bandwidth does not suffice for a request, which is suspended; or suffices again.
    Request(Upcall),
    /// A peer is there: one we connected to, or that connected to us.
    Up {
        /// Who.
        peer: PeerId,
        /// Its key.
        key: PublicKey,
        /// Where it is.
        addr: SocketAddr,
    },
    /// Nothing is heard of the peer; its objects are held.
    Silent {
        /// Who.
        peer: PeerId,
    },
    /// It is heard again.
    Heard {
        /// Who.
        peer: PeerId,
    },
    /// It has another address.
    Moved {
        /// Who.
        peer: PeerId,
        /// Where it is.
        addr: SocketAddr,
    },
    /// The connection is over, or did not come about.
    Down {
        /// Who.
        peer: PeerId,
        /// Why, for people.
        why: String,
    },
}

/// The bandwidth left its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crossing {
    /// What it is now; `None` while nothing gets through.
    pub rate: Option<Rate>,
    /// Which bound it crossed.
    pub side: Side,
}

/// The core and those who wait.
pub(super) struct State {
    pub(super) core: Endpoint,
    pub(super) requests: BTreeMap<RequestId, oneshot::Sender<Final>>,
    pub(super) peers: BTreeMap<PeerId, watch::Sender<Line>>,
    pub(super) bounds: Option<oneshot::Sender<Crossing>>,
    pub(super) received: VecDeque<Arrived>,
    pub(super) received_bytes: usize,
    pub(super) notices: Notices,
    /// A new local address to bind to, for the thread to do.
    pub(super) rebind: Option<(SocketAddr, oneshot::Sender<std::io::Result<SocketAddr>>)>,
    pub(super) local: SocketAddr,
    limits: Limits,
    pub(super) ignored: u64,
}

/// Bounds on what waits for the application.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Objects and their bytes; no objects: the application does not receive.
    pub(super) objects: usize,
    pub(super) bytes: usize,
}

/// What all handles share.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) clock: Clock,
    /// Wakes the thread.
    bell: OwnedFd,
    is_rung: AtomicBool,
    /// The last handle is gone, or the application said so.
    closing: AtomicBool,
    /// The thread has ended.
    closed: AtomicBool,
    /// Objects have come, or notices, or the end.
    pub(super) arrived: Notify,
    pub(super) noticed: Notify,
    pub(super) ended: Notify,
}

impl State {
    pub(super) fn new(core: Endpoint, limits: Limits, local: SocketAddr) -> State {
        State {
            core,
            requests: BTreeMap::new(),
            peers: BTreeMap::new(),
            bounds: None,
            received: VecDeque::new(),
            received_bytes: 0,
            notices: Notices::default(),
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

    fn receive(&mut self, arrived: Arrived) {
        self.received_bytes += arrived.object.len();
        self.received.push_back(arrived);
    }

    /// Brings the deadlines of all requests forward by so much.
    pub(super) fn bring_deadlines_forward(&mut self, now: Time, by: Duration) {
        for request in self.requests.keys() {
            // Fails for one that has ended, which is told elsewhere.
            if let Ok(Progress { deadline: Some(at), .. }) = self.core.control(now, *request, Command::Inspect) {
                let left = (at - by).since(now);
                let _ = self.core.control(now, *request, Command::Deadline(Some(left)));
            }
        }
    }

    /// Takes the next received object; makes room for one that waits outside.
    pub(super) fn take_received(&mut self) -> Option<Arrived> {
        let arrived = self.received.pop_front()?;
        self.received_bytes -= arrived.object.len();
        Some(arrived)
    }
}

impl Shared {
    pub(super) fn new(state: State, clock: Clock, bell: OwnedFd) -> Arc<Shared> {
        Arc::new(Shared {
            state: Mutex::new(state),
            clock,
            bell,
            is_rung: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            arrived: Notify::new(),
            noticed: Notify::new(),
            ended: Notify::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Wakes the thread, once for however many calls came before it looks.
    pub(super) fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is full, and then the thread wakes anyway.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// The thread is awake, and looks at everything next.
    pub(super) fn unring(&self) {
        if self.is_rung.load(Ordering::Acquire) {
            self.silence();
        }
    }

    /// The same when the bell sounds, which it may although it does not count as rung: when `unring`
    /// came between the two steps of `ring`. Left so, it would wake the thread for ever.
    pub(super) fn silence(&self) {
        // In this order: the other way round a ring in between would count, but make no sound any
        // more, and nor would those after it.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        self.is_rung.swap(false, Ordering::AcqRel);
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Nothing will come any more: whoever waits is told.
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

    /// Hands what the core has to tell to those who wait for it. Objects for which there is no room
    /// stay in the core, whose bounds hold back the peer that sends them.
    pub(super) fn deliver(&self, state: &mut State) {
        loop {
            let event = if state.has_room() { state.core.poll_event() } else { state.core.poll_event_but_objects() };
            let Some(event) = event else { return };
            self.event(state, event);
        }
    }

    fn event(&self, state: &mut State, event: Event) {
        let notice = match event {
            Event::Upcall(Upcall::Final(end)) => {
                state.notices.ended(end.request);
                if let Some(waiter) = state.requests.remove(&end.request) {
                    // Nobody waits any more: it ended for nobody.
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
                state.receive(Arrived { from: peer, priority, object });
                self.arrived.notify_one();
                return;
            }
            Event::Upcall(advice) => Notice::Request(advice),
            Event::Up { peer, key, addr } => {
                state.peer(peer).send_replace(Line::Up { key, addr });
                Notice::Up { peer, key, addr }
            }
            Event::Silent { peer, .. } => Notice::Silent { peer },
            Event::Heard { peer } => Notice::Heard { peer },
            Event::Moved { peer, addr } => {
                state.peer(peer).send_if_modified(|line| match line {
                    Line::Up { addr: known, .. } => std::mem::replace(known, addr) != addr,
                    _ => false,
                });
                Notice::Moved { peer, addr }
            }
            Event::Down { peer, why } => {
                let text = why.to_string();
                state.gone(peer, Line::Down(why));
                Notice::Down { peer, why: text }
            }
            Event::Refused { peer, why } => {
                let text = why.to_string();
                state.gone(peer, Line::Refused(why));
                Notice::Down { peer, why: text }
            }
        };
        debug!(?notice, "ATP session");
        state.notices.push_back(notice);
        self.noticed.notify_one();
    }
}

impl State {
    /// The peer's place, made if it connected to us.
    pub(super) fn peer(&mut self, id: PeerId) -> &watch::Sender<Line> {
        self.peers.entry(id).or_insert_with(|| watch::Sender::new(Line::Connecting))
    }

    /// The last word about a peer: those who hold it keep it, the table does not.
    fn gone(&mut self, id: PeerId, line: Line) {
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

    use super::*;

    fn shared() -> Arc<Shared> {
        let identity = crate::atp::keys::generate().unwrap();
        let core = Endpoint::new(Config::default(), identity, Instant::now(), Time::ZERO, 7).unwrap();
        let state = State::new(core, Limits { objects: 0, bytes: 0 }, "127.0.0.1:1".parse().unwrap());
        Shared::new(state, Clock::start(), eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
    }

    /// Whether the bell sounds within so many seconds.
    fn sounds(shared: &Shared, seconds: i64) -> bool {
        let mut fds = [PollFd::new(shared.bell(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })) == Ok(1)
    }

    #[test]
    fn a_bell_that_was_looked_at_while_it_was_rung_sounds_once() {
        let shared = shared();
        // `ring`, with `unring` between its two steps.
        assert!(!shared.is_rung.swap(true, Ordering::AcqRel));
        shared.unring();
        rustix::io::write(shared.bell(), &1u64.to_ne_bytes()).unwrap();
        assert!(sounds(&shared, 0));
        shared.silence();
        assert!(!sounds(&shared, 0), "it sounds for ever");
        shared.ring();
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
        state.bring_deadlines_forward(now, Duration::from_secs(39));
        state.core.handle_timeout(now);
        let mut deadline = |request| state.core.control(now, request, Command::Inspect).map(|p| p.deadline);
        assert_eq!([left, free].map(&mut deadline), [Ok(Some(now + Duration::from_secs(21))), Ok(None)]);
        let mut ended = std::iter::from_fn(|| state.core.poll_event()).filter_map(|event| match event {
            Event::Upcall(Upcall::Final(end)) => Some((end.request, end.outcome)),
            _ => None,
        });
        assert_eq!((ended.next(), ended.next()), (Some((past, Outcome::Expired)), None));
    }

    /// However many are suspended at once, each application hears of its own; and nothing of one that has ended.
    #[test]
    fn what_is_said_of_a_request_waits_until_it_is_taken_or_the_request_has_ended() {
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
        let all: Vec<Notice> = std::iter::from_fn(|| state.notices.pop_front()).collect();
        let told: Vec<Upcall> =
            all.iter().filter_map(|n| if let Notice::Request(u) = n { Some(*u) } else { None }).collect();
        let said = |n| if n == 7 { Upcall::Resumed { request: RequestId(7) } } else { short(n) };
        let expected: Vec<Upcall> = (0..2000).filter(|n| *n != 9).map(said).collect();
        assert_eq!((told.len(), told == expected), (1999, true));
        assert_eq!(all.len() - told.len(), 1024, "of all else the newest");
    }
}
