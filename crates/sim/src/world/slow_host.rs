//! Slow hosts: the mobiles of NFS/W 95 (an IBM PS/2 and an IBM RT-PC), whose processor and local
//! disk limit a copy as much as the radio (section 4).
//!
//! A message costs processor time on arrival and on departure, and each frame sent costs more; one
//! processor does all of it. Before that, frames from the radio wait in the channel's receive
//! buffer ([`remora_channel::Receiver`]). The copying process moves blocks one after another
//! between the local disk and the client: its read-ahead is bounded, and it writes no faster than
//! its disk reads.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Rate, Time, Transmit};
use remora_client::{Piece, fragments};

/// Service times of a slow host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowHost {
    /// Processor time of each message sent or received: system calls, XDR, copies.
    pub message: Duration,
    /// Additional processor time of each frame sent, which the driver copies to the device.
    pub frame: Duration,
    /// Capacity of the device queue in frames; further ones are lost.
    pub device_frames: usize,
    /// Transfer rate of the local disk.
    pub disk: Rate,
    /// Maximum read-ahead in blocks.
    pub read_ahead: u32,
    /// Whether every WRITE is stable, as in NFS version 2.
    pub stable_writes: bool,
}

/// The processor of a slow host, a FIFO server. Its queue is bounded by the network's traffic and
/// the client's window.
#[derive(Debug)]
pub(crate) struct Processor {
    host: SlowHost,
    free_at: Time,
    incoming: VecDeque<(Time, Peer, Bytes)>,
    outgoing: VecDeque<(Time, Transmit)>,
}

impl Processor {
    pub(crate) fn new(host: SlowHost) -> Processor {
        Processor { host, free_at: Time::ZERO, incoming: VecDeque::new(), outgoing: VecDeque::new() }
    }

    /// A message arrived.
    pub(crate) fn receive(&mut self, now: Time, from: Peer, bytes: Bytes) {
        let done = self.work(now, self.host.message);
        self.incoming.push_back((done, from, bytes));
    }

    /// The next received message, processed by `now`.
    pub(crate) fn poll_received(&mut self, now: Time) -> Option<(Peer, Bytes)> {
        self.incoming.front().filter(|(done, ..)| *done <= now)?;
        self.incoming.pop_front().map(|(_, from, bytes)| (from, bytes))
    }

    /// Queues a message to send.
    pub(crate) fn send(&mut self, now: Time, transmit: Transmit) {
        let frames = fragments(u32::try_from(transmit.payload.len()).unwrap_or(u32::MAX));
        let done = self.work(now, self.host.message + self.host.frame * frames);
        self.outgoing.push_back((done, transmit));
    }

    /// The next message that reached the device by `now`.
    pub(crate) fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.outgoing.front().filter(|(done, _)| *done <= now)?;
        self.outgoing.pop_front().map(|(_, transmit)| transmit)
    }

    /// When the next work is done.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let incoming = self.incoming.front().map(|(done, ..)| *done);
        incoming.into_iter().chain(self.outgoing.front().map(|(done, _)| *done)).min()
    }

    fn work(&mut self, now: Time, cost: Duration) -> Time {
        self.free_at = self.free_at.max(now) + cost;
        self.free_at
    }
}

/// The process on a slow host that copies a file block by block.
#[derive(Debug)]
pub(crate) struct Pacer {
    host: SlowHost,
    /// End of the last piece requested.
    asked: u64,
    /// Pieces received and not yet consumed by the process, start to end.
    arrived: BTreeMap<u64, u64>,
    /// End of the consumed data.
    taken: u64,
    /// End of the current transfer to or from the local disk.
    busy_until: Time,
    now: Time,
}

impl Pacer {
    pub(crate) fn new(host: SlowHost) -> Pacer {
        let (busy_until, now) = (Time::ZERO, Time::ZERO);
        Pacer { host, asked: 0, arrived: BTreeMap::new(), taken: 0, busy_until, now }
    }

