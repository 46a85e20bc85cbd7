//! Rate measurement from the receiver's timestamps (packet dispersal).
//!
//! Packets that leave back to back queue at the bottleneck and leave it separated by the transmission time of one
//! packet: bytes per gap is the bottleneck rate, whether or not the link was idle before. The same holds for
//! packets that were queued. Gaps between other packets give only a lower bound of the rate. Delays are relative,
//! so clock offsets cancel.
//!
//! Endpoints add processing time per packet and stall under load. So gaps before small packets are not measured,
//! and a burst that arrives within a short time corrects an estimate that a stall lowered.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::{Time, WindowedMin};

use super::in_flight::MIN_WINDOW_SECS;
use super::interface::Arrival;
use super::rate_bound::RateBound;

/// Gaps are summed to at least this time for a measurement, because timestamps are inexact.
const SPAN: Duration = Duration::from_millis(4);
/// The same before the first measurement.
const SPAN_FIRST: Duration = Duration::from_millis(1);
/// Factor by which a burst must exceed the estimate to count as a measurement.
const MUCH_FASTER: f64 = 2.0;
/// Allowance for timestamp errors in the duration of a burst. It must stay below half a quantum, or bursts could
/// not show twice the estimated rate.
const BURST_ERROR: Duration = Duration::from_micros(500);
/// Longer gaps are outages.
const GAP_MAX: Duration = Duration::from_secs(2);
/// A packet was queued if its delay exceeds the time to the next packet by this.
const QUEUED: Duration = Duration::from_millis(20);
/// Maximum spacing of packets that left back to back, before the first measurement.
const PACKED_FIRST: Duration = Duration::from_millis(1);
/// Minimum duration and packets of a window that measures the lower bound of the rate.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_PACKETS: u32 = 8;
/// Longer windows show only the sender's rate.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// Bursts whose first packets determine the standing queue.
const BURSTS: usize = 2;

/// A measurement, in nanoseconds a byte.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Sample {
    /// The transmission time.
    Exact(f64),
    /// An upper bound of the transmission time.
    AtMost(f64),
}

/// Sum of gaps and of the bytes that arrived after them.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    bytes: u64,
    received: Duration,
    sent: Duration,
    /// Start, by the receiver's clock.
    began: Option<Time>,
}

/// First and last packet of a burst that left back to back at the estimated rate.
#[derive(Clone, Copy, Debug)]
struct Burst {
    first: Arrival,
    last: Arrival,
}

/// Converts arrivals into measurements.
#[derive(Clone, Debug, Default)]
pub(super) struct Dispersal {
    last: Option<Arrival>,
    /// All packets of this burst so far have one timestamp. Packets of one batch say nothing about the gap before
    /// them.
    same_stamp: bool,
    sum: Sum,
    burst: Option<Burst>,
    rate_bound: RateBound,
    /// Start of the window, and packets since.
    window: Option<(Arrival, u32)>,
    /// Minimum one-way delay, including the clock offset, in nanoseconds.
    least: WindowedMin<i128, MIN_WINDOW_SECS>,
    /// Excess delay of the first packet of each recent burst.
    delays: VecDeque<Duration>,
}

