//! Replay protection: message counters with unsent upper bits, each accepted once (RFC 4303, section 3.4.3 and
//! appendix A).

use remora_wire::link::SHORT_LATE_MAX;

/// Largest reordering accepted, in messages. The frames inside carry the low bytes of their numbers, so a later one
/// would be expanded wrongly.
pub(super) const WINDOW: u64 = SHORT_LATE_MAX + 1;

/// Bits of a counter that are sent: 8 million consecutive messages may be lost.
const LOW_BITS: u32 = 24;

/// The counters received: exact for the last [`WINDOW`], older ones count as received.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    /// One more than the highest counter received; 0 before the first.
    next: u64,
    /// Ring of bits: counter `c` has bit `c % WINDOW`.
    seen: u64,
}

impl Replay {
    /// The whole counter of a message with the lower [`LOW_BITS`] `low`: the one nearest to the next expected.
    pub(super) fn expand(&self, low: u32) -> u64 {
        const RANGE: u64 = 1 << LOW_BITS;
        let here = (self.next & !(RANGE - 1)) | (u64::from(low) & (RANGE - 1));
        if here > self.next && here - self.next > RANGE / 2 {
            // From before a wrap of the lower bits, which cannot be in the first round.
            here.checked_sub(RANGE).unwrap_or(here)
        } else if here < self.next && self.next - here > RANGE / 2 {
            here.checked_add(RANGE).unwrap_or(here)
        } else {
            here
        }
    }

    /// Whether `counter` is new. Does not authenticate the message.
    pub(super) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        self.next - counter <= WINDOW && self.seen & bit(counter) == 0
    }

    /// Records an authentic message; false if it was received before or is older than the window.
    pub(super) fn accept(&mut self, counter: u64) -> bool {
        if !self.is_new(counter) {
            return false;
        }
        if counter >= self.next {
            let skipped = (counter - self.next).min(WINDOW);
            // Clears the bits that now stand for newer counters.
            (0..skipped).for_each(|i| {
                let c = counter - 1 - i;
                self.seen &= !bit(c);
            });
            self.next = counter.saturating_add(1);
        }
        self.seen |= bit(counter);
        true
    }

    /// One more than the highest counter accepted.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether `counter` is higher than all accepted ones.
    pub(super) fn is_newest(&self, counter: u64) -> bool {
        counter >= self.next
    }
}

fn bit(counter: u64) -> u64 {
    1 << (counter % WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn counter_is_accepted_once() {
        let mut r = Replay::default();
        for (counter, new) in [
            (0, true),
            (0, false),
            (5, true),
            (3, true),
            (3, false),
            (5000, true),
            (5000 - WINDOW + 1, true),
            (5000 - WINDOW, false),
            (4, false),
            (5000 - WINDOW + 1, false),
        ] {
            assert_eq!(r.accept(counter), new, "{counter}");
        }
    }

    #[test]
    fn counter_upper_bits_are_restored() {
        const LOW: u32 = (1 << LOW_BITS) - 1;
        let low_max = u64::from(LOW);
        for (newest, low, whole) in [
            (None, 0, 0),
            (None, LOW, low_max),
            (Some(low_max), 0, low_max + 1),
            (Some(low_max + 5), LOW, low_max),
            (Some((7 << LOW_BITS) + 100), 90, (7 << LOW_BITS) + 90),
            (Some((7 << LOW_BITS) + 100), LOW - 3, (7 << LOW_BITS) - 4),
            (Some(u64::MAX - 1), LOW, u64::MAX),
        ] {
            let mut r = Replay::default();
            newest.map(|n| r.accept(n));
            assert_eq!(r.expand(low), whole, "{newest:?} {low}");
        }
    }

    proptest! {
        #[test]
        fn replay_window_agrees_with_set(steps in proptest::collection::vec((0u64..3000, any::<bool>()), 1..400), start in prop_oneof![Just(0u64), Just(u64::MAX / 2)]) {
            let mut replay = Replay::default();
            let (mut seen, mut newest) = (BTreeSet::new(), None::<u64>);
            for (step, ahead) in steps {
                let at = newest.unwrap_or(start);
                let counter = if ahead { at + step } else { at.saturating_sub(step) };
                let recent = newest.is_none_or(|n| counter > n || n - counter < WINDOW);
                prop_assert_eq!(replay.accept(counter), recent && seen.insert(counter));
                newest = newest.max(Some(counter));
                prop_assert_eq!(replay.expand(counter as u32), counter);
            }
        }
    }
}
