//! Clients over ATP: a call is an object, and its reply is one as urgent as it was (ATP 02).
//!
//! One task takes what came in from the endpoint and gives it to the task of its client, which
//! admits the calls one by one, as a TCP connection's does, and sends the replies. Nobody waits
//! for another client: what waits for a client's own permits is bounded by the room for
//! half-received requests, and a client that brings more is sent away. So is one that takes no
//! byte of its replies for [`Limits::stall_max`](crate::server::Limits::stall_max), and one whose reply
//! cannot be sent: it comes back, asks again, and the duplicate request cache answers. Who sends what is no
//! call, as `remora send` does, has come to the wrong door and would wait for an answer in vain: it is sent
//! away.
//!
//! A client stays who it was when it came, however its address changes while it is connected: exports,
//! shares and the duplicate request cache go by the address that its handshake proved, and by no later
//! one, which a single forged packet would change.

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
use remora_atp::{Options, Outcome, RequestId};
use remora_base::{Peer, Time};
use remora_server::Programs;
use remora_wire::Reader;
use remora_wire::rpc::{CallError, CallHeader};
use remora_wire::urgency::Urgency;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::context::NetContext;
use super::tcp_connection::RECORD_OVERHEAD;
use crate::atp::{AtpEndpoint, AtpError, Control, Received, Remote, Settings};
use crate::objects::priority;
use crate::server::admission::eviction::Occupant;
use crate::server::admission::permits::{Receiving, Share};
use crate::server::admission::request_size;
use crate::server::options::{Objects, StartError};
use crate::server::shards::dispatcher::AdmittedRequest;
use crate::server::shards::reply_path::{Reply, ReplyPath};

/// Clients at once.
const GUESTS_MAX: usize = 256;
/// Objects that a client may have under way towards us.
const OBJECTS_MAX: u32 = 1024;
/// Bytes of half-received objects of a client, and of all.
const BUFFERS: (u64, u64) = (16 << 20, 64 << 20);
/// What a call takes in memory beyond its bytes.
const CALL: usize = 512;
/// Calls whose urgency is remembered for their replies; of the others it is taken to be the
/// usual one. Only calls that never get a reply stay, so this many are hardly ever there.
const URGENCIES_MAX: usize = 4096;
/// How often it is looked whether clients have gone, and whether they take their replies.
const LOOK: Duration = Duration::from_secs(1);

/// A client connected over ATP.
#[derive(Debug)]
pub(crate) struct AtpClient {
    id: u64,
    peer: Peer,
    share: Share,
    remote: Remote,
    /// Of calls without a reply yet, by xid.
    urgencies: Mutex<BTreeMap<u32, Urgency>>,
    /// Bounded by the permits of what is in it.
    replies: mpsc::UnboundedSender<Reply>,
    /// How many replies are here that have not arrived, and how many times some have left the core that are not here yet.
    expected: AtomicUsize,
    stop: Notify,
}

/// A call that waits for its permit, and the room it takes meanwhile.
type Call = (Bytes, Receiving);

/// A client at the door.
struct Entrance {
    guest: Arc<AtpClient>,
    /// Bounded by the room that its items hold.
    calls: mpsc::UnboundedSender<Call>,
}

/// How a client's stay came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It left, or we want it to.
    Left,
    /// A reply could not be sent, or was given up.
    Broken,
    /// It takes nothing.
    Stalled,
}

/// Opens the endpoint.
pub(crate) fn bind(options: Objects, io_max: u32) -> Result<AtpEndpoint, StartError> {
    let Objects { listen, identity, guests } = options;
    let object_max = io_max.saturating_add(RECORD_OVERHEAD as u32);
    let session = Config {
        guests,
        // Clients are behind links of their own.
        bottleneck: Bottleneck::PerPeer,
        object_max,
        buffer_peer: BUFFERS.0.max(object_max.into()),
        buffer_total: BUFFERS.1.max(object_max.into()),
        streams: OBJECTS_MAX,
        peers: GUESTS_MAX,
        early: false,
        ..Config::default()
    };
    let settings = Settings { session, ..Settings::receiver(listen) };
    AtpEndpoint::bind(settings, identity).map_err(|why| match why {
        AtpError::Bind { addr, source } => StartError::bind(addr, "UDP, for ATP", source),
        why => StartError::Objects(why),
    })
}

/// Lets calls in for as long as the endpoint lives.
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
    let Received { from, object, .. } = received;
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
        // Its task has ended: so has its connection, or will at once.
        Some(room) => drop(calls.send((object, room))),
        None => {
            context.counters.closed_stalled.count();
            from.close();
        }
    }
}

