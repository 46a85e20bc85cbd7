//! A round-robin queue: first come, first served within a turn, and the turns alternate.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use remora_base::host_of;

/// The unit of fairness: a host (for IPv6 a network of 64 bits), or all clients with unproved addresses together, so
/// that a sender who forges many addresses gains nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Turn(Option<IpAddr>);

impl Turn {
    /// The turn of all clients that have not proved their addresses.
    pub(super) const UNPROVED: Turn = Turn(None);

    pub(super) fn of(client: SocketAddr) -> Turn {
        Turn(Some(host_of(client)))
    }
}

/// Items by turn. Unbounded: the caller bounds what it adds.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// Without empty queues.
    items: HashMap<Turn, VecDeque<T>>,
    /// Each turn that has items, once.
    order: VecDeque<Turn>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { items: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> FairQueue<T> {
    /// Adds an item. Returns whether the turn had none.
    pub(super) fn push(&mut self, turn: Turn, item: T) -> bool {
        let queue = self.items.entry(turn).or_default();
        let is_first = queue.is_empty();
        queue.push_back(item);
        if is_first {
            self.order.push_back(turn);
        }
        is_first
    }

    /// Removes and returns the oldest item of the next turn.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_map(Some)
    }

    /// Pops the first item for which `map` returns a value. Items for which it returns `None` are dropped and cost
    /// their client no turn.
    pub(super) fn pop_map<U>(&mut self, mut map: impl FnMut(T) -> Option<U>) -> Option<U> {
        while let Some(turn) = self.order.pop_front() {
            let queue = self.items.get_mut(&turn)?;
            let mapped = std::iter::from_fn(|| queue.pop_front()).find_map(&mut map);
            if queue.is_empty() {
                self.items.remove(&turn);
            } else {
                self.order.push_back(turn);
            }
            if mapped.is_some() {
                return mapped;
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.values().map(VecDeque::len).sum()
    }

    /// The turns that have items.
    pub(super) fn turns(&self) -> impl Iterator<Item = Turn> {
        self.order.iter().copied()
    }
}

#[cfg(test)]
impl Turn {
    /// The turn of a client with this number.
    pub(super) fn test(client: u8) -> Turn {
        Turn(Some(IpAddr::from([10, 0, 0, client])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_client_waits_for_one_item_of_a_busy_client() {
        let (mut queue, busy, small) = (FairQueue::default(), Turn::test(1), Turn::test(2));
        (0..1024).for_each(|n| _ = queue.push(busy, ("busy", n)));
        assert!(queue.push(small, ("small", 0)));
        assert_eq!([queue.pop(), queue.pop()], [Some(("busy", 0)), Some(("small", 0))]);
        queue.push(small, ("small", 1));
        assert_eq!([queue.pop(), queue.pop()], [Some(("busy", 1)), Some(("small", 1))], "it does not overtake either");
        assert!((2..1024).all(|n| queue.pop() == Some(("busy", n))), "each client's items keep their order");
        assert!(queue.is_empty() && queue.items.is_empty(), "empty turns take no memory");
    }

    #[test]
    fn dropped_items_cost_no_turn() {
        let (mut queue, a, b) = (FairQueue::default(), Turn::test(1), Turn::test(2));
        (0..8).for_each(|n| _ = queue.push(a, n));
        queue.push(b, 8);
        let mut next = || queue.pop_map(|n| Some(n).filter(|n| ![0, 1, 3, 7].contains(n)));
        assert_eq!(
            [next(), next(), next(), next(), next(), next()],
            [Some(2), Some(8), Some(4), Some(5), Some(6), None]
        );
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn addresses_of_one_host_share_a_turn() {
        let turn = |addr: &str| Turn::of(addr.parse().unwrap());
        assert_eq!(turn("10.0.0.1:700"), turn("[::ffff:10.0.0.1]:701"));
        assert_eq!(turn("[2001:db8::1]:700"), turn("[2001:db8::2]:701"));
        assert_ne!(turn("10.0.0.1:700"), turn("10.0.0.2:700"));
    }
}
