//! Sides and lanes of a channel, and what is recorded of their frames: counters and a bounded
//! trace.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;

/// An end of the channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The base station, with the wired network behind it.
    Base,
    /// The mobile host.
    Mobile,
}

impl Side {
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
    /// The mobile, counted from 0.
    pub mobile: usize,
    /// The side that sends.
    pub from: Side,
}

/// The lane of `from` on the link of mobile 0, for channels with one mobile.
impl From<Side> for Lane {
    fn from(from: Side) -> Lane {
        Lane { mobile: 0, from }
    }
}

/// A complete datagram or packet that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The side it arrived at.
    pub to: Side,
    /// The mobile that sent it, or at which it arrived.
    pub mobile: usize,
    /// A UDP payload, or an IP packet.
    pub datagram: Bytes,
    /// Its arrival in the channel's time. A later poll is the driver's lateness.
    pub at: Time,
}

/// Counters of one lane. Every frame offered is either waiting or in exactly one of `frames_sent`,
/// `frames_queue_full` and `frames_collided`; of those sent, `frames_bad`, `frames_random_loss` and
/// `frames_receiver_full` were lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SideStats {
    /// Datagrams passed to [`Channel::send`](crate::Channel::send) and packets passed to
    /// [`Channel::send_packet`](crate::Channel::send_packet).
    pub datagrams_offered: u64,
    /// Of those, datagrams too long for UDP, and packets empty or longer than the MTU.
    pub datagrams_refused: u64,
    /// Datagrams delivered to the far side.
    pub datagrams_delivered: u64,
    /// Frames of the datagrams and packets.
    pub frames_offered: u64,
    /// Bytes of those frames, IP headers included.
    pub bytes_offered: u64,
    /// Frames put on the medium.
    pub frames_sent: u64,
    /// Frames dropped because the device queue was full.
    pub frames_queue_full: u64,
    /// Frames given up after sixteen collisions.
    pub frames_collided: u64,
    /// Frames sent and lost because part of their airtime was bad.
    pub frames_bad: u64,
    /// Frames sent and lost independently of bad periods.
    pub frames_random_loss: u64,
    /// Frames sent that reached the mobile and found its receive buffer full.
    pub frames_receiver_full: u64,
    /// Time on the medium, lost frames included.
    pub airtime: Duration,
}

/// The fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It reached the far side, and found room there (its datagram may have lost another frame).
    Delivered,
    /// The device queue was full; it was never sent.
    QueueFull,
    /// It collided sixteen times; it was never sent whole.
    Collided,
    /// Part of its airtime was bad.
    BadPeriod,
    RandomLoss,
    /// It reached the mobile, whose receive buffer was full.
    ReceiverFull,
}

/// Minimum length of a data frame in bytes: requests, short replies and probes are shorter.
pub const DATA_FRAME_MIN: usize = 500;

/// One frame of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRecord {
    /// When its first bit left; for [`Fate::QueueFull`] and [`Fate::Collided`], when it was dropped.
    pub start: Time,
    /// When its last bit left; for one that was dropped, the same as `start`.
    pub end: Time,
    pub from: Side,
    pub mobile: usize,
    /// Length in bytes, including the IP header.
    pub bytes: usize,
    pub fate: Fate,
    /// The frame itself, if it was given to [`Channel::send_packet`](crate::Channel::send_packet);
    /// empty for the fragments of a datagram.
    pub packet: Bytes,
}

impl SideStats {
    /// Counts a frame that has met its fate.
    pub(crate) fn count(&mut self, frame: &FrameRecord) {
        match frame.fate {
            Fate::QueueFull => {
                self.frames_queue_full += 1;
                return;
            }
            Fate::Collided => {
                self.frames_collided += 1;
                return;
            }
            Fate::BadPeriod => self.frames_bad += 1,
            Fate::RandomLoss => self.frames_random_loss += 1,
            Fate::ReceiverFull => self.frames_receiver_full += 1,
            Fate::Delivered => {}
        }
        self.frames_sent += 1;
        self.airtime = self.airtime.saturating_add(frame.end.since(frame.start));
    }
}

/// The last frames' records, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct FrameTrace {
    limit: usize,
    records: VecDeque<FrameRecord>,
    overwritten: u64,
}

impl FrameTrace {
    pub(crate) fn new(limit: usize) -> FrameTrace {
        FrameTrace { limit, records: VecDeque::new(), overwritten: 0 }
    }

    pub(crate) fn push(&mut self, record: FrameRecord) {
        if self.limit == 0 {
            return;
        }
        if self.records.len() == self.limit {
            self.records.pop_front();
            self.overwritten += 1;
        }
        self.records.push_back(record);
    }

    pub(crate) fn pop(&mut self) -> Option<FrameRecord> {
        self.records.pop_front()
    }

    pub(crate) fn overwritten(&self) -> u64 {
        self.overwritten
    }
}
