//! An event queue, ordered by time, then by insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use remora_base::Time;

/// A heap ordered by (time, sequence number), so that ties never depend on chance. `At` is the time
/// type: [`Time`], or a finer one.
#[derive(Debug)]
pub struct EventQueue<T, At = Time> {
    heap: BinaryHeap<Reverse<Entry<T, At>>>,
    next_seq: u64,
}

#[derive(Debug)]
struct Entry<T, At> {
    at: At,
    seq: u64,
    what: T,
}

impl<T, At: Ord + Copy> EventQueue<T, At> {
    pub fn new() -> EventQueue<T, At> {
        EventQueue { heap: BinaryHeap::new(), next_seq: 0 }
    }

    /// Schedules `what` at `at`.
    pub fn push(&mut self, at: At, what: T) {
        self.heap.push(Reverse(Entry { at, seq: self.next_seq, what }));
        self.next_seq += 1;
    }

    /// Removes the first event due by `now`, with its time.
    pub fn pop_due(&mut self, now: At) -> Option<(At, T)> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(e)| (e.at, e.what))
    }

    /// Time of the first event.
    pub fn next_at(&self) -> Option<At> {
        self.heap.peek().map(|Reverse(e)| e.at)
    }

    /// All events, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.heap.iter().map(|Reverse(e)| &e.what)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Removes all events, in order.
    pub fn drain(&mut self) -> Vec<T> {
        let mut all: Vec<Entry<T, At>> = self.heap.drain().map(|Reverse(e)| e).collect();
        all.sort();
        all.into_iter().map(|e| e.what).collect()
    }
}

impl<T, At: Ord + Copy> Default for EventQueue<T, At> {
    fn default() -> EventQueue<T, At> {
        EventQueue::new()
    }
}

impl<T, At: Ord + Copy> Entry<T, At> {
    fn key(&self) -> (At, u64) {
        (self.at, self.seq)
    }
}

impl<T, At: Ord + Copy> PartialEq for Entry<T, At> {
    fn eq(&self, other: &Entry<T, At>) -> bool {
        self.key() == other.key()
    }
}

impl<T, At: Ord + Copy> Eq for Entry<T, At> {}

impl<T, At: Ord + Copy> PartialOrd for Entry<T, At> {
    fn partial_cmp(&self, other: &Entry<T, At>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T, At: Ord + Copy> Ord for Entry<T, At> {
    fn cmp(&self, other: &Entry<T, At>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_at_same_time_keep_insertion_order() {
        let mut event_queue = EventQueue::new();
        for (at, what) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            event_queue.push(Time::from_secs(at), what);
        }
        assert_eq!(event_queue.pop_due(Time::ZERO), None);
        let order: Vec<char> = std::iter::from_fn(|| event_queue.pop_due(Time::from_secs(2)).map(|e| e.1)).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }

    #[test]
    fn drained_events_are_in_order() {
        let mut event_queue = EventQueue::new();
        (0..50).for_each(|i| event_queue.push(Time::from_secs(50 - i / 2), i));
        let all = event_queue.drain();
        assert!(event_queue.is_empty());
        assert_eq!(&all[..4], &[48, 49, 46, 47]);
    }
}
