//! What QUIC has under way on one connection, and what waits in it: told by its valve, passed on
//! to the estimator, and held within the estimator's window.
//!
//! The window may fall far below what is under way: the path is another one, the link is slow all
//! of a sudden. QUIC then sends nothing but probes of its own, seconds apart, until what is under
//! way is acknowledged or lost, and neither comes about without something being sent: not even a
//! PATH_RESPONSE would leave, on which the peer's next word depends. So what is to be answered,
//! and what is sent for the sake of an answer, has its packet whatever the window is
//! ([`Traffic::let_out`]): one for each datagram that comes in, one for each probe.

use remora_base::Time;

use super::epoch::Epoch;
use super::valve::{Note, Valve};
use crate::estimate::Estimator;

/// One connection's traffic.
pub(super) struct Traffic {
    valve: Valve,
    notes: Vec<Note>,
    /// Bytes that wait in QUIC: lost ones to be sent again, and what of the objects' did not fit
    /// into its packet.
    owed: u64,
    /// Bytes in flight by what the valve told.
    in_flight: u64,
    /// Packets that may leave whatever the window is.
    free: u64,
}

/// A connection's sizes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    /// The largest datagram now.
    pub(super) datagram: u64,
    /// The headers below QUIC.
    pub(super) below: u64,
}

impl Traffic {
    pub(super) fn new(valve: Valve) -> Traffic {
        Traffic { valve, notes: Vec::new(), owed: 0, in_flight: 0, free: 0 }
    }

    /// Tells the estimator what QUIC saw happen, and QUIC how much may be in flight. Gives the
    /// latest departure of what was acknowledged, if anything was.
    pub(super) fn absorb(&mut self, now: Time, epoch: Epoch, sizes: Sizes, estimator: &mut Estimator) -> Option<Time> {
        let mut newest = None;
        let Sizes { datagram, below } = sizes;
        self.valve.drain(&mut self.notes);
        for note in self.notes.drain(..) {
            match note {
                Note::Sent(bytes) => {
                    estimator.sent(now, bytes + below);
                    self.owed = self.owed.saturating_sub(bytes);
                    self.in_flight += bytes;
                }
                Note::Acknowledged(sent, bytes) => {
                    let sent = epoch.time(sent);
                    estimator.acknowledged(now, sent, bytes + below);
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                    newest = newest.max(Some(sent));
                }
                Note::Lost(bytes) => {
                    estimator.lost(now, bytes + below);
                    self.owed += bytes;
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                }
                Note::InFlight(bytes) if bytes < self.in_flight => {
                    let forgotten = std::mem::replace(&mut self.in_flight, bytes) - bytes;
                    estimator.lost(now, forgotten + forgotten.div_ceil(datagram.max(1)) * below);
                }
                Note::InFlight(_) => {}
            }
        }
        // The gate keeps objects within the estimator's window. QUIC's check is stricter than
        // ours by up to a packet (it wants room for a full one, a probe being small), so it is
        // given one more.
        let free = self.in_flight.saturating_add(self.free * datagram);
        let window = if self.free > 0 { estimator.window().max(free) } else { estimator.window() };
        self.valve.set_window(window.saturating_add(datagram));
        newest
    }

    /// At least so many packets may leave next, whatever the window is.
    pub(super) fn let_out(&mut self, packets: u64) {
        self.free = self.free.max(packets);
    }

    /// So many packets left.
    pub(super) fn left(&mut self, packets: u64) {
        self.free = self.free.saturating_sub(packets);
    }

    /// No window for anything: QUIC sends only acknowledgements, until it is [told](Self::absorb)
    /// otherwise.
    pub(super) fn shut(&self) {
        self.valve.set_window(0);
    }

    /// So many bytes more wait in QUIC.
    pub(super) fn owe(&mut self, bytes: u64) {
        self.owed += bytes;
    }

    /// Nothing waits in QUIC.
    pub(super) fn settled(&mut self) {
        self.owed = 0;
    }

    /// Whether bytes wait in QUIC.
    pub(super) fn owes(&self) -> bool {
        self.owed > 0
    }
}
