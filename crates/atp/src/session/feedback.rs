//! Where the estimator's samples come from: the sender stamps every packet of objects and
//! remembers when it left ([`Ledger`]); the receiver notes when it came and reports that
//! ([`Collector`]).
//!
//! Reports must not flood a slow way back. One leaves for every second packet, as QUIC's
//! acknowledgements do, so that it carries one of those, too; at most every 10 ms; with up to
//! 80 arrivals at 8 bytes each; and not while the last one still waits in QUIC's queue.
//! Arrivals that find the collector full are thinned out, which costs samples and no bytes: the
//! byte counts in a report are cumulative.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use super::frame::{REPORT_MAX, Seen};
use crate::RequestId;

/// How long a lone arrival waits for company: as long as QUIC waits with an acknowledgement
/// (max_ack_delay, RFC 9000, section 18.2), so that both leave in one packet.
const PATIENCE: Duration = Duration::from_millis(25);
/// The time from one report to the next, at least.
const PERIOD: Duration = Duration::from_millis(10);
/// Packets a sender remembers; more than are ever in flight at 100 Mbit/s and 800 ms. Must stay
/// below half of the 16 bits a stamp has.
const LEDGER_MAX: usize = 8192;

/// The objects' bytes in one packet: whose, and how many.
pub(super) type Share = (RequestId, u64);

/// When a packet left and what was in it; `None` once it is known to have arrived.
type Slot = Option<(Time, Option<Share>)>;

/// What a sender remembers of the packets it stamped.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Number of the oldest remembered.
    first: u64,
    packets: VecDeque<Slot>,
}

impl Ledger {
    /// A stamp for the packet that leaves `now`.
    pub(super) fn stamp(&mut self, now: Time, share: Option<Share>) -> u16 {
        if self.packets.len() == LEDGER_MAX {
            self.packets.pop_front();
            self.first += 1;
        }
        let number = self.first + self.packets.len() as u64;
        self.packets.push_back(Some((now, share)));
        number as u16 // the low 16 bits are what travels
    }

    /// The packet with that stamp left only `now`, later than was thought.
    pub(super) fn left(&mut self, number: u16, now: Time) {
        if let Some(Some((sent, _))) = self.slot(number) {
            *sent = now;
        }
    }

    /// The packet with that stamp arrived: when it left and what was in it. `None` if it is not
    /// remembered, or was taken already.
    pub(super) fn take(&mut self, number: u16) -> Option<(Time, Option<Share>)> {
        let taken = self.slot(number)?.take();
        while let Some(None) = self.packets.front() {
            self.packets.pop_front();
            self.first += 1;
        }
        taken
    }

    fn slot(&mut self, number: u16) -> Option<&mut Slot> {
        let newest = (self.first + self.packets.len() as u64).checked_sub(1)?;
        let age = (newest as u16).wrapping_sub(number);
        let index = newest.checked_sub(age.into())?.checked_sub(self.first)?;
        self.packets.get_mut(usize::try_from(index).ok()?)
    }
}

/// What a receiver has to report.
#[derive(Debug, Default)]
pub(super) struct Collector {
    total: u64,
    seen: Vec<Seen>,
    due: Option<Time>,
    /// When the last report was made.
    last: Option<Time>,
}

impl Collector {
    /// `bytes` came in one datagram, the headers below QUIC included.
    pub(super) fn received(&mut self, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
    }

    /// The datagram just received had this stamp; a probe's is reported at once.
    pub(super) fn stamped(&mut self, now: Time, number: u16, at_once: bool) {
        if self.seen.len() == REPORT_MAX {
            // The way back is slow or blocked: keep every second.
            let mut keep = false;
            self.seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.seen.push(Seen { number, at: now, total: self.total });
        let due = match self.seen.len() {
            _ if at_once => now,
            1 => now + PATIENCE,
            REPORT_MAX => now,
            _ => self.last.map_or(now, |last| now.max(last + PERIOD)),
        };
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// When a report is due; `None` for never.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// The last report still waits for its turn: ask again later.
    pub(super) fn postpone(&mut self, now: Time) {
        self.due = Some(now + PERIOD);
    }

    /// The report, if it is due by `now`.
    pub(super) fn report(&mut self, now: Time) -> Option<Vec<Seen>> {
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
        let mut ledger = Ledger::default();
        let mut last = 0;
        for i in 0..70_000u64 {
            last = ledger.stamp(Time::from_micros(i), Some((RequestId(i), 1)));
        }
        assert_eq!(last, (69_999 % 65_536) as u16);
        assert_eq!(ledger.take(last), Some((Time::from_micros(69_999), Some((RequestId(69_999), 1)))));
        assert_eq!(ledger.take(last), None, "once only");
        assert_eq!(ledger.take(last.wrapping_sub(LEDGER_MAX as u16)), None, "forgotten");
        assert_eq!(ledger.take(last.wrapping_add(1)), None, "not sent yet");
        let oldest = last.wrapping_sub(LEDGER_MAX as u16 - 1);
        assert!(ledger.take(oldest).is_some());
        assert_eq!(Ledger::default().take(0), None);
    }

    #[test]
    fn arrivals_wait_for_company_and_probes_do_not() {
        let mut c = Collector::default();
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
        assert_eq!(c.report(Time::from_millis(13)).unwrap().len(), 3);
    }

    #[test]
    fn a_full_collector_thins_out_and_keeps_the_last() {
        let mut c = Collector::default();
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
