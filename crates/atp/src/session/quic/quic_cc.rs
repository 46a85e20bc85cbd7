//! What QUIC has under way on one connection, and what waits in it: told by its quic_cc, passed on
//! to the estimator, and held within the estimator's window.
//!
//! The window may fall far headers what is under way: the path is another one, the link is slow all
//! of a sudden. QUIC then sends nothing but probes of its own, seconds apart, until what is under
//! way is acknowledged or lost, and neither comes about without something being sent: not even a
//! PATH_RESPONSE would leave, on which the peer's next word depends. So what is to be answered,
//! and what is sent for the sake of an answer, has its packet whatever the window is
//! ([`SendWindow::allow_packets`]): one for each datagram that comes in, one for each probe.
//!
//! The congestion controller that QUIC is given: it decides nothing. It passes on what happens
//! to packets (a controller is the one place that is told) and lets through what ATP's estimator
//! allows.
//!
//! QUIC's own pacer is opened wide: ATP asks its estimator's gate before each packet of objects,
//! and that gate wants pairs of packets back to back, which the pacer would part.

use super::clock::Epoch;
use crate::estimate::Estimator;
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use remora_base::Time;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One connection's send_window.
pub(crate) struct SendWindow {
    quic_cc: QuicCc,
    packet_events: Vec<PacketEvent>,
    /// Bytes that wait in QUIC: lost ones to be sent again, and what of the objects' did not fit
    /// into its packet.
    pending: u64,
    /// Bytes in flight by what the quic_cc told.
    in_flight: u64,
    /// Packets that may leave whatever the window is.
    allowance: u64,
}

/// A connection's sizes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DatagramSizes {
    /// The largest datagram now.
    pub(crate) datagram: u64,
    /// The headers headers QUIC.
    pub(crate) headers: u64,
}

impl SendWindow {
    pub(crate) fn new(quic_cc: QuicCc) -> SendWindow {
        SendWindow { quic_cc, packet_events: Vec::new(), pending: 0, in_flight: 0, allowance: 0 }
    }

    /// Tells the estimator what QUIC saw happen, and QUIC how much may be in flight. Gives the
    /// latest departure of what was acknowledged, if anything was.
    pub(crate) fn absorb(
        &mut self,
        now: Time,
        epoch: Epoch,
        sizes: DatagramSizes,
        estimator: &mut Estimator,
    ) -> Option<Time> {
        let mut newest = None;
        let DatagramSizes { datagram, headers } = sizes;
        self.quic_cc.drain(&mut self.packet_events);
        for event in self.packet_events.drain(..) {
            match event {
                PacketEvent::Sent(bytes) => {
                    estimator.sent(now, bytes + headers);
                    self.pending = self.pending.saturating_sub(bytes);
                    self.in_flight += bytes;
                }
                PacketEvent::Acknowledged(sent, bytes) => {
                    let sent = epoch.time(sent);
                    estimator.acknowledged(now, sent, bytes + headers);
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                    newest = newest.max(Some(sent));
                }
                PacketEvent::Lost(bytes) => {
                    estimator.lost(now, bytes + headers);
                    self.pending += bytes;
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                }
                PacketEvent::InFlight(bytes) if bytes < self.in_flight => {
                    let forgotten = std::mem::replace(&mut self.in_flight, bytes) - bytes;
                    estimator.lost(now, forgotten + forgotten.div_ceil(datagram.max(1)) * headers);
                }
                PacketEvent::InFlight(_) => {}
            }
        }
        // The gate keeps objects within the estimator's window. QUIC's check is stricter than
        // ours by up to a packet (it wants room for a full one, a probe being small), so it is
        // given one more.
        let allowance = self.in_flight.saturating_add(self.allowance * datagram);
        let window = if self.allowance > 0 { estimator.window().max(allowance) } else { estimator.window() };
        self.quic_cc.set_window(window.saturating_add(datagram));
        newest
    }

    /// At least so many packets may leave next, whatever the window is.
    pub(crate) fn allow_packets(&mut self, packets: u64) {
        self.allowance = self.allowance.max(packets);
    }

    /// So many packets left.
    pub(crate) fn packets_sent(&mut self, packets: u64) {
        self.allowance = self.allowance.saturating_sub(packets);
    }

    /// No window for anything: QUIC sends only acknowledgements, until it is [told](Self::absorb)
    /// otherwise.
    pub(crate) fn close(&self) {
        self.quic_cc.set_window(0);
    }

    /// So many bytes more wait in QUIC.
    pub(crate) fn add_pending(&mut self, bytes: u64) {
        self.pending += bytes;
    }

    /// Nothing waits in QUIC.
    pub(crate) fn clear_pending(&mut self) {
        self.pending = 0;
    }

    /// Whether bytes wait in QUIC.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending > 0
    }
}

/// The rate QUIC's pacer is given, bytes a second: beyond what ATP is for, and a nanosecond a
/// byte, so that the pacer's waits are never rounded to nothing (it would ask to be called again
/// at the same instant, for ever).
const UNPACED: u64 = 1_000_000_000;

/// What happened to one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketEvent {
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
    packet_events: Vec<PacketEvent>,
}

/// One connection's controller; clones share their state, so a path that QUIC replaces (an
/// address change) keeps it.
#[derive(Clone, Debug)]
pub(crate) struct QuicCc(Arc<Mutex<State>>);

impl QuicCc {
    /// One that lets `window` bytes be in flight.
    pub(crate) fn new(window: u64) -> QuicCc {
        QuicCc(Arc::new(Mutex::new(State { window, packet_events: Vec::new() })))
    }

    /// Lets `window` bytes be in flight from now on; at least 1.
    pub(crate) fn set_window(&self, window: u64) {
        self.state().window = window.max(1);
    }

    /// Moves what happened since the last call into `to`. Call it after every call into the
    /// connection, which bounds the packet_events by what one call can cause.
    pub(crate) fn drain(&self, to: &mut Vec<PacketEvent>) {
        to.append(&mut self.state().packet_events);
    }

    fn record(&self, event: PacketEvent) {
        self.state().packet_events.push(event);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; were it otherwise, the state would still do.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControllerFactory for QuicCc {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(QuicCc::clone(&self))
    }
}

impl Controller for QuicCc {
    fn on_packet_sent(&mut self, _: Instant, bytes: u16, _: u64) {
        self.record(PacketEvent::Sent(bytes.into()));
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: u64, _: bool, _: &RttEstimator) {
        self.record(PacketEvent::Acknowledged(sent, bytes));
    }

    fn on_end_acks(&mut self, _: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.record(PacketEvent::InFlight(in_flight));
    }

    fn on_packet_lost(&mut self, bytes: u16, _: u64, _: Instant) {
        if bytes > 0 {
            self.record(PacketEvent::Lost(bytes.into()));
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