    pub(crate) fn stable_writes(&self) -> bool {
        self.host.stable_writes
    }

    /// Advances the time. The process consumes received pieces in order, and writes each to its
    /// disk before the next.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while now >= self.busy_until
            && let Some(end) = self.arrived.remove(&self.taken)
        {
            self.busy_until = now + self.host.disk.airtime(end - self.taken);
            self.taken = end;
        }
    }

    /// Whether another READ of `block` bytes may be sent.
    pub(crate) fn may_read(&self, block: u32) -> bool {
        self.asked <= self.taken + u64::from(block) * u64::from(self.host.read_ahead)
    }

    /// A READ was sent.
    pub(crate) fn on_read(&mut self, piece: &Piece) {
        self.asked = self.asked.max(piece.end);
    }

    /// The data of a READ arrived.
    pub(crate) fn on_arrival(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.arrived.insert(piece.start, piece.end);
        }
    }

    /// Whether the local disk has delivered the next piece to write.
    pub(crate) fn may_write(&self) -> bool {
        self.now >= self.busy_until
    }

    /// A WRITE was sent: the local disk reads the next piece.
    pub(crate) fn on_write(&mut self, piece: &Piece) {
        self.busy_until = self.now + self.host.disk.airtime(piece.end - piece.start);
    }

    /// When the process continues.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        (self.busy_until > self.now).then_some(self.busy_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: SlowHost = SlowHost {
        message: Duration::from_millis(5),
        frame: Duration::from_millis(2),
        device_frames: 8,
        disk: Rate::mbit(1),
        read_ahead: 1,
        stable_writes: true,
    };

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    fn transmit(len: usize) -> Transmit {
        Transmit { to: Peer::datagram(crate::net::server_addr()), payload: Bytes::from(vec![0; len]) }
    }

    #[test]
    fn processor_serves_messages_in_order() {
        let mut processor = Processor::new(HOST);
        processor.send(ms(0), transmit(4096));
        processor.receive(ms(1), transmit(0).to, Bytes::new());
        assert_eq!(processor.poll_timeout(), Some(ms(11)));
        assert_eq!((processor.poll_transmit(ms(10)), processor.poll_received(ms(11)).is_some()), (None, false));
        assert!(processor.poll_transmit(ms(11)).is_some());
        assert!(processor.poll_received(ms(16)).is_some());
        assert_eq!(processor.poll_timeout(), None);
    }

    #[test]
    fn reads_stay_within_the_read_ahead() {
        let mut pacer = Pacer::new(HOST);
        let may_read = |pacer: &mut Pacer, now| {
            pacer.handle_timeout(ms(now));
            pacer.may_read(1000)
        };
        for start in [0, 1000] {
            assert!(may_read(&mut pacer, 0));
            pacer.on_read(&(start..start + 1000));
        }
        assert!(!may_read(&mut pacer, 0));
        // The second block is unusable while the first is missing.
        pacer.on_arrival(1000..2000);
        assert!(!may_read(&mut pacer, 50));
        pacer.on_arrival(0..1000);
        assert!(may_read(&mut pacer, 60));
        pacer.on_read(&(2000..3000));
        // Writing a block to disk takes 8 ms; then the process consumes the second.
        assert!(!may_read(&mut pacer, 67));
        assert_eq!(pacer.poll_timeout(), Some(ms(68)));
        assert!(may_read(&mut pacer, 68));
    }

    #[test]
    fn writes_wait_for_the_disk() {
        let mut pacer = Pacer::new(HOST);
        assert!(pacer.may_write());
        pacer.on_write(&(0..1000));
        pacer.handle_timeout(ms(7));
        assert!(!pacer.may_write());
        assert_eq!(pacer.poll_timeout(), Some(ms(8)));
        pacer.handle_timeout(ms(8));
        assert!(pacer.may_write());
        assert_eq!(pacer.poll_timeout(), None);
    }
}
