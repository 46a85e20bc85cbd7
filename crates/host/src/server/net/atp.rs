//! Clients over ATP: each call and each reply is an object; a reply has the priority of its call (ATP 02).
//!
//! One task receives objects from the endpoint and passes them to their client's task, which admits the calls one by
//! one, as for a TCP connection, and sends the replies. No client waits for another: the calls that wait for a
//! client's permits are bounded by the limit of half-received requests. The server disconnects a client that exceeds
//! it, one that reads none of its replies for [`ServeLimits::stall_max`](crate::server::ServeLimits::stall_max), and one whose
//! reply cannot be sent; such a client reconnects, asks again, and the duplicate request cache answers. A client that
//! sends something else than calls, for instance `remora send`, is disconnected at once.
//!
//! Exports, shares and the duplicate request cache use the address that the client's handshake proved, even if its
//! address changes later: a single forged packet could change it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Bottleneck, Config, PeerId};
use remora_atp::{Options, Outcome, Priority, RequestId};
use remora_base::{Peer, Time};
use remora_server::Programs;
use remora_wire::Reader;
use remora_wire::rpc::{CallError, CallHeader};

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::context::{ConnectionEnd, NetContext};
use super::tcp_connection::RECORD_OVERHEAD;
use crate::atp::{AtpEndpoint, AtpError, EndpointSettings, Received, Remote, RequestControl};
use crate::server::admission::eviction::Occupant;
use crate::server::admission::permits::{ConnectionShare, Receiving};
use crate::server::admission::request_size;
use crate::server::options::{Objects, StartError};
use crate::server::shards::dispatcher::AdmittedRequest;
use crate::server::shards::reply_path::{Reply, ReplyPath};

/// Most clients at the same time.
const GUESTS_MAX: usize = 256;
/// Most concurrent objects from a client.
const OBJECTS_MAX: u32 = 1024;
/// Bytes of half-received objects of a client, and of all.
const BUFFERS: (u64, u64) = (16 << 20, 64 << 20);
/// Bytes of a call in addition to its message.
const CALL: usize = 512;
/// Calls whose priority is remembered for their replies; other replies get the default. Only calls without a reply
/// stay, so this many are rare.
const PRIORITIES_MAX: usize = 4096;
/// Time between two checks for clients that have left or stalled.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct AtpClient {
    id: u64,
    peer: Peer,
    share: ConnectionShare,
    remote: Remote,
    /// By XID, of calls without a reply yet.
    priorities: Mutex<BTreeMap<u32, Priority>>,
    /// Bounded by the permits in it.
    replies: mpsc::UnboundedSender<Reply>,
    /// Replies queued or in flight, plus announcements of replies that are not queued yet.
    expected: AtomicUsize,
    stop: Notify,
}

/// A call that waits for its permit.
struct WaitingCall {
    call: Bytes,
    priority: Priority,
    /// The memory reserved for it.
    room: Receiving,
}

/// A client, and the queue of its calls.
struct Entrance {
    guest: Arc<AtpClient>,
    /// Bounded by the reservations in it.
    calls: mpsc::UnboundedSender<WaitingCall>,
}

/// Opens the endpoint.
pub(crate) fn bind(options: Objects, io_max: u32) -> Result<AtpEndpoint, StartError> {
    let Objects { listen, identity, guests } = options;
    let object_max = io_max.saturating_add(RECORD_OVERHEAD as u32);
    let session = Config {
        guests,
        // Each client is behind a link of its own.
        bottleneck: Bottleneck::PerPeer,
        object_max,
        buffer_peer: BUFFERS.0.max(object_max.into()),
        buffer_total: BUFFERS.1.max(object_max.into()),
        streams: OBJECTS_MAX,
        peers: GUESTS_MAX,
        early: false,
        ..Config::default()
    };
    let settings = EndpointSettings { session, ..EndpointSettings::receiver(listen) };
    AtpEndpoint::bind(settings, identity).map_err(|why| match why {
        AtpError::Bind { addr, source } => StartError::bind(addr, "UDP, for ATP", source),
        why => StartError::Objects(why),
    })
}

