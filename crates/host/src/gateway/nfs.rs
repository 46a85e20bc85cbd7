//! NFS over ATP in front of a server that speaks TCP: each call an object, each reply one, as
//! [`serve --atp`](crate::server::Objects) does it for a server of ours.
//!
//! A [`Relay`] holds the calls of a client that have no reply yet, by their xids. When the TCP
//! connection breaks it is made again, from the same port if that can be had, and they are sent once
//! more, which the server's duplicate request cache is for. A client that comes back within
//! [`ORPHAN_MAX`] finds the relay it had, and with it the server finds the connection it knows.
//!
//! To the server all calls come from the gateway's address, with the credentials of whoever made
//! them; who may come at all is the gateway's list of keys to say.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::PublicKey;
use remora_atp::stream::Target;
use remora_atp::{Options, Outcome};
use remora_base::Time;
use remora_wire::rpc::{self, CallHeader, ReplyHeader};
use remora_wire::urgency::Urgency;
use remora_wire::{Reader, Xdr, mount, nfs3};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::upstream::{self, Way};
use super::{PerMobile, Report};
use crate::Clock;
use crate::atp::{Received, Remote};
use crate::objects::priority;

/// The largest call or reply: the largest block and its header.
pub(super) const RECORD_MAX: usize = (1 << 20) + (64 << 10);
/// Bytes of half-received calls of a client, and of all.
pub(super) const BUFFERS: (u64, u64) = (16 << 20, 64 << 20);
/// Calls of a client without a reply, and their bytes. A client that has more is sent away. Ours has
/// half of that in file data at most, and few others.
const PENDING_MAX: (usize, usize) = (2048, 32 << 20);
/// Bytes of replies on their way to a client; then no more are read from the server.
const REPLIES_MAX: usize = 8 << 20;
/// How long the connections of a client that has gone are kept for it, and of how many clients.
const ORPHAN_MAX: Duration = Duration::from_secs(60);
const ORPHANS_MAX: usize = 64;

/// The server that a gateway stands in front of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NfsServer {
    /// Where it answers NFS calls over TCP.
    pub nfs: Target,
    /// The port of MOUNT; `None`: where the server's portmapper says, or, if there is none, the port
    /// of NFS.
    pub mount_port: Option<u16>,
}

/// The relays of all clients.
pub(super) struct Relays {
    server: NfsServer,
    clients: PerMobile<(Arc<Relay>, PublicKey)>,
    /// Of clients that have gone, since when.
    orphans: BTreeMap<PublicKey, (Arc<Relay>, Time)>,
    clock: Clock,
    counts: Arc<Counts>,
}

/// What all relays carried.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: AtomicU64,
    pub(super) call_bytes: AtomicU64,
    pub(super) reply_bytes: AtomicU64,
    pub(super) connections: AtomicU64,
}

/// A client's calls, and its connections to the server.
pub(super) struct Relay {
    state: Mutex<State>,
    /// For bytes of replies.
    pub(super) room: Arc<Semaphore>,
    pub(super) counts: Arc<Counts>,
}

#[derive(Default)]
struct State {
    /// The client, unless it is away.
    remote: Option<Remote>,
    /// By xid.
    calls: BTreeMap<u32, Call>,
    bytes: usize,
    ways: BTreeMap<Way, Upstream>,
}

/// A way to the server, once it was needed.
struct Upstream {
    /// Bounded, for each call in it is one without a reply.
    calls: mpsc::UnboundedSender<Bytes>,
    task: AbortHandle,
}

struct Call {
    way: Way,
    message: Bytes,
}

impl Relays {
    pub(super) fn new(server: NfsServer) -> Relays {
        Relays {
            server,
            clients: PerMobile::new(),
            orphans: BTreeMap::new(),
            clock: Clock::start(),
            counts: Arc::default(),
        }
    }

    /// Takes in a call; false if its client breaks the rules.
    pub(super) fn take(&mut self, received: Received) -> bool {
        let Received { from, object, .. } = received;
        if !self.clients.contains_key(&from.id()) {
            // Whoever it was before has left just now.
            self.clear();
        }
        let (relay, _) = match self.clients.entry(from.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // Of one that has left already nobody waits for a reply.
                let Some(key) = from.key() else { return true };
                let relay = self.orphans.remove(&key).map(|(relay, _)| relay);
                let relay = relay.unwrap_or_else(|| Relay::new(self.counts.clone()));
                relay.lock().remote = Some(from);
                place.insert((relay, key))
            }
        };
        relay.take(&self.server, object)
    }

    /// Looks who has gone, and forgets those who have been away for too long.
    pub(super) fn clear(&mut self) {
        let now = self.clock.now();
        let orphans = &mut self.orphans;
        self.clients.retain(|_, (relay, key)| {
            let mut state = relay.lock();
            if state.remote.as_ref().is_some_and(|remote| remote.ended().is_none()) {
                return true;
            }
            state.remote = None;
            drop(state);
            // Two programs may have one key; the one that left last is the one to come back.
            let old = orphans.insert(*key, (relay.clone(), now));
            old.into_iter().for_each(|(relay, _)| relay.end());
            false
        });
        orphans.retain(|_, (relay, since)| {
            let is_kept = now.since(*since) < ORPHAN_MAX;
            if !is_kept {
                relay.end();
            }
            is_kept
        });
        while self.orphans.len() > ORPHANS_MAX {
            let oldest = self.orphans.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| *key);
            let oldest = oldest.and_then(|key| self.orphans.remove(&key));
            oldest.into_iter().for_each(|(relay, _)| relay.end());
        }
    }

    /// Closes everything.
    pub(super) fn end(&mut self) {
        std::mem::take(&mut self.clients).values().for_each(|(relay, _)| relay.end());
        std::mem::take(&mut self.orphans).values().for_each(|(relay, _)| relay.end());
    }

    pub(super) fn report(&self, report: &mut Report) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        report.mobiles = self.clients.len();
        report.connections = usize::try_from(count(&self.counts.connections)).unwrap_or(usize::MAX);
        report.calls = count(&self.counts.calls);
        report.stats.received = count(&self.counts.call_bytes);
        report.stats.sent = count(&self.counts.reply_bytes);
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.end();
    }
}

