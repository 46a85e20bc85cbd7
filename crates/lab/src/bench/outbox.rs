//! Messages to send: their heads are copied together, file data stays in the image.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use super::plan::Image;

/// A message: record mark and call, followed by a part of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    head: Range<usize>,
    body: Range<usize>,
}

/// Messages in order. Outstanding calls limit it: each is here at most once.
#[derive(Default, Debug)]
pub(super) struct Outbox {
    /// Heads of the queue, and at most as many sent bytes before them.
    heads: Vec<u8>,
    queue: VecDeque<Message>,
    /// Sent bytes of the first message (streams only).
    gone: usize,
}

const MARK: usize = 4;

impl Outbox {
    /// Adds a message. `head` starts with the record mark; `patch` edits the copy.
    pub(super) fn push(&mut self, head: &[u8], body: Range<usize>, patch: impl FnOnce(&mut [u8])) {
        let from = self.heads.len();
        self.heads.extend_from_slice(head);
        if let Some(copy) = self.heads.get_mut(from..) {
            patch(copy);
        }
        self.queue.push_back(Message { head: from..self.heads.len(), body });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next bytes for a stream, in about `slices_max` pieces.
    pub(super) fn stream<'a>(&'a self, image: &'a Image, slices_max: usize) -> Vec<IoSlice<'a>> {
        let mut slices: Vec<IoSlice<'a>> = Vec::with_capacity(slices_max.min(2 * self.queue.len()));
        let mut run: Range<usize> = 0..0; // of heads without data between them
        let mut skip = self.gone;
        for message in &self.queue {
            if slices.len() + 2 > slices_max {
                break;
            }
            let head = message.head.start + skip.min(message.head.len())..message.head.end;
            skip = skip.saturating_sub(message.head.len());
            run = if run.is_empty() { head } else { run.start..head.end };
            if !message.body.is_empty() {
                slices.extend(self.heads.get(run.clone()).filter(|s| !s.is_empty()).map(IoSlice::new));
                run = 0..0;
                let body = message.body.start + skip..message.body.end;
                slices.push(IoSlice::new(image.range(&body)));
                skip = 0;
            }
        }
        slices.extend(self.heads.get(run).filter(|s| !s.is_empty()).map(IoSlice::new));
        slices
    }

    /// Removes `n` sent bytes of [`stream`](Outbox::stream).
    pub(super) fn sent_bytes(&mut self, mut n: usize) {
        n += self.gone;
        while let Some(first) = self.queue.front() {
            let len = first.head.len() + first.body.len();
            if n < len {
                break;
            }
            n -= len;
            self.queue.pop_front();
        }
        self.gone = n;
        self.tidy();
    }

    /// The next messages as datagrams without record marks, at most `max`.
    pub(super) fn datagrams<'a>(&'a self, image: &'a Image, max: usize) -> Vec<[IoSlice<'a>; 2]> {
        let slices = |m: &Message| {
            let head = self.heads.get(m.head.start + MARK..m.head.end).unwrap_or_default();
            [IoSlice::new(head), IoSlice::new(image.range(&m.body))]
        };
        self.queue.iter().take(max).map(slices).collect()
    }

    /// Removes `n` sent [`datagrams`](Outbox::datagrams).
    pub(super) fn sent_datagrams(&mut self, n: usize) {
        self.queue.drain(..n.min(self.queue.len()));
        self.tidy();
    }

    /// Frees sent heads when they are more than half: a queue may never be empty.
    fn tidy(&mut self) {
        let sent = self.queue.front().map_or(self.heads.len(), |first| first.head.start);
        if sent <= self.heads.len() / 2 {
            return;
        }
        self.heads.drain(..sent);
        for Message { head, .. } in &mut self.queue {
            *head = head.start - sent..head.end - sent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(slices: &[IoSlice<'_>]) -> Vec<u8> {
        slices.iter().flat_map(|s| s.to_vec()).collect()
    }

    #[test]
    fn stream_resumes_after_any_byte() {
        let image = Image::new(64);
        let whole = |step: usize| {
            let mut out = Outbox::default();
            out.push(b"....abc", 0..0, |c| c[0] = b'1');
            out.push(b"....de", 3..20, |_| {});
            out.push(b"....f", 0..0, |_| {});
            out.push(b"....g", 0..0, |_| {});
            let mut sent = Vec::new();
            while !out.is_empty() {
                let next = flat(&out.stream(&image, 4));
                let n = next.len().min(step);
                sent.extend_from_slice(&next[..n]);
                out.sent_bytes(n);
            }
            sent
        };
        let expected = [b"1...abc....de".as_slice(), image.range(&(3..20)), b"....f....g"].concat();
        for step in 1..=expected.len() {
            assert_eq!(whole(step), expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn heads_without_data_are_one_piece() {
        let image = Image::new(8);
        let mut out = Outbox::default();
        (0..10).for_each(|_| out.push(b"....x", 0..0, |_| {}));
        assert_eq!(out.stream(&image, 64).len(), 1);
    }

    #[test]
    fn sent_heads_are_freed_in_a_queue_never_empty() {
        let image = Image::new(64);
        let (mut out, mut sent) = (Outbox::default(), Vec::new());
        let numbers: Vec<u8> = (0..=255).collect();
        for n in &numbers {
            out.push(&[*n; 8], 0..4, |_| {});
            // Length of the second and later messages; never the end of a message.
            let next = flat(&out.stream(&image, 64));
            let taken = next.len().min(if *n == 0 { 6 } else { 12 });
            sent.extend_from_slice(&next[..taken]);
            out.sent_bytes(taken);
            assert!(!out.is_empty() && out.heads.len() <= 4 * 8, "{}", out.heads.len());
        }
        let messages = numbers.iter().flat_map(|n| [&[*n; 8][..], image.range(&(0..4))].concat());
        assert!(messages.take(sent.len()).eq(sent));
    }

    #[test]
    fn datagrams_have_no_record_mark() {
        let image = Image::new(64);
        let mut out = Outbox::default();
        out.push(b"....abc", 8..16, |_| {});
        out.push(b"....d", 0..0, |_| {});
        assert_eq!(flat(&out.datagrams(&image, 1)[0]), [b"abc", image.range(&(8..16))].concat());
        out.sent_datagrams(1);
        assert_eq!(flat(&out.datagrams(&image, 9)[0]), b"d");
        out.sent_datagrams(1);
        assert!(out.is_empty());
    }
}