/// Serves the endpoint's clients until it closes.
pub(crate) async fn run(context: Arc<NetContext>, endpoint: AtpEndpoint) {
    let mut entrances: HashMap<PeerId, Entrance> = HashMap::new();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            received = endpoint.recv() => match received {
                Ok(received) => take(&context, &mut entrances, received),
                Err(_) => return,
            },
            notice = endpoint.notice() => if notice.is_err() {
                return;
            },
            _ = look.tick() => {}
        }
        entrances.retain(|_, entrance| entrance.guest.remote.ended().is_none());
    }
}

fn take(context: &Arc<NetContext>, entrances: &mut HashMap<PeerId, Entrance>, received: Received) {
    let Received { from, priority, object } = received;
    if let Err(CallError::NotACall(_)) = CallHeader::decode(&mut Reader::new(object.clone())) {
        context.counters.closed_bad_record.count();
        return from.close();
    }
    let Entrance { guest, calls } = match entrances.entry(from.id()) {
        Entry::Occupied(entrance) => entrance.into_mut(),
        Entry::Vacant(place) => match welcome(context, from.clone()) {
            Some(entrance) => place.insert(entrance),
            None => return,
        },
    };
    match context.admission.try_receive(&guest.share, object.len() + CALL) {
        // Fails when the client's task has ended.
        Some(room) => drop(calls.send(WaitingCall { call: object, priority, room })),
        None => {
            context.counters.closed_stalled.count();
            from.close();
        }
    }
}

/// Registers a client. `None` if it has left.
fn welcome(context: &Arc<NetContext>, remote: Remote) -> Option<Entrance> {
    let addr = remote.status().ok()?.came_from?;
    let (replies, outgoing) = mpsc::unbounded_channel();
    let (calls, incoming) = mpsc::unbounded_channel();
    let guest = context.connect(addr, |id, share| AtpClient {
        id,
        peer: Peer::stream(addr, id),
        share,
        remote,
        priorities: Mutex::default(),
        replies,
        expected: AtomicUsize::new(0),
        stop: Notify::new(),
    });
    tokio::spawn(serve(context.clone(), guest.clone(), incoming, outgoing));
    Some(Entrance { guest, calls })
}

async fn serve(
    context: Arc<NetContext>,
    guest: Arc<AtpClient>,
    calls: mpsc::UnboundedReceiver<WaitingCall>,
    replies: mpsc::UnboundedReceiver<Reply>,
) {
    let end = tokio::select! {
        end = guest.read_on(&context, calls) => end,
        end = guest.write_on(&context, replies) => end,
    };
    context.disconnect(&*guest, end, false);
    guest.remote.close();
}

impl ReplyPath for AtpClient {
    fn id(&self) -> u64 {
        self.id
    }

    fn peer(&self) -> Peer {
        self.peer
    }

    fn share(&self) -> &ConnectionShare {
        &self.share
    }

    fn expect(&self) {
        self.expected.fetch_add(1, Relaxed);
    }

    fn send(&self, replies: Vec<Reply>) {
        self.expected.fetch_add(replies.len(), Relaxed);
        for reply in replies {
            // Fails when the client's task has ended: the client reconnects and asks again.
            let _ = self.replies.send(reply);
        }
        self.expected.fetch_sub(1, Release);
    }

    fn seems_delivered(&self) -> bool {
        false
    }

    fn is_broken(&self) -> bool {
        self.remote.ended().is_some()
    }

    fn stop(&self) {
        self.stop.notify_one();
    }

    fn evict(&self) {
        self.stop();
    }

    fn occupant(&self, _: Time, _: &BTreeSet<Peer>) -> Option<Occupant> {
        // It shares the endpoint's descriptor.
        None
    }
}

