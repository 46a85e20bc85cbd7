//! The flows of a queue: their order of service and the longest one (FQ-CoDel, RFC 8290, section 4.2, with one flow
//! for each number instead of hash buckets).
//!
//! Senders can create flows at will, so the state is bounded. An empty flow that has used none of its quantum is
//! removed immediately, any other empty flow at its next turn. At most [`FLOWS_MAX`] flows plus those with packets
//! exist. Every operation takes logarithmic time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use remora_base::Time;

use crate::queueing::codel::CodelState;
use crate::{Class, Packet};

/// Most flows kept, as many as RFC 8290 (section 4.1.2) has buckets. Above it a new flow does not precede the old
/// ones, or a flood of new flows would starve them.
pub(crate) const FLOWS_MAX: usize = 1024;

/// A queued packet with its arrival time.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) packet: Packet,
    /// When it was enqueued.
    pub(crate) came: Time,
    /// The same on the queue's own clock.
    pub(super) stamp: Time,
}

/// The packets and the deficit round robin state of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) packets: VecDeque<Waiting>,
    pub(crate) codel: CodelState,
    bytes: usize,
    /// Bytes it may still send in this turn.
    credit: i64,
    /// Its quantum: bytes it may send in each turn.
    share: i64,
    list: FlowList,
    /// Its position in that list.
    position: u64,
    /// Its position when it last got credit. If that is still its position, the credit is for its next turn there.
    given_at: u64,
}

/// The list in which a flow waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowList {
    /// Flows that recently became active and have not used their quantum (`new_flows` of RFC 8290).
    Fresh,
    /// All other flows (`old_flows` of RFC 8290).
    Standing,
}

/// All flows of a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flows {
    all: BTreeMap<u64, Flow>,
    /// Both lists: flows by their position.
    fresh: BTreeMap<u64, u64>,
    standing: BTreeMap<u64, u64>,
    /// Flows with packets, by their bytes.
    by_bytes: BTreeSet<(usize, u64)>,
    packets: usize,
    bytes: usize,
    positions: u64,
}

impl Flow {
    /// Bytes waiting in the flow.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes and returns the first packet.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.packet.bytes.len();
        Some(waiting)
    }

    /// Keeps the packets for which `stays` is true; its second argument is true for the first and the last packet.
    /// Returns the number removed.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Waiting, bool) -> bool) -> usize {
        let (before, mut at) = (self.packets.len(), 0);
        self.packets.retain(|waiting| {
            at += 1;
            stays(waiting, at == 1 || at == before)
        });
        self.bytes = self.packets.iter().map(|waiting| waiting.packet.bytes.len()).sum();
        before - self.packets.len()
    }
}

impl Flows {
    /// Packets waiting in all flows.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Bytes waiting in all flows.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of flows kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a packet to a flow with a quantum of `share` bytes.
    pub(crate) fn push(&mut self, id: u64, share: i64, waiting: Waiting) {
        if !self.all.contains_key(&id) {
            let list = if self.all.len() < FLOWS_MAX { FlowList::Fresh } else { FlowList::Standing };
            let (packets, codel) = (VecDeque::new(), CodelState::default());
            let flow = Flow { packets, codel, bytes: 0, credit: share, share, list, position: 0, given_at: 0 };
            self.all.insert(id, flow);
            self.move_to_end(id, list);
            self.give(id, share);
        } else if waiting.packet.class == Class::Interactive {
            self.freshen(id, share);
        }
        self.change(id, |flow| {
            flow.share = share;
            flow.bytes += waiting.packet.bytes.len();
            flow.packets.push_back(waiting);
        });
    }

    /// Calls `act` for a flow and updates the totals.
    pub(crate) fn change<T>(&mut self, id: u64, act: impl FnOnce(&mut Flow) -> T) -> Option<T> {
        let flow = self.all.get_mut(&id)?;
        let (packets, bytes) = (flow.packets.len(), flow.bytes);
        let result = act(flow);
        self.by_bytes.remove(&(bytes, id));
        if !flow.packets.is_empty() {
            self.by_bytes.insert((flow.bytes, id));
        }
        self.packets = self.packets - packets + flow.packets.len();
        self.bytes = self.bytes - bytes + flow.bytes;
        Some(result)
    }

