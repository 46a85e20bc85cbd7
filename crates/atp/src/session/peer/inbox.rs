//! Receiving of objects from one peer.
//!
//! The size of an object is in its head, so room for all of it is reserved before its first byte is stored. An
//! object without room is refused at once (STOP_SENDING): partial objects that wait for each other's room would
//! wait forever. Streams are read as bytes arrive, so QUIC buffers only data out of order.
//!
//! A received object is confirmed by ending this direction of its stream. QUIC's acknowledgement is not enough,
//! since the object may still be refused. Confirmations are delayed like acknowledgements and share their packets.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use noq_proto::{Connection, ReadError, StreamId, VarInt};
use remora_base::Time;

use super::feedback::REPORT_DELAY;
use super::frame::{HEAD_LEN, ObjectHead};
use crate::Priority;

/// Stream priority of confirmations: above any object.
const ANSWER_PRIORITY: i32 = 16;
/// Bytes that an object counts for beyond its own: its bookkeeping, and a bound on the number of empty objects.
pub const OBJECT_COST: u64 = 512;
/// Initial allocation for an object; it grows with the received bytes, within the reserved room.
const FIRST_ALLOCATION: usize = 1 << 20;

/// Why an object is refused or reset, as an application error code in STOP_SENDING and RESET_STREAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StopReason {
    /// The sender ended the request.
    GivenUp,
    /// Larger than the receiver accepts.
    TooLarge,
    /// The receiver's buffers are full.
    NoRoom,
    /// The head is invalid, or the size differs from it.
    Malformed,
}

impl StopReason {
    pub(crate) fn code(self) -> VarInt {
        VarInt::from_u32(match self {
            StopReason::GivenUp => 1,
            StopReason::TooLarge => 2,
            StopReason::NoRoom => 3,
            StopReason::Malformed => 4,
        })
    }

    /// Decodes a peer's code; unknown ones count as malformed.
    pub(crate) fn from_code(code: VarInt) -> StopReason {
        match code.into_inner() {
            1 => StopReason::GivenUp,
            2 => StopReason::TooLarge,
            3 => StopReason::NoRoom,
            _ => StopReason::Malformed,
        }
    }
}

/// Bytes in use, with a maximum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteBudget {
    used: u64,
    max: u64,
}

impl ByteBudget {
    pub(crate) fn new(max: u64) -> ByteBudget {
        ByteBudget { used: 0, max }
    }

    fn fits(&self, bytes: u64) -> bool {
        self.used.checked_add(bytes).is_some_and(|all| all <= self.max)
    }

    pub(crate) fn release(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

/// Bytes that an object of this size takes of a budget.
pub(crate) const fn cost(bytes: u64) -> u64 {
    bytes.saturating_add(OBJECT_COST)
}

/// A completely received object.
#[derive(Debug)]
pub(crate) struct CompleteObject {
    pub(crate) priority: Priority,
    pub(crate) object: Bytes,
}

/// Result of reading a stream.
#[derive(Debug)]
pub(crate) enum StreamRead {
    /// More bytes are expected.
    Partial,
    /// The object is complete.
    Complete(CompleteObject),
    /// The sender reset it, or the receiver stopped it.
    Ended { stopped: bool },
}

#[derive(Debug)]
enum Partial {
    Head { bytes: [u8; HEAD_LEN], got: usize },
    Body { head: ObjectHead, bytes: BytesMut },
}

impl Partial {
    const START: Partial = Partial::Head { bytes: [0; HEAD_LEN], got: 0 };
}

/// Objects in reception from one peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    streams: BTreeMap<StreamId, Partial>,
    /// Streams of received objects to confirm, and the time when that is due. At most the stream limit.
    unanswered: Vec<StreamId>,
    due: Option<Time>,
    room: ByteBudget,
    object_max: u32,
}

impl Inbox {
    pub(crate) fn new(object_max: u32, room: u64) -> Inbox {
        Inbox { streams: BTreeMap::new(), unanswered: Vec::new(), due: None, room: ByteBudget::new(room), object_max }
    }