impl Dispersal {
    /// Records an arrival and returns up to three measurements. `same_batch` says that the next packet has the same
    /// timestamp and so belongs to the same gap. `byte_time` is the estimate in nanoseconds a byte, `mtu` the size
    /// of a full packet.
    pub(super) fn arrival(
        &mut self,
        now: Time,
        a: Arrival,
        same_batch: bool,
        byte_time: Option<f64>,
        mtu: u64,
    ) -> [Option<Sample>; 3] {
        let delay = i128::from(a.received.as_nanos()) - i128::from(a.sent.as_nanos());
        self.align(now, a.sent, delay);
        self.least.sample(now, delay);
        let Some(p) = self.last else {
            self.last = Some(a);
            self.same_stamp = true;
            return [None; 3];
        };
        if a.total <= p.total || a.received < p.received {
            return [None; 3]; // a report seen twice or out of order
        }
        self.last = Some(a);
        if a.sent < p.sent {
            return [None; 3]; // packets that overtook one another have no gap of meaning
        }
        let (bytes, gap, spacing) = (a.total - p.total, a.received.since(p.received), a.sent.since(p.sent));
        let is_packed = match byte_time {
            Some(s) => spacing.as_nanos() as f64 <= bytes as f64 * s / 2.0,
            None => spacing <= PACKED_FIRST,
        };
        if !is_packed {
            self.burst_begins(delay);
        }
        // For a packet that was queued, the spacing at the sender does not matter.
        let was_queued = self.excess(p) > spacing.saturating_add(QUEUED);
        let spacing = if was_queued { Duration::ZERO } else { spacing };
        let is_busy = is_packed || was_queued;
        if is_busy && bytes.saturating_mul(2) >= mtu {
            // The gap before a small packet shows the receiver's processing time.
            self.add(a, bytes, gap, spacing);
            self.show(now, bytes, gap, spacing);
        }
        // The packets of the same batch belong to this gap.
        let taken = if is_busy && !same_batch { self.sum(byte_time, mtu) } else { None };
        [self.burst(p, a, is_packed, byte_time), taken, self.window(a)]
    }

    /// Discards the minimum delay if the clock offset has changed: a queueing delay cannot exceed the time since
    /// departure. A clock stops while its machine or process is suspended.
    fn align(&mut self, now: Time, sent: Time, delay: i128) {
        let under_way = i128::try_from(now.since(sent).as_nanos()).unwrap_or(i128::MAX);
        if self.least.get().is_some_and(|least| delay - least > under_way) {
            self.least = WindowedMin::default();
            self.delays.clear();
        }
    }

    /// Discards the last arrival: an outage follows.
    pub(super) fn restart(&mut self) {
        (self.last, self.sum, self.burst, self.window) = (None, Sum::default(), None, None);
        self.rate_bound = RateBound::default();
        self.delays.clear();
    }

    /// Ends a report.
    pub(super) fn conclude(&mut self) {
        self.rate_bound.conclude();
    }

    /// Minimum transmission time in nanoseconds a byte, as far as the gaps prove it.
    pub(super) fn min_byte_time(&self) -> Option<f64> {
        self.rate_bound.min_byte_time()
    }

    /// Delay in a queue that existed before the packet's own burst.
    pub(super) fn standing(&self) -> Duration {
        self.delays.iter().min().copied().unwrap_or_default()
    }

    fn burst_begins(&mut self, delay: i128) {
        self.same_stamp = true;
        self.rate_bound.burst_begins();
        if self.delays.len() == BURSTS {
            self.delays.pop_front();
        }
        let least = self.least.get().unwrap_or(delay);
        self.delays.push_back(duration(delay - least));
    }

    /// Delay of a packet beyond the minimum.
    fn excess(&self, p: Arrival) -> Duration {
        let delay = i128::from(p.received.as_nanos()) - i128::from(p.sent.as_nanos());
        duration(delay - self.least.get().unwrap_or(delay))
    }

    /// Adds a gap during which the link was busy.
    fn add(&mut self, a: Arrival, bytes: u64, gap: Duration, spacing: Duration) {
        if self.same_stamp && gap.is_zero() {
            return;
        }
        self.same_stamp = false;
        if gap > GAP_MAX || self.sum.began.is_some_and(|began| a.received.since(began) > GAP_MAX) {
            self.sum = Sum::default();
        }
        if gap > GAP_MAX {
            return;
        }
        let sum = &mut self.sum;
        sum.began.get_or_insert(a.received);
        sum.bytes = sum.bytes.saturating_add(bytes);
        sum.received += gap;
        sum.sent += spacing;
    }

