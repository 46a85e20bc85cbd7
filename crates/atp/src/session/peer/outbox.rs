//! Sending of objects to one peer. Each is a QUIC stream, opened with its first byte, written one packet at a time,
//! reset when its request ends early. The receiver answers in the other direction: FIN confirms the object,
//! RESET_STREAM refuses it.

use std::collections::BTreeMap;

use bytes::Bytes;
use noq_proto::{Connection, Dir, ReadError, StreamId};

use super::frame::{HEAD_LEN, ObjectHead};
use super::inbox::StopReason;
use crate::{Priority, RequestId};

/// QUIC accepts no bytes of this object: flow control or the stream limit. QUIC reports when that changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowBlocked;

/// A receiver's answer to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Taken,
    Refused(StopReason),
}

/// Maximum number of objects started because others are blocked: twice what fills the default windows (4 MiB, 1 MiB
/// for an object).
const PARALLEL_MAX: usize = 8;

#[derive(Debug)]
struct OutgoingObject {
    priority: Priority,
    object: Bytes,
    stream: Option<StreamId>,
    /// Bytes written, including the head.
    written: usize,
    /// Flow control blocked the last write.
    flow_blocked: bool,
}

impl OutgoingObject {
    fn len(&self) -> usize {
        HEAD_LEN + self.object.len()
    }

    fn is_written(&self) -> bool {
        self.written == self.len()
    }

    /// Head and object from offset `written`, at most `room` bytes.
    fn rest(&self, room: usize) -> [Bytes; 2] {
        let head = ObjectHead { priority: self.priority, size: u32::try_from(self.object.len()).unwrap_or(u32::MAX) };
        let mut head = Bytes::copy_from_slice(&head.encode());
        let head = head.split_off(self.written.min(HEAD_LEN));
        let head = head.slice(..head.len().min(room));
        let from = self.written.saturating_sub(HEAD_LEN);
        let to = self.object.len().min(from + (room - head.len()));
        [head, self.object.slice(from..to)]
    }
}