impl AtpClient {
    /// Admits calls until there are no more, then waits until all are answered and the replies delivered.
    async fn read_on(&self, context: &NetContext, mut calls: mpsc::UnboundedReceiver<WaitingCall>) -> ConnectionEnd {
        let admit = async {
            while let Some(WaitingCall { call, priority, room }) = calls.recv().await {
                let cost = request_size::of(&call, self.share.is_stranger(), context.core_limits.stream_io_max);
                let permit = context.admission.admit(&self.share, cost).await;
                // While the call waited, the client may have sent it again elsewhere and got its reply.
                if self.remote.ended().is_some() {
                    break;
                }
                drop(room);
                self.note(&call, priority);
                context.dispatcher.records(self.peer, Programs::All, [AdmittedRequest { message: call, permit }]);
            }
        };
        tokio::select! {
            () = admit => {}
            () = self.stop.notified() => {}
        }
        if self.remote.ended().is_some() {
            // Its replies go elsewhere.
            self.share.room.all_free().await;
        } else {
            // A client that is cut off asks again, as after a restart.
            let answered = context.all_answered(self.peer, &self.share, || self.expected.load(Acquire) == 0);
            let _ = timeout(context.limits.shutdown_max, answered).await;
        }
        ConnectionEnd::Closed
    }

    fn note(&self, call: &Bytes, priority: Priority) {
        let Some(xid) = call.first_chunk::<4>() else { return };
        let mut priorities = self.priorities.lock().unwrap_or_else(PoisonError::into_inner);
        if priorities.len() >= PRIORITIES_MAX {
            priorities.pop_first();
        }
        priorities.insert(u32::from_be_bytes(*xid), priority);
    }

    /// The priority of the call that `reply` answers.
    fn priority(&self, reply: &Bytes) -> Priority {
        let xid = reply.first_chunk::<4>().map_or(0, |xid| u32::from_be_bytes(*xid));
        let mut priorities = self.priorities.lock().unwrap_or_else(PoisonError::into_inner);
        priorities.remove(&xid).unwrap_or(Priority::MEDIUM)
    }

    /// Sends replies until one cannot be sent, or none progresses for too long.
    async fn write_on(&self, context: &NetContext, mut replies: mpsc::UnboundedReceiver<Reply>) -> ConnectionEnd {
        let mut in_flight = RepliesInFlight {
            ends: JoinSet::new(),
            controls: BTreeMap::new(),
            moved: 0,
            since: context.dispatcher.clock.now(),
        };
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                reply = replies.recv() => {
                    let Some(reply) = reply else { return ConnectionEnd::Closed };
                    let priority = self.priority(&reply.payload);
                    if !in_flight.send(&self.remote, reply, Options { priority, ..Options::default() }, context.dispatcher.clock.now()) {
                        return ConnectionEnd::Broken;
                    }
                }
                Some(end) = in_flight.ends.join_next() => {
                    let Ok((id, Some(Outcome::Delivered))) = end else { return ConnectionEnd::Broken };
                    in_flight.controls.remove(&id);
                    self.expected.fetch_sub(1, Release);
                    in_flight.since = context.dispatcher.clock.now();
                }
                _ = look.tick(), if !in_flight.controls.is_empty() => {
                    if in_flight.stalled_for(context.dispatcher.clock.now()) >= context.stall_max(&self.share) {
                        return ConnectionEnd::Stalled;
                    }
                }
            }
        }
    }
}

/// Replies in flight to a client.
struct RepliesInFlight {
    ends: JoinSet<(RequestId, Option<Outcome>)>,
    controls: BTreeMap<RequestId, RequestControl>,
    /// Bytes that the client had acknowledged at the last check.
    moved: u64,
    /// When that number last changed.
    since: Time,
}

impl RepliesInFlight {
    /// Sends `reply`, whose permit is held until it is delivered. Returns false if the client has left.
    fn send(&mut self, remote: &Remote, reply: Reply, options: Options, now: Time) -> bool {
        let Reply { payload, permit } = reply;
        let Ok(request) = remote.send(payload, options) else { return false };
        if self.controls.is_empty() {
            (self.moved, self.since) = (0, now);
        }
        let id = request.id();
        self.controls.insert(id, request.control());
        self.ends.spawn(async move {
            let end = request.await;
            drop(permit);
            (id, end.ok().map(|end| end.outcome))
        });
        true
    }

    /// How long the client has acknowledged nothing.
    fn stalled_for(&mut self, now: Time) -> Duration {
        let progress = self.controls.values().filter_map(|c| c.ask(remora_atp::Command::Inspect).ok());
        let moved = progress.map(|p| p.acknowledged).fold(0, u64::saturating_add);
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
        }
        now.since(self.since)
    }
}