/// Enters a client; `None` if it has left already.
fn welcome(context: &Arc<NetContext>, remote: Remote) -> Option<Entrance> {
    let addr = remote.status().ok()?.came_from?;
    let (replies, outgoing) = mpsc::unbounded_channel();
    let (calls, incoming) = mpsc::unbounded_channel();
    context.counters.accepted.count();
    let guest = context.connect(addr, |id, share| AtpClient {
        id,
        peer: Peer::stream(addr, id),
        share,
        remote,
        urgencies: Mutex::default(),
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
    calls: mpsc::UnboundedReceiver<Call>,
    replies: mpsc::UnboundedReceiver<Reply>,
) {
    let end = tokio::select! {
        end = guest.read_on(&context, calls) => end,
        end = guest.write_on(&context, replies) => end,
    };
    match end {
        End::Left | End::Broken => context.counters.closed_by_client.count(),
        End::Stalled => context.counters.closed_stalled.count(),
    }
    context.disconnect(guest.id, guest.peer, false);
    guest.remote.close();
}

impl ReplyPath for AtpClient {
    fn id(&self) -> u64 {
        self.id
    }

    fn peer(&self) -> Peer {
        self.peer
    }

    fn share(&self) -> &Share {
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
    /// Admits calls until there are no more; then waits until all is answered, and the answers have arrived.
    async fn read_on(&self, context: &NetContext, mut calls: mpsc::UnboundedReceiver<Call>) -> End {
        let admit = async {
            while let Some((call, room)) = calls.recv().await {
                let cost = request_size::of(&call, self.share.is_stranger(), context.core_limits.stream_io_max);
                let permit = context.admission.admit(&self.share, cost).await;
                // It may have asked again elsewhere while this waited, and got its answer.
                if self.remote.ended().is_some() {
                    break;
                }
                drop(room);
                self.note(&call);
                context.dispatcher.records(self.peer, Programs::All, [AdmittedRequest { message: call, permit }]);
            }
        };
        tokio::select! {
            () = admit => {}
            () = self.stop.notified() => {}
        }
        if self.remote.ended().is_some() {
            // What it is owed goes elsewhere.
            self.share.room.all_free().await;
        } else {
            // Who is cut off at the end of it asks again, as whenever a server goes.
            let answered = context.all_answered(self.peer, &self.share, || self.expected.load(Acquire) == 0);
            let _ = timeout(context.limits.shutdown_max, answered).await;
        }
        End::Left
    }

    fn note(&self, call: &Bytes) {
        let Some(xid) = call.first_chunk::<4>() else { return };
        let mut urgencies = self.urgencies.lock().unwrap_or_else(PoisonError::into_inner);
        if urgencies.len() >= URGENCIES_MAX {
            urgencies.pop_first();
        }
        urgencies.insert(u32::from_be_bytes(*xid), Urgency::of(call));
    }

    /// What was noted of the call that `reply` answers.
    fn urgency(&self, reply: &Bytes) -> Urgency {
        let xid = reply.first_chunk::<4>().map_or(0, |xid| u32::from_be_bytes(*xid));
        let mut urgencies = self.urgencies.lock().unwrap_or_else(PoisonError::into_inner);
        urgencies.remove(&xid).unwrap_or(Urgency::Sync)
    }

    /// Sends replies until one cannot be sent, or none moves for too long.
    async fn write_on(&self, context: &NetContext, mut replies: mpsc::UnboundedReceiver<Reply>) -> End {
        let mut under =
            Under { ends: JoinSet::new(), controls: BTreeMap::new(), moved: 0, since: context.dispatcher.clock.now() };
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                reply = replies.recv() => {
                    let Some(reply) = reply else { return End::Left };
                    let priority = priority(self.urgency(&reply.payload));
                    if !under.send(&self.remote, reply, Options { priority, ..Options::default() }, context.dispatcher.clock.now()) {
                        return End::Broken;
                    }
                }
                Some(end) = under.ends.join_next() => {
                    let Ok((id, Some(Outcome::Delivered))) = end else { return End::Broken };
                    under.controls.remove(&id);
                    self.expected.fetch_sub(1, Release);
                    under.since = context.dispatcher.clock.now();
                }
                _ = look.tick(), if !under.controls.is_empty() => {
                    if under.stalled_for(context.dispatcher.clock.now()) >= context.stall_max(&self.share) {
                        return End::Stalled;
                    }
                }
            }
        }
    }
}

/// Replies on their way to a client.
struct Under {
    ends: JoinSet<(RequestId, Option<Outcome>)>,
    controls: BTreeMap<RequestId, Control>,
    /// Bytes of them that the client had taken when last looked at.
    moved: u64,
    /// Since when nothing has moved.
    since: Time,
}

impl Under {
    /// Sends `reply`, which keeps its permit until it has arrived; false if the client has gone.
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

    /// How long the client has taken nothing.
    fn stalled_for(&mut self, now: Time) -> Duration {
        let progress = self.controls.values().filter_map(|c| c.ask(remora_atp::Command::Inspect).ok());
        let moved = progress.map(|p| p.acknowledged).fold(0, u64::saturating_add);
        if moved != self.moved {
            (self.moved, self.since) = (moved, now);
        }
        now.since(self.since)
    }
}
