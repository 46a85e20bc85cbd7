//! CoDel: drops when the shortest wait over an interval is too long (RFC 8289, section 5).

use std::time::Duration;

use remora_base::Time;

use crate::Packet;

/// How spells of dropping within this many intervals of each other go on rather than begin
/// anew (RFC 8289, section 5.4).
const RECENT_INTERVALS: u32 = 16;

/// What it is to keep to at this moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    /// The wait that may stand.
    pub(crate) target: Duration,
    /// The same where the sender does not take a drop as a sign to send less.
    pub(crate) target_unresponsive: Duration,
    /// How long a longer one may stand.
    pub(crate) interval: Duration,
    /// What a full frame takes at the destination's share of the link.
    pub(crate) frame: Duration,
    /// The bytes it carries, at most: a queue of no more is left alone.
    pub(crate) frame_bytes: usize,
    /// No packet is too old before this.
    pub(crate) lifetime_min: Duration,
}

/// The state of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codel {
    /// When the wait will have been too long for an interval, if it is too long now.
    above_until: Option<Time>,
    spell: Option<Spell>,
    /// The last spell's end: when it would have dropped next, after how many.
    last: Option<(Time, u32)>,
}

/// A spell of dropping.
#[derive(Clone, Copy, Debug)]
struct Spell {
    next: Time,
    count: u32,
    /// The count it began with.
    began_at: u32,
}

impl Codel {
    /// Judges the packet `head` at the head of the queue: it has waited `wait`, and `behind` bytes
    /// wait after it. True: drop it and ask again with the next one.
    pub(crate) fn drops(&mut self, now: Time, wait: Duration, behind: usize, head: &Packet, aim: &Aim) -> bool {
        let too_long = self.is_too_long(now, wait, behind, head, aim);
        match &mut self.spell {
            Some(spell) if !too_long => {
                self.last = Some((spell.next, spell.count - spell.began_at.min(spell.count)));
                self.spell = None;
                false
            }
            Some(spell) if now >= spell.next => {
                spell.count = spell.count.saturating_add(1);
                spell.next += gap(aim.interval, spell.count);
                true
            }
            Some(_) => false,
            None if too_long => {
                let recent = |at: Time| now.since(at) < aim.interval * RECENT_INTERVALS;
                let count = match self.last {
                    Some((at, drops)) if drops > 1 && recent(at) => drops,
                    _ => 1,
                };
                self.spell = Some(Spell { next: now + gap(aim.interval, count), count, began_at: count });
                true
            }
            None => false,
        }
    }

    /// The queue has run empty.
    pub(crate) fn empty(&mut self) {
        self.above_until = None;
        if let Some(spell) = self.spell.take() {
            self.last = Some((spell.next, spell.count - spell.began_at.min(spell.count)));
        }
    }

    fn is_too_long(&mut self, now: Time, wait: Duration, behind: usize, head: &Packet, aim: &Aim) -> bool {
        let target = if head.responsive { aim.target } else { aim.target_unresponsive };
        // Packets of several frames may wait for one another as many as those of one.
        let more = u32::try_from(head.bytes.len() / aim.frame_bytes.max(1)).unwrap_or(u32::MAX);
        if wait < target + aim.frame.saturating_mul(more) || behind <= aim.frame_bytes.max(head.bytes.len()) {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + aim.interval)
    }
}

/// The control law: drops come closer together with the square root of their number.
fn gap(interval: Duration, count: u32) -> Duration {
    interval.div_f64(f64::from(count.max(1)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use bytes::Bytes;

    const AIM: Aim = Aim {
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

    /// Milliseconds of the drops in a queue whose packets, one each 10 ms, wait `wait` ms.
    fn drops(codel: &mut Codel, from: u64, to: u64, wait: u64, behind: usize) -> Vec<u64> {
        let times = (from..to).step_by(10);
        times
            .filter(|t| codel.drops(Time::from_millis(*t), Duration::from_millis(wait), behind, &packet(true), &AIM))
            .collect()
    }

    #[test]
    fn a_standing_queue_is_dropped_from_ever_faster() {
        // 100 ms after it began to stand; then 100, 100/sqrt(2), 100/sqrt(3) ms, ... later.
        assert_eq!(drops(&mut Codel::default(), 0, 500, 30, 9000), [100, 200, 280, 330, 380, 430, 470]);
    }

    #[test]
    fn short_waits_and_short_queues_are_left_alone() {
        assert_eq!(drops(&mut Codel::default(), 0, 1000, 19, 9000), []);
        assert_eq!(drops(&mut Codel::default(), 0, 1000, 500, 1500), []);
    }

    #[test]
    fn who_does_not_listen_may_wait_longer_but_not_without_end() {
        let drops = |wait: u64| {
            let mut codel = Codel::default();
            let at = |t: u64| Time::from_millis(t * 10);
            (0..100).filter(|t| codel.drops(at(*t), Duration::from_millis(wait), 9000, &packet(false), &AIM)).count()
        };
        assert_eq!((drops(499), drops(501) > 10), (0, true));
    }

    #[test]
    fn a_spell_soon_after_another_goes_on_where_that_ended() {
        let mut codel = Codel::default();
        assert_eq!(drops(&mut codel, 0, 500, 30, 9000).len(), 7);
        assert_eq!(drops(&mut codel, 500, 600, 5, 9000), []);
        assert_eq!(drops(&mut codel, 600, 800, 30, 9000), [700, 750, 780]);
    }
}
