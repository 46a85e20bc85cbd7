//! Packets and events of a simulated network, and its clock.

use crate::Agenda;

use super::clock::Tick;

/// A packet in the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Packet {
    /// Its flow, or direction of a copy.
    pub(crate) stream: u32,
    /// Media crossed.
    pub(crate) hop: u32,
    /// Its sender's number in the sender's group.
    pub(crate) from: u32,
    /// Its receiver's number in the receiver's group.
    pub(crate) to: u32,
    /// The copy's block; `None` for a flow.
    pub(crate) block: Option<u32>,
    pub(crate) bits: f64,
    /// Arrival at the first medium.
    pub(crate) born: Tick,
    /// Arrival at the current medium or gateway.
    pub(crate) here: Tick,
}

/// A packet on a medium, with its sending and receiving station there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Crossing {
    pub(crate) packet: Packet,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// An event of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A flow's next packet is generated.
    Comes(u32),
    /// A packet leaves its sender's processor, or a gateway, for the next medium.
    Enters(Packet),
    /// A medium's timer, with a number of its own.
    Wakes(u32, u64),
    /// A packet arrives at a switch's outgoing port.
    Port(u32, Crossing),
    /// A packet has crossed its medium.
    Crossed(Packet),
    /// A packet leaves a gateway.
    Forwarded(Packet),
    /// A copy's packet leaves the receiver's processor.
    Received(Packet),
    /// A copy's block leaves the receiver's disk.
    Stored(u32, u32),
    /// A copy's next block begins.
    Begins(u32, u32),
}

/// The events until the run's end. Later ones change nothing and are dropped, so that overloads
/// take no memory.
#[derive(Debug)]
pub(crate) struct Plan {
    agenda: Agenda<Event, Tick>,
    pub(crate) end: Tick,
}

impl Plan {
    pub(crate) fn new(end: Tick) -> Plan {
        Plan { agenda: Agenda::new(), end }
    }

    pub(crate) fn at(&mut self, at: Tick, event: Event) {
        if at <= self.end {
            self.agenda.push(at, event);
        }
    }

    pub(crate) fn next(&mut self) -> Option<(Tick, Event)> {
        self.agenda.pop_due(self.end)
    }
}
