//! Stream connections: the live ones, and those that ended recently.

use std::collections::BTreeMap;

use remora_base::{Path, Peer};

/// Most connections remembered that ended with everything delivered.
const ENDED_MAX: usize = 4096;

/// The streams that have brought a message and have not ended. The host bounds their number. The transaction id (XID)
/// of a stream's first call tells a client that reconnects, and goes on counting, from a program that starts again,
/// and begins with the same XID.
#[derive(Default, Debug)]
pub struct Connections {
    live: BTreeMap<u64, Live>,
    /// Streams that ended after all replies were delivered.
    ended: BTreeMap<u64, Ended>,
}

#[derive(Default, Debug)]
struct Live {
    /// The first call.
    first: Option<First>,
    /// The XID of a NULL call before the first call.
    null: Option<u32>,
    /// Calls, including the first.
    calls: u64,
    /// Calls that show that the client goes on: neither NULL nor known duplicates.
    new: u64,
    unanswered: u64,
    /// Whether a call arrived before an earlier one was answered.
    pipelined: bool,
}

/// How a stream began. NULL does not count as the first call: a client that reconnects may ping before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub(crate) xid: u32,
    /// The XID of a NULL call before it.
    pub(crate) null: Option<u32>,
}

/// A stream that ended after all replies were delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) first: First,
    /// Whether it brought several calls, each after the reply to the one before. Such a client has read every reply
    /// but the last; a client that pipelines calls may have read none.
    pub(crate) in_step: bool,
}

impl Connections {
    /// Whether nothing has arrived on the stream of `peer`.
    pub(crate) fn is_new(&self, peer: Peer) -> bool {
        matches!(peer.path, Path::Stream(id) if !self.live.contains_key(&id))
    }

    /// Notes a message from `peer`. `xid` is given if it is a call.
    pub fn heard(&mut self, peer: Peer, xid: Option<u32>) {
        let Path::Stream(id) = peer.path else { return };
        let live = self.live.entry(id).or_default();
        if let Some(xid) = xid {
            live.first = live.first.or(Some(First { xid, null: live.null }));
            live.new += 1;
            live.call();
        }
    }

    /// Notes a NULL call from `peer`.
    pub fn heard_null(&mut self, peer: Peer, xid: u32) {
        let Path::Stream(id) = peer.path else { return };
        let live = self.live.entry(id).or_default();
        if live.first.is_some() {
            live.call();
        } else {
            live.null = live.null.or(Some(xid));
            live.unanswered += 1;
        }
    }

    /// Notes that the last call from `peer` is a duplicate.
    pub fn heard_before(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path
            && let Some(live) = self.live.get_mut(&id)
        {
            live.new = live.new.saturating_sub(1);
        }
    }

    /// Notes a reply to `peer`.
    pub fn answered(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path
            && let Some(live) = self.live.get_mut(&id)
        {
            live.unanswered = live.unanswered.saturating_sub(1);
        }
    }

    /// Removes the stream of `peer`.
    pub fn gone(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path {
            self.live.remove(&id);
        }
    }

    /// Notes that the client at `peer` ended its stream after all replies were delivered. A stream with unanswered
    /// calls, for instance a duplicate of a call in progress, is only removed.
    pub fn ended(&mut self, peer: Peer) {
        let Path::Stream(id) = peer.path else { return };
        let live = self.live.remove(&id).filter(|live| live.unanswered == 0);
        let Some(Live { first: Some(first), calls, pipelined, .. }) = live else { return };
        self.ended.insert(id, Ended { first, in_step: calls > 1 && !pipelined });
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_first();
        }
    }

    /// Whether replies can reach `peer`. Datagrams always can.
    pub fn reaches(&self, peer: &Peer) -> bool {
        match peer.path {
            Path::Datagram => true,
            Path::Stream(id) => self.live.contains_key(&id),
        }
    }

    /// How a live stream began.
    pub(crate) fn first(&self, stream: u64) -> Option<First> {
        self.live.get(&stream)?.first
    }

    /// Whether a live stream brought a new call before its latest call.
    pub(crate) fn brought_new(&self, stream: u64) -> bool {
        self.live.get(&stream).is_some_and(|live| live.new > 1)
    }

    /// What is known of a stream that ended after all replies were delivered.
    pub(crate) fn of_ended(&self, stream: u64) -> Option<Ended> {
        self.ended.get(&stream).copied()
    }
}

impl Live {
    fn call(&mut self) {
        self.pipelined |= self.unanswered > 0;
        self.calls += 1;
        self.unanswered += 1;
    }
}

/// What the host knows of streams. The core asks rarely.
pub trait Ends {
    /// Whether the client has probably received all replies that were sent. False if it cannot be known.
    fn has_arrived(&self, stream: u64) -> bool;

    /// Whether the client has broken the stream off. False if it cannot be known.
    fn is_broken(&self, stream: u64) -> bool;
}

/// For a host that knows nothing of its streams.
impl Ends for () {
    fn has_arrived(&self, _: u64) -> bool {
        false
    }

    fn is_broken(&self, _: u64) -> bool {
        false
    }
}

/// What is known of streams when a request arrives.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    pub connections: &'a Connections,
    pub ends: &'a dyn Ends,
}

impl<'a> Streams<'a> {
    /// Without knowledge of what was delivered.
    pub fn unsure(connections: &'a Connections) -> Streams<'a> {
        Streams { connections, ends: &() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(id: u64) -> Peer {
        Peer::stream(([10, 0, 0, 1], 700).into(), id)
    }

    #[test]
    fn ended_streams_are_remembered_up_to_a_limit() {
        let mut connections = Connections::default();
        for id in 0..2 * ENDED_MAX as u64 {
            connections.heard(tcp(id), None);
            connections.heard(tcp(id), Some(id as u32));
            connections.heard(tcp(id), Some(7));
            assert_eq!(connections.first(id), Some(First { xid: id as u32, null: None }));
            (0..2).for_each(|_| connections.answered(tcp(id)));
            connections.ended(tcp(id));
            assert!(!connections.reaches(&tcp(id)));
        }
        assert_eq!(connections.ended.len(), ENDED_MAX);
        assert_eq!(connections.of_ended(0), None);
        let last = 2 * ENDED_MAX as u64 - 1;
        assert_eq!(connections.of_ended(last).map(|e| e.first.xid), Some(last as u32));
    }

    #[test]
    fn serial_clients_are_distinguished() {
        // `c` is a call, `n` a NULL call, `a` a reply, `x` another message.
        for (calls, in_step) in [
            ("ca", Some(false)),
            ("caca", Some(true)),
            ("xcacaca", Some(true)),
            ("ccaa", Some(false)),
            ("ccaaca", Some(false)),
            // NULL calls count only behind the first call.
            ("naca", Some(false)),
            ("nacaca", Some(true)),
            ("cana", Some(true)),
            ("cnaa", Some(false)),
            // Unanswered calls.
            ("c", None),
            ("cac", None),
            ("cca", None),
            ("can", None),
        ] {
            let mut connections = Connections::default();
            for step in calls.chars() {
                match step {
                    'c' => connections.heard(tcp(1), Some(1)),
                    'n' => connections.heard_null(tcp(1), 9),
                    'a' => connections.answered(tcp(1)),
                    _ => connections.heard(tcp(1), None),
                }
            }
            connections.ended(tcp(1));
            let first = First { xid: 1, null: calls.starts_with('n').then_some(9) };
            assert_eq!(connections.of_ended(1), in_step.map(|in_step| Ended { first, in_step }), "{calls}");
        }
    }
}
