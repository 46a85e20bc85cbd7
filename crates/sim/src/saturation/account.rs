//! Where the channel's time went, by cause, read off the frames that were on it.

use std::time::Duration;

use remora_base::Time;
use remora_channel::{ErrorProcess, Fate, FrameRecord};
use remora_wire::link::Frame;

/// A pause is told apart in pieces of this length: whether all channels were bad in it.
const PIECE: Duration = Duration::from_millis(1);

/// The time of the channel by what it was used for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Account {
    /// DATA that arrived, headers and what had arrived before included.
    pub arrived: Duration,
    /// DATA that was lost.
    pub lost: Duration,
    /// ACK that went alone.
    pub acks: Duration,
    /// RTS.
    pub probes: Duration,
    /// CTS.
    pub answers: Duration,
    /// Nothing, while the channels of all mobiles were bad: nobody could have used it.
    pub hopeless: Duration,
    /// Nothing, though somebody's channel was good.
    pub idle: Duration,
    /// The end of the last frame.
    until: Time,
}

impl Account {
    /// Books a frame, and the pause before it. Frames come in order, of one medium; each ends in
    /// `overhead` bytes that are not the link's.
    pub(super) fn book(&mut self, frame: &FrameRecord, overhead: usize, weathers: &mut [ErrorProcess]) {
        self.pause(frame.start, weathers);
        self.until = self.until.max(frame.end);
        let payload = frame.packet.slice(..frame.packet.len().saturating_sub(overhead));
        let arrived = frame.fate == Fate::Delivered;
        let entry = match Frame::decode(payload) {
            Ok(Frame::Ack(_)) => &mut self.acks,
            Ok(Frame::Rts(_)) => &mut self.probes,
            Ok(Frame::Cts(_)) => &mut self.answers,
            _ if arrived => &mut self.arrived,
            _ => &mut self.lost,
        };
        *entry += frame.end.since(frame.start);
    }

    /// Nothing was on the channel until `end`.
    pub(super) fn pause(&mut self, end: Time, weathers: &mut [ErrorProcess]) {
        while self.until < end {
            let piece = PIECE.min(end.since(self.until));
            let all_bad = weathers.iter_mut().all(|weather| weather.is_bad(self.until + piece / 2));
            *if all_bad { &mut self.hopeless } else { &mut self.idle } += piece;
            self.until += piece;
        }
    }
}
