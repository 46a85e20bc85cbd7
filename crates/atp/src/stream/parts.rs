//! The sending part and the receiving part of a connection, as RFC 9000, section 3, names those of a QUIC stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use super::interface::Violation;

/// Minimum (if available) and maximum bytes of a data frame.
pub(super) const CHUNK: (usize, usize) = (2 << 10, 32 << 10);
/// A data frame has at most this share of the bytes sent without a pause.
const CHUNK_SHARE: u64 = 8;
/// Maximum span of undelivered data frames. Bounds the cost of many small writes.
pub(super) const SPAN_MAX: u64 = 256;
/// The same at a receiver, which learns of deliveries before the sender.
const AHEAD_MAX: u64 = 2 * SPAN_MAX;

/// The sending part.
#[derive(Debug)]
pub(super) struct SendPart {
    /// Number of the next frame.
    next: u64,
    /// Bytes of the undelivered frames.
    in_flight: BTreeMap<u64, usize>,
    bytes_in_flight: u64,
    /// Total bytes sent, and the total that the peer allows.
    sent: u64,
    limit: u64,
    /// Bytes sent since the last pause.
    burst: u64,
    finished: bool,
}

impl SendPart {
    /// Creates a sending part with an initial window.
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

    /// Bytes that the next frame may have, with at most `in_flight_max` bytes in flight.
    ///
    /// Frames grow with the bytes sent without a pause. ATP sends the object with the fewest bytes left, so
    /// keystrokes and small answers precede bulk data without a declared priority.
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

    /// Records a frame of `bytes`, the last one if `last`; returns its number.
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

    /// Records that a frame was delivered.
    pub(super) fn delivered(&mut self, number: u64) {
        let bytes = self.in_flight.remove(&number).unwrap_or(0);
        self.bytes_in_flight -= bytes as u64;
    }

    /// Sets the total that the peer allows; it never falls.
    pub(super) fn credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Whether the last frame was sent.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether all frames were delivered, including the last.
    pub(super) fn is_done(&self) -> bool {
        self.finished && self.in_flight.is_empty()
    }
}

/// The next bytes of a direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Bytes in order.
    Bytes(Bytes),
    /// The end of the direction.
    End,
    /// Nothing is available.
    Nothing,
}

/// The receiving part.
#[derive(Debug)]
pub(super) struct ReceivePart {
    /// Number of the next frame in order.
    next: u64,
    /// Frames received out of order.
    out_of_order: BTreeMap<u64, Bytes>,
    /// Frames in order; `small` follows them.
    ready: VecDeque<Bytes>,
    /// Small frames, concatenated to save memory.
    small: BytesMut,
    /// The number after the last frame, if known.
    end: Option<u64>,
    window: u64,
    /// Total bytes received, taken, and allowed.
    came: u64,
    taken: u64,
    limit: u64,
    has_ended: bool,
}

impl ReceivePart {
    /// Creates a receiving part; the peer may send `first` bytes.
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

    /// Raises the window to `window`.
    pub(super) fn widen(&mut self, window: u32) {
        self.window = self.window.max(window.into());
        self.limit = self.limit.max(self.taken + self.window);
    }

    /// Handles a frame in any order; returns whether data became available. Ignores duplicates.
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

    /// Appends a frame in order.
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

    /// Whether [`take`](ReceivePart::take) returns more than nothing.
    pub(super) fn has_something(&self) -> bool {
        !self.ready.is_empty() || !self.small.is_empty() || (self.is_complete() && !self.has_ended)
    }

    /// Takes the next bytes, which frees their room.
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

    /// Whether all frames have arrived, including the last.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Whether the end was taken.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended
    }

    /// The new total to grant to the peer, once it has grown by a quarter of the window.
    pub(super) fn poll_credit(&mut self) -> Option<u64> {
        let limit = self.taken + self.window;
        let is_due = limit - self.limit >= self.window / 4;
        (is_due && self.end.is_none()).then(|| {
            self.limit = limit;
            limit
        })
    }

    /// Bytes received and not taken.
    pub(super) fn kept(&self) -> u64 {
        self.came - self.taken
    }
}

/// Connection numbers that a peer has used. It assigns them in order, but they arrive in any order.
#[derive(Debug, Default)]
pub(super) struct UsedNumbers {
    /// The lowest number above all seen.
    next: u32,
    /// Lower numbers not seen yet.
    missing: BTreeSet<u32>,
}

impl UsedNumbers {
    /// Marks a number as used; returns whether it was new. More than `ahead_max` missing numbers are a violation.
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
