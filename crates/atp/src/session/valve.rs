//! The congestion controller that QUIC is given: it decides nothing. It passes on what happens
//! to packets (a controller is the one place that is told) and lets through what ATP's estimator
//! allows.
//!
//! QUIC's own pacer is opened wide: ATP asks its estimator's gate before each packet of objects,
//! and that gate wants pairs of packets back to back, which the pacer would part.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// The rate QUIC's pacer is given, bytes a second: beyond what ATP is for, and a nanosecond a
/// byte, so that the pacer's waits are never rounded to nothing (it would ask to be called again
/// at the same instant, for ever).
const UNPACED: u64 = 1_000_000_000;

/// What happened to one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Note {
    /// One that asks for an acknowledgement left; QUIC bytes in it.
    Sent(u64),
    /// One was acknowledged: when it left, its bytes.
    Acknowledged(Instant, u64),
    /// One was declared lost; its bytes.
    Lost(u64),
    /// After acknowledgements: the bytes in flight as QUIC counts them. It forgets some packets
    /// without a word (those of the handshake, those of an old path).
    InFlight(u64),
}

#[derive(Debug)]
struct State {
    window: u64,
    notes: Vec<Note>,
}

/// One connection's controller; clones share their state, so a path that QUIC replaces (an
/// address change) keeps it.
#[derive(Clone, Debug)]
pub(super) struct Valve(Arc<Mutex<State>>);

impl Valve {
    /// One that lets `window` bytes be in flight.
    pub(super) fn new(window: u64) -> Valve {
        Valve(Arc::new(Mutex::new(State { window, notes: Vec::new() })))
    }

    /// Lets `window` bytes be in flight from now on; at least 1.
    pub(super) fn set_window(&self, window: u64) {
        self.state().window = window.max(1);
    }

    /// Moves what happened since the last call into `to`. Call it after every call into the
    /// connection, which bounds the notes by what one call can cause.
    pub(super) fn drain(&self, to: &mut Vec<Note>) {
        to.append(&mut self.state().notes);
    }

    fn note(&self, note: Note) {
        self.state().notes.push(note);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; were it otherwise, the state would still do.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerFactory for Valve {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Valve::clone(&self))
    }
}

impl Controller for Valve {
    fn on_packet_sent(&mut self, _: Instant, bytes: u16, _: u64) {
        self.note(Note::Sent(bytes.into()));
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: u64, _: bool, _: &RttEstimator) {
        self.note(Note::Acknowledged(sent, bytes));
    }

    fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.note(Note::InFlight(in_flight));
    }

    fn on_packet_lost(&mut self, bytes: u16, _: u64, _: Instant) {
        if bytes > 0 {
            self.note(Note::Lost(bytes.into()));
        }
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.state().window
    }

    fn metrics(&self) -> ControllerMetrics {
        // The struct is not exhaustive, so it cannot be written as an expression.
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = Some(UNPACED);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
