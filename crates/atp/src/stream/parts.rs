//! The two directions of a connection at one end: what was sent and not delivered yet, and what
//! came and was not taken yet, put into order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use super::interface::Violation;

/// The bytes of a data frame at least, if there are as many, and at most.
pub(super) const CHUNK: (usize, usize) = (2 << 10, 32 << 10);
/// A data frame has at most this part of what its connection has sent without a pause.
const CHUNK_SHARE: u64 = 8;
/// Data frames from the oldest that is not delivered to the newest. It bounds what many small
/// writes cost.
pub(super) const SPAN_MAX: u64 = 256;
/// The same at a receiver, which learns of deliveries before the sender does.
const AHEAD_MAX: u64 = 2 * SPAN_MAX;

/// The direction that leaves.
#[derive(Debug)]
pub(super) struct SendPart {
    /// The number of the next frame.
    next: u64,
    /// Frames that are not delivered, and their bytes.
    in_flight: BTreeMap<u64, usize>,
    bytes_in_flight: u64,
    /// Bytes sent in all, and how many the peer takes in all.
    sent: u64,
    limit: u64,
    /// Bytes sent since nothing was in_flight way.
    burst: u64,
    finished: bool,
}

impl SendPart {
    /// Nothing sent; the peer takes `window` bytes.
    pub(super) fn new(window: u64) -> SendPart {
        SendPart {
            next: 0,
            in_flight: BTreeMap::new(),
            bytes_in_flight: 0,
            sent: 0,
            limit: window,
            burst: 0,
            finished: false,
        }
    }

    /// Bytes that may be sent now, if no more than `in_flight_max` are to be in_flight way: as much as
    /// one frame takes.
    ///
    /// Frames grow with what the connection has sent without a pause. ATP sends the object that
    /// has the fewest bytes left, so keystrokes and small answers pass copies that go on for
    /// long, though nobody says which is which.
    pub(super) fn room(&self, in_flight_max: u64) -> usize {
        let oldest = self.in_flight.first_key_value().map_or(self.next, |(n, _)| *n);
        if self.finished || self.next - oldest >= SPAN_MAX {
            return 0;
        }
        let credit = self.limit.saturating_sub(self.sent);
        let own = in_flight_max.saturating_sub(self.bytes_in_flight);
        let (least, most) = CHUNK;
        let chunk = (self.burst / CHUNK_SHARE).clamp(least as u64, most as u64);
        usize::try_from(credit.min(own).min(chunk)).unwrap_or(most)
    }

    /// `bytes` more bytes leave, and nothing after them if they are the `last`; their number.
    pub(super) fn send(&mut self, bytes: usize, last: bool) -> u64 {
        if self.in_flight.is_empty() {
            self.burst = 0;
        }
        let number = self.next;
        self.next += 1;
        self.in_flight.insert(number, bytes);
        let bytes = bytes as u64;
        self.bytes_in_flight += bytes;
        self.sent += bytes;
        self.burst += bytes;
        self.finished |= last;
        number
    }

    /// The frame has arrived.
    pub(super) fn delivered(&mut self, number: u64) {
        let bytes = self.in_flight.remove(&number).unwrap_or(0);
        self.bytes_in_flight -= bytes as u64;
    }

    /// The peer takes so many bytes in all; what it once took it takes for ever.
    pub(super) fn credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Whether nothing may be sent any more.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether it has all arrived, its end too.
    pub(super) fn is_done(&self) -> bool {
        self.finished && self.in_flight.is_empty()
    }
}

/// FramePurpose comes next in a direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// These bytes.
    Bytes(Bytes),
    /// Its end: the peer sends no more.
    End,
    /// Nothing yet.
    Nothing,
}

/// The direction that comes in.
#[derive(Debug)]
pub(super) struct ReceivePart {
    /// The number of the next frame in order.
    next: u64,
    /// Frames that came too out_of_order.
    out_of_order: BTreeMap<u64, Bytes>,
    /// In order, to be taken; what is in `small` comes last.
    ready: VecDeque<Bytes>,
    /// Small frames together, so that many of them cost little more than their bytes.
    small: BytesMut,
    /// The number of the frame after the last one, once known.
    end: Option<u64>,
    window: u64,
    /// Bytes that came, that were taken, and that the peer may send: all in all.
    came: u64,
    taken: u64,
    limit: u64,
    has_ended: bool,
}

impl ReceivePart {
    /// Nothing came; the peer knows that it may send `first` bytes.
    pub(super) fn new(first: u32) -> ReceivePart {
        let window = u64::from(first);
        ReceivePart {
            next: 0,
            out_of_order: BTreeMap::new(),
            ready: VecDeque::new(),
            small: BytesMut::new(),
            end: None,
            window,
            came: 0,
            taken: 0,
            limit: window,
            has_ended: false,
        }
    }

