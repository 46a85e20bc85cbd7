//! The frames of one lane: IP fragmentation, the queue of waiting datagrams, reassembly, and a
//! mobile's receive buffer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use crate::config::Receiver;
use crate::lane::{Fate, FrameRecord, SideStats};

/// Bytes of an IP header without options.
pub(crate) const IP_HEADER: usize = 20;
/// Bytes of a UDP header.
pub(crate) const UDP_HEADER: usize = 8;
/// The longest payload of a UDP datagram over IPv4, in bytes.
pub const DATAGRAM_MAX: usize = 65_535 - IP_HEADER - UDP_HEADER;

/// The frames of a datagram or packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// The fragments of a UDP datagram.
    Fragments(Fragments),
    /// One IP packet of this many bytes.
    Packet(usize),
}

impl Frames {
    /// The frames of a UDP datagram of `payload` bytes; `None` if it is longer than
    /// [`DATAGRAM_MAX`]. `mtu` is at least 576.
    pub(crate) fn of_datagram(payload: usize, mtu: usize) -> Option<Frames> {
        Fragments::of(payload, mtu).map(Frames::Fragments)
    }

    /// The frame of an IP packet; `None` if it is empty or longer than the MTU.
    pub(crate) fn of_packet(bytes: usize, mtu: usize) -> Option<Frames> {
        (1..=mtu).contains(&bytes).then_some(Frames::Packet(bytes))
    }

    /// The number of frames (at least 1).
    pub(crate) fn count(&self) -> usize {
        match self {
            Frames::Fragments(fragments) => fragments.count,
            Frames::Packet(_) => 1,
        }
    }

    /// Bytes of frame `index`, IP header included.
    pub(crate) fn frame_bytes(&self, index: usize) -> usize {
        match self {
            Frames::Fragments(fragments) => fragments.frame_bytes(index),
            Frames::Packet(bytes) => *bytes,
        }
    }

    /// The IP packet of the frame if `payload` is one; empty for a fragment.
    pub(crate) fn packet(&self, payload: &Bytes) -> Bytes {
        match self {
            Frames::Fragments(_) => Bytes::new(),
            Frames::Packet(_) => payload.clone(),
        }
    }
}

/// The fragments of one UDP datagram (RFC 791 §3.2): a 20-byte header on each, the 8-byte UDP
/// header in the first, every fragment but the last a multiple of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragments {
    /// Bytes of IP payload: the UDP header and the datagram.
    total: usize,
    /// Bytes of it in each fragment but the last.
    step: usize,
    count: usize,
}

impl Fragments {
    fn of(payload: usize, mtu: usize) -> Option<Fragments> {
        if payload > DATAGRAM_MAX {
            return None;
        }
        let total = payload + UDP_HEADER;
        let room = mtu.saturating_sub(IP_HEADER).max(8);
        let step = room & !7;
        let count = total.saturating_sub(room).div_ceil(step) + 1;
        Some(Fragments { total, step, count })
    }

    fn frame_bytes(&self, index: usize) -> usize {
        let before = self.step * index;
        let carried = if index + 1 < self.count { self.step } else { self.total.saturating_sub(before) };
        IP_HEADER + carried
    }
}

/// The state of a lane: waiting datagrams, datagrams in flight, counters.
///
/// Datagrams leave in order. A datagram's frames are neighbours in their device queue and a full
/// queue drops a datagram's *tail*, so a queue entry is a datagram and two counters: frames need no
/// allocation, and reassembly is a flag.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    queue: VecDeque<Outgoing>,
    losses: Rng,
    jitter: Rng,
    /// The end of the bad period for which the first frame, which has left the device queue, is
    /// held.
    pub(crate) held_until: Option<Time>,
    /// Datagrams in flight with their arrival times, sorted.
    in_flight: VecDeque<(Time, Bytes)>,
    pub(crate) stats: SideStats,
}

