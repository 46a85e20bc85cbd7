//! What the calls and the library's thread share: endpoints, requests and received objects, each
//! by a number that is never used twice.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use bytes::Bytes;
use remora_atp::session::{PeerId, PublicKey};
use remora_atp::{Priority, RequestId};
use remora_host::atp::{AtpError, Control, Received, Remote, Request};

use crate::code::Code;
use crate::ffi::Callback;

/// Endpoints not closed, accepted or not.
pub(crate) const PEERS_MAX: usize = 1024;
/// Requests whose end nobody was told yet.
pub(crate) const REQUESTS_MAX: usize = 65_536;

/// The last numbers given away; they outlive the library, for a number from before a restart is
/// to be an error after it.
static LAST_EID: AtomicI32 = AtomicI32::new(0);
static LAST_REQ: AtomicI64 = AtomicI64::new(0);

/// The endpoints, the requests and what came in.
#[derive(Default)]
pub(crate) struct Table {
    peers: BTreeMap<i32, Peer>,
    /// Connections from which objects may still come. One endpoint has several after one another;
    /// that of a closed endpoint stays until it is over, so that nothing of it looks new.
    lines: BTreeMap<PeerId, Line>,
    /// Endpoints that nobody has accepted yet.
    new: VecDeque<i32>,
    requests: BTreeMap<i64, Asked>,
    numbers: BTreeMap<RequestId, i64>,
    objects: usize,
    bytes: usize,
    /// The number of the registration of bounds that stands, or stood last.
    pub(crate) bounds: u64,
    pub(crate) is_closing: bool,
}

struct Line {
    eid: i32,
    remote: Remote,
}

/// An endpoint.
pub(crate) struct Peer {
    pub(crate) remote: Remote,
    /// Where it is and whose key it has, if the connection was made here.
    pub(crate) origin: Option<(SocketAddr, PublicKey)>,
    objects: VecDeque<Object>,
    /// Why nothing comes any more: set when all that had come is in `objects`.
    ended: Option<Code>,
}

/// A received object.
pub(crate) struct Object {
    pub(crate) priority: Priority,
    pub(crate) bytes: Bytes,
}

/// A request that has not ended.
pub(crate) struct Asked {
    pub(crate) control: Control,
    pub(crate) eid: i32,
    id: RequestId,
    pub(crate) callback: Option<Callback>,
    /// Whether a call waits for it, rather than the library's thread.
    is_sync: bool,
}

