//! Calls to the server: their priorities, and the queue in which they wait for the client core.

use std::collections::BTreeMap;
use std::sync::Arc;

use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::AuthUnix;
use remora_wire::urgency::Urgency;

use crate::config::PREFETCH_MIN;

/// Identifies a call of the cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallId(u64);

/// Priority of a call, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// A program waits: lookups, attributes, reads, changes of names.
    Foreground,
    /// A program waits for fsync(2) or close(2).
    Durable,
    /// A program waits, but for much data: what is behind the first 64 KiB of a file.
    Awaited,
    /// Write-back of a file that no program waits for.
    WriteBack,
    /// Data that a program is expected to read next.
    ReadAhead,
    /// Names and files that a program may ask for.
    Prefetch,
}

/// Numbers of calls by their priorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueLengths {
    pub foreground: usize,
    /// With those of [`Priority::Awaited`].
    pub durable: usize,
    pub write_back: usize,
    pub read_ahead: usize,
    pub prefetch: usize,
}

/// A call for the client core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub id: CallId,
    pub priority: Priority,
    pub credential: Arc<AuthUnix>,
    pub call: nfs3::Call,
}

/// Why a call has no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallFailure {
    /// The server did not answer within the limit of a soft mount.
    TimedOut,
    /// The server refused the RPC, or its reply could not be decoded.
    Failed,
}

/// READs and WRITEs of more bytes than this wait for room in the client's window.
const SMALL_MAX: u64 = 1400;
/// Bytes of the headers and attributes of a call and its reply on the link, about.
const HEADERS: u64 = 350;
/// Bytes of a page of a listing, at most: few directories fill a longer one.
const PAGE: u64 = 8 << 10;
/// Bytes of a file in the queue whose calls keep their priority; calls behind them are [`Priority::Awaited`].
const LITTLE_MAX: u64 = 64 << 10;

/// Place of a call in its queue.
///
/// Of one priority, the call goes first before which its file has the fewest bytes in the queue: a program that waits
/// for a little does not wait behind one that waits for much. Calls of one file keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    priority: Priority,
    /// Bytes of the same file before this call.
    before: u64,
    id: CallId,
}

impl Priority {
    /// The urgency of calls of this priority for the client core.
    pub fn urgency(self) -> Urgency {
        match self {
            Priority::Foreground => Urgency::Foreground,
            Priority::Durable => Urgency::Sync,
            Priority::Awaited | Priority::WriteBack => Urgency::WriteBack,
            Priority::ReadAhead | Priority::Prefetch => Urgency::Bulk,
        }
    }

    /// The priority of a READ or WRITE with so many bytes of its file before it.
    fn behind(self, before: u64) -> Priority {
        if before < LITTLE_MAX { self } else { self.max(Priority::Awaited) }
    }
}

/// READs and WRITEs of much data that may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkRoom {
    None,
    /// Those of at least [`Priority::Durable`].
    Urgent,
    All,
}

impl BulkRoom {
    fn admits(self, priority: Priority) -> bool {
        match self {
            BulkRoom::None => false,
            BulkRoom::Urgent => priority <= Priority::Durable,
            BulkRoom::All => true,
        }
    }
}

/// Calls that the client core has not taken yet.
#[derive(Debug)]
pub(crate) struct CallQueue {
    next: u64,
    small: BTreeMap<Place, Call>,
    bulk: BTreeMap<Place, Call>,
    /// Where each call is.
    places: BTreeMap<CallId, Place>,
    /// Files with READs or WRITEs in the queue.
    files: BTreeMap<Fh, QueuedFile>,
    /// Small calls in flight for which no program waits.
    background: Background,
}

/// Bytes on the link of the small calls in flight for which no program waits. They begin as a queue of a device can
/// hold, and each answer adds its own bytes, as in TCP's slow start: a burst of them would drop calls of programs, too.
#[derive(Debug)]
struct Background {
    calls: BTreeMap<CallId, u64>,
    bytes: u64,
    /// No more leave from these bytes on, now and at most.
    room: u64,
    max: u64,
}

