//! What leaves for a peer: packets of objects, and what QUIC itself has to send.
//!
//! On a slow link each packet of objects is a call of its own. On a fast one as many leave together
//! as the estimator thinks take half a millisecond ([`Estimator::burst`]), so that the work that is
//! by the call, and not by the byte, is done once for all of them: the choice, the stamp, the report,
//! the system call.
//!
//! [`Estimator::burst`]: crate::estimate::Estimator::burst

use std::num::NonZeroUsize;

use noq_proto::{FrameStats, Transmit};
use remora_base::Time;

use super::connection::{Peer, PeerPhase};
use super::frame::{DatagramMessage, HEAD_LEN, STAMP_LEN};
use crate::estimate::{Direction, Gate, Knowledge, Probe};
use crate::session::quic::DATAGRAMS;
use crate::session::quic::Epoch;
use crate::{Priority, RequestId};

/// Room left in a packet of objects for an acknowledgement that rides along.
const ACK_ROOM: usize = 24;
/// A DATAGRAM frame's type and length (RFC 9221, section 4), for up to 63 bytes.
const FRAME_HEAD: usize = 2;
/// QUIC bytes of a packet that only asks for an acknowledgement; one that looks for a larger MTU has more.
const ACK_PROBE_MAX: usize = 100;
/// The most bytes of a probe: as many as Ethernet's usual frames have, of which a train, and what else waits, has room
/// in [`DATAGRAMS`]. noq tells the peer to send frames of as much as it has room for, and ends the connection for one
/// of that size.
const PROBE_MAX: usize = 1500;
/// What noq takes off a datagram's largest size for its frame header.
const NOQ_DATAGRAM_HEAD: usize = 9;
/// Bytes that noq sets aside for the length of a STREAM frame that does not fill its packet, where
/// two would do.
const NOQ_LENGTH: usize = 8;

/// Objects' bytes that QUIC was given to be sent at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WrittenBatch {
    stamp: u16,
    bytes: u64,
    packets: NonZeroUsize,
    /// They are the last there are for now, and none of them says so.
    needs_ping: bool,
}

impl WrittenBatch {
    /// Whether QUIC has a PING to send behind them.
    pub(crate) fn needs_ping(self) -> bool {
        self.needs_ping
    }
}

impl Peer {
    /// Whether objects' bytes may be written to it at all.
    pub(crate) fn may_write(&self) -> bool {
        (self.phase == PeerPhase::Up || (self.phase == PeerPhase::Connecting && self.early))
            && !self.blocked
            && self.pending_stamp.is_none()
    }

    /// Whether the next packet of objects may leave now.
    pub(crate) fn is_ready(&self, now: Time) -> bool {
        self.may_write() && self.estimator.gate(now) == Gate::Open
    }

