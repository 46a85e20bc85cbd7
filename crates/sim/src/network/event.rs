//! Packets and events of a simulated network, and its clock.

use std::ops::{Add, AddAssign};

use crate::events::EventQueue;

/// A moment since the run's start, or a duration, in picoseconds (range: 0 to 213 days). At 10
/// Gbit/s a bit takes 100 ps, and a nanosecond would round a short packet by percents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Tick(u64);

impl Tick {
    pub(crate) const ZERO: Tick = Tick(0);
    pub(crate) const NANOSECOND: Tick = Tick(1000);
    /// The end of time.
    pub(crate) const MAX: Tick = Tick(u64::MAX);

    /// The nearest to `seconds`; too long ones are [`Tick::MAX`], negative ones and NaN are 0.
    pub(crate) fn of(seconds: f64) -> Tick {
        // A cast saturates and turns NaN into 0.
        Tick((seconds * 1e12).round() as u64)
    }

    pub(crate) const fn of_picoseconds(picoseconds: u64) -> Tick {
        Tick(picoseconds)
    }

    pub(crate) const fn picoseconds(self) -> u64 {
        self.0
    }

    pub(crate) fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Duration since `earlier`; 0 if `earlier` is later.
    pub(crate) fn since(self, earlier: Tick) -> Tick {
        Tick(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn times(self, n: u64) -> Tick {
        Tick(self.0.saturating_mul(n))
    }

    /// How many times `step` fits in, rounded up; 0 if `step` is 0.
    pub(crate) fn steps(self, step: Tick) -> u64 {
        if step.0 == 0 { 0 } else { self.0.div_ceil(step.0) }
    }
}

impl Add for Tick {
    type Output = Tick;
    fn add(self, more: Tick) -> Tick {
        Tick(self.0.saturating_add(more.0))
    }
}

impl AddAssign for Tick {
    fn add_assign(&mut self, more: Tick) {
        *self = *self + more;
    }
}

/// A packet in the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Packet {
    /// Its flow, or direction of a copy.
    pub(crate) stream: u32,
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
    /// A packet was given up on its medium.
    Lost(Packet),
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
    event_queue: EventQueue<Event, Tick>,
    pub(crate) end: Tick,
}

impl Plan {
    pub(crate) fn new(end: Tick) -> Plan {
        Plan { event_queue: EventQueue::new(), end }
    }

    pub(crate) fn at(&mut self, at: Tick, event: Event) {
        if at <= self.end {
            self.event_queue.push(at, event);
        }
    }

    /// Events to come.
    pub(crate) fn len(&self) -> usize {
        self.event_queue.len()
    }

    pub(crate) fn next(&mut self) -> Option<(Tick, Event)> {
        self.event_queue.pop_due(self.end)
    }
}
