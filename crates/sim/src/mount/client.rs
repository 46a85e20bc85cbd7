//! A client core as the mount's driver uses it: calls of the cache in, messages out.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::{Core, Peer, Time};
use remora_cache::{BulkRoom, Call, CallFailure, CallId};
use remora_client::{Answer, CallLimits, Client, ClientConfig, ClientEvent, Request, Transport, shorter};
use remora_wire::nfs3;
use remora_wire::rpc::OpaqueAuth;

/// Address of the server.
fn server_peer() -> Peer {
    Peer::datagram(([10, 0, 0, 100], 2049).into())
}

/// A client core over datagrams, and the calls of the cache that it has.
pub(super) struct ClientCalls {
    core: Client,
    calls: BTreeMap<remora_client::CallId, Call>,
}

impl ClientCalls {
    pub(super) fn new(seed: u64, now: Time) -> ClientCalls {
        let core = Client::new(ClientConfig::new(Transport::Udp), server_peer(), seed, now);
        ClientCalls { core, calls: BTreeMap::new() }
    }

    pub(super) fn room(&self) -> BulkRoom {
        room(&self.core)
    }

    /// Whether a call waits for its reply.
    pub(super) fn is_waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn submit(&mut self, now: Time, call: Call) {
        let request = Request::Nfs(call.call.clone());
        let (credential, urgency) = (OpaqueAuth::unix(&call.credential), call.priority.urgency());
        let submitted = self.core.submit_as(now, request, &credential, Some(urgency));
        self.calls.insert(submitted.expect("the cache has fewer calls than the client takes"), call);
    }

    pub(super) fn handle_input(&mut self, now: Time, message: Bytes) {
        self.core.handle_input(now, server_peer(), message);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.core.poll_timeout().is_some_and(|due| due <= now) {
            self.core.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Bytes> {
        self.core.poll_transmit(now).map(|transmit| transmit.payload)
    }

    /// A call that has ended. Those that the path drops for their length are sent again, shorter.
    pub(super) fn poll_reply(&mut self, now: Time) -> Option<(CallId, Result<nfs3::Reply, CallFailure>)> {
        loop {
            let ClientEvent::Done { id, result } = self.core.poll_event()?;
            let call = self.calls.remove(&id).expect("a call ends once");
            match result {
                Ok(Answer::Nfs(reply)) => return Some((call.id, Ok(reply))),
                Ok(other) => panic!("a call of NFS is answered with {other:?}"),
                Err(remora_client::CallFailure::Fragments) => match shorter(&call.call, self.limits(&call.call)) {
                    Some(shorter) => self.submit(now, Call { call: shorter, ..call }),
                    None => return Some((call.id, Err(CallFailure::Failed))),
                },
                Err(_) => return Some((call.id, Err(CallFailure::Failed))),
            }
        }
    }

    fn limits(&self, call: &nfs3::Call) -> CallLimits {
        let write = match call {
            nfs3::Call::Write(write) => self.core.write_block(&write.fh, u32::MAX),
            _ => u32::MAX,
        };
        let listing = self.core.reply_max().unwrap_or(u32::MAX);
        CallLimits { read: self.core.read_block(u32::MAX), write, listing }
    }
}

/// What data the client core has room for.
pub(super) fn room(client: &Client) -> BulkRoom {
    match (client.room(), client.urgent_room()) {
        (1.., _) => BulkRoom::All,
        (0, 1..) => BulkRoom::Urgent,
        (0, 0) => BulkRoom::None,
    }
}