impl Relay {
    fn new(counts: Arc<Counts>) -> Arc<Relay> {
        Arc::new(Relay { state: Mutex::default(), room: Arc::new(Semaphore::new(REPLIES_MAX)), counts })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a call and sends it on its way; false if the client breaks the rules.
    fn take(self: &Arc<Self>, server: &NfsServer, message: Bytes) -> bool {
        let Ok(header) = CallHeader::decode(&mut Reader::new(message.clone())) else { return false };
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        self.counts.call_bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        let way = match header.prog {
            nfs3::PROGRAM => Way::Nfs,
            mount::PROGRAM => Way::Mount,
            _ => {
                self.reply(not_here(header.xid), Urgency::Foreground, None);
                return true;
            }
        };
        let mut state = self.lock();
        if let Some(known) = state.calls.get(&header.xid) {
            // It is on its way already, from the time before the client came back; or else two
            // calls have one xid, and nobody could tell whose the reply is.
            return known.message == message;
        }
        if state.calls.len() >= PENDING_MAX.0 || state.bytes + message.len() > PENDING_MAX.1 {
            return false;
        }
        state.bytes += message.len();
        state.calls.insert(header.xid, Call { way, message: message.clone() });
        let upstream = state.ways.entry(way).or_insert_with(|| {
            let (calls, incoming) = mpsc::unbounded_channel();
            let task = tokio::spawn(upstream::run(self.clone(), way, server.clone(), incoming));
            Upstream { calls, task: task.abort_handle() }
        });
        // Its task ends with the relay only.
        let _ = upstream.calls.send(message);
        true
    }

    /// Whether all calls of a way have their replies.
    pub(super) fn is_answered(&self, way: Way) -> bool {
        !self.lock().calls.values().any(|call| call.way == way)
    }

    /// The calls of a way that have no reply, in the order of their xids: those that wait in `calls`,
    /// which is empty then, and those that had gone to the server.
    pub(super) fn all_again(&self, way: Way, calls: &mut mpsc::UnboundedReceiver<Bytes>) -> Vec<Bytes> {
        // Nothing is put there meanwhile.
        let state = self.lock();
        while calls.try_recv().is_ok() {}
        state.calls.values().filter(|call| call.way == way).map(|call| call.message.clone()).collect()
    }

    /// A reply of the server's goes to the client, in as much room as was made for it. One to a call
    /// that was answered already goes nowhere.
    pub(super) fn answer(self: &Arc<Self>, reply: Bytes, permit: OwnedSemaphorePermit) {
        let Some(xid) = reply.first_chunk::<4>() else { return };
        let call = {
            let mut state = self.lock();
            let call = state.calls.remove(&u32::from_be_bytes(*xid));
            state.bytes -= call.as_ref().map_or(0, |call| call.message.len());
            call
        };
        if let Some(call) = call {
            self.reply(reply, Urgency::of(&call.message), Some(permit));
        }
    }

    /// Sends a reply. A client that does not get it is to come again, and to ask again.
    fn reply(self: &Arc<Self>, reply: Bytes, urgency: Urgency, permit: Option<OwnedSemaphorePermit>) {
        self.counts.reply_bytes.fetch_add(reply.len() as u64, Ordering::Relaxed);
        let Some(remote) = self.lock().remote.clone() else { return };
        let options = Options { priority: priority(urgency), ..Options::default() };
        let Ok(request) = remote.send(reply, options) else { return };
        tokio::spawn(async move {
            let end = request.await;
            drop(permit);
            if !end.is_ok_and(|end| end.outcome == Outcome::Delivered) {
                remote.close();
            }
        });
    }

    /// Closes the connections to the server.
    fn end(&self) {
        let mut state = self.lock();
        state.ways.values().for_each(|upstream| upstream.task.abort());
        state.ways.clear();
    }
}

/// What is asked for is not here.
fn not_here(xid: u32) -> Bytes {
    let mut reply = Vec::new();
    ReplyHeader { xid, outcome: rpc::Outcome::ProgUnavail }.encode(&mut reply);
    reply.into()
}
