//! Objects on their way in from one peer, put together and counted.
//!
//! An object's size stands at its head, so room for all of it is set aside before the first
//! byte is kept, and an object there is no room for is refused at once (STOP_SENDING) rather
//! than left half received: a half that waits for room that other halves hold would wait for
//! ever. Streams are read as bytes come, so QUIC's own buffers hold only what is out of order.
//!
//! What was taken is answered with the end of the stream's other half: an acknowledgement of
//! QUIC's says only that the bytes came, which they may have before they were refused. Answers
//! wait as long as those acknowledgements do, so that both leave in one packet.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use noq_proto::{Connection, ReadError, StreamId, VarInt};
use remora_base::Time;

use super::feedback::PATIENCE;
use super::frame::{HEAD_LEN, Head};
use crate::Priority;

/// What answers are sent before: any object.
const ANSWER_PRIORITY: i32 = 16;
/// What an object counts for beside its bytes: what is kept of it until it is taken, and above all
/// something, or as many empty ones as anybody likes would have room.
pub const OBJECT_COST: u64 = 512;
/// Memory set aside at once for an object; more is taken as its bytes come. It counts against the
/// room there is, all of it, and the system gives it as it is written to.
const FIRST_ALLOCATION: usize = 1 << 20;

/// Why the receiver stops an object, as the code in STOP_SENDING; a sender resets with
/// [`GIVEN_UP`](Stop::GivenUp).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The sender ended it.
    GivenUp,
    /// Larger than the receiver takes.
    TooLarge,
    /// The receiver's buffers are full.
    NoRoom,
    /// Its head makes no sense, or its bytes are not as many as its head says.
    Malformed,
}

impl Stop {
    pub(super) fn code(self) -> VarInt {
        VarInt::from_u32(match self {
            Stop::GivenUp => 1,
            Stop::TooLarge => 2,
            Stop::NoRoom => 3,
            Stop::Malformed => 4,
        })
    }

    /// What a peer's code means; what is unknown counts as malformed.
    pub(super) fn from_code(code: VarInt) -> Stop {
        match code.into_inner() {
            1 => Stop::GivenUp,
            2 => Stop::TooLarge,
            3 => Stop::NoRoom,
            _ => Stop::Malformed,
        }
    }
}

/// Bytes set aside out of so many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    used: u64,
    max: u64,
}

impl Budget {
    pub(super) fn new(max: u64) -> Budget {
        Budget { used: 0, max }
    }

    fn fits(&self, bytes: u64) -> bool {
        self.used.checked_add(bytes).is_some_and(|all| all <= self.max)
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }
}

/// What an object of so many bytes takes of the room there is.
pub(super) const fn cost(bytes: u64) -> u64 {
    bytes.saturating_add(OBJECT_COST)
}

/// A whole object.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) priority: Priority,
    pub(super) object: Bytes,
}

/// What reading a stream came to.
#[derive(Debug)]
pub(super) enum Read {
    /// More is to come.
    Partial,
    /// It ended well.
    Whole(Whole),
    /// It ended otherwise: the sender gave it up, or we stopped it.
    Nothing { stopped: bool },
}

#[derive(Debug)]
enum Partial {
    Head { bytes: [u8; HEAD_LEN], got: usize },
    Body { head: Head, bytes: BytesMut },
}

impl Partial {
    const START: Partial = Partial::Head { bytes: [0; HEAD_LEN], got: 0 };
}

/// The objects one peer is sending.
#[derive(Debug)]
pub(super) struct Inbox {
    streams: BTreeMap<StreamId, Partial>,
    /// Streams of objects that were taken, to be answered, and when at the latest. At most as many
    /// as the peer may have open.
    taken: Vec<StreamId>,
    due: Option<Time>,
    room: Budget,
    object_max: u32,
}

impl Inbox {
    pub(super) fn new(object_max: u32, room: u64) -> Inbox {
        Inbox { streams: BTreeMap::new(), taken: Vec::new(), due: None, room: Budget::new(room), object_max }
    }

