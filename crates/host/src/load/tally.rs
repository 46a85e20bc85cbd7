//! Counters that `remora load recv` keeps of one run: the packets that one sender sends with one run number.

use std::time::Duration;

use remora_base::Time;

/// Numbers remembered to detect duplicates. A later packet counts as new.
const WINDOW: u64 = 4096;

/// Counters of one run at its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carried {
    /// Packets received, without duplicates.
    pub packets: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Packets lost, of those sent if the sender has said, else up to the highest number.
    pub lost: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets received after a higher number (RFC 4737).
    pub reordered: u64,
    /// Smoothed interarrival jitter (RFC 3550, section 6.4.1).
    pub jitter: Duration,
    /// Time from the first arrival to the last.
    pub span: Duration,
}

/// State of one run.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// For each of the last [`WINDOW`] numbers, modulo it, whether it was received.
    seen: Vec<bool>,
    /// The highest number plus one.
    next: u64,
    /// Number of packets sent, as the sender reported.
    sent: Option<u64>,
    packets: u64,
    bytes: u64,
    duplicates: u64,
    reordered: u64,
    jitter_ns: f64,
    /// Arrival minus departure of the last packet, by two clocks, in nanoseconds.
    transit_ns: Option<i128>,
    first: Option<Time>,
    last: Time,
    /// Time of the last datagram of the run.
    heard: Time,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            seen: vec![false; WINDOW as usize],
            next: 0,
            sent: None,
            packets: 0,
            bytes: 0,
            duplicates: 0,
            reordered: 0,
            jitter_ns: 0.0,
            transit_ns: None,
            first: None,
            last: Time::ZERO,
            heard: Time::ZERO,
        }
    }

    /// Time of the last datagram of the run.
    pub(super) fn heard(&self) -> Time {
        self.heard
    }

    pub(super) fn take(&mut self, now: Time, number: u64, sent: Duration, bytes: usize) {
        self.last = self.last.max(now);
        self.heard = self.heard.max(now);
        if !self.is_new(number) {
            self.duplicates += 1;
            return;
        }
        self.first.get_or_insert(now);
        self.packets += 1;
        self.bytes += bytes as u64;
        let transit = i128::from(now.as_nanos()) - i128::try_from(sent.as_nanos()).unwrap_or(i128::MAX);
        if let Some(before) = self.transit_ns.replace(transit) {
            self.jitter_ns += ((transit - before).unsigned_abs() as f64 - self.jitter_ns) / 16.0;
        }
    }

    /// Records the number of packets sent.
    pub(super) fn end(&mut self, now: Time, sent: u64) {
        self.heard = self.heard.max(now);
        self.sent = Some(sent);
    }

    /// Marks a number as received; returns whether it was new.
    fn is_new(&mut self, number: u64) -> bool {
        if number >= self.next {
            // Skipped numbers are not received.
            let skipped = self.next.max(number.saturating_sub(WINDOW - 1))..number;
            skipped.for_each(|n| self.seen[(n % WINDOW) as usize] = false);
            self.next = number.saturating_add(1);
            self.seen[(number % WINDOW) as usize] = true;
            return true;
        }
        let known = self.next - number <= WINDOW;
        let seen = known && std::mem::replace(&mut self.seen[(number % WINDOW) as usize], true);
        self.reordered += u64::from(!seen);
        !seen
    }

    pub(super) fn carried(&self) -> Carried {
        Carried {
            packets: self.packets,
            bytes: self.bytes,
            lost: self.sent.unwrap_or(self.next).max(self.next).saturating_sub(self.packets),
            duplicates: self.duplicates,
            reordered: self.reordered,
            jitter: Duration::from_nanos(self.jitter_ns as u64),
            span: self.first.map_or(Duration::ZERO, |first| self.last.since(first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn tally(numbers: &[u64]) -> Tally {
        let mut tally = Tally::new();
        for (i, number) in numbers.iter().enumerate() {
            tally.take(Time::from_millis(i as u64), *number, Duration::from_millis(i as u64), 100);
        }
        tally
    }

    #[test]
    fn losses_duplicates_and_reordering_are_distinguished() {
        for (numbers, sent, [packets, lost, duplicates, reordered]) in [
            (&[][..], None, [0, 0, 0, 0]),
            (&[0, 1, 2], None, [3, 0, 0, 0]),
            (&[0, 1, 2], Some(5), [3, 2, 0, 0]),
            (&[0, 2, 3], None, [3, 1, 0, 0]),
            (&[0, 2, 1, 3], None, [4, 0, 0, 1]),
            (&[0, 1, 1, 1], None, [2, 0, 2, 0]),
            (&[5], None, [1, 5, 0, 0]),
            (&[0, 10_000, 1, 9_999, 9_999], None, [4, 9_997, 1, 2]),
        ] {
            let mut tally = tally(numbers);
            if let Some(sent) = sent {
                tally.end(Time::from_secs(1), sent);
            }
            let c = tally.carried();
            assert_eq!(
                [c.packets, c.lost, c.duplicates, c.reordered],
                [packets, lost, duplicates, reordered],
                "{numbers:?}"
            );
            assert_eq!(c.bytes, packets * 100);
        }
    }

    #[test]
    fn jitter_is_the_variation_of_the_time_on_the_way() {
        let run = |transit_ms: &[u64]| {
            let mut tally = Tally::new();
            for (i, transit) in transit_ms.iter().enumerate() {
                let sent = Duration::from_millis(10 * i as u64);
                tally.take(Time::ZERO + sent + Duration::from_millis(*transit), i as u64, sent, 100);
            }
            tally.carried()
        };
        assert_eq!(run(&[5; 50]).jitter, Duration::ZERO);
        assert_eq!(run(&[5, 21]).jitter, Duration::from_millis(1));
        let swaying: Vec<u64> = (0..200).map(|i| 5 + i % 2).collect();
        let jitter = run(&swaying).jitter;
        assert!((990..=1000).contains(&jitter.as_micros()), "{jitter:?}");
        assert_eq!(run(&[5; 50]).span, Duration::from_millis(490));
    }

    #[test]
    fn question_counts_as_no_arrival() {
        let mut tally = tally(&[0, 1, 2]);
        tally.end(Time::from_secs(7), 3);
        assert_eq!((tally.carried().span, tally.heard()), (Duration::from_millis(2), Time::from_secs(7)));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_set(numbers in prop::collection::vec(0u64..2000, 0..600), end in any::<bool>()) {
            let mut tally = tally(&numbers);
            let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
            if end {
                tally.end(Time::from_secs(9), 2000);
            }
            let c = tally.carried();
            let sent = if end { 2000 } else { numbers.iter().max().map_or(0, |n| n + 1) };
            prop_assert_eq!(c.packets, distinct.len() as u64);
            prop_assert_eq!(c.duplicates, (numbers.len() - distinct.len()) as u64);
            prop_assert_eq!(c.lost, sent - c.packets);
        }

        #[test]
        fn hostile_numbers_do_no_harm(numbers in prop::collection::vec(any::<u64>(), 0..20), ns in any::<u64>()) {
            let mut tally = Tally::new();
            for number in numbers {
                tally.take(Time::from_nanos(ns), number, Duration::from_nanos(!ns), 10);
            }
            tally.carried();
        }
    }
}
