//! Packets to a peer: objects, and what QUIC itself sends.
//!
//! On a slow link, each packet of objects is one call. On a fast one, a call sends what the estimator allows for
//! half a millisecond ([`Estimator::burst`]), which amortizes selection, stamp, report and system call.
//!
//! [`Estimator::burst`]: crate::estimate::Estimator::burst

use std::num::NonZeroUsize;

use noq_proto::{FrameStats, Transmit};
use remora_base::Time;

use super::connection::{Peer, PeerPhase};
use super::feedback::ObjectBytes;
use super::frame::{DatagramMessage, HEAD_LEN, STAMP_LEN};
use crate::estimate::{Direction, Gate, Knowledge, Probe};
use crate::session::quic::{DATAGRAMS, Epoch};
use crate::{Priority, RequestId};

/// Room for an acknowledgement in a packet of objects.
const ACK_ROOM: usize = 24;
/// Type and length of a DATAGRAM frame of up to 63 bytes (RFC 9221, section 4).
const FRAME_HEAD: usize = 2;
/// Maximum QUIC bytes of a packet that only elicits an acknowledgement; MTU probes are larger.
const ACK_PROBE_MAX: usize = 100;
/// Maximum bytes of a probe: an Ethernet frame, of which a train fits into [`DATAGRAMS`]. noq advertises frames up
/// to its buffer size, and closes the connection on one of that size.
const PROBE_MAX: usize = 1500;
/// noq's allowance for the header of a DATAGRAM frame.
const NOQ_DATAGRAM_HEAD: usize = 9;
/// noq's allowance for the length of a STREAM frame; two bytes would suffice.
const NOQ_LENGTH: usize = 8;

/// Bytes of objects written to QUIC for one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WrittenBatch {
    stamp: u16,
    bytes: u64,
    packets: NonZeroUsize,
    /// The batch is the last for now, and no stamp says so.
    needs_ping: bool,
}

impl WrittenBatch {
    /// Whether a PING follows the batch.
    pub(crate) fn needs_ping(self) -> bool {
        self.needs_ping
    }
}

impl Peer {
    /// Whether bytes of objects may be written to the connection.
    pub(crate) fn may_write(&self) -> bool {
        (self.phase == PeerPhase::Up || (self.phase == PeerPhase::Connecting && self.early))
            && !self.blocked
            && self.pending_stamp.is_none()
    }

    /// Whether the next packet of objects may be sent now.
    pub(crate) fn is_ready(&self, now: Time) -> bool {
        self.may_write() && self.estimator.gate(now) == Gate::Open
    }

