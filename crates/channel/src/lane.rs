//! One direction of one mobile's link: its frames that wait for the medium, what of them is on
//! its way, and its counters.
//!
//! Datagrams leave a lane in order. Frames of one datagram are neighbours in their device queue
//! and a full queue drops a datagram's *tail*, so a queue entry is a datagram and two counters:
//! nothing is allocated for a frame, and reassembly is a flag.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use crate::fragment::Frames;
use crate::stats::{Fate, FrameRecord, SideStats};

/// An end of the channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The base station, with the wired network behind it.
    Base,
    /// The mobile host.
    Mobile,
}

impl Side {
    /// Both sides.
    pub const ALL: [Side; 2] = [Side::Base, Side::Mobile];

    /// The far side.
    pub const fn other(self) -> Side {
        match self {
            Side::Base => Side::Mobile,
            Side::Mobile => Side::Base,
        }
    }
}

/// A value for each side.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PerSide<T> {
    /// The base station's.
    pub base: T,
    /// The mobiles'.
    pub mobile: T,
}

impl<T> PerSide<T> {
    /// The value of `side`.
    pub const fn of(&self, side: Side) -> &T {
        match side {
            Side::Base => &self.base,
            Side::Mobile => &self.mobile,
        }
    }

    pub(crate) const fn of_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Base => &mut self.base,
            Side::Mobile => &mut self.mobile,
        }
    }
}

/// One direction of one mobile's link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lane {
    /// Which mobile, counted from 0.
    pub mobile: usize,
    /// The side that sends.
    pub from: Side,
}

/// What `from` sends on the link of the first mobile: all there is where there is but one.
impl From<Side> for Lane {
    fn from(from: Side) -> Lane {
        Lane { mobile: 0, from }
    }
}

/// A whole datagram or packet that came through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The side it arrived at.
    pub to: Side,
    /// The mobile it came from, or arrived at.
    pub mobile: usize,
    /// What was sent: a UDP payload, or an IP packet.
    pub datagram: Bytes,
    /// When it arrived in the channel's own time; how much later it was asked for is the
    /// driver's lateness.
    pub at: Time,
}

/// The state of a lane.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    queue: VecDeque<Outgoing>,
    losses: Rng,
    jitter: Rng,
    /// The first frame has left the device queue and waits for good weather until then.
    pub(crate) held_until: Option<Time>,
    /// Whole datagrams on their way with their arrival times, which never decrease.
    in_flight: VecDeque<(Time, Bytes)>,
    pub(crate) stats: SideStats,
}

/// A datagram with frames left to send.
#[derive(Clone, Debug)]
struct Outgoing {
    /// Its place in the order of all datagrams sent on the channel.
    number: u64,
    payload: Bytes,
    frames: Frames,
    /// The next frame to send.
    next: usize,
    /// Frames from here on were dropped by the full queue.
    accepted: usize,
    lost: bool,
    /// When the last of its frames so far arrives.
    whole_at: Time,
}

/// The first frame waiting on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Its length.
    pub(crate) bytes: usize,
    /// The IP packet it is; empty for a fragment.
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

    /// Takes a datagram of which the first `accepted` frames found room.
    pub(crate) fn push(&mut self, number: u64, payload: Bytes, frames: Frames, accepted: usize) {
        if accepted > 0 {
            let lost = accepted < frames.count();
            self.queue.push_back(Outgoing { number, payload, frames, next: 0, accepted, lost, whole_at: Time::ZERO });
        }
    }

    /// The number of the datagram the first frame belongs to.
    pub(crate) fn head_number(&self) -> Option<u64> {
        self.queue.front().map(|d| d.number)
    }

    /// The first frame waiting.
    pub(crate) fn head(&self) -> Option<Head> {
        self.queue.front().map(|d| Head { bytes: d.frames.frame_bytes(d.next), packet: d.frames.packet(&d.payload) })
    }

    /// Whether the next frame is lost by its own bad luck, with probability `loss`.
    pub(crate) fn draw_loss(&mut self, loss: f64) -> bool {
        self.losses.chance(loss)
    }

    /// How much longer than others the next frame takes, where that is `most` at most.
    pub(crate) fn draw_jitter(&mut self, most: Duration) -> Duration {
        if most.is_zero() { Duration::ZERO } else { most.mul_f64(self.jitter.unit()) }
    }

    /// Takes the first frame off the queue with its fate; the last one of a datagram decides
    /// whether the datagram is on its way. The frame arrives at `arrival`, and the datagram with its latest.
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

    /// The next datagram, arrived or not.
    pub(crate) fn deliver(&mut self) -> Option<(Time, Bytes)> {
        let next = self.in_flight.pop_front()?;
        self.stats.datagrams_delivered += 1;
        Some(next)
    }
}
