//! Calls to the server: their priorities, and the queue in which they wait for the client core.

use std::collections::BTreeMap;
use std::sync::Arc;

use remora_wire::nfs3;
use remora_wire::rpc::AuthUnix;

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
    /// Write-back of a file that no program waits for.
    WriteBack,
    /// Data that a program is expected to read next.
    ReadAhead,
    /// Names and files that a program may ask for.
    Prefetch,
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
const SMALL_MAX: usize = 1400;

/// Calls that the client core has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct CallQueue {
    next: u64,
    small: BTreeMap<(Priority, CallId), Call>,
    bulk: BTreeMap<(Priority, CallId), Call>,
}

fn is_bulk(call: &nfs3::Call) -> bool {
    match call {
        nfs3::Call::Read(read) => read.count as usize > SMALL_MAX,
        nfs3::Call::Write(write) => write.data.len() > SMALL_MAX,
        _ => false,
    }
}

impl CallQueue {
    pub(crate) fn push(&mut self, priority: Priority, credential: Arc<AuthUnix>, call: nfs3::Call) -> CallId {
        let id = CallId(self.next);
        self.next += 1;
        let queue = if is_bulk(&call) { &mut self.bulk } else { &mut self.small };
        queue.insert((priority, id), Call { id, priority, credential, call });
        id
    }

    /// The most urgent call; READs and WRITEs of much data only with `has_bulk_room`.
    pub(crate) fn pop(&mut self, has_bulk_room: bool) -> Option<Call> {
        let small = self.small.first_key_value().map(|(key, _)| *key);
        let bulk = if has_bulk_room { self.bulk.first_key_value().map(|(key, _)| *key) } else { None };
        let takes_bulk = match (small, bulk) {
            (Some(small), Some(bulk)) => bulk.0 < small.0,
            (None, bulk) => bulk.is_some(),
            (Some(_), None) => false,
        };
        let queue = if takes_bulk { &mut self.bulk } else { &mut self.small };
        queue.pop_first().map(|(_, call)| call)
    }

    /// Makes a waiting call more urgent.
    pub(crate) fn raise(&mut self, id: CallId, priority: Priority) {
        const ALL: [Priority; 5] =
            [Priority::Foreground, Priority::Durable, Priority::WriteBack, Priority::ReadAhead, Priority::Prefetch];
        for queue in [&mut self.small, &mut self.bulk] {
            for lower in ALL.into_iter().filter(|lower| *lower > priority) {
                if let Some(call) = queue.remove(&(lower, id)) {
                    queue.insert((priority, id), Call { priority, ..call });
                    return;
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.bulk.len()
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
        assert_eq!(queue.pop(false).unwrap().id, small, "without room only small calls leave");
        assert_eq!(queue.pop(true).unwrap().id, wanted, "the foreground leaves before read-ahead");
        queue.raise(prefetch, Priority::Foreground);
        assert_eq!(queue.pop(true).unwrap().id, prefetch, "a raised call overtakes read-ahead");
        assert_eq!(queue.pop(false), None, "read-ahead waits for room");
        assert_eq!(queue.pop(true).unwrap().id, ahead, "then it leaves");
    }
}