impl Background {
    fn left(&mut self, id: CallId, bytes: u64) {
        self.calls.insert(id, bytes);
        self.bytes += bytes;
    }

    fn answered(&mut self, id: CallId) {
        let Some(bytes) = self.calls.remove(&id) else { return };
        self.bytes -= bytes;
        self.room = if self.calls.is_empty() { PREFETCH_MIN } else { self.room + bytes };
        self.room = self.room.min(self.max);
    }
}

/// READs and WRITEs of a file in the queue.
#[derive(Debug, Default)]
struct QueuedFile {
    calls: usize,
    bytes: u64,
    /// [`Place::before`] of the last one.
    last: u64,
}

/// The file and the bytes of a READ or WRITE.
fn data_of(call: &nfs3::Call) -> Option<(&Fh, u64)> {
    match call {
        nfs3::Call::Read(read) => Some((&read.fh, u64::from(read.count))),
        nfs3::Call::Write(write) => Some((&write.fh, write.data.len() as u64)),
        _ => None,
    }
}

/// Bytes of a call and its reply on the link, about.
fn link_bytes(call: &nfs3::Call) -> u64 {
    let data = match call {
        nfs3::Call::ReadDirPlus(list) => u64::from(list.max_count).min(PAGE),
        nfs3::Call::ReadDir(list) => u64::from(list.count).min(PAGE),
        _ => data_of(call).map_or(0, |(_, bytes)| bytes),
    };
    HEADERS + data
}

fn is_bulk(call: &nfs3::Call) -> bool {
    data_of(call).is_some_and(|(_, bytes)| bytes > SMALL_MAX)
}

impl Default for CallQueue {
    fn default() -> CallQueue {
        CallQueue {
            next: 0,
            small: BTreeMap::new(),
            bulk: BTreeMap::new(),
            places: BTreeMap::new(),
            files: BTreeMap::new(),
            background: Background { calls: BTreeMap::new(), bytes: 0, room: PREFETCH_MIN, max: PREFETCH_MIN },
        }
    }
}

impl CallQueue {
    pub(crate) fn push(&mut self, priority: Priority, credential: Arc<AuthUnix>, call: nfs3::Call) -> CallId {
        let id = CallId(self.next);
        self.next += 1;
        let before = self.enter(&call);
        self.insert(Place { priority, before, id }, Call { id, priority, credential, call });
        id
    }

    fn insert(&mut self, place: Place, call: Call) {
        let priority = place.priority.behind(place.before);
        let (place, call) = (Place { priority, ..place }, Call { priority, ..call });
        let queue = if is_bulk(&call.call) { &mut self.bulk } else { &mut self.small };
        self.places.insert(place.id, place);
        queue.insert(place, call);
    }

    /// Counts a call that enters the queue. Returns the bytes of the same file before it.
    fn enter(&mut self, call: &nfs3::Call) -> u64 {
        let Some((fh, bytes)) = data_of(call) else { return 0 };
        let file = self.files.entry(fh.clone()).or_default();
        file.last = file.last.max(file.bytes);
        file.calls += 1;
        file.bytes += bytes;
        file.last
    }

    /// Counts a call that leaves the queue.
    fn leave(&mut self, call: &Call) {
        self.places.remove(&call.id);
        let Some((fh, bytes)) = data_of(&call.call) else { return };
        let Some(file) = self.files.get_mut(fh) else { return };
        file.calls -= 1;
        file.bytes -= bytes;
        if file.calls == 0 {
            self.files.remove(fh);
        }
    }

