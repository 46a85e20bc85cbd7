//! Parts of the state of the call table: the connection, when the server was last heard of, a hold, the queues, and the
//! requests that have ended lately.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use crate::call::Lane;
use crate::congestion::window::InFlight;
use crate::request::CallClass;

/// The present connection and its predecessors.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionState {
    /// False until the next connection is made.
    pub(super) connected: bool,
    /// When it was made.
    pub(super) since: Time,
    /// It has brought nothing but replies to NULL.
    pub(super) is_untried: bool,
    /// Connections in a row that were no better than the one before.
    pub(super) in_vain: u32,
    /// The unanswered NULL call on it, and when that was sent.
    pub(super) asked: Option<(u32, Time)>,
}

impl ConnectionState {
    pub(super) fn new(now: Time, connected: bool) -> ConnectionState {
        ConnectionState { connected, since: now, is_untried: false, in_vain: 0, asked: None }
    }

    /// Takes the reply to the NULL call with this `xid`. Returns when that was sent.
    pub(super) fn take_asked(&mut self, xid: u32) -> Option<Time> {
        self.asked.take_if(|(asked, _)| *asked == xid).map(|(_, at)| at)
    }
}

/// When the server was last heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastContact {
    pub(super) last: Time,
    /// Start of the present silence.
    pub(super) patient_since: Time,
    /// That was the reply to a probe, and no request was answered since.
    pub(super) is_probe: bool,
}

impl LastContact {
    pub(super) fn new(now: Time) -> LastContact {
        LastContact { last: now, patient_since: now, is_probe: false }
    }

    /// A reply to a request, or a part of one.
    pub(super) fn note(&mut self, now: Time) {
        let latest = |then: Time| then.max(now);
        *self = LastContact { last: latest(self.last), patient_since: latest(self.patient_since), is_probe: false };
    }

    pub(super) fn note_probe(&mut self, now: Time) {
        self.last = self.last.max(now);
        if !self.is_probe {
            (self.patient_since, self.is_probe) = (self.last, true);
        }
    }
}

/// A hold: nothing is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// When it ends by itself.
    pub(super) until: Time,
    /// The link keeps what is in flight.
    pub(super) kept: bool,
}

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

/// File data in flight, or waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BulkLoad {
    pub(super) all: InFlight,
    /// Its part in [`Lane::Urgent`].
    pub(super) urgent: InFlight,
}

impl BulkLoad {
    pub(super) fn add(&mut self, lane: Lane, bytes: u32) {
        self.of(lane).for_each(|count| count.add(bytes));
    }

    pub(super) fn remove(&mut self, lane: Lane, bytes: u32) {
        self.of(lane).for_each(|count| count.remove(bytes));
    }

    fn of(&mut self, lane: Lane) -> impl Iterator<Item = &mut InFlight> {
        let BulkLoad { all, urgent } = self;
        [(all, lane != Lane::Small), (urgent, lane == Lane::Urgent)].into_iter().filter_map(|(c, is)| is.then_some(c))
    }
}

/// Requests by [`Lane`].
#[derive(Debug)]
pub(super) struct CallQueues<T> {
    pub(super) small: VecDeque<T>,
    pub(super) urgent: VecDeque<T>,
    pub(super) bulk: VecDeque<T>,
}

impl<T> CallQueues<T> {
    pub(super) const fn new() -> CallQueues<T> {
        CallQueues { small: VecDeque::new(), urgent: VecDeque::new(), bulk: VecDeque::new() }
    }

    pub(super) fn push(&mut self, lane: Lane, item: T) {
        match lane {
            Lane::Small => self.small.push_back(item),
            Lane::Urgent => self.urgent.push_back(item),
            Lane::Bulk => self.bulk.push_back(item),
        }
    }

    pub(super) fn all(&self) -> [&VecDeque<T>; 3] {
        [&self.small, &self.urgent, &self.bulk]
    }

    pub(super) fn all_mut(&mut self) -> [&mut VecDeque<T>; 3] {
        [&mut self.small, &mut self.urgent, &mut self.bulk]
    }

    /// Removes and returns the item that `order` finds equal, in queues that are sorted by it.
    pub(super) fn remove_by(&mut self, order: impl Fn(&T) -> Ordering) -> Option<T> {
        self.all_mut().into_iter().find_map(|queue| {
            let found = queue.binary_search_by(&order).ok()?;
            queue.remove(found)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.all().map(VecDeque::len).iter().sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn clear(&mut self) {
        self.all_mut().into_iter().for_each(VecDeque::clear);
    }
}
