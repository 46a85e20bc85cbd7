//! One server, first come first served: a disk, a gateway, a switch's port. And a host's processor,
//! which packets that come in interrupt.

use super::clock::Tick;

/// Who comes later leaves later, so all there is to know is when the last one leaves.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Fifo {
    free: Tick,
}

impl Fifo {
    /// When somebody who comes at `now` and needs `service` leaves.
    pub(crate) fn serve(&mut self, now: Tick, service: Tick) -> Tick {
        self.free = self.free.max(now) + service;
        self.free
    }
}

/// A processor. What comes in is handled first, as interrupts are, and what it has to send waits so
/// much longer.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Processor {
    work: Fifo,
    interrupts: Fifo,
}

impl Processor {
    /// When work that comes up at `now` is done.
    pub(crate) fn work(&mut self, now: Tick, cost: Tick) -> Tick {
        self.work.serve(now, cost)
    }

    /// When a packet that comes in at `now` is handled.
    pub(crate) fn interrupt(&mut self, now: Tick, cost: Tick) -> Tick {
        self.work.serve(now, cost);
        self.interrupts.serve(now, cost)
    }
}
