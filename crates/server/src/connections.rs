//! Which stream connections are still there, and what is known of those that are not.

use std::collections::BTreeMap;

use remora_base::{Path, Peer};

/// Most connections remembered that ended with everything delivered.
const ENDED_MAX: usize = 4096;

/// The streams that have brought a message and have not been reported gone: as many as the
/// host keeps open, so it is the host that bounds them. Of each it is known with which
/// transaction id it began: a client that connects again goes on counting, and a program that
/// starts over begins with the same one.
#[derive(Default, Debug)]
pub struct Connections {
    live: BTreeMap<u64, Live>,
    /// Those that ended in order, their clients having got all that was sent to them.
    ended: BTreeMap<u64, Ended>,
}

#[derive(Default, Debug)]
struct Live {
    /// With which call it began.
    first: Option<First>,
    /// The transaction id of a NULL call before that.
    null: Option<u32>,
    /// How many it brought from that one on.
    calls: u64,
    /// How many of them tell that their client goes on: not NULL, and not known to have come before on another stream.
    new: u64,
    unanswered: u64,
    /// Whether a call came while another was not answered.
    pipelined: bool,
}

/// How a stream began. NULL is no beginning: who connects anew may ask whether anybody is there before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub(crate) xid: u32,
    /// The transaction id of a NULL call before it.
    pub(crate) null: Option<u32>,
}

/// What is known of a stream that ended with everything delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) first: First,
    /// Whether it brought several calls, each when those before had been answered. Who so asks has read
    /// every answer but the last; who sends calls one behind the other may have read none.
    pub(crate) in_step: bool,
}

impl Connections {
    /// Whether nothing has come in from `peer` on its stream.
    pub(crate) fn is_new(&self, peer: Peer) -> bool {
        matches!(peer.path, Path::Stream(id) if !self.live.contains_key(&id))
    }

    /// A message came in from `peer`; `xid` is its transaction id, if it is a call.
    pub fn heard(&mut self, peer: Peer, xid: Option<u32>) {
        let Path::Stream(id) = peer.path else { return };
        let live = self.live.entry(id).or_default();
        if let Some(xid) = xid {
            live.first = live.first.or(Some(First { xid, null: live.null }));
            live.new += 1;
            live.call();
        }
    }

    /// A NULL call came in from `peer`.
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

    /// The call that has just come in from `peer` is one come again.
    pub fn heard_before(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path
            && let Some(live) = self.live.get_mut(&id)
        {
            live.new = live.new.saturating_sub(1);
        }
    }

    /// A call that came from `peer` is being answered there.
    pub fn answered(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path
            && let Some(live) = self.live.get_mut(&id)
        {
            live.unanswered = live.unanswered.saturating_sub(1);
        }
    }

    /// The connection to `peer` is gone.
    pub fn gone(&mut self, peer: Peer) {
        if let Path::Stream(id) = peer.path {
            self.live.remove(&id);
        }
    }

    /// The client at `peer` ended its connection, and all that was sent on it had arrived. If not all that came on it
    /// was answered there, as what also came on another and is being executed, nothing more is known than that it is gone.
    pub fn ended(&mut self, peer: Peer) {
        let Path::Stream(id) = peer.path else { return };
        let live = self.live.remove(&id).filter(|live| live.unanswered == 0);
        let Some(Live { first: Some(first), calls, pipelined, .. }) = live else { return };
        self.ended.insert(id, Ended { first, in_step: calls > 1 && !pipelined });
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_first();
        }
    }

    /// Whether something sent to `peer` has a way to get there. Datagrams always have one.
    pub fn reaches(&self, peer: &Peer) -> bool {
        match peer.path {
            Path::Datagram => true,
            Path::Stream(id) => self.live.contains_key(&id),
        }
    }

    /// How the stream of this number began, if it is there.
    pub(crate) fn first(&self, stream: u64) -> Option<First> {
        self.live.get(&stream)?.first
    }

    /// Whether the stream of this number brought something new before the call that has just come in.
    pub(crate) fn brought_new(&self, stream: u64) -> bool {
        self.live.get(&stream).is_some_and(|live| live.new > 1)
    }

    /// What is known of the stream of this number, if it ended with everything delivered.
    pub(crate) fn of_ended(&self, stream: u64) -> Option<Ended> {
        self.ended.get(&stream).copied()
    }
}

impl Live {
    /// A call came in.
    fn call(&mut self) {
        self.pipelined |= self.unanswered > 0;
        self.calls += 1;
        self.unanswered += 1;
    }
}

/// What the host can tell of streams, by their numbers. It is asked rarely.
pub trait Ends {
    /// Whether all that it was given to send on that one, and is done with, has arrived at the other end, as far as
    /// anybody can tell: `false` if nobody can.
    fn has_arrived(&self, stream: u64) -> bool;

    /// Whether the other end has broken that one off, so that nobody waits for anything there: `false` if nobody can tell.
    fn is_broken(&self, stream: u64) -> bool;
}

/// Nobody can tell anything.
impl Ends for () {
    fn has_arrived(&self, _: u64) -> bool {
        false
    }

    fn is_broken(&self, _: u64) -> bool {
        false
    }
}

/// What is known of streams when a request comes in.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    /// Which of them are there.
    pub connections: &'a Connections,
    /// What became of them.
    pub ends: &'a dyn Ends,
}

impl<'a> Streams<'a> {
    /// Where nobody can tell what has arrived.
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
    fn of_streams_that_ended_only_so_many_are_remembered() {
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
    fn who_waits_for_each_answer_is_told_from_who_does_not() {
        // `c` is a call, `n` one of NULL, `a` an answer, `x` no call.
        for (calls, in_step) in [
            ("ca", Some(false)),
            ("caca", Some(true)),
            ("xcacaca", Some(true)),
            ("ccaa", Some(false)),
            ("ccaaca", Some(false)),
            // What came before the first call tells nothing of its answer, what came behind it does.
            ("naca", Some(false)),
            ("nacaca", Some(true)),
            ("cana", Some(true)),
            ("cnaa", Some(false)),
            // Not all is answered.
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