    /// The peer is being told that it may send `window` bytes, which is no less than at first.
    pub(super) fn widen(&mut self, window: u32) {
        self.window = self.window.max(window.into());
        self.limit = self.limit.max(self.taken + self.window);
    }

    /// Takes in a frame, in whatever order; whether there is something to be taken that was not
    /// there before. One that came before is passed over.
    pub(super) fn accept(&mut self, number: u64, last: bool, bytes: Bytes) -> Result<bool, Violation> {
        if number < self.next || self.out_of_order.contains_key(&number) {
            return Ok(false);
        }
        let is_beyond = self.end.is_some_and(|end| number >= end || last);
        if is_beyond || number - self.next >= AHEAD_MAX || (bytes.is_empty() && !last) {
            return Err(Violation::Order);
        }
        if last && self.out_of_order.last_key_value().is_some_and(|(n, _)| *n > number) {
            return Err(Violation::Order);
        }
        self.came = self.came.saturating_add(bytes.len() as u64);
        if self.came > self.limit {
            return Err(Violation::Credit);
        }
        if last {
            self.end = Some(number + 1);
        }
        self.out_of_order.insert(number, bytes);
        let had = self.has_something();
        while let Some(bytes) = self.out_of_order.remove(&self.next) {
            self.next += 1;
            self.append(bytes);
        }
        Ok(!had && self.has_something())
    }

    /// Puts what is next in order behind what is ready.
    fn append(&mut self, bytes: Bytes) {
        if self.small.len() + bytes.len() > CHUNK.0 {
            let small = self.take_small();
            self.ready.extend(small);
        }
        if bytes.len() > CHUNK.0 {
            self.ready.push_back(bytes);
        } else {
            self.small.extend_from_slice(&bytes);
        }
    }

    fn take_small(&mut self) -> Option<Bytes> {
        (!self.small.is_empty()).then(|| std::mem::take(&mut self.small).freeze())
    }

    /// Whether [`take`](ReceivePart::take) has more than nothing.
    pub(super) fn has_something(&self) -> bool {
        !self.ready.is_empty() || !self.small.is_empty() || (self.is_complete() && !self.has_ended)
    }

    /// FramePurpose comes next; its place is free for more.
    pub(super) fn take(&mut self) -> Taken {
        if let Some(bytes) = self.ready.pop_front().or_else(|| self.take_small()) {
            self.taken += bytes.len() as u64;
            return Taken::Bytes(bytes);
        }
        if self.is_complete() {
            self.has_ended = true;
            return Taken::End;
        }
        Taken::Nothing
    }

    /// Whether all of it has come, its end too, and can be taken, or was.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Whether its end was taken.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended
    }

    /// FramePurpose the peer is to be told that it may send, if that is worth a frame.
    pub(super) fn poll_credit(&mut self) -> Option<u64> {
        let limit = self.taken + self.window;
        let is_due = limit - self.limit >= self.window / 4;
        (is_due && self.end.is_none()).then(|| {
            self.limit = limit;
            limit
        })
    }

    /// Bytes kept: in order or not.
    pub(super) fn kept(&self) -> u64 {
        self.came - self.taken
    }
}

/// Which of the numbers that a peer gives its connections have been used. They are given in
/// order, but heard of in any order.
#[derive(Debug, Default)]
pub(super) struct UsedNumbers {
    /// Everything from here on is new.
    next: u32,
    /// UsedNumbers before that nothing was heard of yet.
    missing: BTreeSet<u32>,
}