    /// Records a gap for the upper bound of the rate, unless the sender caused it.
    fn show(&mut self, now: Time, bytes: u64, gap: Duration, spacing: Duration) {
        if gap > GAP_MAX || (!gap.is_zero() && is_as_sent(gap, spacing)) {
            self.rate_bound.burst_begins();
        } else {
            self.rate_bound.gap(now, bytes, gap);
        }
    }

    /// Returns the measurement once the gaps suffice.
    fn sum(&mut self, byte_time: Option<f64>, mtu: u64) -> Option<Sample> {
        let sum = &mut self.sum;
        let span = if byte_time.is_some() { SPAN } else { SPAN_FIRST };
        if sum.received < span || sum.bytes.saturating_mul(5) < mtu.saturating_mul(3) {
            return None;
        }
        let Sum { bytes, received, sent, .. } = std::mem::take(sum);
        let byte_time = received.as_nanos() as f64 / bytes as f64;
        Some(if is_as_sent(received, sent) { Sample::AtMost(byte_time) } else { Sample::Exact(byte_time) })
    }

    /// Measures a burst when the next one begins, if the link is much faster than the estimate. The gaps of such a
    /// burst are too short to fill a [`SPAN`], or zero because the receiver read all packets in one call. The burst
    /// took at most the time from the earliest possible arrival of its first packet to its last packet.
    fn burst(&mut self, p: Arrival, a: Arrival, is_packed: bool, byte_time: Option<f64>) -> Option<Sample> {
        if is_packed {
            self.burst.get_or_insert(Burst { first: p, last: a }).last = a;
            return None;
        }
        let (Burst { first, last }, known) = (self.burst.take()?, byte_time?);
        let gaps = last.received.since(first.received);
        let took = self.excess(first) + gaps + BURST_ERROR;
        let byte_time = took.as_nanos() as f64 / (last.total - first.total) as f64;
        (gaps < SPAN && byte_time * MUCH_FASTER < known).then_some(Sample::Exact(byte_time))
    }

    /// Measures the lower bound of the rate.
    fn window(&mut self, a: Arrival) -> Option<Sample> {
        let Some((start, packets)) = &mut self.window else {
            self.window = Some((a, 0));
            return None;
        };
        *packets += 1;
        let (took, bytes) = (a.received.since(start.received), a.total.saturating_sub(start.total));
        let is_full = took >= WINDOW && *packets >= WINDOW_PACKETS;
        if is_full || took > WINDOW_MAX {
            self.window = Some((a, 0));
        }
        (is_full && bytes > 0).then(|| Sample::AtMost(took.as_nanos() as f64 / bytes as f64))
    }
}

/// Whether the packets arrived as fast as they were sent: the sender may have been the bottleneck.
fn is_as_sent(received: Duration, sent: Duration) -> bool {
    received <= sent + sent / 4
}

