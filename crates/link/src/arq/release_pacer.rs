//! Spaces released packets. Without it, a filled gap would release all held packets at once. Receivers that measure
//! the path by the spacing of arrivals (packet trains, BBR, Remora's client) would overestimate the bandwidth and
//! flood the hop. Held packets leave at two thirds of their arrival spacing until they have caught up.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{PREV_MAX, WINDOW_MAX};

/// The predecessor of a packet in its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Predecessor {
    /// None among the last [`PREV_MAX`] chunks.
    Nothing,
    /// The packet whose last chunk this is.
    Chunk(u64),
    /// A packet that never arrived, so its own predecessor is unknown.
    Unknown,
}

/// A complete packet in flow order.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    /// Arrival time of its last chunk.
    pub(crate) came: Time,
    pub(crate) before: Predecessor,
    /// The number of its last chunk.
    pub(crate) last: u64,
    pub(crate) bytes: Bytes,
}

/// Queue of released packets. At most [`WINDOW_MAX`] of them are delayed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReleasePacer {
    /// Packets that leave immediately.
    ready: VecDeque<Bytes>,
    /// Delayed packets: departure time and last chunk.
    waiting: VecDeque<(Time, u64, Bytes)>,
    /// The last chunks of the delayed packets.
    lasts: BTreeSet<u64>,
    /// Arrival and departure time of the latest packet.
    latest: (Time, Time),
}

impl ReleasePacer {
    /// Adds a packet. `most` limits the spacing between it and the previous one.
    pub(crate) fn push(&mut self, now: Time, packet: Released, most: Duration) {
        let Released { came, before, last, bytes } = packet;
        let follows = match before {
            Predecessor::Nothing => self.lasts.first().is_some_and(|first| first + PREV_MAX < last),
            Predecessor::Chunk(chunk) => self.lasts.contains(&chunk),
            Predecessor::Unknown => !self.lasts.is_empty(),
        };
        if came >= now && !follows {
            // No delayed packet of its flow precedes it.
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

    /// The next packet due at `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Bytes> {
        self.ready.pop_front().or_else(|| {
            self.next_at().filter(|due| *due <= now)?;
            let (_, last, bytes) = self.waiting.pop_front()?;
            self.lasts.remove(&last);
            Some(bytes)
        })
    }

    /// Departure time of the first delayed packet.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.waiting.front().map(|(due, ..)| *due)
    }

    /// Releases all delayed packets immediately.
    pub(crate) fn open(&mut self) {
        self.lasts.clear();
        self.ready.extend(self.waiting.drain(..).map(|(.., bytes)| bytes));
    }

    /// Number of delayed packets.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Departure times of packets of one flow that arrived at these times (ms), after the gap before them is filled at
    /// `filled`.
    fn leave(came: &[u64], filled: u64) -> Vec<u64> {
        let mut release_pacer = ReleasePacer::default();
        let now = Time::from_millis(filled);
        for (i, came) in [filled].iter().chain(came).enumerate() {
            let (last, before) = (10 + i as u64, Predecessor::Chunk(9 + i as u64));
            let packet = Released { came: Time::from_millis(*came), before, last, bytes: Bytes::new() };
            release_pacer.push(now, packet, MS(12));
        }
        (filled..filled + 1000)
            .flat_map(|t| std::iter::from_fn(|| release_pacer.pop(Time::from_millis(t))).map(|_| t).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn held_packets_leave_at_two_thirds_of_arrival_spacing() {
        assert_eq!(leave(&[], 100), [100]);
        assert_eq!(leave(&[40, 52, 64, 76], 100), [100, 100, 108, 116, 124]);
        assert_eq!(leave(&[10, 90], 100), [100, 100, 108], "a long silence is not repeated");
        assert_eq!(leave(&[90, 90, 90], 100), [100; 4], "nor is a train made longer");
    }

    #[test]
    fn release_keeps_flow_order_without_delaying_others() {
        let mut release_pacer = ReleasePacer::default();
        let at = Time::from_millis;
        let mut push = |now: u64, came: u64, before: Predecessor, last: u64| {
            let bytes = Bytes::from(vec![last as u8]);
            release_pacer.push(at(now), Released { came: at(came), before, last, bytes }, MS(12));
        };
        push(100, 100, Predecessor::Nothing, 1);
        push(100, 40, Predecessor::Chunk(1), 2);
        push(100, 52, Predecessor::Chunk(2), 3);
        push(101, 101, Predecessor::Chunk(3), 4);
        push(101, 101, Predecessor::Nothing, 5);
        push(101, 101, Predecessor::Unknown, 6);
        let order: Vec<u8> = std::iter::from_fn(|| release_pacer.pop(at(101))).map(|b| b[0]).collect();
        assert_eq!((order, release_pacer.next_at()), (vec![1, 5, 2], Some(at(108))));
        let order: Vec<u8> = std::iter::from_fn(|| release_pacer.pop(at(120))).map(|b| b[0]).collect();
        assert_eq!((order, release_pacer.waiting()), (vec![3, 4, 6], 0));
    }
}
