use super::clock::Tick;

/// A FIFO server, such as a disk, a gateway or a switch port. Its state is the time at which the
/// last customer leaves.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Fifo {
    free: Tick,
}

impl Fifo {
    /// Departure of a customer that arrives at `now` and needs `service`.
    pub(crate) fn serve(&mut self, now: Tick, service: Tick) -> Tick {
        self.free = self.free.max(now) + service;
        self.free
    }
}

/// A host's processor. Arriving packets interrupt it, and delay the packets to send.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Processor {
    work: Fifo,
    interrupts: Fifo,
}

impl Processor {
    /// Completion of work that arrives at `now`.
    pub(crate) fn work(&mut self, now: Tick, cost: Tick) -> Tick {
        self.work.serve(now, cost)
    }

    /// Completion of a packet that arrives at `now`.
    pub(crate) fn interrupt(&mut self, now: Tick, cost: Tick) -> Tick {
        self.work.serve(now, cost);
        self.interrupts.serve(now, cost)
    }
}