    /// Whether nothing is half received or unanswered.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.taken.is_empty()
    }

    /// When what was taken is to be answered; `None` for never.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// What was taken is to be answered now.
    pub(super) fn hurry(&mut self, now: Time) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Answers what was taken.
    pub(super) fn answer(&mut self, conn: &mut Connection) {
        self.due = None;
        for stream in self.taken.drain(..) {
            // Fails only if the peer wants no answer any more.
            let mut half = conn.send_stream(stream);
            let _ = half.set_priority(ANSWER_PRIORITY);
            let _ = half.finish();
        }
    }

    /// The application took an object of so many bytes.
    pub(super) fn taken(&mut self, bytes: u64) {
        self.room.release(cost(bytes));
    }

    /// All half received objects are lost; what they held of the common room is given back.
    pub(super) fn clear(&mut self, common: &mut Budget) {
        for partial in std::mem::take(&mut self.streams).into_values() {
            self.give_back(&partial, common);
        }
    }

    /// Reads what stream `id` has. Room that a whole object holds stays held until [`Self::taken`].
    pub(super) fn read(&mut self, now: Time, conn: &mut Connection, id: StreamId, common: &mut Budget) -> Read {
        let mut partial = self.streams.remove(&id).unwrap_or(Partial::START);
        let read = self.read_on(conn, id, &mut partial, common);
        match read {
            Ok(None) => {
                self.streams.insert(id, partial);
                Read::Partial
            }
            Ok(Some(whole)) => {
                self.taken.push(id);
                self.due.get_or_insert(now + PATIENCE);
                Read::Whole(whole)
            }
            // QUIC tells more than once that there is something to read.
            Err(None) => {
                self.give_back(&partial, common);
                Read::Nothing { stopped: false }
            }
            Err(Some(stop)) => {
                self.give_back(&partial, common);
                if stop != Stop::GivenUp {
                    // Fails only if the stream is over, when there is nobody to tell.
                    let _ = conn.recv_stream(id).stop(stop.code());
                }
                let _ = conn.send_stream(id).reset(stop.code());
                Read::Nothing { stopped: stop != Stop::GivenUp }
            }
        }
    }

    /// What more came of a stream; `Err(None)` if it is over already.
    fn read_on(
        &mut self,
        conn: &mut Connection,
        id: StreamId,
        partial: &mut Partial,
        common: &mut Budget,
    ) -> Result<Option<Whole>, Option<Stop>> {
        let mut stream = conn.recv_stream(id);
        let mut chunks = stream.read(true).map_err(|_| None)?;
        let result = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(stop) = self.take_in(chunk.bytes, partial, common) {
                        break Err(stop);
                    }
                }
                Ok(None) => break finish(partial).map(Some),
                Err(ReadError::Blocked) => break Ok(None),
                Err(ReadError::Reset(_)) => break Err(Stop::GivenUp),
            }
        };
        // Whether credit is to be sent shows in the next poll_transmit, which follows anyway.
        let _ = chunks.finalize();
        result.map_err(Some)
    }

    fn take_in(&mut self, mut bytes: Bytes, partial: &mut Partial, common: &mut Budget) -> Result<(), Stop> {
        if let Partial::Head { bytes: head, got } = partial {
            let part = bytes.split_to(bytes.len().min(HEAD_LEN - *got));
            for (to, from) in head.iter_mut().skip(*got).zip(&part) {
                *to = *from;
            }
            *got += part.len();
            if *got < HEAD_LEN {
                return Ok(());
            }
            let head = Head::decode(*head).ok_or(Stop::Malformed)?;
            self.set_aside(head.size, common)?;
            let first = usize::try_from(head.size).unwrap_or(usize::MAX).min(FIRST_ALLOCATION);
            *partial = Partial::Body { head, bytes: BytesMut::with_capacity(first) };
        }
        if let Partial::Body { head, bytes: body } = partial {
            if body.len() as u64 + bytes.len() as u64 > u64::from(head.size) {
                return Err(Stop::Malformed);
            }
            body.extend_from_slice(&bytes);
        }
        Ok(())
    }

    fn set_aside(&mut self, size: u32, common: &mut Budget) -> Result<(), Stop> {
        let all = cost(size.into());
        if size > self.object_max {
            return Err(Stop::TooLarge);
        }
        if !self.room.fits(all) || !common.fits(all) {
            return Err(Stop::NoRoom);
        }
        self.room.used += all;
        common.used += all;
        Ok(())
    }

    fn give_back(&mut self, partial: &Partial, common: &mut Budget) {
        if let Partial::Body { head, .. } = partial {
            let all = cost(head.size.into());
            self.room.release(all);
            common.release(all);
        }
    }
}

fn finish(partial: &mut Partial) -> Result<Whole, Stop> {
    match partial {
        Partial::Body { head, bytes } if bytes.len() as u64 == u64::from(head.size) => {
            Ok(Whole { priority: head.priority, object: std::mem::take(bytes).freeze() })
        }
        _ => Err(Stop::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(inbox: &mut Inbox, common: &mut Budget, pieces: &[&[u8]]) -> Result<Whole, Stop> {
        let mut partial = Partial::START;
        for piece in pieces {
            let taken = inbox.take_in(Bytes::copy_from_slice(piece), &mut partial, common);
            if let Err(stop) = taken {
                inbox.give_back(&partial, common);
                return Err(stop);
            }
        }
        finish(&mut partial).inspect_err(|_| inbox.give_back(&partial, common))
    }

    #[test]
    fn objects_come_together_or_are_stopped() {
        type Case = (&'static [&'static [u8]], Result<&'static [u8], Stop>);
        let cases: &[Case] = &[
            (&[&[4, 0, 0, 0, 3, 1, 2, 3]], Ok(&[1, 2, 3])),
            (&[&[4], &[0, 0], &[0, 3, 1], &[2], &[3]], Ok(&[1, 2, 3])),
            (&[&[4, 0, 0, 0, 0]], Ok(&[])),
            (&[&[4, 0, 0, 0, 3, 1, 2]], Err(Stop::Malformed)),
            (&[&[4, 0, 0, 0, 3, 1, 2, 3, 4]], Err(Stop::Malformed)),
            (&[&[4, 0, 0]], Err(Stop::Malformed)),
            (&[], Err(Stop::Malformed)),
            (&[&[99, 0, 0, 0, 0]], Err(Stop::Malformed)),
            (&[&[4, 0, 0, 0, 101]], Err(Stop::TooLarge)),
            (&[&[4, 0, 0, 0, 51]], Err(Stop::NoRoom)),
        ];
        for (pieces, expected) in cases {
            let (mut inbox, mut common) = (Inbox::new(100, cost(80)), Budget::new(cost(50)));
            let got = feed(&mut inbox, &mut common, pieces);
            match (&got, expected) {
                (Ok(whole), Ok(bytes)) => {
                    assert_eq!(whole.object, bytes);
                    let all = cost(bytes.len() as u64);
                    assert_eq!((inbox.room.used(), common.used()), (all, all));
                    inbox.taken(bytes.len() as u64);
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
