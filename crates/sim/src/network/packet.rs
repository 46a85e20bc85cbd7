//! Packets, and where media and gateways put them when they are done with them.

use crate::Agenda;

use super::clock::Tick;

/// A packet on its way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Packet {
    /// Which flow, or direction of a copy, it belongs to.
    pub(crate) stream: u32,
    /// Media that it has crossed.
    pub(crate) hop: u32,
    /// Its sender, in the sender's group.
    pub(crate) from: u32,
    /// Its receiver, in the receiver's group.
    pub(crate) to: u32,
    /// The copy's block; nothing for a flow's.
    pub(crate) block: Option<u32>,
    pub(crate) bits: f64,
    /// When it came to the first medium.
    pub(crate) born: Tick,
    /// When it came to the medium or gateway where it is.
    pub(crate) here: Tick,
}

/// A packet on a medium: which stations of the medium it is from and to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Crossing {
    pub(crate) packet: Packet,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// What happens in a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A flow's next packet comes up.
    Comes(u32),
    /// A packet has left its sender's processor, or a gateway, for the next medium.
    Enters(Packet),
    /// A medium asked to be woken; the number is its own.
    Wakes(u32, u64),
    /// A packet has come to a switch's outgoing port.
    Port(u32, Crossing),
    /// A packet has crossed its medium.
    Crossed(Packet),
    /// A gateway is done with a packet.
    Forwarded(Packet),
    /// The receiver's processor is done with a copy's packet.
    Received(Packet),
    /// A copy's block has been to the receiver's disk.
    Stored(u32, u32),
    /// A copy's next block begins.
    Begins(u32, u32),
}

/// What is to happen until the run's end. What would happen later changes nothing in the run and
/// is left out, so that what overflows takes no room.
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
