//! The queues of the call table, and the requests that have ended lately.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use crate::request::CallClass;

/// Requests that [`RecentXids`] remembers.
const ENDED_MAX: usize = 512;

/// Requests that ended lately, to recognise late replies to them.
#[derive(Debug)]
pub(super) struct RecentXids<T>(VecDeque<(u32, T)>);

impl<T> RecentXids<T> {
    pub(super) const fn new() -> RecentXids<T> {
        RecentXids(VecDeque::new())
    }

    pub(super) fn note(&mut self, xid: u32, what: T) {
        if self.0.len() >= ENDED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((xid, what));
    }

    /// Removes and returns the note on `xid`.
    pub(super) fn take(&mut self, xid: u32) -> Option<T> {
        let place = self.0.iter().rposition(|(known, _)| *known == xid)?;
        self.0.remove(place).map(|(_, what)| what)
    }
}

/// A request that was retransmitted before it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retransmitted {
    pub(super) class: CallClass,
    pub(super) bytes: u32,
    /// When it was first sent; how much later it was answered.
    pub(super) first: Time,
    pub(super) trip: Duration,
    /// Further replies that may come.
    pub(super) left: u32,
    /// The next reply is the second.
    pub(super) is_second: bool,
    /// The first reply showed already that nothing was lost.
    pub(super) was_clear: bool,
    /// A transmission was counted as lost.
    pub(super) was_loss: bool,
}

/// Requests that users wait for, and file data.
#[derive(Debug)]
pub(super) struct CallQueues<T> {
    pub(super) foreground: VecDeque<T>,
    pub(super) bulk: VecDeque<T>,
}

impl<T> CallQueues<T> {
    pub(super) const fn new() -> CallQueues<T> {
        CallQueues { foreground: VecDeque::new(), bulk: VecDeque::new() }
    }

    pub(super) fn push(&mut self, class: CallClass, item: T) {
        if class.is_bulk() { self.bulk.push_back(item) } else { self.foreground.push_back(item) }
    }

    /// Removes and returns the item that `order` finds equal, in queues that are sorted by it.
    pub(super) fn remove_by(&mut self, order: impl Fn(&T) -> Ordering) -> Option<T> {
        [&mut self.foreground, &mut self.bulk].into_iter().find_map(|queue| {
            let found = queue.binary_search_by(&order).ok()?;
            queue.remove(found)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.foreground.len() + self.bulk.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn clear(&mut self) {
        self.foreground.clear();
        self.bulk.clear();
    }
}