    /// Full packets that may leave now in one call, at most `max`.
    pub(crate) fn packets(&self, now: Time, max: NonZeroUsize) -> NonZeroUsize {
        let packets = self.estimator.burst(now) / self.largest().max(1);
        usize::try_from(packets).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN).min(max)
    }

    /// Bytes of `request` that fill the next `packets`; 0 if there is no telling yet.
    pub(crate) fn room(&mut self, request: RequestId, packets: NonZeroUsize) -> usize {
        let frames = self.conn.datagrams().max_size().map_or(0, |max| max + NOQ_DATAGRAM_HEAD);
        let ack = if self.received_since_send { ACK_ROOM } else { 0 };
        let each = frames.saturating_sub(self.outbox.frame_head(request));
        // What does not fit is sent in a packet of its own.
        each.saturating_mul(packets.get()).saturating_sub(FRAME_HEAD + STAMP_LEN + ack + NOQ_LENGTH)
    }

    /// Stamps the packets about to leave, `max` at most: the first of them carries the stamp.
    ///
    /// A receiver answers every second packet at once and holds back the answer to a single one for
    /// 25 ms (RFC 9000, section 13.2.1), which would be the longest part of a small object's round
    /// trip. So the last packet that there is for now says that it is the last. Of several that leave
    /// together the stamp is in the first: then a PING goes behind them, and the last two are answered.
    pub(crate) fn stamp(&mut self, now: Time, share: (RequestId, u64), max: NonZeroUsize) -> WrittenBatch {
        let one = self.room(share.0, NonZeroUsize::MIN) as u64;
        let packets = (share.1 + HEAD_LEN as u64).checked_div(one).and_then(|full| usize::try_from(full).ok());
        let packets = packets.map_or(NonZeroUsize::MIN, |full| NonZeroUsize::MIN.saturating_add(full)).min(max);
        let stamp = self.sent_packets.stamp(now, Some(share), self.largest());
        let is_last = self.knows_limits() && self.outbox.is_written();
        let is_alone = packets == NonZeroUsize::MIN;
        self.send_message(
            &if is_last && is_alone { DatagramMessage::Last(stamp) } else { DatagramMessage::Stamp(stamp) },
            0,
        );
        WrittenBatch { stamp, bytes: share.1, packets, needs_ping: is_last && !is_alone }
    }

    /// Sends `probe`: stamps whose arrival is reported at once.
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

    /// Reports what arrived, if that is due and the last report is not still waiting.
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
        // Fails before the peer's limits are known, and the sample is lost: no more than that.
        let _ = self.conn.datagrams().send(message.encode(size), true);
    }

    /// The next packet that QUIC itself has: handshake, acknowledgements, what was lost, reports.
    /// Retransmissions are paced as objects are; `None` while they have to wait.
    pub(crate) fn flush(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.inbox.due().is_some_and(|due| due <= now) {
            self.collector.expedite(now);
            self.inbox.answer(&mut self.conn);
        }
        self.report(now);
        // Before that the peer's limits are not known, and a probe would be lost.
        while self.knows_limits()
            && let Some(probe) = self.estimator.poll_probe(now)
        {
            self.probe(now, probe);
        }
        // A window that grew, or was opened for a probe.
        self.absorb(now, epoch);
        let has_to_wait = self.send_window.has_pending() && matches!(self.estimator.gate(now), Gate::At(_));
        // Nor does a probe wait, though it takes a packet of what is owed along: it would be missed.
        if self.handshake.is_confirmed() && has_to_wait && self.probes.is_empty() {
            // Acknowledgements should not wait: the peer's estimate, and its window, rest on them. With
            // no window for anything else QUIC sends only them, if nothing else is ready to be sent; else
            // they wait for the gate, too, which on slow links that close_requests much costs next to nothing.
            // `take` opens the window again.
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
            // It had nothing, unless the window is full.
            (None, _) if self.estimator.gate(now) != Gate::Shut => self.send_window.clear_pending(),
            _ => {}
        }
        transmit
    }

    /// Whether QUIC waits with bytes that an object of this priority should poll_urgent: they may be
    /// of a less urgent one. QUIC sends the most urgent first of what it has.
    pub(crate) fn is_overtaken_by(&self, priority: Priority) -> bool {
        self.outbox.lowest_started().is_some_and(|lowest| lowest < priority)
    }

    /// Whether bytes wait in QUIC, while a packet may leave.
    pub(crate) fn has_pending(&self, now: Time) -> bool {
        self.send_window.has_pending() && self.is_ready(now)
    }

    /// The packets for which objects' bytes have just been written, if QUIC lets them out.
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

    /// Has QUIC send a PING.
    pub(crate) fn ping(&mut self) {
        self.conn.ping();
        self.ping_pending = true;
    }

    /// The next packet, if QUIC has one.
    pub(crate) fn poll_packet(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_packets(now, epoch, NonZeroUsize::MIN, buf)
    }

    /// The next packets, at most `max` and all of one size but for the last.
    fn poll_packets(&mut self, now: Time, epoch: Epoch, max: NonZeroUsize, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        // What QUIC has for a decoy is a challenge, and would reach nobody. It had no bytes left then, by its own
        // count, for a good-bye, which it says once and which is sent to whom it is meant for.
        let is_over = self.phase == PeerPhase::Over;
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
                self.ping_pending = false;
                self.unanswered = 0;
                self.send_window.packets_sent(count(t));
                self.sent_packets.sent(self.on_the_wire(t));
            }
            // It looks for the decoy from elsewhere, too. And in a blackout it sends objects' bytes again:
            // they would stand in the device's queue, in front of all that is urgent when the link is
            // back. On a slow link it asks whether packets have come that are still on their way.
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

    /// Whether the link is slow, and an answer that is waited for may well be under way.
    fn awaits_answer(&self, now: Time) -> bool {
        self.handshake.is_confirmed() && self.estimator.answer_due().is_some_and(|until| now < until)
    }

    /// Whether it does not answer, though it did once.
    fn is_in_blackout(&self) -> bool {
        self.handshake.is_confirmed() && matches!(self.estimator.forecast().state, Knowledge::Blackout { .. })
    }

    /// Bytes of a transmission with all headers.
    fn on_the_wire(&self, t: &Transmit) -> u64 {
        t.size as u64 + count(t) * self.header_bytes()
    }
}

/// Whether a packet has objects' bytes and nothing that finds a path.
fn is_retransmission(before: &FrameStats, after: &FrameStats) -> bool {
    let is_path = after.path_challenge > before.path_challenge || after.path_response > before.path_response;
    after.stream > before.stream && !is_path
}

/// Whether a packet is there for its acknowledgement only: a PING, or an IMMEDIATE_ACK in its place.
fn is_ack_probe(before: &FrameStats, after: &FrameStats) -> bool {
    let mut asked = *before;
    (asked.ping, asked.immediate_ack) = (after.ping, after.immediate_ack);
    asked == *after && asked != *before
}

/// The bytes of each datagram but the last.
pub(crate) fn segment(t: &Transmit) -> usize {
    t.segment_size.unwrap_or(t.size)
}

/// Its datagrams.
fn count(t: &Transmit) -> u64 {
    t.size.div_ceil(segment(t).max(1)) as u64
}