    /// The most urgent call; READs and WRITEs of much data as `room` admits them.
    pub(crate) fn pop(&mut self, room: BulkRoom) -> Option<Call> {
        let has_room = self.background.bytes < self.background.room;
        let leaves = |priority: &Priority| *priority < Priority::WriteBack || has_room;
        let small = self.small.first_key_value().map(|(place, _)| place.priority).filter(leaves);
        let bulk = self.bulk.first_key_value().map(|(place, _)| place.priority).filter(|p| room.admits(*p));
        let takes_bulk = match (small, bulk) {
            (Some(small), Some(bulk)) => bulk < small,
            (None, None) => return None,
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        let queue = if takes_bulk { &mut self.bulk } else { &mut self.small };
        let (_, call) = queue.pop_first()?;
        self.leave(&call);
        if !takes_bulk && call.priority >= Priority::WriteBack {
            self.background.left(call.id, link_bytes(&call.call));
        }
        Some(call)
    }

    /// A call has ended.
    pub(crate) fn answered(&mut self, id: CallId) {
        self.background.answered(id);
    }

    /// Sets the bytes from which no more small calls leave for which no program waits.
    pub(crate) fn set_background_max(&mut self, max: u64) {
        self.background.max = max;
        self.background.room = self.background.room.min(max);
    }

    /// Makes a waiting call more urgent.
    pub(crate) fn raise(&mut self, id: CallId, priority: Priority) {
        let Some(place) = self.places.get(&id).copied().filter(|place| place.priority > priority) else { return };
        let call = self.small.remove(&place).or_else(|| self.bulk.remove(&place));
        if let Some(call) = call {
            self.insert(Place { priority, ..place }, Call { priority, ..call });
        }
    }

    /// Removes a call. Returns whether it was still here.
    pub(crate) fn remove(&mut self, id: CallId) -> bool {
        let Some(place) = self.places.get(&id).copied() else { return false };
        let Some(call) = self.small.remove(&place).or_else(|| self.bulk.remove(&place)) else { return false };
        self.leave(&call);
        true
    }

    pub(crate) fn lengths(&self) -> QueueLengths {
        let mut lengths = QueueLengths::default();
        for place in self.places.values() {
            *match place.priority {
                Priority::Foreground => &mut lengths.foreground,
                Priority::Durable | Priority::Awaited => &mut lengths.durable,
                Priority::WriteBack => &mut lengths.write_back,
                Priority::ReadAhead => &mut lengths.read_ahead,
                Priority::Prefetch => &mut lengths.prefetch,
            } += 1;
        }
        lengths
    }

    /// Whether READs or WRITEs of much data wait.
    pub(crate) fn has_data(&self) -> bool {
        !self.bulk.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(count: u32) -> nfs3::Call {
        nfs3::Call::Read(nfs3::ReadArgs { fh: nfs3::Fh(Bytes::new()), offset: 0, count })
    }

    #[test]
    fn urgent_call_leaves_first_and_bulk_waits_for_room() {
        let mut queue = CallQueue::default();
        let who = Arc::new(AuthUnix::default());
        let ahead = queue.push(Priority::ReadAhead, who.clone(), read(32 << 10));
        let prefetch = queue.push(Priority::Prefetch, who.clone(), nfs3::Call::Null);
        let wanted = queue.push(Priority::Foreground, who.clone(), read(32 << 10));
        let small = queue.push(Priority::Foreground, who, read(100));
        // What is behind the first 32 KiB of a file waits with fsync.
        let lengths = QueueLengths { foreground: 1, durable: 1, write_back: 0, read_ahead: 1, prefetch: 1 };
        assert_eq!(queue.lengths(), lengths);
        assert_eq!(queue.pop(BulkRoom::None).unwrap().id, small, "without room only small calls leave");
        assert_eq!(queue.pop(BulkRoom::All).unwrap().id, wanted, "the foreground leaves before read-ahead");
        queue.raise(prefetch, Priority::Foreground);
        assert_eq!(queue.pop(BulkRoom::All).unwrap().id, prefetch, "a raised call overtakes read-ahead");
        assert_eq!(queue.pop(BulkRoom::None), None, "read-ahead waits for room");
        assert_eq!(queue.pop(BulkRoom::All).unwrap().id, ahead, "then it leaves");
    }

    /// A WRITE of 8 KiB to this file.
    fn write(file: &'static str) -> nfs3::Call {
        let data = Bytes::from_static(&[0; 8 << 10]);
        let (fh, count, stable) = (Fh(Bytes::from_static(file.as_bytes())), data.len() as u32, nfs3::Stable::Unstable);
        nfs3::Call::Write(nfs3::WriteArgs { fh, offset: 0, count, stable, data })
    }

    #[test]
    fn short_file_overtakes_a_long_one_of_the_same_priority() {
        let mut queue = CallQueue::default();
        let who = Arc::new(AuthUnix::default());
        let push = |queue: &mut CallQueue, file| queue.push(Priority::WriteBack, who.clone(), write(file));
        let mut long: Vec<CallId> = (0..20).map(|_| push(&mut queue, "long")).collect();
        let sent: Vec<CallId> = (0..4).map(|_| queue.pop(BulkRoom::All).unwrap().id).collect();
        assert_eq!(sent, long.drain(..4).collect::<Vec<_>>());
        long.push(push(&mut queue, "long"));
        let short: Vec<CallId> = (0..3).map(|_| push(&mut queue, "short")).collect();
        (long.iter().chain(&short)).for_each(|id| queue.raise(*id, Priority::Durable));
        let order: Vec<Call> = std::iter::from_fn(|| queue.pop(BulkRoom::All)).collect();
        let ids: Vec<CallId> = order.iter().map(|call| call.id).collect();
        assert_eq!(ids[..3], short, "the long file has more in the queue");
        assert_eq!(ids[3..], long, "in the order of the file");
        assert!(order[..7].iter().all(|call| call.priority == Priority::Durable));
        assert!(order[7..].iter().all(|call| call.priority == Priority::Awaited));
    }

    #[test]
    fn urgent_room_admits_only_what_a_program_waits_for() {
        let mut queue = CallQueue::default();
        let who = Arc::new(AuthUnix::default());
        queue.push(Priority::WriteBack, who.clone(), write("background"));
        assert_eq!(queue.pop(BulkRoom::Urgent), None);
        let wanted = queue.push(Priority::Foreground, who, write("wanted"));
        assert_eq!(queue.pop(BulkRoom::None), None);
        assert_eq!(queue.pop(BulkRoom::Urgent).unwrap().id, wanted);
        assert!(queue.pop(BulkRoom::All).is_some() && queue.files.is_empty() && queue.len() == 0);
    }

    #[test]
    fn background_calls_begin_few_and_grow_with_answers() {
        let mut queue = CallQueue::default();
        queue.set_background_max(3 * HEADERS);
        let who = Arc::new(AuthUnix::default());
        queue.background.room = HEADERS;
        let sent = queue.push(Priority::WriteBack, who.clone(), nfs3::Call::Null);
        let [second, third, fourth, raised] =
            [(); 4].map(|()| queue.push(Priority::Prefetch, who.clone(), nfs3::Call::Null));
        let pop = |queue: &mut CallQueue| queue.pop(BulkRoom::All).map(|call| call.id);
        assert_eq!([(); 2].map(|()| pop(&mut queue)), [Some(sent), None]);
        queue.raise(raised, Priority::Foreground);
        assert_eq!(pop(&mut queue), Some(raised), "a program waits for it now");
        queue.answered(raised);
        assert_eq!(pop(&mut queue), None);
        queue.background.left(raised, 0);
        queue.answered(sent);
        assert_eq!(
            [(); 3].map(|()| pop(&mut queue)),
            [Some(second), Some(third), None],
            "an answer makes room for two"
        );
        queue.answered(second);
        queue.answered(third);
        assert_eq!(queue.background.room, 3 * HEADERS, "not above the maximum");
        assert_eq!(pop(&mut queue), Some(fourth));
    }
}
