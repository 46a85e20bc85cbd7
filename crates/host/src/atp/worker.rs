//! The thread of an endpoint: it moves datagrams between the socket and the core, and keeps the
//! core's timers to the fraction of a millisecond, which its pacing lives on. It sleeps in `poll`
//! until something comes, an application asks for something, or a timer is due.

use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::PeerId;
use remora_base::{Core, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::farewell::FAREWELL_MAX;
use super::shared::{Line, Shared, State};
use super::socket::{Batch, Sent, Socket, source_towards};
use super::sources::Sources;
use crate::standstill::{self, BEAT};

/// Reads from the socket before timers and what is to be sent have their turn.
const READS_MAX: usize = 16;
/// Batches sent before what has come is looked at.
const BATCHES_MAX: usize = 64;
/// How often our own address is looked at.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How often a good-bye is said again, and after what time.
const LAST_WORDS_AGAIN: u32 = 3;
const LAST_WORDS_APART: Duration = Duration::from_millis(5);
/// So many are: some for each peer, whatever strangers are answered meanwhile.
const LAST_WORDS_MAX: usize = 1024;

/// What the thread works on.
pub(super) struct Worker {
    shared: Arc<Shared>,
    socket: Socket,
    /// What is to be sent in the next call, or had no room in the socket, and what comes after it.
    batch: Batch,
    next: Batch,
    is_blocked: bool,
    /// What has been sent since it was to end: few datagrams for each peer.
    last_words: Option<Vec<Batch>>,
    look_at: Time,
    sources: Sources,
    /// How long the clock had stood when deadlines were last brought forward.
    stood: Duration,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, socket: Socket) -> Worker {
        Worker {
            shared,
            socket,
            batch: Batch::default(),
            next: Batch::default(),
            is_blocked: false,
            last_words: None,
            look_at: Time::ZERO,
            sources: Sources::default(),
            stood: Duration::ZERO,
        }
    }

    /// Works until the endpoint is closed.
    pub(super) fn run(mut self) {
        // Timers are to be on time; where the system refuses, they are merely a little late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut farewell: Option<Time> = None;
        loop {
            standstill::beat();
            self.shared.unring();
            self.receive();
            self.look_around();
            let shared = self.shared.clone();
            let mut state = shared.lock();
            self.rebind(&mut state);
            self.keep_deadlines(&mut state);
            let now = shared.now();
            if farewell.is_none() && shared.is_closing() {
                farewell = Some(now + FAREWELL_MAX);
                self.last_words = Some(Vec::new());
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
                && (shared.now() >= end || (!more && (due.is_none() || self.said_good_bye())))
            {
                break;
            }
            if !more {
                self.sleep(due.into_iter().chain([self.look_at]).chain(farewell).min());
            }
        }
        self.repeat_last_words();
        self.shared.end();
    }

    /// Says again what was said at the end: nobody answers that, and where it is lost a peer keeps what it has for us.
    fn repeat_last_words(&mut self) {
        let last_words = self.last_words.take().unwrap_or_default();
        for _ in 0..if last_words.is_empty() { 0 } else { LAST_WORDS_AGAIN } {
            std::thread::sleep(LAST_WORDS_APART);
            for batch in &last_words {
                // One that finds no room has been sent before.
                let _ = self.socket.send(batch);
            }
        }
    }

    /// Whether nothing is left to be said: the last packets have left, and none is waited for.
    fn said_good_bye(&self) -> bool {
        !self.is_blocked && self.shared.lock().core.peers().next().is_none()
    }

    fn receive(&mut self) {
        for _ in 0..READS_MAX {
            let shared = &self.shared;
            let mut state = None;
            let more = self.socket.receive(|from, datagrams| {
                // The lock is taken once for all that one call brought.
                let state: &mut State = state.get_or_insert_with(|| shared.lock());
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

    /// Sends what the core has; true if there may be more at once.
    fn send(&mut self, state: &mut State) -> bool {
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

    /// Sends the batch; false if it has to wait.
    fn flush(&mut self, state: &mut State) -> bool {
        let sent = self.socket.send(&self.batch);
        self.is_blocked = sent == Sent::Blocked;
        if let Sent::TooLarge(to, bytes) = sent {
            state.core.too_large(self.shared.now(), to, bytes);
        }
        if !self.is_blocked {
            match &mut self.last_words {
                Some(words) if words.len() < LAST_WORDS_MAX => words.push(std::mem::take(&mut self.batch)),
                _ => self.batch.clear(),
            }
        }
        !self.is_blocked
    }

    /// Binds to another address, if somebody asked.
    fn rebind(&mut self, state: &mut State) {
        let Some((addr, told)) = state.rebind.take() else { return };
        let result = Socket::bind(addr).and_then(|socket| {
            let local = socket.udp().local_addr()?;
            self.socket = socket;
            state.local = local;
            state.core.rebind(self.shared.now());
            Ok(local)
        });
        // Who asked may have gone.
        let _ = told.send(result);
    }

    /// Deadlines are moments of the world: they come nearer while this process stands still.
    fn keep_deadlines(&mut self, state: &mut State) {
        let (now, stood) = (self.shared.now(), self.shared.clock.stood());
        let more = stood.saturating_sub(std::mem::replace(&mut self.stood, stood));
        if !more.is_zero() {
            state.bring_deadlines_forward(now, more);
        }
    }

    /// Notices that datagrams to our peers leave from another of our addresses than before: a
    /// laptop has moved from one network to the other. The socket is bound to all of them, so the
    /// core only needs to know that the path is another one.
    fn look_around(&mut self) {
        let now = self.shared.now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_AROUND;
        let up = |line: &Line| match *line {
            Line::Up { addr, .. } => Some(addr),
            _ => None,
        };
        let peers = self.shared.lock().peers.values().filter_map(|line| up(&line.borrow())).collect();
        if self.sources.look(&peers, source_towards) {
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
        let mut fds = [PollFd::new(self.socket.udp(), readiness), PollFd::new(self.shared.bell(), PollFlags::IN)];
        // Interrupted: then there is a look at everything, and another sleep.
        let _ = poll(&mut fds, Some(&wait));
        if fds[1].revents().contains(PollFlags::IN) {
            self.shared.silence();
        }
    }
}
