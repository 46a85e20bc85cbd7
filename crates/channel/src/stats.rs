//! What happened to the frames: counters for each side, and a bounded trace for reports.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;

use crate::lane::Side;

/// Counters of one lane: what one side sent on one mobile's link. Every frame offered is either
/// waiting or in exactly one of `frames_sent`, `frames_queue_full` and `frames_collided`; of those sent,
/// `frames_bad`, `frames_random_loss` and `frames_receiver_full` were lost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SideStats {
    /// Datagrams given to [`Channel::send`](crate::Channel::send) and packets given to
    /// [`Channel::send_packet`](crate::Channel::send_packet).
    pub datagrams_offered: u64,
    /// Of those, datagrams too long for UDP and packets empty or longer than the MTU: refused
    /// whole, never made into frames.
    pub datagrams_refused: u64,
    /// Datagrams handed over on the far side.
    pub datagrams_delivered: u64,
    /// Frames that the datagrams were cut into.
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
    /// Frames sent and lost independently of the weather.
    pub frames_random_loss: u64,
    /// Frames sent that reached the mobile and found its receive buffer full.
    pub frames_receiver_full: u64,
    /// Time on the medium, lost frames included.
    pub airtime: Duration,
}

/// What became of a frame.
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
    /// Lost independently of the weather.
    RandomLoss,
    /// It reached the mobile, whose receive buffer was full.
    ReceiverFull,
}

/// A frame of so many bytes or more is taken to carry a file's data: requests, short replies and probes are shorter.
pub const DATA_FRAME_MIN: usize = 500;

/// One frame of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRecord {
    /// When its first bit left; for [`Fate::QueueFull`] and [`Fate::Collided`], when it was dropped.
    pub start: Time,
    /// When its last bit left; for one that was dropped, the same as `start`.
    pub end: Time,
    /// Who sent it.
    pub from: Side,
    /// The mobile it is from, or for.
    pub mobile: usize,
    /// Its length, IP header included.
    pub bytes: usize,
    /// What became of it.
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
pub(crate) struct Trace {
    limit: usize,
    records: VecDeque<FrameRecord>,
    overwritten: u64,
}

impl Trace {
    pub(crate) fn new(limit: usize) -> Trace {
        Trace { limit, records: VecDeque::new(), overwritten: 0 }
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
