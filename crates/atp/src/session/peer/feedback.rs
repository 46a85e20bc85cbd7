//! Where the estimator's samples come from: the sender stamps every packet of objects (of several
//! that leave together the first) and remembers when it left ([`SentPackets`]); the receiver packet_events when it
//! came and reports that ([`ArrivalCollector`]).
//!
//! Reports must not flood a slow way back. One leaves for every second packet, as QUIC's
//! acknowledgements do, so that it carries one of those, too; at most every 10 ms; with up to
//! 80 arrivals at 8 bytes each; and not while the last one still waits in QUIC's queue. On a slow
//! link one leaves for every third packet or so, and for the last one there is: QUIC acknowledges
//! each report with a packet of 60 bytes, which stands in front of the next object.
//! Arrivals that find the collector full are thinned out, which costs samples and no bytes: the
//! byte counts in a report are cumulative.
//!
//! A report is the word of a stranger, and the rate follows from it. So a packet counts as arrived
//! once and only if it was sent, and no more bytes between two of them than left between them. A
//! receiver may still lie about its clock; the window then grows, and what it gains is its own
//! queue, on its own way.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use super::frame::{PacketArrival, REPORT_MAX};
use crate::RequestId;
use crate::estimate::{ACK_DELAY_MAX, Arrival};

/// How long a lone arrival waits for company: as long as QUIC waits with an acknowledgement, so that
/// both leave in one packet.
pub(crate) const REPORT_DELAY: Duration = ACK_DELAY_MAX;
/// A packet that comes so long after the one before comes after a pause, not over a slow link.
const GAP_MAX: Duration = Duration::from_millis(400);
/// From so many bytes on a packet counts as full.
const FULL: u64 = 1000;
/// The time from one report to the next, at least.
const PERIOD: Duration = Duration::from_millis(10);
/// Packets a sender remembers; more than are ever in flight at 100 Mbit/s and 800 ms. Must stay
/// below half of the 16 bits a stamp has.
const LEDGER_MAX: usize = 8192;

/// An object's bytes: whose, and how many.
pub(crate) type Share = (RequestId, u64);
/// The objects' bytes that came with a stamp: those in the packets that left between the stamp before
/// it and its own packet, and those in that.
pub(crate) type Shares = [Option<Share>; 2];

/// A packet that left.
#[derive(Clone, Copy, Debug)]
struct SentPacket {
    at: Time,
    /// Bytes that had left by then, with all it may have.
    sent: u64,
    shares: Shares,
}

/// What a sender remembers of the packets it stamped.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    /// Number of the oldest remembered.
    first: u64,
    /// `None` for those known to have arrived.
    packets: VecDeque<Option<SentPacket>>,
    /// Bytes sent, in packets of all kinds.
    sent: u64,
    /// The most bytes that the receiver has claimed, and those of them that it may have got.
    claimed: u64,
    believed: u64,
    /// Bytes that had left with the newest packet that arrived.
    arrived: u64,
    /// What left together with the last stamp, but in later packets.
    rest: Option<Share>,
}

impl SentPackets {
    /// A packet of `bytes` left, the headers below QUIC included.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// A stamp for the packet that leaves `now`, or for several that leave together, of which the
    /// first has `bytes` at most; `share` is what is in all of them.
    pub(crate) fn stamp(&mut self, now: Time, share: Option<Share>, bytes: u64) -> u16 {
        if self.packets.len() == LEDGER_MAX {
            self.packets.pop_front();
            self.first += 1;
        }
        let number = self.first + self.packets.len() as u64;
        let shares = [self.rest.take(), share];
        self.packets.push_back(Some(SentPacket { at: now, sent: self.sent.saturating_add(bytes), shares }));
        number as u16 // the low 16 bits are what travels
    }

    /// The packet with that stamp has left, `now`, and is the last that was [`sent`](Self::sent), but
    /// for the `after` of its `together` bytes: those in the packets that left with it. Until then it
    /// counts as a full one; were it to stay so, a full one after it would have to share its bytes with
    /// it, and make the link look slow.
    pub(crate) fn departed(&mut self, number: u16, now: Time, together: u64, after: u64) {
        let sent = self.sent.saturating_sub(after);
        let Some(Some(left)) = self.slot(number) else { return };
        (left.at, left.sent) = (now, sent);
        if let [_, Some((request, bytes))] = &mut left.shares {
            let rest = bytes.saturating_mul(after).checked_div(together).unwrap_or(0).min(*bytes);
            let request = *request;
            *bytes -= rest;
            self.rest = (rest > 0).then_some((request, rest));
        }
    }

