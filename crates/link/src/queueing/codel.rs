//! CoDel (RFC 8289, section 5): drops packets while the minimum sojourn time of an interval exceeds the target.

use std::time::Duration;

use remora_base::Time;

use crate::Packet;

/// Intervals within which a dropping state resumes at the drop rate of the previous one (RFC 8289, section 5.4).
const RECENT_INTERVALS: u32 = 16;

/// Parameters at one point in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodelParams {
    /// Acceptable standing sojourn time.
    pub(crate) target: Duration,
    /// The same for senders that do not react to drops.
    pub(crate) target_unresponsive: Duration,
    /// How long the sojourn time may exceed the target.
    pub(crate) interval: Duration,
    /// Airtime of a full frame at the destination's share of the link.
    pub(crate) frame: Duration,
    /// Bytes of a full frame: a queue of no more is not dropped from.
    pub(crate) frame_bytes: usize,
    /// Shortest lifetime of a packet.
    pub(crate) lifetime_min: Duration,
}

/// The state of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CodelState {
    /// When the sojourn time will have exceeded the target for an interval, if it exceeds it now.
    above_until: Option<Time>,
    dropping: Option<DroppingState>,
    /// The time of the next drop and the number of drops at the end of the last dropping state.
    last: Option<(Time, u32)>,
}

/// The dropping state.
#[derive(Clone, Copy, Debug)]
struct DroppingState {
    next: Time,
    count: u32,
    /// The count at its beginning.
    began_at: u32,
}

impl CodelState {
    /// Decides on the packet `head` at the head of the queue, with sojourn time `wait` and `behind` bytes after it. If
    /// true, the caller drops it and asks about the next one.
    pub(crate) fn drops(
        &mut self,
        now: Time,
        wait: Duration,
        behind: usize,
        head: &Packet,
        params: &CodelParams,
    ) -> bool {
        let too_long = self.is_too_long(now, wait, behind, head, params);
        match &mut self.dropping {
            Some(dropping) if !too_long => {
                self.last = Some((dropping.next, dropping.count - dropping.began_at.min(dropping.count)));
                self.dropping = None;
                false
            }
            Some(dropping) if now >= dropping.next => {
                dropping.count = dropping.count.saturating_add(1);
                dropping.next += gap(params.interval, dropping.count);
                true
            }
            Some(_) => false,
            None if too_long => {
                let recent = |at: Time| now.since(at) < params.interval * RECENT_INTERVALS;
                let count = match self.last {
                    Some((at, drops)) if drops > 1 && recent(at) => drops,
                    _ => 1,
                };
                self.dropping = Some(DroppingState { next: now + gap(params.interval, count), count, began_at: count });
                true
            }
            None => false,
        }
    }

    /// Handles an empty queue.
    pub(crate) fn empty(&mut self) {
        self.above_until = None;
        if let Some(dropping) = self.dropping.take() {
            self.last = Some((dropping.next, dropping.count - dropping.began_at.min(dropping.count)));
        }
    }

    fn is_too_long(&mut self, now: Time, wait: Duration, behind: usize, head: &Packet, params: &CodelParams) -> bool {
        let target = if head.responsive { params.target } else { params.target_unresponsive };
        // A packet of several frames makes the others wait longer.
        let more = u32::try_from(head.bytes.len() / params.frame_bytes.max(1)).unwrap_or(u32::MAX);
        if wait < target + params.frame.saturating_mul(more) || behind <= params.frame_bytes.max(head.bytes.len()) {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + params.interval)
    }
}

/// The control law: the drop interval shrinks with the square root of the number of drops.
fn gap(interval: Duration, count: u32) -> Duration {
    interval.div_f64(f64::from(count.max(1)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use bytes::Bytes;

    const PARAMS: CodelParams = CodelParams {
        target: Duration::from_millis(20),
        target_unresponsive: Duration::from_millis(500),
        interval: Duration::from_millis(100),
        frame: Duration::from_millis(12),
        frame_bytes: 1500,
        lifetime_min: Duration::ZERO,
    };

    fn packet(responsive: bool) -> Packet {
        Packet { flow: 1, class: Class::Default, responsive, bytes: Bytes::from_static(&[0; 100]) }
    }

    /// Times in milliseconds of the drops in a queue with a packet every 10 ms and a sojourn time of `wait` ms.
    fn drops(codel: &mut CodelState, from: u64, to: u64, wait: u64, behind: usize) -> Vec<u64> {
        let times = (from..to).step_by(10);
        times
            .filter(|t| codel.drops(Time::from_millis(*t), Duration::from_millis(wait), behind, &packet(true), &PARAMS))
            .collect()
    }

    #[test]
    fn standing_queue_drop_rate_increases() {
        // The first drop comes after 100 ms above the target, the next ones 100, 100/sqrt(2), 100/sqrt(3) ms, ...
        // later.
        assert_eq!(drops(&mut CodelState::default(), 0, 500, 30, 9000), [100, 200, 280, 330, 380, 430, 470]);
    }

    #[test]
    fn short_sojourn_or_short_queue_has_no_drops() {
        assert_eq!(drops(&mut CodelState::default(), 0, 1000, 19, 9000), []);
        assert_eq!(drops(&mut CodelState::default(), 0, 1000, 500, 1500), []);
    }

    #[test]
    fn unresponsive_flow_has_longer_bounded_target() {
        let drops = |wait: u64| {
            let mut codel = CodelState::default();
            let at = |t: u64| Time::from_millis(t * 10);
            (0..100).filter(|t| codel.drops(at(*t), Duration::from_millis(wait), 9000, &packet(false), &PARAMS)).count()
        };
        assert_eq!((drops(499), drops(501) > 10), (0, true));
    }

    #[test]
    fn recent_dropping_state_resumes_drop_rate() {
        let mut codel = CodelState::default();
        assert_eq!(drops(&mut codel, 0, 500, 30, 9000).len(), 7);
        assert_eq!(drops(&mut codel, 500, 600, 5, 9000), []);
        assert_eq!(drops(&mut codel, 600, 800, 30, 9000), [700, 750, 780]);
    }
}
