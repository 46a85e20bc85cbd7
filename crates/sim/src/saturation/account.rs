use std::time::Duration;

use remora_base::Time;
use remora_channel::{ErrorProcess, Fate, FrameRecord};
use remora_wire::link::Frame;

/// Resolution of the search for good channels in a pause.
const PIECE: Duration = Duration::from_millis(1);

/// The channel's time by use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Account {
    /// DATA that arrived, including headers and duplicates.
    pub arrived: Duration,
    /// DATA that was lost.
    pub lost: Duration,
    /// Separate ACK frames.
    pub acks: Duration,
    /// RTS.
    pub probes: Duration,
    /// CTS.
    pub answers: Duration,
    /// Pauses while the channels of all mobiles were bad: unusable.
    pub hopeless: Duration,
    /// Pauses while some channel was good.
    pub idle: Duration,
    /// The end of the last frame.
    until: Time,
}

impl Account {
    /// Books a frame and the pause before it. Frames of one medium come in order; each has
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

    /// Books a pause until `end`.
    pub(super) fn pause(&mut self, end: Time, weathers: &mut [ErrorProcess]) {
        while self.until < end {
            let piece = PIECE.min(end.since(self.until));
            let all_bad = weathers.iter_mut().all(|weather| weather.is_bad(self.until + piece / 2));
            *if all_bad { &mut self.hopeless } else { &mut self.idle } += piece;
            self.until += piece;
        }
    }
}