    /// Whether no object is partial or unconfirmed.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.unanswered.is_empty()
    }

    /// When confirmations are due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Makes the confirmations due now.
    pub(crate) fn expedite(&mut self, now: Time) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Sends the confirmations.
    pub(crate) fn answer(&mut self, conn: &mut Connection) {
        self.due = None;
        for stream in self.unanswered.drain(..) {
            // Fails only if the peer wants no answer.
            let mut half = conn.send_stream(stream);
            let _ = half.set_priority(ANSWER_PRIORITY);
            let _ = half.finish();
        }
    }

    /// Frees the room of an object that the caller took.
    pub(crate) fn object_taken(&mut self, bytes: u64) {
        self.room.release(cost(bytes));
    }

    /// Drops all partial objects and releases their room.
    pub(crate) fn clear(&mut self, common: &mut ByteBudget) {
        for partial in std::mem::take(&mut self.streams).into_values() {
            self.release_partial(&partial, common);
        }
    }

    /// Reads stream `id`. A complete object keeps its room until [`Self::object_taken`].
    pub(crate) fn read(
        &mut self,
        now: Time,
        conn: &mut Connection,
        id: StreamId,
        common: &mut ByteBudget,
    ) -> StreamRead {
        let mut partial = self.streams.remove(&id).unwrap_or(Partial::START);
        let read = self.read_on(conn, id, &mut partial, common);
        match read {
            Ok(None) => {
                self.streams.insert(id, partial);
                StreamRead::Partial
            }
            Ok(Some(whole)) => {
                self.unanswered.push(id);
                self.due.get_or_insert(now + REPORT_DELAY);
                StreamRead::Complete(whole)
            }
            // QUIC may report a stream as readable more than once.
            Err(None) => {
                self.release_partial(&partial, common);
                StreamRead::Ended { stopped: false }
            }
            Err(Some(stop)) => {
                self.release_partial(&partial, common);
                if stop != StopReason::GivenUp {
                    // Fails only if the stream has ended.
                    let _ = conn.recv_stream(id).stop(stop.code());
                }
                let _ = conn.send_stream(id).reset(stop.code());
                StreamRead::Ended { stopped: stop != StopReason::GivenUp }
            }
        }
    }

    /// Reads the available bytes; `Err(None)` if the stream has ended before.
    fn read_on(
        &mut self,
        conn: &mut Connection,
        id: StreamId,
        partial: &mut Partial,
        common: &mut ByteBudget,
    ) -> Result<Option<CompleteObject>, Option<StopReason>> {
        let mut stream = conn.recv_stream(id);
        let mut chunks = stream.read(true).map_err(|_| None)?;
        let result = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(stop) = self.append(chunk.bytes, partial, common) {
                        break Err(stop);
                    }
                }
                Ok(None) => break finish(partial).map(Some),
                Err(ReadError::Blocked) => break Ok(None),
                Err(ReadError::Reset(_)) => break Err(StopReason::GivenUp),
            }
        };
        // The next poll_transmit sends the flow control credit.
        let _ = chunks.finalize();
        result.map_err(Some)
    }

    fn append(&mut self, mut bytes: Bytes, partial: &mut Partial, common: &mut ByteBudget) -> Result<(), StopReason> {
        if let Partial::Head { bytes: head, got } = partial {
            let part = bytes.split_to(bytes.len().min(HEAD_LEN - *got));
            for (to, from) in head.iter_mut().skip(*got).zip(&part) {
                *to = *from;
            }
            *got += part.len();
            if *got < HEAD_LEN {
                return Ok(());
            }
            let head = ObjectHead::decode(*head).ok_or(StopReason::Malformed)?;
            self.reserve(head.size, common)?;
            let first = usize::try_from(head.size).unwrap_or(usize::MAX).min(FIRST_ALLOCATION);
            *partial = Partial::Body { head, bytes: BytesMut::with_capacity(first) };
        }
        if let Partial::Body { head, bytes: body } = partial {
            if body.len() as u64 + bytes.len() as u64 > u64::from(head.size) {
                return Err(StopReason::Malformed);
            }
            body.extend_from_slice(&bytes);
        }
        Ok(())
    }

    fn reserve(&mut self, size: u32, common: &mut ByteBudget) -> Result<(), StopReason> {
        let all = cost(size.into());
        if size > self.object_max {
            return Err(StopReason::TooLarge);
        }
        if !self.room.fits(all) || !common.fits(all) {
            return Err(StopReason::NoRoom);
        }
        self.room.used += all;
        common.used += all;
        Ok(())
    }

    fn release_partial(&mut self, partial: &Partial, common: &mut ByteBudget) {
        if let Partial::Body { head, .. } = partial {
            let all = cost(head.size.into());
            self.room.release(all);
            common.release(all);
        }
    }
}

