//! Policy `paper`: ATP 02, section 3.3 (deadline safety) and section 3.2 (send intervals).

use std::time::Duration;

use remora_base::Time;

use crate::object::RequestId;

/// An object in sending order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanStep {
    pub(super) request: RequestId,
    pub(super) deadline: Option<Time>,
    pub(super) left: u64,
}

/// Result of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Scan {
    /// Objects that would miss their deadlines at the estimated bandwidth, and the bandwidth that each needs, in bytes
    /// per second.
    pub(super) unsafe_: Vec<(RequestId, u64)>,
    /// The greatest bandwidth that a safe object needs, in bytes per second.
    pub(super) needed_max: u64,
}

/// Bytes per second that deliver `bytes` by `deadline`, rounded up.
pub(super) fn needed(now: Time, deadline: Time, bytes: u64) -> u64 {
    let ns = deadline.since(now).as_nanos().max(1);
    u64::try_from((u128::from(bytes) * 1_000_000_000).div_ceil(ns)).unwrap_or(u64::MAX)
}

/// Scans objects in sending order. Each needs the bytes left up to and including itself, in the time left. An
/// object that needs more than `curbw` (bytes per second) is unsafe and does not count for those behind it.
pub(super) fn scan(now: Time, curbw: u64, order: impl Iterator<Item = ScanStep>) -> Scan {
    let mut found = Scan::default();
    let mut sum = 0u64;
    for step in order {
        let with = sum.saturating_add(step.left);
        let need = step.deadline.map_or(0, |at| needed(now, at, with));
        if need > curbw {
            found.unsafe_.push((step.request, need));
        } else {
            sum = with;
            found.needed_max = found.needed_max.max(need);
        }
    }
    found
}

/// Packet budget: `available` divided by the MTU, in intervals of 50 ms.
///
/// The remainder of an interval expires, except for a fraction of a packet.
#[derive(Debug, Default)]
pub(super) struct SendInterval {
    index: Option<u64>,
    credit: u64,
}

/// Length of an interval (section 3.2).
const SEND_INTERVAL: Duration = Duration::from_millis(50);
const INTERVAL_NS: u64 = SEND_INTERVAL.as_nanos() as u64;
const INTERVALS_A_SECOND: u64 = 20;

impl SendInterval {
    /// Whether a packet of at most `mtu` bytes may be sent in the interval of `now`, at `available` bytes per
    /// second.
    pub(super) fn open(&mut self, now: Time, available: u64, mtu: u64) -> bool {
        let index = now.as_nanos() / INTERVAL_NS;
        let share = available / INTERVALS_A_SECOND;
        match self.index {
            Some(last) if last == index => {}
            // Fractions accumulate over the intervals, up to one packet.
            Some(last) => {
                let idle = share.saturating_mul(index.saturating_sub(last) - 1);
                self.credit = (self.credit.saturating_add(idle)).min(mtu - 1).saturating_add(share);
            }
            None => self.credit = share.max(mtu),
        }
        self.index = Some(index);
        self.credit >= mtu
    }

    /// Records a packet. Each counts as a full one.
    pub(super) fn sent(&mut self, mtu: u64) {
        self.credit = self.credit.saturating_sub(mtu);
    }

    /// Start of the next interval; `None` while this one has budget left.
    pub(super) fn next(&self, mtu: u64) -> Option<Time> {
        let index = self.index.filter(|_| self.credit < mtu)?;
        Some(Time::from_nanos(index.saturating_add(1).saturating_mul(INTERVAL_NS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: u64, deadline_ms: u64, left: u64) -> ScanStep {
        let deadline = (deadline_ms > 0).then(|| Time::from_millis(deadline_ms));
        ScanStep { request: RequestId(id), deadline, left }
    }

    /// Figure 5: a large object needs 16 KB/s, and the small ones before it 4 KB/s more.
    #[test]
    fn figure_5() {
        let now = Time::from_millis(144_564);
        let cases: &[(&str, u64, &[ScanStep], &[u64])] = &[
            // At 144.564 s, two small objects (8 KB) and the rest of the first large one precede the new one: more
            // than 20,682 B/s.
            (
                "305 rejected",
                20_682,
                &[step(306, 145_564, 4096), step(288, 153_064, 120_000), step(305, 160_564, 262_144)],
                &[305],
            ),
            ("288 alone is safe at 20,682 B/s", 20_682, &[step(306, 145_564, 4096), step(288, 153_064, 120_000)], &[]),
            ("288 goes at 14,181 B/s", 14_181, &[step(306, 145_564, 4096), step(288, 153_064, 120_000)], &[288]),
            (
                "a small one that cannot make it does not count for the others",
                20_682,
                &[step(1, 144_600, 4096), step(2, 145_564, 20_000)],
                &[1],
            ),
            ("no deadline, always safe, but in the way", 20_682, &[step(1, 0, 4_000_000), step(2, 150_000, 64)], &[2]),
        ];
        for (name, curbw, order, gone) in cases {
            let found = scan(now, *curbw, order.iter().copied());
            let ids: Vec<u64> = found.unsafe_.iter().map(|(id, _)| id.0).collect();
            assert_eq!(ids, *gone, "{name}");
            assert!(found.needed_max <= *curbw, "{name}");
        }
    }

    #[test]
    fn an_interval_has_a_twentieth_of_a_second() {
        let mut interval = SendInterval::default();
        let mut sent = 0;
        for ms in 0..10_000 {
            // Each millisecond as many packets as allowed.
            while interval.open(Time::from_millis(ms), 50_000, 1500) {
                interval.sent(1500);
                sent += 1;
                assert!(sent < 1000);
            }
            assert_eq!(interval.next(1500), Some(Time::from_millis(ms / 50 * 50 + 50)));
        }
        let expected = 10 * 50_000 / 1500;
        assert!((expected - 1..=expected + 1).contains(&sent), "{sent}");
        // On a slow link a packet is allowed when the fractions have accumulated.
        let mut slow = SendInterval::default();
        let times: Vec<u64> = (0..4000)
            .filter(|ms| {
                slow.open(Time::from_millis(*ms), 1500, 1500) && {
                    slow.sent(1500);
                    true
                }
            })
            .collect();
        assert_eq!(times.len(), 4, "{times:?}");
    }
}
