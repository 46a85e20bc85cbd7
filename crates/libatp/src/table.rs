//! State shared by the calls and the library's thread: endpoints, requests and received objects, each by a number
//! that is never reused.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use bytes::Bytes;
use remora_atp::session::{PeerId, PublicKey};
use remora_atp::{Priority, RequestId};
use remora_host::atp::{AtpError, Received, Remote, Request, RequestControl};

use crate::code::Code;
use crate::ffi::Callback;

/// Maximum number of endpoints that are not closed, accepted or not.
pub(crate) const PEERS_MAX: usize = 1024;
/// Maximum number of requests whose end was not reported.
pub(crate) const REQUESTS_MAX: usize = 65_536;

/// The last numbers assigned. They outlive the library, so that a number from before a restart is an error.
static LAST_EID: AtomicI32 = AtomicI32::new(0);
static LAST_REQ: AtomicI64 = AtomicI64::new(0);

/// Endpoints, requests and received objects.
#[derive(Default)]
pub(crate) struct Table {
    peers: BTreeMap<i32, Peer>,
    /// Connections that may still deliver objects. An endpoint has several in succession. That of a closed endpoint
    /// stays until it ends, so that its objects do not create a new endpoint.
    connections: BTreeMap<PeerId, ConnectionEntry>,
    /// Endpoints that were not accepted yet.
    new: VecDeque<i32>,
    requests: BTreeMap<i64, PendingRequest>,
    numbers: BTreeMap<RequestId, i64>,
    objects: usize,
    bytes: usize,
    /// Number of the current or last registration of bounds.
    pub(crate) bounds: u64,
    pub(crate) is_closing: bool,
}

struct ConnectionEntry {
    eid: i32,
    remote: Remote,
}

/// An endpoint of the program.
pub(crate) struct Peer {
    pub(crate) remote: Remote,
    /// Address and key, if the connection was made here.
    pub(crate) origin: Option<(SocketAddr, PublicKey)>,
    objects: VecDeque<Object>,
    /// Why no object follows; set when all received ones are in `objects`.
    ended: Option<Code>,
}

/// A received object.
pub(crate) struct Object {
    pub(crate) priority: Priority,
    pub(crate) bytes: Bytes,
}

/// A request that has not ended.
pub(crate) struct PendingRequest {
    pub(crate) control: RequestControl,
    pub(crate) eid: i32,
    id: RequestId,
    pub(crate) callback: Option<Callback>,
    /// Whether a call waits for it, instead of a callback.
    is_sync: bool,
}

impl Table {
    /// Adds an endpoint for `remote`; returns its number.
    pub(crate) fn add_peer(&mut self, remote: Remote, origin: Option<(SocketAddr, PublicKey)>) -> Result<i32, Code> {
        if self.peers.len() >= PEERS_MAX {
            return Err(Code::FULL);
        }
        let take = |last: i32| last.checked_add(1);
        let eid = LAST_EID.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Code::FULL)? + 1;
        self.connections.insert(remote.id(), ConnectionEntry { eid, remote: remote.clone() });
        self.peers.insert(eid, Peer { remote, origin, objects: VecDeque::new(), ended: None });
        Ok(eid)
    }

    pub(crate) fn peer(&mut self, eid: i32) -> Result<&mut Peer, Code> {
        self.peers.get_mut(&eid).ok_or(Code::BAD_ID)
    }

    /// Continues an endpoint over another connection.
    pub(crate) fn reconnect(&mut self, eid: i32, remote: Remote) -> Result<(), Code> {
        self.connections.insert(remote.id(), ConnectionEntry { eid, remote: remote.clone() });
        let peer = self.peer(eid)?;
        (peer.remote, peer.ended) = (remote, None);
        Ok(())
    }

    /// Removes an endpoint and its objects.
    pub(crate) fn remove_peer(&mut self, eid: i32) -> Result<Remote, Code> {
        let peer = self.peers.remove(&eid).ok_or(Code::BAD_ID)?;
        self.new.retain(|e| *e != eid);
        self.objects -= peer.objects.len();
        self.bytes -= peer.objects.iter().map(|o| o.bytes.len()).sum::<usize>();
        Ok(peer.remote)
    }

    /// The oldest endpoint that was not accepted.
    pub(crate) fn accept(&mut self) -> Option<i32> {
        self.new.pop_front()
    }

    /// Adds an object to its endpoint; creates the endpoint for the peer's first object.
    pub(crate) fn place(&mut self, received: Received) {
        let Received { from, priority, object } = received;
        let eid = match self.connections.get(&from.id()) {
            Some(line) => line.eid,
            None => match self.add_peer(from.clone(), None) {
                Ok(eid) => {
                    self.new.push_back(eid);
                    eid
                }
                Err(_) => return from.close(),
            },
        };
        // Objects of a closed endpoint are dropped.
        let Some(peer) = self.peers.get_mut(&eid) else { return };
        self.objects += 1;
        self.bytes += object.len();
        peer.objects.push_back(Object { priority, bytes: object });
    }

    /// Whether fewer than `objects` and `bytes` wait.
    pub(crate) fn has_room(&self, objects: usize, bytes: usize) -> bool {
        self.objects == 0 || (self.objects < objects && self.bytes < bytes)
    }

    /// Number of objects that wait.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.objects
    }

    /// Takes the next object of an endpoint, if it has at most `capacity` bytes. `Ok(None)` if there is none yet.
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

    /// Connections that have ended by now.
    pub(crate) fn over(&self) -> Vec<(PeerId, AtpError)> {
        self.connections.iter().filter_map(|(id, line)| Some((*id, line.remote.ended()?))).collect()
    }

    /// Records the end of a connection whose objects were all placed.
    pub(crate) fn end_connection(&mut self, id: PeerId, why: AtpError) {
        let Some(line) = self.connections.remove(&id) else { return };
        if let Some(peer) = self.peers.get_mut(&line.eid).filter(|p| p.remote.id() == id) {
            peer.ended = Some(why.into());
        }
    }

    /// Adds a request of endpoint `eid`; returns its number.
    pub(crate) fn add_request(
        &mut self,
        eid: i32,
        request: &Request,
        callback: Option<Callback>,
        is_sync: bool,
    ) -> i64 {
        let number = LAST_REQ.fetch_add(1, Ordering::Relaxed) + 1; // 2^63 of them do not end
        let pending = PendingRequest { control: request.control(), eid, id: request.id(), callback, is_sync };
        self.numbers.insert(pending.id, number);
        self.requests.insert(number, pending);
        number
    }

    /// Whether the maximum number of requests is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_MAX
    }

    pub(crate) fn request(&self, number: i64) -> Result<&PendingRequest, Code> {
        self.requests.get(&number).ok_or(Code::BAD_ID)
    }

    /// Finds a request by its id in notices.
    pub(crate) fn request_of(&self, id: RequestId) -> Option<(i64, &PendingRequest)> {
        let number = *self.numbers.get(&id)?;
        Some((number, self.requests.get(&number)?))
    }

    /// Removes a request that has ended.
    pub(crate) fn remove_request(&mut self, number: i64) -> Option<PendingRequest> {
        let pending = self.requests.remove(&number)?;
        self.numbers.remove(&pending.id);
        Some(pending)
    }

    /// Whether the library's thread has more ends to report.
    pub(crate) fn has_ends_to_tell(&self) -> bool {
        self.requests.values().any(|r| !r.is_sync)
    }
}

/// Why no object was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The next object has this many bytes.
    TooSmall(usize),
    /// An error of the endpoint.
    Code(Code),
}