    /// Full packets that one call may send now, at most `max`.
    pub(crate) fn packets(&self, now: Time, max: NonZeroUsize) -> NonZeroUsize {
        let packets = self.estimator.burst(now) / self.largest().max(1);
        usize::try_from(packets).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN).min(max)
    }

    /// Bytes of `request` that fill the next `packets`; 0 if unknown.
    pub(crate) fn room(&mut self, request: RequestId, packets: NonZeroUsize) -> usize {
        let frames = self.conn.datagrams().max_size().map_or(0, |max| max + NOQ_DATAGRAM_HEAD);
        let ack = if self.received_since_send { ACK_ROOM } else { 0 };
        let each = frames.saturating_sub(self.outbox.frame_head(request));
        // Bytes beyond it go into a packet of their own.
        each.saturating_mul(packets.get()).saturating_sub(FRAME_HEAD + STAMP_LEN + ack + NOQ_LENGTH)
    }

    /// Stamps the first of the next packets, at most `max`.
    ///
    /// A receiver acknowledges every second packet at once, and a single one after up to 25 ms (RFC 9000, section
    /// 13.2.1), most of a small object's round trip. So the stamp of the last packet for now says that it is the
    /// last. In a batch the stamp is in the first packet; a PING then follows, so that the last two packets are
    /// acknowledged.
    pub(crate) fn stamp(&mut self, now: Time, share: ObjectBytes, max: NonZeroUsize) -> WrittenBatch {
        let one = self.room(share.request, NonZeroUsize::MIN) as u64;
        let packets = (share.bytes + HEAD_LEN as u64).checked_div(one).and_then(|full| usize::try_from(full).ok());
        let packets = packets.map_or(NonZeroUsize::MIN, |full| NonZeroUsize::MIN.saturating_add(full)).min(max);
        let stamp = self.sent_packets.stamp(now, Some(share), self.largest());
        let is_last = self.knows_limits() && self.outbox.is_written();
        let is_alone = packets == NonZeroUsize::MIN;
        self.send_message(
            &if is_last && is_alone { DatagramMessage::Last(stamp) } else { DatagramMessage::Stamp(stamp) },
            0,
        );
        WrittenBatch { stamp, bytes: share.bytes, packets, needs_ping: is_last && !is_alone }
    }

    /// Sends a probe: stamps whose arrival is reported at once.
    pub(crate) fn probe(&mut self, now: Time, probe: Probe) {
        let full = self.conn.datagrams().max_size().unwrap_or(0).min(PROBE_MAX);
        let (count, size) = match probe {
            Probe::Small => (1, 0),
            Probe::Pair => (2, full),
            Probe::Train => (4, full),
        };
        self.send_window.allow_packets(count);
        self.probes.clear();
        for _ in 0..count {
            let number = self.sent_packets.stamp(now, None, self.largest());
            self.probes.push_back(number);
            self.send_message(&DatagramMessage::Probe(number), size);
        }
    }

    /// Sends the report that is due, unless the last one still waits.
    fn report(&mut self, now: Time) {
        let Some(due) = self.collector.due().filter(|due| *due <= now) else { return };
        if self.conn.datagrams().send_buffer_space() < DATAGRAMS / 2 {
            return self.collector.postpone(due.max(now));
        }
        if let Some(seen) = self.collector.report(now) {
            self.send_message(&DatagramMessage::Report(seen), 0);
            self.inbox.answer(&mut self.conn);
        }
    }

    fn send_message(&mut self, message: &DatagramMessage, size: usize) {
        // Fails before the peer's limits are known; then a sample is lost.
        let _ = self.conn.datagrams().send(message.encode(size), true);
    }

    /// The next packet of QUIC: handshake, acknowledgements, retransmissions, reports. Retransmissions are paced
    /// like objects; `None` while they wait.
    pub(crate) fn flush(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.inbox.due().is_some_and(|due| due <= now) {
            self.collector.expedite(now);
            self.inbox.answer(&mut self.conn);
        }
        self.report(now);
        // Without the peer's limits the probe would be lost.
        while self.knows_limits()
            && let Some(probe) = self.estimator.poll_probe(now)
        {
            self.probe(now, probe);
        }
        // The window may have grown, or opened for a probe.
        self.absorb(now, epoch);
        let has_to_wait = self.send_window.has_pending() && matches!(self.estimator.gate(now), Gate::At(_));
        // A probe does not wait, although its packet carries pending bytes: a late probe looks like a silent peer.
        if self.handshake.is_confirmed() && has_to_wait && self.probes.is_empty() {
            // Acknowledgements should not wait, because the peer's estimate depends on them. With a window of 0
            // QUIC sends only them, unless other frames are ready; then they wait for the gate too. `poll_packet`
            // opens the window again.
            self.send_window.close();
            return self.poll_packet(now, epoch, buf);
        }
        let transmit = self.poll_packet(now, epoch, buf);
        match (&transmit, self.pending_stamp) {
            (Some(_), Some(number)) => {
                self.sent_packets.departed(number, now, 0, 0);
                self.pending_stamp = None;
            }
            (Some(_), None) => {
                self.probes.drain(..self.probes.len().min(1)).for_each(|n| self.sent_packets.departed(n, now, 0, 0))
            }
            // QUIC had nothing to send, unless the window is full.
            (None, _) if self.estimator.gate(now) != Gate::Shut => self.send_window.clear_pending(),
            _ => {}
        }
        transmit
    }

    /// Whether an object of this priority is more urgent than bytes that wait in QUIC, which sends its most urgent
    /// stream first.
    pub(crate) fn is_overtaken_by(&self, priority: Priority) -> bool {
        self.outbox.lowest_started().is_some_and(|lowest| lowest < priority)
    }

    /// Whether bytes wait in QUIC while a packet may be sent.
    pub(crate) fn has_pending(&self, now: Time) -> bool {
        self.send_window.has_pending() && self.is_ready(now)
    }

    /// Polls the packets of the bytes just written, if QUIC sends them.
    pub(crate) fn poll_written(
        &mut self,
        now: Time,
        epoch: Epoch,
        written: WrittenBatch,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.send_window.add_pending(written.bytes);
        let transmit = self.poll_packets(now, epoch, written.packets, buf);
        if written.needs_ping {
            self.ping();
        }
        self.touch(now);
        self.estimator.object_progress(now, Direction::Out);
        self.received_since_send = false;
        self.pending_stamp = transmit.is_none().then_some(written.stamp);
        if let Some(t) = &transmit {
            let (all, first) = (self.on_the_wire(t), segment(t) as u64 + self.header_bytes());
            self.sent_packets.departed(written.stamp, now, all, all.saturating_sub(first));
        }
        transmit
    }

    /// Makes QUIC send a PING.
    pub(crate) fn ping(&mut self) {
        self.conn.ping();
        self.ping_pending = true;
    }

    /// The next packet of QUIC.
    pub(crate) fn poll_packet(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_packets(now, epoch, NonZeroUsize::MIN, buf)
    }

    /// The next packets, at most `max`, all of one size but the last.
    fn poll_packets(&mut self, now: Time, epoch: Epoch, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        // QUIC has only a challenge for a decoy, which would reach no host. The packet that closes a connection is
        // sent once, to the true address.
        let is_over = self.phase == PeerPhase::Over;
        // noq repeats that of a failed handshake without end while it fills a datagram in the Initial space.
        let is_closed = self.conn.is_closed();
        if is_closed && self.close_sent {
            return None;
        }
        if !is_over && self.path().is_some_and(|path| self.revalidation.is_decoy(path)) {
            return None;
        }
        loop {
            buf.clear();
            let patient = !self.ping_pending && self.awaits_answer(now);
            let dark = self.is_in_blackout();
            let before = (patient || dark).then(|| self.conn.stats().frame_tx);
            let mut transmit = self.conn.poll_transmit(epoch.instant(now), max, buf);
            self.absorb(now, epoch);
            if let Some(t) = &mut transmit {
                t.destination = if is_over { self.revalidation.true_address(t.destination) } else { t.destination };
                self.last_sent = now;
                self.close_sent = is_closed;
                self.ping_pending = false;
                self.unanswered = 0;
                self.send_window.packets_sent(count(t));
                self.sent_packets.sent(self.on_the_wire(t));
            }
            // Three kinds of packets are dropped: challenges to a decoy; retransmissions in a blackout, which would
            // fill the device's queue before urgent objects; on a slow link, probes while the answer may still be
            // in flight.
            let frames = before.map(|before| (before, self.conn.stats().frame_tx));
            let in_vain = |size: usize| {
                frames.is_some_and(|(before, after)| {
                    if dark {
                        is_retransmission(&before, &after)
                    } else {
                        size <= ACK_PROBE_MAX && is_ack_probe(&before, &after)
                    }
                })
            };
            match transmit {
                Some(t) if self.revalidation.is_decoy(t.destination) || in_vain(t.size) => continue,
                Some(t) if !self.may_send_to(now, t.destination, t.size) => continue,
                other => return other,
            }
        }
    }

    /// Whether an answer may still be in flight on a slow link.
    fn awaits_answer(&self, now: Time) -> bool {
        self.handshake.is_confirmed() && self.estimator.answer_due().is_some_and(|until| now < until)
    }

    /// Whether an established peer is in a blackout.
    fn is_in_blackout(&self) -> bool {
        self.handshake.is_confirmed() && matches!(self.estimator.forecast().state, Knowledge::Blackout { .. })
    }

    /// Bytes of a transmission, including all headers.
    fn on_the_wire(&self, t: &Transmit) -> u64 {
        t.size as u64 + count(t) * self.header_bytes()
    }
}

/// Whether a packet has STREAM frames and no path validation.
fn is_retransmission(before: &FrameStats, after: &FrameStats) -> bool {
    let is_path = after.path_challenge > before.path_challenge || after.path_response > before.path_response;
    after.stream > before.stream && !is_path
}

/// Whether a packet only elicits an acknowledgement: PING or IMMEDIATE_ACK.
fn is_ack_probe(before: &FrameStats, after: &FrameStats) -> bool {
    let mut asked = *before;
    (asked.ping, asked.immediate_ack) = (after.ping, after.immediate_ack);
    asked == *after && asked != *before
}

/// Bytes of each datagram but the last.
pub(crate) fn segment(t: &Transmit) -> usize {
    t.segment_size.unwrap_or(t.size)
}

/// Number of datagrams.
fn count(t: &Transmit) -> u64 {
    t.size.div_ceil(segment(t).max(1)) as u64
}
