//! QUIC's congestion controller, controlled by ATP's estimator.
//!
//! The controller makes no decision. It records packet events for the estimator, since QUIC informs only the
//! controller, and applies the estimator's window. QUIC's own pacer is effectively disabled: ATP checks the
//! estimator's gate before each packet of objects, and that gate sends packet pairs, which a pacer would separate.
//!
//! The window may fall far below the bytes in flight, after a migration or when the link slows down. QUIC would
//! then send only probes, seconds apart, and not even a PATH_RESPONSE. So packets that answer or probe are exempt
//! from the window ([`SendWindow::allow_packets`]): one for each received datagram, one for each probe.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use remora_base::Time;

use super::clock::Epoch;
use crate::estimate::Estimator;

/// Window, bytes in flight and pending bytes of a connection.
pub(crate) struct SendWindow {
    quic_cc: QuicCc,
    packet_events: Vec<PacketEvent>,
    /// Bytes that wait in QUIC: retransmissions, and bytes of objects that did not fit their packet.
    pending: u64,
    /// Bytes in flight by the recorded events.
    in_flight: u64,
    /// Packets exempt from the window.
    allowance: u64,
}

/// Sizes of a connection's datagrams, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DatagramSizes {
    /// Largest datagram at present.
    pub(crate) datagram: u64,
    /// IP and UDP headers.
    pub(crate) headers: u64,
}

impl SendWindow {
    pub(crate) fn new(quic_cc: QuicCc) -> SendWindow {
        SendWindow { quic_cc, packet_events: Vec::new(), pending: 0, in_flight: 0, allowance: 0 }
    }

    /// Passes the recorded events to the estimator, and its window to QUIC. Returns the latest departure time of an
    /// acknowledged packet.
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
        // The gate keeps objects within the estimator's window. QUIC needs room for a full packet to send a small
        // probe, so its window is one packet larger.
        let allowance = self.in_flight.saturating_add(self.allowance * datagram);
        let window = if self.allowance > 0 { estimator.window().max(allowance) } else { estimator.window() };
        self.quic_cc.set_window(window.saturating_add(datagram));
        newest
    }

    /// Exempts at least the next `packets` from the window.
    pub(crate) fn allow_packets(&mut self, packets: u64) {
        self.allowance = self.allowance.max(packets);
    }

    /// Records that `packets` were sent.
    pub(crate) fn packets_sent(&mut self, packets: u64) {
        self.allowance = self.allowance.saturating_sub(packets);
    }

    /// Sets the window to 0, so that QUIC sends only acknowledgements until [`absorb`](Self::absorb).
    pub(crate) fn close(&self) {
        self.quic_cc.set_window(0);
    }

    /// Adds bytes that wait in QUIC.
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

/// Rate of QUIC's pacer, in bytes per second: above any ATP rate, and one nanosecond per byte, so that its waits
/// never round to 0 (it would request a call at the same instant forever).
const UNPACED: u64 = 1_000_000_000;

/// An event of a packet, with its QUIC bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketEvent {
    /// An ack-eliciting packet was sent.
    Sent(u64),
    /// The packet sent at this time was acknowledged.
    Acknowledged(Instant, u64),
    /// A packet was declared lost.
    Lost(u64),
    /// Bytes in flight by QUIC's count, after acknowledgements. QUIC silently drops some packets (of the handshake,
    /// of an old path).
    InFlight(u64),
}

#[derive(Debug)]
struct State {
    window: u64,
    packet_events: Vec<PacketEvent>,
}

/// A connection's controller. Clones share their state, so that it survives a migration.
#[derive(Clone, Debug)]
pub(crate) struct QuicCc(Arc<Mutex<State>>);

impl QuicCc {
    /// Creates a controller with a window of `window` bytes.
    pub(crate) fn new(window: u64) -> QuicCc {
        QuicCc(Arc::new(Mutex::new(State { window, packet_events: Vec::new() })))
    }

    /// Sets the window, at least 1 byte.
    pub(crate) fn set_window(&self, window: u64) {
        self.state().window = window.max(1);
    }

    /// Moves the events since the last call to `to`. Called after every call into the connection, which bounds
    /// their number.
    pub(crate) fn drain(&self, to: &mut Vec<PacketEvent>) {
        to.append(&mut self.state().packet_events);
    }

    fn record(&self, event: PacketEvent) {
        self.state().packet_events.push(event);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding the lock; the state would be valid all the same.
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
        // The struct is non-exhaustive.
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