impl UsedNumbers {
    /// Marks a number as used; whether it was new. More than `ahead_max` that nothing was heard
    /// of are no peer that keeps within its connections.
    pub(super) fn is_new(&mut self, number: u32, ahead_max: usize) -> Result<bool, Violation> {
        if number < self.next {
            return Ok(self.missing.remove(&number));
        }
        let next = number.checked_add(1).ok_or(Violation::Order)?;
        let skipped = (number - self.next) as usize;
        if self.missing.len().saturating_add(skipped) > ahead_max {
            return Err(Violation::Order);
        }
        self.missing.extend(self.next..number);
        self.next = next;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::interface::WINDOW_MIN;
    use super::*;

    fn frame(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn frames_come_out_in_order_once_each_and_then_the_end() {
        let mut part = ReceivePart::new(WINDOW_MIN);
        assert_eq!(part.take(), Taken::Nothing);
        assert_eq!(part.accept(2, true, frame("c")), Ok(false));
        assert_eq!(part.accept(1, false, frame("b")), Ok(false));
        assert_eq!(part.accept(0, false, frame("a")), Ok(true));
        for number in 0..3 {
            assert_eq!(part.accept(number, number == 2, frame("again")), Ok(false));
        }
        let got = [(); 3].map(|()| part.take());
        assert_eq!(got, [Taken::Bytes(frame("abc")), Taken::End, Taken::End]);
        assert!(part.is_done() && part.kept() == 0);
    }

    #[test]
    fn small_frames_are_kept_together() {
        let mut part = ReceivePart::new(1 << 20);
        let small = (0..20_000u64).map(|n| 1 + n as usize % 3);
        let sizes: Vec<usize> = small.chain([CHUNK.0, CHUNK.0 + 1, 5, 1 << 16, 7]).collect();
        let mut sent = Vec::new();
        for (number, size) in sizes.iter().enumerate() {
            let frame = vec![number as u8; *size];
            sent.extend_from_slice(&frame);
            part.accept(number as u64, false, frame.into()).unwrap();
        }
        assert!(part.ready.len() <= 40_000 / (CHUNK.0 - 2) + 6, "{} pieces", part.ready.len());
        let mut got = Vec::new();
        while let Taken::Bytes(bytes) = part.take() {
            got.extend_from_slice(&bytes);
        }
        assert!(got == sent && part.kept() == 0);
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_caught() {
        let part = || {
            let mut part = ReceivePart::new(WINDOW_MIN);
            part.accept(1, true, frame("end")).unwrap();
            part
        };
        for (what, number, last, bytes, why) in [
            ("beyond the end", 2, false, frame("x"), Violation::Order),
            ("two ends", 0, true, frame("x"), Violation::Order),
            ("nothing", 0, false, Bytes::new(), Violation::Order),
            ("too much", 0, false, vec![0; WINDOW_MIN as usize].into(), Violation::Credit),
        ] {
            assert_eq!(part().accept(number, last, bytes), Err(why), "{what}");
        }
        let mut fresh = ReceivePart::new(WINDOW_MIN);
        assert_eq!(fresh.accept(AHEAD_MAX, false, frame("x")), Err(Violation::Order), "far ahead");
        fresh.accept(5, false, frame("x")).unwrap();
        assert_eq!(fresh.accept(4, true, frame("x")), Err(Violation::Order), "an end before what is there");
    }

    #[test]
    fn credit_comes_with_what_is_taken() {
        let mut part = ReceivePart::new(WINDOW_MIN);
        let quarter = WINDOW_MIN as usize / 4;
        for number in 0..4 {
            part.accept(number, false, vec![7; quarter].into()).unwrap();
        }
        assert_eq!((part.poll_credit(), part.kept()), (None, WINDOW_MIN.into()));
        part.take();
        assert_eq!(part.poll_credit(), Some(u64::from(WINDOW_MIN) + quarter as u64));
        assert_eq!(part.poll_credit(), None);
    }

    #[test]
    fn frames_grow_while_there_is_no_pause() {
        let mut part = SendPart::new(10 << 20);
        let mut sizes = Vec::new();
        while part.room(u64::MAX) > 0 {
            sizes.push(part.room(u64::MAX));
            part.send(part.room(u64::MAX), false);
        }
        assert_eq!((sizes[0], *sizes.last().unwrap()), CHUNK);
        assert!(sizes.is_sorted() && sizes.len() as u64 <= SPAN_MAX);
        for number in 0..part.next {
            part.delivered(number);
        }
        part.credit(20 << 20);
        part.send(1, false);
        assert_eq!(part.room(u64::MAX), CHUNK.0, "after a pause it begins anew");
    }

    #[test]
    fn credit_span_and_pace_bound_what_is_under_way() {
        let mut part = SendPart::new(100);
        assert_eq!((part.room(u64::MAX), part.room(60)), (100, 60));
        part.send(70, false);
        assert_eq!((part.room(u64::MAX), part.room(60)), (30, 0));
        part.credit(50);
        assert_eq!(part.room(u64::MAX), 30, "credit is never taken back");
        let mut small = SendPart::new(1 << 20);
        for _ in 0..SPAN_MAX {
            small.send(1, false);
        }
        assert_eq!(small.room(u64::MAX), 0);
        small.delivered(5);
        assert_eq!(small.room(u64::MAX), 0, "the oldest counts");
        small.delivered(0);
        assert!(small.room(u64::MAX) > 0);
        small.send(0, true);
        assert!(small.room(u64::MAX) == 0 && !small.is_done());
    }

    #[test]
    fn numbers_are_new_once_in_any_order() {
        let mut numbers = UsedNumbers::default();
        for (number, is_new) in [(2, true), (2, false), (0, true), (1, true), (0, false), (3, true)] {
            assert_eq!(numbers.is_new(number, 4), Ok(is_new), "{number}");
        }
        assert_eq!(numbers.is_new(8, 4), Ok(true));
        assert_eq!(numbers.is_new(10, 4), Err(Violation::Order));
        assert_eq!(numbers.is_new(u32::MAX, usize::MAX), Err(Violation::Order));
    }
}
