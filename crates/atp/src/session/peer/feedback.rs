//! Feedback for the estimator. The sender stamps each packet of objects (of several that leave together, the first)
//! and remembers its departure ([`SentPackets`]); the receiver reports its arrival ([`ArrivalCollector`]).
//!
//! Reports must not flood a slow reverse path. One is sent for every second packet, together with QUIC's
//! acknowledgement; at most every 10 ms; with up to 80 arrivals of 8 bytes; and not while the last one waits in
//! QUIC's queue. On a slow link, one is sent for every third packet, and for the last: QUIC acknowledges each
//! report with a packet of 60 bytes, which delays the next object. A full collector drops every second arrival;
//! byte counts are cumulative, so this costs only samples.
//!
//! Reports are untrusted, and the rate depends on them. A packet arrives once, and only if it was sent; between two
//! arrivals no more bytes count than were sent between them. A receiver may still lie about its clock: it then
//! enlarges only the queue on its own path.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use super::frame::{PacketArrival, REPORT_MAX};
use crate::RequestId;
use crate::estimate::{ACK_DELAY_MAX, Arrival};

/// Maximum delay of a report: that of an acknowledgement, so that both share a packet.
pub(crate) const REPORT_DELAY: Duration = ACK_DELAY_MAX;
/// A longer gap is a pause, not a slow link.
const GAP_MAX: Duration = Duration::from_millis(400);
/// Size from which a packet counts as full, in bytes.
const FULL: u64 = 1000;
/// Minimum interval of reports.
const PERIOD: Duration = Duration::from_millis(10);
/// Maximum number of sent packets remembered; more than are in flight at 100 Mbit/s and 800 ms. Must stay below
/// 2^15, half the range of a stamp.
const LEDGER_MAX: usize = 8192;

/// Bytes of an object: the request and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectBytes {
    pub(crate) request: RequestId,
    pub(crate) bytes: u64,
}

/// Bytes of objects covered by a stamp: in the packets between the previous stamp and this one, and in its own
/// packet.
pub(crate) type Shares = [Option<ObjectBytes>; 2];

/// A stamped packet.
#[derive(Clone, Copy, Debug)]
struct SentPacket {
    at: Time,
    /// Total bytes sent, including this packet at its maximum size.
    sent: u64,
    shares: Shares,
}

/// Stamped packets in flight.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    /// Number of the oldest packet.
    first: u64,
    /// `None` for packets that arrived.
    packets: VecDeque<Option<SentPacket>>,
    /// Total bytes sent, in packets of all kinds.
    sent: u64,
    /// Highest total that the receiver claimed, and the part of it that is possible.
    claimed: u64,
    believed: u64,
    /// Total bytes sent with the newest packet that arrived.
    arrived: u64,
    /// Bytes of objects sent together with the last stamp, in later packets.
    rest: Option<ObjectBytes>,
}

impl SentPackets {
    /// Records a packet of `bytes`, including IP and UDP headers.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Assigns a stamp to the packet, or the batch of packets, that is sent now. `bytes` is the maximum size of its
    /// first packet, `share` the bytes of the object in all of them.
    pub(crate) fn stamp(&mut self, now: Time, share: Option<ObjectBytes>, bytes: u64) -> u16 {
        if self.packets.len() == LEDGER_MAX {
            self.packets.pop_front();
            self.first += 1;
        }
        let number = self.first + self.packets.len() as u64;
        let shares = [self.rest.take(), share];
        self.packets.push_back(Some(SentPacket { at: now, sent: self.sent.saturating_add(bytes), shares }));
        number as u16 // the low 16 bits are what travels
    }

    /// Corrects the record of a stamp after departure: its packet was the last that was [`sent`](Self::sent), apart
    /// from `after` of the batch's `together` bytes, which follow it. Until then it counts as a full packet, which
    /// would attribute bytes of the next packet to it and make the link look slow.
    pub(crate) fn departed(&mut self, number: u16, now: Time, together: u64, after: u64) {
        let sent = self.sent.saturating_sub(after);
        let Some(Some(left)) = self.slot(number) else { return };
        (left.at, left.sent) = (now, sent);
        if let [_, Some(share)] = &mut left.shares {
            let rest = share.bytes.saturating_mul(after).checked_div(together).unwrap_or(0).min(share.bytes);
            share.bytes -= rest;
            self.rest = (rest > 0).then_some(ObjectBytes { request: share.request, bytes: rest });
        }
    }

    /// Validates a reported arrival; packets have at most `bytes`. Returns it with the objects' bytes, or `None` if
    /// the packet is unknown or arrived before.
    pub(crate) fn arrived(&mut self, seen: PacketArrival, bytes: u64) -> Option<(Arrival, Shares)> {
        let left = self.take(seen.number)?;
        let claimed = seen.total.saturating_sub(self.claimed);
        // A reordered packet counts only for itself.
        let possible = left.sent.checked_sub(self.arrived).unwrap_or(bytes);
        self.claimed = self.claimed.max(seen.total);
        self.arrived = self.arrived.max(left.sent);
        self.believed = self.believed.saturating_add(claimed.min(possible));
        Some((Arrival { sent: left.at, received: seen.at, total: self.believed }, left.shares))
    }

