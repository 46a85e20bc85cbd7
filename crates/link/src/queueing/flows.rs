//! The flows of a queue: whose turn it is, and which is the longest (FQ-CoDel, RFC 8290,
//! section 4.2, with a flow for each number instead of a bucket for many).
//!
//! Whoever can send packets can make up flows, so what is remembered is bounded: a flow that has
//! run empty and has taken nothing is forgotten at once, one that has taken its share when its
//! turn comes, and there are never more than [`FLOWS_MAX`] and those that have packets. Every step
//! takes a time that grows with the logarithm of that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Class;
use crate::queueing::codel::Codel;
use crate::queueing::queue::Waiting;

/// Flows remembered, as many as RFC 8290 (section 4.1.2) has buckets. While there are so many a new
/// one does not go before those that wait, or a flood of them would keep those waiting for ever.
pub(crate) const FLOWS_MAX: usize = 1024;

/// Packets of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) packets: VecDeque<Waiting>,
    pub(crate) codel: Codel,
    /// Their bytes.
    bytes: usize,
    /// Bytes it may still send in this turn.
    credit: i64,
    /// Bytes it may send in each turn.
    share: i64,
    line: Line,
    /// Its place in that line.
    ticket: u64,
    /// Its place when it was given its credit. Where that is still its place, the credit is for its
    /// turn there.
    given_at: u64,
}

/// Where a flow waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// With those that have begun to wait and not yet used up their share.
    Fresh,
    /// With the others.
    Standing,
}

/// All flows of a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flows {
    all: BTreeMap<u64, Flow>,
    /// Both lines: which flow has which ticket.
    fresh: BTreeMap<u64, u64>,
    standing: BTreeMap<u64, u64>,
    /// Those that have packets: how many bytes of them, and which flow.
    by_bytes: BTreeSet<(usize, u64)>,
    packets: usize,
    bytes: usize,
    tickets: u64,
}

impl Flow {
    /// Bytes waiting.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes its first packet.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.packet.bytes.len();
        Some(waiting)
    }

    /// Keeps the packets of which `stays` is true: it is told whether they are its first or last. How many went.
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
    /// Packets waiting.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Flows remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a packet to a flow that may send `share` bytes in each turn.
    pub(crate) fn push(&mut self, id: u64, share: i64, waiting: Waiting) {
        if !self.all.contains_key(&id) {
            let line = if self.all.len() < FLOWS_MAX { Line::Fresh } else { Line::Standing };
            let (packets, codel) = (VecDeque::new(), Codel::default());
            let flow = Flow { packets, codel, bytes: 0, credit: share, share, line, ticket: 0, given_at: 0 };
            self.all.insert(id, flow);
            self.line_up(id, line);
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

    /// Does something with a flow's packets.
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

    /// The first of the fresh flows that has packets and may send.
    pub(crate) fn first_fresh(&self) -> Option<u64> {
        let waits = |id: &&u64| self.all.get(id).is_some_and(|f| f.credit > 0 && !f.packets.is_empty());
        self.fresh.values().find(waits).copied()
    }

    /// The flow whose turn it is; those that have used up theirs go to the end of the line.
    pub(crate) fn next(&mut self) -> Option<u64> {
        loop {
            let id = *self.fresh.values().next().or_else(|| self.standing.values().next())?;
            let flow = self.all.get_mut(&id)?;
            if flow.credit > 0 {
                return Some(id);
            }
            let credit = flow.credit.saturating_add(flow.share);
            self.line_up(id, Line::Standing);
            self.give(id, credit);
        }
    }

    /// A flow has sent `bytes` bytes.
    pub(crate) fn charge(&mut self, id: u64, bytes: usize) {
        if let Some(flow) = self.all.get_mut(&id) {
            flow.credit = flow.credit.saturating_sub(i64::try_from(bytes.max(1)).unwrap_or(i64::MAX));
        }
    }

    /// The flow whose turn it is has nothing. A fresh one takes a turn among the standing ones
    /// first, or it could come back as fresh at once and starve them.
    pub(crate) fn pass(&mut self, id: u64) {
        let is_fresh = self.all.get(&id).is_some_and(|flow| flow.line == Line::Fresh);
        if is_fresh && !self.standing.is_empty() && self.all.len() <= FLOWS_MAX {
            self.line_up(id, Line::Standing);
        } else {
            self.forget(id);
        }
    }

    /// A flow has lost packets before their turn. If it has none and has taken nothing of its
    /// share, it leaves nothing that is worth remembering.
    pub(crate) fn settle(&mut self, id: u64) {
        let Some(flow) = self.all.get(&id).filter(|flow| flow.packets.is_empty()) else { return };
        let is_new = flow.line == Line::Fresh && flow.credit >= flow.share;
        if is_new || self.all.len() > FLOWS_MAX {
            self.forget(id);
        }
    }

    /// The flow that has the most bytes waiting.
    pub(crate) fn longest(&self) -> Option<u64> {
        self.by_bytes.last().map(|(_, id)| *id)
    }

    /// The flows of which `is_meant` is true.
    pub(crate) fn those(&self, is_meant: impl Fn(&Flow) -> bool) -> Vec<u64> {
        self.all.iter().filter_map(|(id, flow)| is_meant(flow).then_some(*id)).collect()
    }

    /// An interactive flow that had nothing goes before the standing ones again: a round of many takes
    /// longer than its packets live. Its credit bounds that, which is full once in each round and no
    /// more: when all that stood as it was given have had their turn.
    fn freshen(&mut self, id: u64, share: i64) {
        let Some(flow) = self.all.get(&id).filter(|f| f.line == Line::Standing && f.packets.is_empty()) else { return };
        let is_next_round = self.standing.keys().next().is_some_and(|first| *first > flow.given_at);
        let has_credit = flow.credit > 0 && flow.given_at < flow.ticket;
        if is_next_round || has_credit {
            self.line_up(id, Line::Fresh);
        }
        if is_next_round {
            self.give(id, share);
        }
    }

    fn give(&mut self, id: u64, credit: i64) {
        if let Some(flow) = self.all.get_mut(&id) {
            (flow.credit, flow.given_at) = (credit, flow.ticket);
        }
    }

    /// Puts a flow at the end of a line, wherever it was.
    fn line_up(&mut self, id: u64, line: Line) {
        let Some(flow) = self.all.get_mut(&id) else { return };
        self.fresh.remove(&flow.ticket);
        self.standing.remove(&flow.ticket);
        self.tickets += 1;
        (flow.line, flow.ticket) = (line, self.tickets);
        match line {
            Line::Fresh => self.fresh.insert(flow.ticket, id),
            Line::Standing => self.standing.insert(flow.ticket, id),
        };
    }

    fn forget(&mut self, id: u64) {
        let Some(flow) = self.all.remove(&id) else { return };
        self.fresh.remove(&flow.ticket);
        self.standing.remove(&flow.ticket);
        self.by_bytes.remove(&(flow.bytes, id));
        self.packets -= flow.packets.len();
        self.bytes -= flow.bytes;
    }
}