    /// What the receiver says of a packet, as far as it can be true, and what was in it; packets
    /// have `bytes` at most. `None` if it is not remembered, or was taken already.
    pub(crate) fn arrived(&mut self, seen: PacketArrival, bytes: u64) -> Option<(Arrival, Shares)> {
        let left = self.take(seen.number)?;
        let claimed = seen.total.saturating_sub(self.claimed);
        // One that was overtaken brings itself only.
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

/// What a receiver has to report.
#[derive(Debug, Default)]
pub(crate) struct ArrivalCollector {
    total: u64,
    seen: Vec<PacketArrival>,
    due: Option<Time>,
    /// When the last report was made.
    last: Option<Time>,
    /// When the last stamp came, if more are to follow it at once.
    latest: Option<Time>,
    /// Bytes of the datagram that came last.
    bytes: u64,
    /// The time that a full packet packet_time on the way: from the one before it, at most.
    packet_time: Duration,
}

impl ArrivalCollector {
    /// `bytes` came in one datagram, the headers below QUIC included.
    pub(crate) fn received(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        self.bytes = bytes;
    }

    /// The datagram just received had this stamp; that of a probe, or of the last packet there is, is
    /// reported at once. Gives the time that a full packet packet_time on the way.
    pub(crate) fn stamped(&mut self, now: Time, number: u16, at_once: bool) -> Duration {
        let before = std::mem::replace(&mut self.latest, (!at_once).then_some(now));
        if let Some(gap) = before.map(|before| now.since(before)).filter(|gap| *gap <= GAP_MAX && self.bytes >= FULL) {
            self.packet_time = gap;
        }
        if self.seen.len() == REPORT_MAX {
            // The way back is slow or blocked: keep every second.
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.seen.push(PacketArrival { number, at: now, total: self.total });
        let due = match self.seen.len() {
            // After an outage many may come out of a queue together.
            _ if at_once => self.last.map_or(now, |last| now.max(last + PERIOD)),
            1 => now + self.report_delay(),
            REPORT_MAX => now,
            2 if self.report_delay() > 2 * REPORT_DELAY => now + self.report_delay(),
            _ => self.last.map_or(now, |last| now.max(last + PERIOD)),
        };
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        self.packet_time
    }

    /// How long one waits for company: on a slow link until the next two have come.
    fn report_delay(&self) -> Duration {
        (self.packet_time * 5 / 2).max(REPORT_DELAY)
    }

    /// When a report is due; `None` for never.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// A packet leaves anyway, and has room for the report.
    pub(crate) fn expedite(&mut self, now: Time) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// The last report still waits for its turn: ask again later.
    pub(crate) fn postpone(&mut self, now: Time) {
        self.due = Some(now + PERIOD);
    }

    /// The report, if it is due by `now`.
    pub(crate) fn report(&mut self, now: Time) -> Option<Vec<PacketArrival>> {
        self.due.take_if(|due| *due <= now)?;
        self.last = Some(now);
        Some(std::mem::take(&mut self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_tells_stamps_apart_across_the_wrap_and_forgets_the_old() {
        let mut sent_packets = SentPackets::default();
        let mut last = 0;
        for i in 0..70_000u64 {
            last = sent_packets.stamp(Time::from_micros(i), Some((RequestId(i), 1)), 100);
        }
        assert_eq!(last, (69_999 % 65_536) as u16);
        let taken = sent_packets.take(last).map(|left| (left.at, left.shares[1]));
        assert_eq!(taken, Some((Time::from_micros(69_999), Some((RequestId(69_999), 1)))));
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
        // The stamp's place, what the receiver claims in all, what is believed in all.
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
    fn of_packets_that_left_together_the_later_ones_count_with_the_next_stamp() {
        let (mut sent_packets, at) = (SentPackets::default(), Time::from_millis(1));
        let (a, b) = (RequestId(1), RequestId(2));
        let first = sent_packets.stamp(at, Some((a, 3_600)), 1_000);
        sent_packets.sent(4_000);
        sent_packets.departed(first, at, 4_000, 3_000);
        let then = sent_packets.stamp(at, Some((b, 900)), 1_000);
        sent_packets.sent(1_000);
        sent_packets.departed(then, at, 1_000, 0);
        let mut came = |number, total| sent_packets.arrived(PacketArrival { number, at, total }, 1_000).unwrap();
        let (arrival, shares) = came(first, 1_000);
        assert_eq!((arrival.total, shares), (1_000, [None, Some((a, 900))]));
        let (arrival, shares) = came(then, 9_999);
        assert_eq!((arrival.total, shares), (5_000, [Some((a, 2_700)), Some((b, 900))]));
    }

    #[test]
    fn bytes_held_back_in_reports_make_no_burst_later() {
        let mut sent_packets = SentPackets::default();
        let mut totals = Vec::new();
        for i in 0..1_000u64 {
            let number = sent_packets.stamp(Time::from_millis(i), None, 1_000);
            sent_packets.sent(1_000);
            // Nothing came, says the receiver, and then all of it at once.
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
        // The next two come soon after that report.
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
