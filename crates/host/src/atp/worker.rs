//! The thread of an endpoint. It moves datagrams between socket and core, and runs the core's timers with
//! sub-millisecond precision, which pacing needs. It sleeps in `poll` until a datagram, a call of the application,
//! or a timer.

use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::PeerId;
use remora_base::{Core, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::local_network::SourceAddresses;
use super::shared::{ConnectionState, EndpointState, SharedEndpoint};
use super::shutdown::CLOSE_MAX;
use super::socket::{Batch, EndpointSocket, Sent, source_towards};
use crate::standstill::{self, BEAT};

/// Reads before timers and sending get their turn.
const READS_MAX: usize = 16;
/// Batches sent before reading gets its turn.
const BATCHES_MAX: usize = 64;
/// Interval at which source addresses are checked.
const SOURCE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Repetitions of the closing packets, and their interval.
const CLOSE_REPEATS: u32 = 3;
const LAST_WORDS_APART: Duration = Duration::from_millis(5);
/// Maximum closing packets kept, whatever peers without a connection send meanwhile.
const CLOSE_PACKETS_MAX: usize = 1024;

/// State of the thread.
pub(super) struct EndpointWorker {
    shared: Arc<SharedEndpoint>,
    socket: EndpointSocket,
    /// The batch to send, or blocked by the socket, and the one after it.
    batch: Batch,
    next: Batch,
    is_blocked: bool,
    /// Closing packets sent so far: a few for each peer.
    close_packets: Option<Vec<Batch>>,
    look_at: Time,
    sources: SourceAddresses,
    /// Suspension time of the clock when deadlines were last advanced.
    stood: Duration,
}

impl EndpointWorker {
    pub(super) fn new(shared: Arc<SharedEndpoint>, socket: EndpointSocket) -> EndpointWorker {
        EndpointWorker {
            shared,
            socket,
            batch: Batch::default(),
            next: Batch::default(),
            is_blocked: false,
            close_packets: None,
            look_at: Time::ZERO,
            sources: SourceAddresses::default(),
            stood: Duration::ZERO,
        }
    }

    /// Runs until the endpoint is closed.
    pub(super) fn run(mut self) {
        // Precise timers; without them packets are merely a little late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut farewell: Option<Time> = None;
        loop {
            standstill::beat();
            self.shared.acknowledge_wake();
            self.receive();
            self.check_sources();
            let shared = self.shared.clone();
            let mut state = shared.lock();
            self.rebind(&mut state);
            self.keep_deadlines(&mut state);
            let now = shared.now();
            if farewell.is_none() && shared.is_closing() {
                farewell = Some(now + CLOSE_MAX);
                self.close_packets = Some(Vec::new());
                let peers: Vec<PeerId> = state.core.peers().collect();
                peers.into_iter().for_each(|id| state.core.close(now, id));
            }
            if state.core.poll_timeout().is_some_and(|due| due <= now) {
                state.core.handle_timeout(now);
            }
            let more = self.send(&mut state);
            shared.deliver(&mut state);
            let due = state.core.poll_timeout();
            drop(state);
            if let Some(end) = farewell
                && (shared.now() >= end || (!more && (due.is_none() || self.is_close_sent())))
            {
                break;
            }
            if !more {
                self.sleep(due.into_iter().chain([self.look_at]).chain(farewell).min());
            }
        }
        self.repeat_close_packets();
        self.shared.end();
    }

    /// Repeats the closing packets: they are not acknowledged, and a peer that misses them keeps its resources.
    fn repeat_close_packets(&mut self) {
        let close_packets = self.close_packets.take().unwrap_or_default();
        for _ in 0..if close_packets.is_empty() { 0 } else { CLOSE_REPEATS } {
            std::thread::sleep(LAST_WORDS_APART);
            for batch in &close_packets {
                // Each was sent before, so a full socket does not matter.
                let _ = self.socket.send(batch);
            }
        }
    }

    /// Whether the last packets were sent.
    fn is_close_sent(&self) -> bool {
        !self.is_blocked && self.shared.lock().core.peers().next().is_none()
    }

    fn receive(&mut self) {
        for _ in 0..READS_MAX {
            let shared = &self.shared;
            let mut state = None;
            let more = self.socket.receive(|from, datagrams| {
                // Takes the lock once for all datagrams of a call.
                let state: &mut EndpointState = state.get_or_insert_with(|| shared.lock());
                state.core.handle_datagrams(shared.now(), from, datagrams);
            });
            if let Some(mut state) = state {
                shared.deliver(&mut state);
            }
            if !more {
                return;
            }
        }
    }

    /// Sends the core's packets; returns whether there may be more.
    fn send(&mut self, state: &mut EndpointState) -> bool {
        for _ in 0..BATCHES_MAX {
            if !self.batch.is_empty() && !self.flush(state) {
                return false;
            }
            std::mem::swap(&mut self.batch, &mut self.next);
            let max = self.socket.batch_max();
            let batch = &mut self.batch;
            if batch.is_empty() && !batch.fill(&mut state.core, self.shared.now(), max) {
                return false;
            }
            while self.next.fill(&mut state.core, self.shared.now(), max) && self.batch.join(&mut self.next, max) {}
        }
        true
    }

    /// Sends the batch; false if the socket is full.
    fn flush(&mut self, state: &mut EndpointState) -> bool {
        let sent = self.socket.send(&self.batch);
        self.is_blocked = sent == Sent::Blocked;
        if let Sent::TooLarge(to, bytes) = sent {
            state.core.too_large(self.shared.now(), to, bytes);
        }
        if !self.is_blocked {
            match &mut self.close_packets {
                Some(words) if words.len() < CLOSE_PACKETS_MAX => words.push(std::mem::take(&mut self.batch)),
                _ => self.batch.clear(),
            }
        }
        !self.is_blocked
    }

    /// Binds to another address, if requested.
    fn rebind(&mut self, state: &mut EndpointState) {
        let Some((addr, told)) = state.rebind.take() else { return };
        let result = EndpointSocket::bind(addr).and_then(|socket| {
            let local = socket.udp().local_addr()?;
            self.socket = socket;
            state.local = local;
            state.core.rebind(self.shared.now());
            Ok(local)
        });
        // The caller may have gone.
        let _ = told.send(result);
    }

    /// Deadlines are in real time: they approach while this process is suspended.
    fn keep_deadlines(&mut self, state: &mut EndpointState) {
        let (now, stood) = (self.shared.now(), self.shared.clock.stood());
        let more = stood.saturating_sub(std::mem::replace(&mut self.stood, stood));
        if !more.is_zero() {
            state.advance_deadlines(now, more);
        }
    }

    /// Detects that datagrams to peers leave from another local address: a move to another network. The socket is
    /// bound to all addresses, so only the core must know.
    fn check_sources(&mut self) {
        let now = self.shared.now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + SOURCE_CHECK_INTERVAL;
        let up = |line: &ConnectionState| match *line {
            ConnectionState::Up { addr, .. } => Some(addr),
            _ => None,
        };
        let peers = self.shared.lock().peers.values().filter_map(|line| up(&line.borrow())).collect();
        if self.sources.check(&peers, source_towards) {
            self.socket.forget_routes();
            self.shared.lock().core.rebind(now);
        }
    }

    fn sleep(&self, due: Option<Time>) {
        let wait = due.map_or(BEAT, |at| at.since(self.shared.now()).min(BEAT));
        if wait.is_zero() {
            return;
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let readiness = if self.is_blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(self.socket.udp(), readiness), PollFd::new(self.shared.waker(), PollFlags::IN)];
        // Interrupted: check everything, then sleep again.
        let _ = poll(&mut fds, Some(&wait));
        if fds[1].revents().contains(PollFlags::IN) {
            self.shared.drain_waker();
        }
    }
}