/// A datagram with frames left to send.
#[derive(Clone, Debug)]
struct Outgoing {
    /// Its rank among all datagrams sent on the channel.
    number: u64,
    payload: Bytes,
    frames: Frames,
    /// The next frame to send.
    next: usize,
    /// The full queue dropped the frames from here on.
    accepted: usize,
    lost: bool,
    /// The latest arrival among its frames so far.
    whole_at: Time,
}

/// The first frame waiting on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) bytes: usize,
    /// The frame's IP packet; empty for a fragment.
    pub(crate) packet: Bytes,
}

impl Traffic {
    pub(crate) fn new(losses: Rng, jitter: Rng) -> Traffic {
        Traffic {
            queue: VecDeque::new(),
            losses,
            jitter,
            held_until: None,
            in_flight: VecDeque::new(),
            stats: SideStats::default(),
        }
    }

    /// Queues a datagram of which the first `accepted` frames found room.
    pub(crate) fn push(&mut self, number: u64, payload: Bytes, frames: Frames, accepted: usize) {
        if accepted > 0 {
            let lost = accepted < frames.count();
            self.queue.push_back(Outgoing { number, payload, frames, next: 0, accepted, lost, whole_at: Time::ZERO });
        }
    }

    /// The number of the datagram to which the first frame belongs.
    pub(crate) fn head_number(&self) -> Option<u64> {
        self.queue.front().map(|d| d.number)
    }

    pub(crate) fn head(&self) -> Option<Head> {
        self.queue.front().map(|d| Head { bytes: d.frames.frame_bytes(d.next), packet: d.frames.packet(&d.payload) })
    }

    /// Draws whether the next frame is lost independently, with probability `loss`.
    pub(crate) fn draw_loss(&mut self, loss: f64) -> bool {
        self.losses.chance(loss)
    }

    /// Draws the next frame's jitter, at most `most`.
    pub(crate) fn draw_jitter(&mut self, most: Duration) -> Duration {
        if most.is_zero() { Duration::ZERO } else { most.mul_f64(self.jitter.unit()) }
    }

    /// Removes the first frame with its fate. After its last frame a datagram without loss is in
    /// flight. The frame arrives at `arrival`, and the datagram with its latest frame.
    pub(crate) fn finish_head(&mut self, frame: &FrameRecord, arrival: Time) {
        self.stats.count(frame);
        let Some(head) = self.queue.front_mut() else { return };
        head.next += 1;
        head.lost |= frame.fate != Fate::Delivered;
        head.whole_at = head.whole_at.max(arrival);
        if head.next < head.accepted {
            return;
        }
        if let Some(done) = self.queue.pop_front().filter(|d| !d.lost) {
            let place = self.in_flight.partition_point(|(at, _)| *at <= done.whole_at);
            self.in_flight.insert(place, (done.whole_at, done.payload));
        }
    }

    /// When the next datagram arrives.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.in_flight.front().map(|(at, _)| *at)
    }

    /// Removes the next datagram, arrived or not.
    pub(crate) fn deliver(&mut self) -> Option<(Time, Bytes)> {
        let next = self.in_flight.pop_front()?;
        self.stats.datagrams_delivered += 1;
        Some(next)
    }
}

/// The receive buffer of one slow mobile (NFS/W 95 §4). A frame that finds it full is lost after it
/// has cost its airtime. Frames must be offered in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveBuffer {
    receiver: Option<Receiver>,
    /// When the host takes each buffered frame; sorted, at most `receiver.frames`.
    taken_at: VecDeque<Time>,
}

impl ReceiveBuffer {
    pub(crate) fn new(receiver: Option<Receiver>) -> ReceiveBuffer {
        ReceiveBuffer { receiver, taken_at: VecDeque::new() }
    }