impl Table {
    /// A number for an endpoint at the end of `remote`.
    pub(crate) fn add_peer(&mut self, remote: Remote, origin: Option<(SocketAddr, PublicKey)>) -> Result<i32, Code> {
        if self.peers.len() >= PEERS_MAX {
            return Err(Code::FULL);
        }
        let take = |last: i32| last.checked_add(1);
        let eid = LAST_EID.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Code::FULL)? + 1;
        self.lines.insert(remote.id(), Line { eid, remote: remote.clone() });
        self.peers.insert(eid, Peer { remote, origin, objects: VecDeque::new(), ended: None });
        Ok(eid)
    }

    pub(crate) fn peer(&mut self, eid: i32) -> Result<&mut Peer, Code> {
        self.peers.get_mut(&eid).ok_or(Code::BAD_ID)
    }

    /// The endpoint goes on over another connection.
    pub(crate) fn reconnect(&mut self, eid: i32, remote: Remote) -> Result<(), Code> {
        self.lines.insert(remote.id(), Line { eid, remote: remote.clone() });
        let peer = self.peer(eid)?;
        (peer.remote, peer.ended) = (remote, None);
        Ok(())
    }

    /// Takes an endpoint away, with all that came from it.
    pub(crate) fn remove_peer(&mut self, eid: i32) -> Result<Remote, Code> {
        let peer = self.peers.remove(&eid).ok_or(Code::BAD_ID)?;
        self.new.retain(|e| *e != eid);
        self.objects -= peer.objects.len();
        self.bytes -= peer.objects.iter().map(|o| o.bytes.len()).sum::<usize>();
        Ok(peer.remote)
    }

    /// An endpoint that nobody has accepted yet, the oldest.
    pub(crate) fn accept(&mut self) -> Option<i32> {
        self.new.pop_front()
    }

    /// Puts an object with its endpoint, which is made if it is the peer's first.
    pub(crate) fn place(&mut self, received: Received) {
        let Received { from, priority, object } = received;
        let eid = match self.lines.get(&from.id()) {
            Some(line) => line.eid,
            None => match self.add_peer(from.clone(), None) {
                Ok(eid) => {
                    self.new.push_back(eid);
                    eid
                }
                Err(_) => return from.close(),
            },
        };
        // Nothing of a closed endpoint is kept.
        let Some(peer) = self.peers.get_mut(&eid) else { return };
        self.objects += 1;
        self.bytes += object.len();
        peer.objects.push_back(Object { priority, bytes: object });
    }

    /// Whether another object may be taken in: fewer than `objects` and `bytes` wait.
    pub(crate) fn has_room(&self, objects: usize, bytes: usize) -> bool {
        self.objects == 0 || (self.objects < objects && self.bytes < bytes)
    }

    /// Objects that wait to be taken.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.objects
    }

    /// The next object of an endpoint: taken if it has at most `capacity` bytes. `Ok(None)` when
    /// there is none yet.
    pub(crate) fn take(&mut self, eid: i32, capacity: usize) -> Result<Option<Object>, Refused> {
        let peer = self.peers.get_mut(&eid).ok_or(Refused::Code(Code::BAD_ID))?;
        match peer.objects.front() {
            Some(object) if object.bytes.len() > capacity => return Err(Refused::TooSmall(object.bytes.len())),
            Some(_) => {}
            None => return peer.ended.map_or(Ok(None), |code| Err(Refused::Code(code))),
        }
        let object = peer.objects.pop_front();
        if let Some(object) = &object {
            self.objects -= 1;
            self.bytes -= object.bytes.len();
        }
        Ok(object)
    }

    /// Connections that are over, as of now.
    pub(crate) fn over(&self) -> Vec<(PeerId, AtpError)> {
        self.lines.iter().filter_map(|(id, line)| Some((*id, line.remote.ended()?))).collect()
    }

    /// A connection is over, and all that came from it has been placed.
    pub(crate) fn end_line(&mut self, id: PeerId, why: AtpError) {
        let Some(line) = self.lines.remove(&id) else { return };
        if let Some(peer) = self.peers.get_mut(&line.eid).filter(|p| p.remote.id() == id) {
            peer.ended = Some(why.into());
        }
    }

    /// A number for a request of endpoint `eid`.
    pub(crate) fn add_request(
        &mut self,
        eid: i32,
        request: &Request,
        callback: Option<Callback>,
        is_sync: bool,
    ) -> i64 {
        let number = LAST_REQ.fetch_add(1, Ordering::Relaxed) + 1; // 2^63 of them do not end
        let asked = Asked { control: request.control(), eid, id: request.id(), callback, is_sync };
        self.numbers.insert(asked.id, number);
        self.requests.insert(number, asked);
        number
    }

    /// Whether there is no room for another request.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_MAX
    }

    pub(crate) fn request(&self, number: i64) -> Result<&Asked, Code> {
        self.requests.get(&number).ok_or(Code::BAD_ID)
    }

    /// The request by the name it has in notices.
    pub(crate) fn request_of(&self, id: RequestId) -> Option<(i64, &Asked)> {
        let number = *self.numbers.get(&id)?;
        Some((number, self.requests.get(&number)?))
    }

    /// The request has ended.
    pub(crate) fn remove_request(&mut self, number: i64) -> Option<Asked> {
        let asked = self.requests.remove(&number)?;
        self.numbers.remove(&asked.id);
        Some(asked)
    }

    /// Whether the library's thread still has ends to tell.
    pub(crate) fn has_ends_to_tell(&self) -> bool {
        self.requests.values().any(|r| !r.is_sync)
    }
}

/// Why no object is taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The next one has so many bytes.
    TooSmall(usize),
    /// Another reason.
    Code(Code),
}
