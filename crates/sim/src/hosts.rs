//! Slow hosts: the mobiles of NFS/W 95 (an IBM PS/2 and an IBM RT-PC), whose processor and local
//! disk, not only the radio, decide how fast a file is copied (section 4).
//!
//! A message costs processor time when it comes in and when it goes out, a frame that is sent
//! costs some more, and there is one processor for all of it. What comes in from the radio waits
//! before that in the receive buffer, which is the channel's ([`remora_channel::Receiver`]).
//! The process that copies moves one block after another between the local disk and the client:
//! it reads ahead only so far, and writes no faster than its disk reads.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Rate, Time, Transmit};
use remora_client::{Piece, fragments};

/// What a host takes for its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowHost {
    /// Processor time of each message sent or received: system calls, XDR, copies.
    pub message: Duration,
    /// Processor time of each frame sent, on top: the driver copies it to the device.
    pub frame: Duration,
    /// Frames to be sent that its device holds; further ones are lost.
    pub device_frames: usize,
    /// How fast its local disk takes a file or gives it.
    pub disk: Rate,
    /// How many blocks it reads ahead of the one that the process wants next.
    pub read_ahead: u32,
    /// Whether every WRITE is stable before it is answered, as all of NFS version 2 are.
    pub stable_writes: bool,
}

/// The processor of a slow host: work is done in the order it comes. What waits for it is bounded
/// by what the network brings and by the client's window.
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

    /// A message came in.
    pub(crate) fn receive(&mut self, now: Time, from: Peer, bytes: Bytes) {
        let done = self.work(now, self.host.message);
        self.incoming.push_back((done, from, bytes));
    }

    /// The next message that has been worked on by `now`.
    pub(crate) fn poll_received(&mut self, now: Time) -> Option<(Peer, Bytes)> {
        self.incoming.front().filter(|(done, ..)| *done <= now)?;
        self.incoming.pop_front().map(|(_, from, bytes)| (from, bytes))
    }

    /// A message shall go out.
    pub(crate) fn send(&mut self, now: Time, transmit: Transmit) {
        let frames = fragments(u32::try_from(transmit.payload.len()).unwrap_or(u32::MAX));
        let done = self.work(now, self.host.message + self.host.frame * frames);
        self.outgoing.push_back((done, transmit));
    }

    /// The next message that is with the device by `now`.
    pub(crate) fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.outgoing.front().filter(|(done, _)| *done <= now)?;
        self.outgoing.pop_front().map(|(_, transmit)| transmit)
    }

    /// When some work is next done.
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
    /// Where the last piece asked for ends.
    asked: u64,
    /// Pieces that came in, as start and end, and that the process has not yet come to.
    arrived: BTreeMap<u64, u64>,
    /// Up to where it has taken what came in.
    taken: u64,
    /// Until when it moves a block to or from its disk.
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

    /// Lets the time be `now`. The process takes what came in, in order, and writes each piece
    /// to its disk before it wants the next.
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

    /// What a READ asked for came in.
    pub(crate) fn on_arrival(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.arrived.insert(piece.start, piece.end);
        }
    }

    /// Whether the next piece to be written has come from the disk.
    pub(crate) fn may_write(&self) -> bool {
        self.now >= self.busy_until
    }

    /// A WRITE was sent: the disk gives the next piece.
    pub(crate) fn on_write(&mut self, piece: &Piece) {
        self.busy_until = self.now + self.host.disk.airtime(piece.end - piece.start);
    }

    /// When it wants to go on.
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
    fn one_processor_does_one_thing_after_another() {
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
    fn reads_go_ahead_of_the_process_only_so_far() {
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
        // The second block does not help while the first is missing.
        pacer.on_arrival(1000..2000);
        assert!(!may_read(&mut pacer, 50));
        pacer.on_arrival(0..1000);
        assert!(may_read(&mut pacer, 60));
        pacer.on_read(&(2000..3000));
        // A block takes 8 ms to the disk; then the process comes to the second.
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
