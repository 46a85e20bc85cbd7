//! The way out. What was held for an earlier packet is not let go all at once: who measures the
//! path by the spacing of arrivals (packet trains, BBR, Remora's own client) would take the hop
//! for one much faster than it is, and flood it. Held packets leave with the spacing with which
//! they came, shortened by a third, until they have caught up.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{PREV_MAX, WINDOW_MAX};

/// What is before a packet in its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// Nothing of late: of the last [`PREV_MAX`] chunks none.
    Nothing,
    /// The packet whose last chunk this is.
    Chunk(u64),
    /// One that never came, so that nobody knows what was before that.
    Unknown,
}

/// A packet that is complete and in its place.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    /// When its last chunk came.
    pub(crate) came: Time,
    /// What is before it.
    pub(crate) before: Before,
    /// Its own last chunk.
    pub(crate) last: u64,
    /// The packet.
    pub(crate) bytes: Bytes,
}

/// Packets on their way out; those that go later are at most a window full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outlet {
    /// Those that go now.
    ready: VecDeque<Bytes>,
    /// Those that go later: when, and which chunk is their last.
    waiting: VecDeque<(Time, u64, Bytes)>,
    /// The last chunks of those that go later.
    lasts: BTreeSet<u64>,
    /// When the latest packet came, and when it leaves.
    latest: (Time, Time),
}

impl Outlet {
    /// Takes a packet; `most` is the longest time there may be between it and the one before it.
    pub(crate) fn push(&mut self, now: Time, packet: Released, most: Duration) {
        let Released { came, before, last, bytes } = packet;
        let follows = match before {
            Before::Nothing => self.lasts.first().is_some_and(|first| first + PREV_MAX < last),
            Before::Chunk(chunk) => self.lasts.contains(&chunk),
            Before::Unknown => !self.lasts.is_empty(),
        };
        if came >= now && !follows {
            // Nobody's order is at stake.
            if self.waiting.is_empty() {
                self.latest = (came, now);
            }
            return self.ready.push_back(bytes);
        }
        let (earlier, left) = self.latest;
        let due = now.max(left + came.since(earlier).min(most) * 2 / 3);
        self.latest = (came, due);
        self.lasts.insert(last);
        self.waiting.push_back((due, last, bytes));
        if self.waiting.len() as u64 > WINDOW_MAX {
            self.open();
        }
    }

    /// The next packet that leaves by `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Bytes> {
        self.ready.pop_front().or_else(|| {
            self.next_at().filter(|due| *due <= now)?;
            let (_, last, bytes) = self.waiting.pop_front()?;
            self.lasts.remove(&last);
            Some(bytes)
        })
    }

    /// When the next packet leaves that does not leave at once.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.waiting.front().map(|(due, ..)| *due)
    }

    /// Lets everything go at once.
    pub(crate) fn open(&mut self) {
        self.lasts.clear();
        self.ready.extend(self.waiting.drain(..).map(|(.., bytes)| bytes));
    }

    /// Packets that go later.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// When packets leave that came at these times (ms), each after the one before it in its flow,
    /// where the first comes last, at `filled`.
    fn leave(came: &[u64], filled: u64) -> Vec<u64> {
        let mut outlet = Outlet::default();
        let now = Time::from_millis(filled);
        for (i, came) in [filled].iter().chain(came).enumerate() {
            let (last, before) = (10 + i as u64, Before::Chunk(9 + i as u64));
            let packet = Released { came: Time::from_millis(*came), before, last, bytes: Bytes::new() };
            outlet.push(now, packet, MS(12));
        }
        (filled..filled + 1000)
            .flat_map(|t| std::iter::from_fn(|| outlet.pop(Time::from_millis(t))).map(|_| t).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn what_was_held_leaves_as_it_came_but_faster() {
        assert_eq!(leave(&[], 100), [100]);
        assert_eq!(leave(&[40, 52, 64, 76], 100), [100, 100, 108, 116, 124]);
        assert_eq!(leave(&[10, 90], 100), [100, 100, 108], "a long silence is not repeated");
        assert_eq!(leave(&[90, 90, 90], 100), [100; 4], "nor is a train made longer");
    }

    #[test]
    fn others_do_not_wait_and_order_is_kept() {
        let mut outlet = Outlet::default();
        let at = Time::from_millis;
        let mut push = |now: u64, came: u64, before: Before, last: u64| {
            let bytes = Bytes::from(vec![last as u8]);
            outlet.push(at(now), Released { came: at(came), before, last, bytes }, MS(12));
        };
        push(100, 100, Before::Nothing, 1);
        push(100, 40, Before::Chunk(1), 2);
        push(100, 52, Before::Chunk(2), 3);
        push(101, 101, Before::Chunk(3), 4);
        push(101, 101, Before::Nothing, 5);
        push(101, 101, Before::Unknown, 6);
        let order: Vec<u8> = std::iter::from_fn(|| outlet.pop(at(101))).map(|b| b[0]).collect();
        assert_eq!((order, outlet.next_at()), (vec![1, 5, 2], Some(at(108))));
        let order: Vec<u8> = std::iter::from_fn(|| outlet.pop(at(120))).map(|b| b[0]).collect();
        assert_eq!((order, outlet.waiting()), (vec![3, 4, 6], 0));
    }
}