/// Converts nanoseconds, clamped to the range of a duration.
fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals of packets of 1,000 bytes: (sent, received) in milliseconds.
    fn samples(byte_time: Option<f64>, packets: &[(u64, u64)]) -> Vec<Sample> {
        let mut d = Dispersal::default();
        let mut out = Vec::new();
        for (i, &(sent, received)) in packets.iter().enumerate() {
            let a = Arrival {
                sent: Time::from_millis(sent),
                received: Time::from_secs(1 << 20) + Duration::from_millis(received),
                total: 1000 * (i as u64 + 1),
            };
            let same_batch = packets.get(i + 1).is_some_and(|next| next.1 == received);
            let now = Time::from_millis(sent.max(received) + 50);
            out.extend(d.arrival(now, a, same_batch, byte_time, 1000).into_iter().flatten());
        }
        out
    }

    #[test]
    fn what_each_pattern_of_arrivals_tells() {
        use Sample::{AtMost, Exact};
        let known = Some(20_000.0); // 50 KB/s: a packet in 20 ms
        type Case<'a> = (&'a str, Option<f64>, &'a [(u64, u64)], &'a [Sample]);
        let cases: &[Case] = &[
            ("a pair", known, &[(0, 0), (0, 20)], &[Exact(20_000.0)]),
            ("a faster link shows in one pair", known, &[(0, 0), (0, 7)], &[Exact(7_000.0)]),
            ("far apart: nothing", known, &[(0, 0), (40, 40)], &[]),
            ("sent as fast as it came", known, &[(0, 0), (8, 8)], &[AtMost(8_000.0)]),
            ("out of a queue", known, &[(0, 0), (20, 90), (40, 110)], &[Exact(20_000.0)]),
            ("handed over together", known, &[(0, 0), (0, 0), (0, 20)], &[Exact(20_000.0)]),
            ("after a pause all at once", known, &[(0, 0), (0, 40), (0, 40), (0, 40), (0, 40)], &[Exact(10_000.0)]),
            ("an outage", known, &[(0, 0), (0, 5_000), (5_000, 5_050), (5_000, 5_070)], &[Exact(20_000.0)]),
            ("overtaken", known, &[(5, 0), (0, 20)], &[]),
            ("a burst at once", known, &[(0, 0), (0, 0), (100, 100)], &[Exact(500.0)]),
            ("a burst at once that had waited", known, &[(0, 0), (50, 80), (50, 80), (150, 150)], &[]),
            ("first train", None, &[(0, 0), (0, 1), (0, 2)], &[Exact(1_000.0), Exact(1_000.0)]),
        ];
        for (name, byte_time, packets, expected) in cases {
            assert_eq!(&samples(*byte_time, packets), expected, "{name}");
        }
    }

    #[test]
    fn sender_clock_that_stood_is_no_queue() {
        let mut d = Dispersal::default();
        let times = [(0, 5), (40, 45), (80, 39_085), (120, 39_125), (160, 39_165)];
        for ((sent, received), total) in times.into_iter().zip((1000..).step_by(1000)) {
            let a = Arrival { sent: Time::from_millis(sent), received: Time::from_millis(received), total };
            let samples = d.arrival(Time::from_millis(sent + 10), a, false, Some(20_000.0), 1000);
            assert_eq!((samples, d.standing()), ([None; 3], Duration::ZERO), "{sent} ms");
        }
    }

    #[test]
    fn a_steady_stream_bounds_the_rate_from_below() {
        let packets: Vec<(u64, u64)> = (0..12).map(|i| (i * 15, i * 15 + 3)).collect();
        // Too far apart for packet pairs at 100 KB/s.
        assert_eq!(samples(Some(10_000.0), &packets), [Sample::AtMost(15_000.0)]);
    }

    #[test]
    fn small_packets_measure_nothing() {
        for byte_time in [None, Some(20_000.0)] {
            let mut d = Dispersal::default();
            for i in 1..100 {
                let (sent, received) = (Time::from_micros(10 * i), Time::from_millis(5 * i));
                let a = Arrival { sent, received, total: 100 * i };
                let samples = d.arrival(received, a, false, byte_time, 1000);
                let measured = samples.into_iter().flatten().any(|s| matches!(s, Sample::Exact(_)));
                assert!(!measured, "{byte_time:?}");
            }
            d.conclude();
            assert_eq!(d.min_byte_time(), None, "{byte_time:?}");
        }
    }

    #[test]
    fn hostile_reports_do_no_harm() {
        let mut d = Dispersal::default();
        let of = |sent, received, total| Arrival { sent, received, total };
        for a in [
            of(Time::MAX, Time::ZERO, u64::MAX - 1),
            of(Time::ZERO, Time::MAX, u64::MAX),
            of(Time::ZERO, Time::ZERO, 0),
            of(Time::MAX, Time::MAX, u64::MAX),
        ] {
            d.arrival(Time::ZERO, a, false, Some(1e-300), 1000);
            d.arrival(Time::MAX, a, true, None, 1000);
        }
        d.standing();
    }
}