    fn take(&mut self, number: u16) -> Option<SentPacket> {
        let taken = self.slot(number)?.take();
        while let Some(None) = self.packets.front() {
            self.packets.pop_front();
            self.first += 1;
        }
        taken
    }

    fn slot(&mut self, number: u16) -> Option<&mut Option<SentPacket>> {
        let newest = (self.first + self.packets.len() as u64).checked_sub(1)?;
        let age = (newest as u16).wrapping_sub(number);
        let index = newest.checked_sub(age.into())?.checked_sub(self.first)?;
        self.packets.get_mut(usize::try_from(index).ok()?)
    }
}

/// Arrivals to report.
#[derive(Debug, Default)]
pub(crate) struct ArrivalCollector {
    total: u64,
    seen: Vec<PacketArrival>,
    due: Option<Time>,
    /// When the last report was made.
    last: Option<Time>,
    /// Arrival of the last stamp, if more follow.
    latest: Option<Time>,
    /// Bytes of the last datagram.
    bytes: u64,
    /// Transmission time of a full packet: at most the gap before it.
    packet_time: Duration,
}

impl ArrivalCollector {
    /// Records a datagram of `bytes`, including IP and UDP headers.
    pub(crate) fn received(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        self.bytes = bytes;
    }

    /// Records the stamp of the last datagram; `at_once` for a probe or the last packet of objects. Returns the
    /// transmission time of a full packet.
    pub(crate) fn stamped(&mut self, now: Time, number: u16, at_once: bool) -> Duration {
        let before = std::mem::replace(&mut self.latest, (!at_once).then_some(now));
        if let Some(gap) = before.map(|before| now.since(before)).filter(|gap| *gap <= GAP_MAX && self.bytes >= FULL) {
            self.packet_time = gap;
        }
        if self.seen.len() == REPORT_MAX {
            // The reverse path is slow or blocked: keep every second arrival.
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.seen.push(PacketArrival { number, at: now, total: self.total });
        let due = match self.seen.len() {
            // After an outage, a queue may deliver many probes together.
            _ if at_once => self.last.map_or(now, |last| now.max(last + PERIOD)),
            1 => now + self.report_delay(),
            REPORT_MAX => now,
            2 if self.report_delay() > 2 * REPORT_DELAY => now + self.report_delay(),
            _ => self.last.map_or(now, |last| now.max(last + PERIOD)),
        };
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        self.packet_time
    }

    /// Delay of a report: on a slow link, until two more packets have arrived.
    fn report_delay(&self) -> Duration {
        (self.packet_time * 5 / 2).max(REPORT_DELAY)
    }

    /// When a report is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Makes the report due now: a packet is sent anyway.
    pub(crate) fn expedite(&mut self, now: Time) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Delays the report, because the last one still waits.
    pub(crate) fn postpone(&mut self, now: Time) {
        self.due = Some(now + PERIOD);
    }

    /// Returns the report, if it is due.
    pub(crate) fn report(&mut self, now: Time) -> Option<Vec<PacketArrival>> {
        self.due.take_if(|due| *due <= now)?;
        self.last = Some(now);
        Some(std::mem::take(&mut self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(request: u64, bytes: u64) -> ObjectBytes {
        ObjectBytes { request: RequestId(request), bytes }
    }

    #[test]
    fn stamps_are_distinct_across_the_wrap_and_expire() {
        let mut sent_packets = SentPackets::default();
        let mut last = 0;
        for i in 0..70_000u64 {
            last = sent_packets.stamp(Time::from_micros(i), Some(share(i, 1)), 100);
        }
        assert_eq!(last, (69_999 % 65_536) as u16);
        let taken = sent_packets.take(last).map(|left| (left.at, left.shares[1]));
        assert_eq!(taken, Some((Time::from_micros(69_999), Some(share(69_999, 1)))));
        assert!(sent_packets.take(last).is_none(), "once only");
        assert!(sent_packets.take(last.wrapping_sub(LEDGER_MAX as u16)).is_none(), "forgotten");
        assert!(sent_packets.take(last.wrapping_add(1)).is_none(), "not sent yet");
        let oldest = last.wrapping_sub(LEDGER_MAX as u16 - 1);
        assert!(sent_packets.take(oldest).is_some());
        assert!(SentPackets::default().take(0).is_none());
    }

    #[test]
    fn no_more_bytes_arrive_than_left() {
        let mut sent_packets = SentPackets::default();
        let numbers: Vec<u16> = (0..6)
            .map(|i| {
                let number = sent_packets.stamp(Time::from_millis(i), None, 1_000);
                sent_packets.sent(1_000);
                number
            })
            .collect();
        // Index of the stamp, claimed total, credited total.
        let cases =
            [(0, 1_000, 1_000), (2, 2_000, 2_000), (1, 3_000, 3_000), (3, 1 << 40, 4_000), (5, u64::MAX, 6_000)];
        for (place, total, believed) in cases {
            let seen = PacketArrival { number: numbers[place], at: Time::ZERO, total };
            let (arrival, _) = sent_packets.arrived(seen, 1_000).unwrap();
            assert_eq!(arrival.total, believed, "packet {place}");
        }
        let again = PacketArrival { number: numbers[5], at: Time::ZERO, total: u64::MAX };
        assert!(sent_packets.arrived(again, 1_000).is_none());
    }

    #[test]
    fn a_full_packet_after_a_small_one_counts_whole() {
        let mut sent_packets = SentPackets::default();
        let mut total = 0;
        for (i, bytes) in [100, 1_000, 100, 100, 1_000, 1_000, 100].into_iter().enumerate() {
            let at = Time::from_millis(i as u64);
            let number = sent_packets.stamp(at, None, 1_000);
            sent_packets.sent(bytes);
            sent_packets.departed(number, at, bytes, 0);
            total += bytes;
            let (arrival, _) = sent_packets.arrived(PacketArrival { number, at, total }, 1_000).unwrap();
            assert_eq!(arrival.total, total, "packet {i}");
        }
    }

    #[test]
    fn later_packets_of_a_batch_count_with_the_next_stamp() {
        let (mut sent_packets, at) = (SentPackets::default(), Time::from_millis(1));
        let first = sent_packets.stamp(at, Some(share(1, 3_600)), 1_000);
        sent_packets.sent(4_000);
        sent_packets.departed(first, at, 4_000, 3_000);
        let then = sent_packets.stamp(at, Some(share(2, 900)), 1_000);
        sent_packets.sent(1_000);
        sent_packets.departed(then, at, 1_000, 0);
        let mut came = |number, total| sent_packets.arrived(PacketArrival { number, at, total }, 1_000).unwrap();
        let (arrival, shares) = came(first, 1_000);
        assert_eq!((arrival.total, shares), (1_000, [None, Some(share(1, 900))]));
        let (arrival, shares) = came(then, 9_999);
        assert_eq!((arrival.total, shares), (5_000, [Some(share(1, 2_700)), Some(share(2, 900))]));
    }

    #[test]
    fn bytes_held_back_in_reports_make_no_burst_later() {
        let mut sent_packets = SentPackets::default();
        let mut totals = Vec::new();
        for i in 0..1_000u64 {
            let number = sent_packets.stamp(Time::from_millis(i), None, 1_000);
            sent_packets.sent(1_000);
            // The receiver claims nothing at first, then all bytes at once.
            let total = if i < 900 { 1 } else { 1_000 * (i + 1) };
            let seen = PacketArrival { number, at: Time::from_millis(i), total };
            totals.extend(sent_packets.arrived(seen, 1_000).map(|(arrival, _)| arrival.total));
        }
        assert!(totals.windows(2).all(|w| w[1] - w[0] <= 1_000), "a packet brings no more than itself");
    }

    #[test]
    fn arrivals_wait_for_company_and_probes_do_not() {
        let mut c = ArrivalCollector::default();
        c.received(1_228);
        c.stamped(Time::from_millis(5), 1, false);
        assert_eq!((c.due(), c.report(Time::from_millis(24))), (Some(Time::from_millis(30)), None));
        c.received(1_228);
        c.stamped(Time::from_millis(9), 2, false);
        let report = c.report(Time::from_millis(9)).unwrap();
        assert_eq!(report.iter().map(|s| (s.number, s.total)).collect::<Vec<_>>(), [(1, 1_228), (2, 2_456)]);
        assert_eq!((c.due(), c.report(Time::from_secs(9))), (None, None));
        // The next two arrive soon after that report.
        c.stamped(Time::from_millis(11), 3, false);
        c.stamped(Time::from_millis(12), 4, false);
        assert_eq!(c.due(), Some(Time::from_millis(19)));
        c.stamped(Time::from_millis(13), 5, true);
        assert_eq!(c.due(), Some(Time::from_millis(19)), "probes that came out of a queue share one");
        assert_eq!(c.report(Time::from_millis(19)).unwrap().len(), 3);
        c.stamped(Time::from_millis(40), 6, true);
        assert_eq!(c.report(Time::from_millis(40)).unwrap().len(), 1, "a probe is answered at once");
    }

    #[test]
    fn a_full_collector_thins_out_and_keeps_the_last() {
        let mut c = ArrivalCollector::default();
        for number in 0..10_000 {
            c.received(100);
            c.stamped(Time::from_micros(number.into()), number, false);
        }
        let report = c.report(Time::from_secs(1)).unwrap();
        assert!(report.len() <= REPORT_MAX && report.len() >= REPORT_MAX / 2);
        assert_eq!(report.last().map(|s| (s.number, s.total)), Some((9_999, 1_000_000)));
        assert!(report.is_sorted_by_key(|s| s.at));
    }
}