    /// When the host takes the frame that arrives at `arrival`; `None` if the buffer is full.
    pub(crate) fn offer(&mut self, arrival: Time) -> Option<Time> {
        let Some(Receiver { frames, service }) = self.receiver else { return Some(arrival) };
        while self.taken_at.front().is_some_and(|taken| *taken <= arrival) {
            self.taken_at.pop_front();
        }
        if self.taken_at.len() >= frames {
            return None;
        }
        let taken = self.taken_at.back().map_or(arrival, |before| arrival.max(*before)) + service;
        self.taken_at.push_back(taken);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(payload: usize, mtu: usize) -> Vec<usize> {
        let f = Frames::of_datagram(payload, mtu).unwrap();
        (0..f.count()).map(|i| f.frame_bytes(i)).collect()
    }

    #[test]
    fn datagram_is_fragmented_as_ip_does() {
        assert_eq!(frames(0, 1500), [28]);
        assert_eq!(frames(1472, 1500), [1500]);
        assert_eq!(frames(1473, 1500), [1500, 21]);
        // An 8192-byte block with 120 bytes of RPC and NFS headers.
        assert_eq!(frames(8192 + 120, 1500), [1500, 1500, 1500, 1500, 1500, 940]);
        // 986 bytes of room: 984 in each fragment, but the last may use them all.
        assert_eq!(frames(984 + 986 - 8, 1006), [1004, 1006]);
        assert_eq!(frames(984 + 987 - 8, 1006), [1004, 1004, 23]);
        assert_eq!(Frames::of_datagram(DATAGRAM_MAX, 65_535).map(|f| f.count()), Some(1));
        assert_eq!(Frames::of_datagram(DATAGRAM_MAX + 1, 65_535), None);
    }

    #[test]
    fn packet_is_one_frame_if_it_fits() {
        for (bytes, mtu, frame) in [(0, 1500, None), (1, 1500, Some(1)), (1500, 1500, Some(1500)), (1501, 1500, None)] {
            assert_eq!(Frames::of_packet(bytes, mtu).map(|f| f.frame_bytes(0)), frame);
        }
    }

    #[test]
    fn fragments_carry_each_byte_once_and_fit_the_mtu() {
        for mtu in [576, 577, 1006, 1492, 1500, 9000] {
            for payload in (0..20_000).step_by(37) {
                let frames = frames(payload, mtu);
                assert_eq!(frames.iter().map(|f| f - IP_HEADER).sum::<usize>(), payload + UDP_HEADER);
                assert!(frames.iter().all(|f| (IP_HEADER + 1..=mtu).contains(f)), "{payload} {mtu} {frames:?}");
                let mut whole = frames.iter().rev().skip(1);
                assert!(whole.all(|f| (f - IP_HEADER).is_multiple_of(8)));
            }
        }
    }

    fn offer(receiver: Option<Receiver>, arrivals_ms: &[u64]) -> Vec<Option<Time>> {
        let mut buffer = ReceiveBuffer::new(receiver);
        arrivals_ms.iter().map(|ms| buffer.offer(Time::from_millis(*ms))).collect()
    }

    fn ms(times: &[u64]) -> Vec<Option<Time>> {
        times.iter().map(|ms| Some(Time::from_millis(*ms))).collect()
    }

    #[test]
    fn missing_buffer_takes_frames_on_arrival() {
        assert_eq!(offer(None, &[1, 1, 2]), ms(&[1, 1, 2]));
    }

    #[test]
    fn buffer_takes_frames_one_after_another() {
        let receiver = Some(Receiver { frames: 3, service: Duration::from_millis(10) });
        assert_eq!(offer(receiver, &[0, 5, 12, 100]), ms(&[10, 20, 30, 110]));
    }

    #[test]
    fn frame_occupies_buffer_until_taken() {
        let receiver = Some(Receiver { frames: 2, service: Duration::from_millis(10) });
        let got = offer(receiver, &[0, 1, 2, 9, 10, 11]);
        assert_eq!(got.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false, true, false]);
        assert_eq!(got[4], Some(Time::from_millis(30)));
    }
}