    /// The first fresh flow with packets and credit.
    pub(crate) fn first_fresh(&self) -> Option<u64> {
        let waits = |id: &&u64| self.all.get(id).is_some_and(|f| f.credit > 0 && !f.packets.is_empty());
        self.fresh.values().find(waits).copied()
    }

    /// The flow that has its turn. Flows without credit move to the end of the standing list.
    pub(crate) fn next(&mut self) -> Option<u64> {
        loop {
            let id = *self.fresh.values().next().or_else(|| self.standing.values().next())?;
            let flow = self.all.get_mut(&id)?;
            if flow.credit > 0 {
                return Some(id);
            }
            let credit = flow.credit.saturating_add(flow.share);
            self.move_to_end(id, FlowList::Standing);
            self.give(id, credit);
        }
    }

    /// Charges a flow for `bytes` sent.
    pub(crate) fn charge(&mut self, id: u64, bytes: usize) {
        if let Some(flow) = self.all.get_mut(&id) {
            flow.credit = flow.credit.saturating_sub(i64::try_from(bytes.max(1)).unwrap_or(i64::MAX));
        }
    }

    /// Handles an empty flow at its turn. A fresh one passes through the standing list before its removal, or it could
    /// return as fresh and starve the others.
    pub(crate) fn pass(&mut self, id: u64) {
        let is_fresh = self.all.get(&id).is_some_and(|flow| flow.list == FlowList::Fresh);
        if is_fresh && !self.standing.is_empty() && self.all.len() <= FLOWS_MAX {
            self.move_to_end(id, FlowList::Standing);
        } else {
            self.forget(id);
        }
    }

    /// Handles packets dropped outside a turn: removes the flow if it is empty and has used none of its quantum.
    pub(crate) fn settle(&mut self, id: u64) {
        let Some(flow) = self.all.get(&id).filter(|flow| flow.packets.is_empty()) else { return };
        let is_new = flow.list == FlowList::Fresh && flow.credit >= flow.share;
        if is_new || self.all.len() > FLOWS_MAX {
            self.forget(id);
        }
    }

    /// The flow with the most bytes.
    pub(crate) fn longest(&self) -> Option<u64> {
        self.by_bytes.last().map(|(_, id)| *id)
    }

    /// The flows for which `is_meant` is true.
    pub(crate) fn those(&self, is_meant: impl Fn(&Flow) -> bool) -> Vec<u64> {
        self.all.iter().filter_map(|(id, flow)| is_meant(flow).then_some(*id)).collect()
    }

    /// Moves an interactive flow that was empty back to the fresh list: a round of many standing flows takes longer
    /// than its packets live. Its credit bounds its share. The credit is renewed once a round, after all flows that
    /// were standing at the previous renewal have had their turn.
    fn freshen(&mut self, id: u64, share: i64) {
        let Some(flow) = self.all.get(&id).filter(|f| f.list == FlowList::Standing && f.packets.is_empty()) else {
            return;
        };
        let is_next_round = self.standing.keys().next().is_some_and(|first| *first > flow.given_at);
        let has_credit = flow.credit > 0 && flow.given_at < flow.position;
        if is_next_round || has_credit {
            self.move_to_end(id, FlowList::Fresh);
        }
        if is_next_round {
            self.give(id, share);
        }
    }

    fn give(&mut self, id: u64, credit: i64) {
        if let Some(flow) = self.all.get_mut(&id) {
            (flow.credit, flow.given_at) = (credit, flow.position);
        }
    }

    /// Moves a flow to the end of a list.
    fn move_to_end(&mut self, id: u64, list: FlowList) {
        let Some(flow) = self.all.get_mut(&id) else { return };
        self.fresh.remove(&flow.position);
        self.standing.remove(&flow.position);
        self.positions += 1;
        (flow.list, flow.position) = (list, self.positions);
        match list {
            FlowList::Fresh => self.fresh.insert(flow.position, id),
            FlowList::Standing => self.standing.insert(flow.position, id),
        };
    }

    fn forget(&mut self, id: u64) {
        let Some(flow) = self.all.remove(&id) else { return };
        self.fresh.remove(&flow.position);
        self.standing.remove(&flow.position);
        self.by_bytes.remove(&(flow.bytes, id));
        self.packets -= flow.packets.len();
        self.bytes -= flow.bytes;
    }
}