/// Requests to one peer that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    requests: BTreeMap<RequestId, OutgoingObject>,
    streams: BTreeMap<StreamId, RequestId>,
    /// Number of requests with unwritten bytes.
    unwritten: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether all requests are completely written.
    pub(crate) fn is_written(&self) -> bool {
        self.unwritten == 0
    }

    /// Whether this request is completely written.
    pub(crate) fn is_written_of(&self, request: RequestId) -> bool {
        self.requests.get(&request).is_some_and(OutgoingObject::is_written)
    }

    pub(crate) fn contains(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn insert(&mut self, request: RequestId, priority: Priority, object: Bytes) {
        self.unwritten += 1;
        self.requests
            .insert(request, OutgoingObject { priority, object, stream: None, written: 0, flow_blocked: false });
    }

    /// Maximum bytes of a STREAM frame's header for this request.
    pub(crate) fn frame_head(&self, request: RequestId) -> usize {
        // Type, stream id, offset, length (RFC 9000, section 19.8).
        let written = self.requests.get(&request).map_or(0, |o| o.written as u64);
        1 + 4 + varint_len(written) + 2
    }

    /// Writes at most `room` bytes of `request` to QUIC; returns how many were the object's.
    pub(crate) fn write(&mut self, conn: &mut Connection, request: RequestId, room: usize) -> Result<u64, FlowBlocked> {
        let out = self.requests.get_mut(&request).ok_or(FlowBlocked)?;
        let stream = match out.stream {
            Some(stream) => stream,
            None => {
                let stream = conn.streams().open(Dir::Bi).ok_or(FlowBlocked)?;
                // QUIC retransmits by this priority.
                let _ = conn.send_stream(stream).set_priority(out.priority.level().into());
                out.stream = Some(stream);
                self.streams.insert(stream, request);
                stream
            }
        };
        let (before, was_written) = (out.written.max(HEAD_LEN), out.is_written());
        let mut chunks = out.rest(room);
        let mut stream = conn.send_stream(stream);
        if chunks.iter().any(|c| !c.is_empty()) {
            let written = stream.write_chunks(&mut &mut chunks[..]);
            out.flow_blocked = written.is_err();
            out.written += written.map_err(|_| FlowBlocked)?;
        }
        if out.is_written() {
            self.unwritten -= usize::from(!was_written);
            // Fails only if the peer stopped it, which is a separate event.
            let _ = stream.finish();
        }
        Ok((out.written.max(HEAD_LEN) - before) as u64)
    }

    /// Changes the priority of a request.
    pub(crate) fn prioritise(&mut self, conn: &mut Connection, request: RequestId, priority: Priority) {
        let Some(out) = self.requests.get_mut(&request) else { return };
        out.priority = priority;
        if let Some(stream) = out.stream {
            let _ = conn.send_stream(stream).set_priority(priority.level().into());
        }
    }

    /// Ends a request and resets its stream; returns whether a packet must be sent. No effect on an unknown one.
    pub(crate) fn end(&mut self, conn: &mut Connection, request: RequestId) -> bool {
        let Some(out) = self.requests.remove(&request) else { return false };
        self.unwritten -= usize::from(!out.is_written());
        let Some(stream) = out.stream.filter(|stream| self.streams.remove(stream).is_some()) else { return false };
        // Fails only for a stream that has ended.
        let _ = conn.send_stream(stream).reset(StopReason::GivenUp.code());
        let _ = conn.recv_stream(stream).stop(StopReason::GivenUp.code());
        true
    }

    /// Reads the receiver's answer on a stream.
    pub(crate) fn answer(&mut self, conn: &mut Connection, stream: StreamId) -> Option<(RequestId, Answer)> {
        let request = self.request_of(stream)?;
        let mut half = conn.recv_stream(stream);
        let mut chunks = half.read(true).ok()?;
        let answer = match chunks.next(usize::MAX) {
            Ok(None) => Answer::Taken,
            Err(ReadError::Blocked) => return None,
            Err(ReadError::Reset(code)) => Answer::Refused(StopReason::from_code(code)),
            Ok(Some(_)) => Answer::Refused(StopReason::Malformed), // there is nothing to say
        };
        let _ = chunks.finalize();
        if answer == Answer::Taken {
            self.streams.remove(&stream);
        }
        Some((request, answer))
    }

    /// The lowest priority among the started requests.
    pub(crate) fn lowest_started(&self) -> Option<Priority> {
        self.streams.values().filter_map(|request| self.requests.get(request)).map(|out| out.priority).min()
    }

    /// Whether the request has a stream.
    pub(crate) fn is_started(&self, request: RequestId) -> bool {
        self.requests.get(&request).is_some_and(|out| out.stream.is_some())
    }

    /// The object to write when `request` is blocked: the most urgent other one that satisfies `wanted` and is not
    /// blocked itself, of equals the oldest. It must have a stream if `request` has none or many have, because the
    /// connection may be blocked, and streams must be left for later objects.
    pub(crate) fn most_urgent_except(
        &self,
        request: RequestId,
        wanted: impl Fn(&RequestId) -> bool,
    ) -> Option<RequestId> {
        let open = self.requests.values().filter(|out| out.stream.is_some() && !out.is_written()).count();
        let any = self.is_started(request) && open < PARALLEL_MAX;
        let fits = |out: &OutgoingObject| (any || out.stream.is_some()) && !out.flow_blocked && !out.is_written();
        let others = self.requests.iter().filter(|(r, out)| **r != request && fits(out) && wanted(r));
        others.min_by_key(|(r, out)| (std::cmp::Reverse(out.priority), **r)).map(|(r, _)| *r)
    }

    /// Records that flow control allows more of this stream.
    pub(crate) fn unblock(&mut self, stream: StreamId) {
        if let Some(out) = self.request_of(stream).and_then(|r| self.requests.get_mut(&r)) {
            out.flow_blocked = false;
        }
    }

    /// The request of a stream.
    pub(crate) fn request_of(&self, stream: StreamId) -> Option<RequestId> {
        self.streams.get(&stream).copied()
    }

    /// Rewrites the early data (0-RTT), which the peer has rejected, to new streams. It is one flight at most.
    pub(crate) fn rewrite(&mut self, conn: &mut Connection) {
        self.streams.clear();
        let mut again = Vec::new();
        for (request, out) in &mut self.requests {
            out.flow_blocked = false;
            if out.stream.take().is_some() {
                self.unwritten += usize::from(out.is_written());
                again.push((*request, std::mem::take(&mut out.written)));
            }
        }
        for (request, written) in again {
            // The peer's limits are not lower than before (RFC 9001, section 4.6.1), so blocking is rare; the bytes
            // are then sent later.
            let _ = self.write(conn, request, written);
        }
    }
}

/// Bytes of a variable-length integer (RFC 9000, section 16).
fn varint_len(value: u64) -> usize {
    match value {
        0..=63 => 1,
        64..=16_383 => 2,
        16_384..=1_073_741_823 => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_object_are_one_sequence_at_any_cut() {
        let object = Bytes::from_static(&[9, 8, 7, 6, 5, 4, 3]);
        let mut out = OutgoingObject {
            priority: Priority::LOW,
            object: object.clone(),
            stream: None,
            written: 0,
            flow_blocked: false,
        };
        let all: Vec<u8> = out.rest(100).concat();
        assert_eq!(all, [&[4, 0, 0, 0, 7][..], &object[..]].concat());
        for written in 0..=all.len() {
            for room in 0..=all.len() + 1 {
                out.written = written;
                let end = all.len().min(written + room);
                assert_eq!(out.rest(room).concat(), &all[written..end], "{written} {room}");
            }
        }
    }
}