fn finish(partial: &mut Partial) -> Result<CompleteObject, StopReason> {
    match partial {
        Partial::Body { head, bytes } if bytes.len() as u64 == u64::from(head.size) => {
            Ok(CompleteObject { priority: head.priority, object: std::mem::take(bytes).freeze() })
        }
        _ => Err(StopReason::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(inbox: &mut Inbox, common: &mut ByteBudget, pieces: &[&[u8]]) -> Result<CompleteObject, StopReason> {
        let mut partial = Partial::START;
        for piece in pieces {
            let taken = inbox.append(Bytes::copy_from_slice(piece), &mut partial, common);
            if let Err(stop) = taken {
                inbox.release_partial(&partial, common);
                return Err(stop);
            }
        }
        finish(&mut partial).inspect_err(|_| inbox.release_partial(&partial, common))
    }

    #[test]
    fn objects_come_together_or_are_stopped() {
        type Case = (&'static [&'static [u8]], Result<&'static [u8], StopReason>);
        let cases: &[Case] = &[
            (&[&[4, 0, 0, 0, 3, 1, 2, 3]], Ok(&[1, 2, 3])),
            (&[&[4], &[0, 0], &[0, 3, 1], &[2], &[3]], Ok(&[1, 2, 3])),
            (&[&[4, 0, 0, 0, 0]], Ok(&[])),
            (&[&[4, 0, 0, 0, 3, 1, 2]], Err(StopReason::Malformed)),
            (&[&[4, 0, 0, 0, 3, 1, 2, 3, 4]], Err(StopReason::Malformed)),
            (&[&[4, 0, 0]], Err(StopReason::Malformed)),
            (&[], Err(StopReason::Malformed)),
            (&[&[99, 0, 0, 0, 0]], Err(StopReason::Malformed)),
            (&[&[4, 0, 0, 0, 101]], Err(StopReason::TooLarge)),
            (&[&[4, 0, 0, 0, 51]], Err(StopReason::NoRoom)),
        ];
        for (pieces, expected) in cases {
            let (mut inbox, mut common) = (Inbox::new(100, cost(80)), ByteBudget::new(cost(50)));
            let got = feed(&mut inbox, &mut common, pieces);
            match (&got, expected) {
                (Ok(whole), Ok(bytes)) => {
                    assert_eq!(whole.object, bytes);
                    let all = cost(bytes.len() as u64);
                    assert_eq!((inbox.room.used(), common.used()), (all, all));
                    inbox.object_taken(bytes.len() as u64);
                }
                (Err(stop), Err(expected)) => {
                    assert_eq!(stop, expected, "{pieces:?}");
                    assert_eq!(common.used(), 0, "{pieces:?}");
                }
                _ => panic!("{pieces:?}: {got:?}"),
            }
            assert_eq!(inbox.room.used(), 0, "{pieces:?}");
        }
    }
}
