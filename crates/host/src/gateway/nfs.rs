//! NFS over ATP in front of a TCP server: each call is an object, each reply one, as with [`serve
//! --atp`](crate::server::Objects).
//!
//! A [`Relay`] holds a client's unanswered calls by xid. When the TCP connection breaks, it reconnects, from the
//! same port if possible, and sends them again; the server's duplicate request cache handles repetitions. A client
//! that returns within [`DETACHED_MAX`] gets its relay back, and the server sees the same connection.
//!
//! To the server, all calls come from the gateway's address, with the credentials of their callers; the gateway's
//! list of keys controls access. A connection is made with the first call, and again while calls are unanswered.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use remora_atp::session::PublicKey;
use remora_atp::stream::Target;
use remora_atp::{Options, Outcome, Priority};
use remora_base::Time;
use remora_wire::portmap::{self, Mapping};
use remora_wire::record::{RecordReader, mark};
use remora_wire::rpc::{self, CallHeader, OpaqueAuth, Outcome as RpcOutcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount, nfs3, nfsacl};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::report::{GatewayStatus, PerMobile};
use crate::atp::{Received, Remote};
use crate::carrier::KEEP_ALIVE;
use crate::tcp::{harden, unacknowledged_for};
use crate::{Clock, reserved};

/// Maximum bytes of a call or reply: the largest block and its header.
pub(super) const RECORD_MAX: usize = (1 << 20) + (64 << 10);
/// Maximum bytes of partially received calls, of one client and of all.
pub(super) const BUFFERS: (u64, u64) = (16 << 20, 64 << 20);
/// Maximum unanswered calls of a client, and their bytes; beyond it the client is disconnected. Remora's client has
/// at most half of that in file data, and few other calls.
const PENDING_MAX: (usize, usize) = (2048, 32 << 20);
/// Maximum bytes of replies in flight to a client; beyond it, none are read from the server.
const REPLIES_MAX: usize = 8 << 20;
/// Time for which a disconnected client's relay is kept, and the maximum number of them.
const DETACHED_MAX: Duration = Duration::from_secs(60);
const ORPHANS_MAX: usize = 64;

/// The server behind a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NfsServer {
    /// Its NFS service over TCP.
    pub nfs: Target,
    /// The port of MOUNT; `None`: ask the portmapper, else use the NFS port.
    pub mount_port: Option<u16>,
}

/// The relays of all clients.
pub(super) struct Relays {
    server: NfsServer,
    clients: PerMobile<(Arc<Relay>, PublicKey)>,
    /// Relays of disconnected clients, and since when.
    detached: BTreeMap<PublicKey, (Arc<Relay>, Time)>,
    clock: Clock,
    counts: Arc<Counts>,
}

/// Counters of all relays.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: AtomicU64,
    pub(super) call_bytes: AtomicU64,
    pub(super) reply_bytes: AtomicU64,
    pub(super) connections: AtomicU64,
}

/// A client's unanswered calls and its connections to the server.
pub(super) struct Relay {
    state: Mutex<State>,
    /// Permits for bytes of replies.
    pub(super) room: Arc<Semaphore>,
    pub(super) counts: Arc<Counts>,
}

#[derive(Default)]
struct State {
    /// The client, while connected.
    remote: Option<Remote>,
    /// Unanswered calls by xid.
    calls: BTreeMap<u32, Call>,
    bytes: usize,
    ways: BTreeMap<Program, Upstream>,
}

/// The task of a connection to the server.
struct Upstream {
    /// Bounded: each call in it is unanswered.
    calls: mpsc::UnboundedSender<Bytes>,
    task: AbortHandle,
}

struct Call {
    program: Program,
    message: Bytes,
    /// The reply has the same.
    priority: Priority,
}

impl Relays {
    pub(super) fn new(server: NfsServer) -> Relays {
        Relays {
            server,
            clients: PerMobile::new(),
            detached: BTreeMap::new(),
            clock: Clock::start(),
            counts: Arc::default(),
        }
    }

    /// Handles a call; false on a protocol violation.
    pub(super) fn take(&mut self, received: Received) -> bool {
        let Received { from, priority, object } = received;
        if !self.clients.contains_key(&from.id()) {
            // The previous holder of the key has just left.
            self.clear();
        }
        let (relay, _) = match self.clients.entry(from.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // The client has left; it needs no reply.
                let Some(key) = from.key() else { return true };
                let relay = self.detached.remove(&key).map(|(relay, _)| relay);
                let relay = relay.unwrap_or_else(|| Relay::new(self.counts.clone()));
                relay.lock().remote = Some(from);
                place.insert((relay, key))
            }
        };
        relay.take(&self.server, object, priority)
    }

    /// Detaches relays of clients that left, and drops those detached for too long.
    pub(super) fn clear(&mut self) {
        let now = self.clock.now();
        let detached = &mut self.detached;
        self.clients.retain(|_, (relay, key)| {
            let mut state = relay.lock();
            if state.remote.as_ref().is_some_and(|remote| remote.ended().is_none()) {
                return true;
            }
            state.remote = None;
            drop(state);
            // Two programs may share a key; keep the relay that left last.
            let old = detached.insert(*key, (relay.clone(), now));
            old.into_iter().for_each(|(relay, _)| relay.end());
            false
        });
        detached.retain(|_, (relay, since)| {
            let is_kept = now.since(*since) < DETACHED_MAX;
            if !is_kept {
                relay.end();
            }
            is_kept
        });
        while self.detached.len() > ORPHANS_MAX {
            let oldest = self.detached.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| *key);
            let oldest = oldest.and_then(|key| self.detached.remove(&key));
            oldest.into_iter().for_each(|(relay, _)| relay.end());
        }
    }

    /// Closes all relays.
    pub(super) fn end(&mut self) {
        std::mem::take(&mut self.clients).values().for_each(|(relay, _)| relay.end());
        std::mem::take(&mut self.detached).values().for_each(|(relay, _)| relay.end());
    }

    pub(super) fn report(&self, report: &mut GatewayStatus) {
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

    /// Records a call and sends it; false on a protocol violation.
    fn take(self: &Arc<Self>, server: &NfsServer, message: Bytes, priority: Priority) -> bool {
        let Ok(header) = CallHeader::decode(&mut Reader::new(message.clone())) else { return false };
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        self.counts.call_bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        let program = match header.prog {
            // NFSACL is on the same port.
            nfs3::PROGRAM | nfsacl::PROGRAM => Program::Nfs,
            mount::PROGRAM => Program::Mount,
            _ => {
                self.reply(unavailable(header.xid), priority, None);
                return true;
            }
        };
        let mut state = self.lock();
        if let Some(known) = state.calls.get(&header.xid) {
            // A repetition from before the client returned; any other call with this xid is a violation, since the
            // reply would be ambiguous.
            return known.message == message;
        }
        if state.calls.len() >= PENDING_MAX.0 || state.bytes + message.len() > PENDING_MAX.1 {
            return false;
        }
        state.bytes += message.len();
        state.calls.insert(header.xid, Call { program, message: message.clone(), priority });
        let upstream = state.ways.entry(program).or_insert_with(|| {
            let (calls, incoming) = mpsc::unbounded_channel();
            let task = tokio::spawn(run(self.clone(), program, server.clone(), incoming));
            Upstream { calls, task: task.abort_handle() }
        });
        // The task ends only with the relay.
        let _ = upstream.calls.send(message);
        true
    }

    /// Whether a program has no unanswered calls.
    pub(super) fn is_answered(&self, program: Program) -> bool {
        !self.lock().calls.values().any(|call| call.program == program)
    }

    /// The unanswered calls of a program in the order of their xids. Empties `calls`, whose entries are among them.
    pub(super) fn requeue(&self, program: Program, calls: &mut mpsc::UnboundedReceiver<Bytes>) -> Vec<Bytes> {
        // No call is added meanwhile.
        let state = self.lock();
        while calls.try_recv().is_ok() {}
        state.calls.values().filter(|call| call.program == program).map(|call| call.message.clone()).collect()
    }

    /// Sends a reply of the server to the client, with the permit for its bytes. A second reply to a call is
    /// dropped.
    pub(super) fn answer(self: &Arc<Self>, reply: Bytes, permit: OwnedSemaphorePermit) {
        let Some(xid) = reply.first_chunk::<4>() else { return };
        let call = {
            let mut state = self.lock();
            let call = state.calls.remove(&u32::from_be_bytes(*xid));
            state.bytes -= call.as_ref().map_or(0, |call| call.message.len());
            call
        };
        if let Some(call) = call {
            self.reply(reply, call.priority, Some(permit));
        }
    }

    /// Sends a reply. A client that does not get it reconnects and repeats the call.
    fn reply(self: &Arc<Self>, reply: Bytes, priority: Priority, permit: Option<OwnedSemaphorePermit>) {
        self.counts.reply_bytes.fetch_add(reply.len() as u64, Ordering::Relaxed);
        let Some(remote) = self.lock().remote.clone() else { return };
        let options = Options { priority, ..Options::default() };
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

/// The reply for a program that is not served.
fn unavailable(xid: u32) -> Bytes {
    let mut reply = Vec::new();
    ReplyHeader { xid, outcome: rpc::Outcome::ProgUnavail }.encode(&mut reply);
    reply.into()
}

/// Bytes written ahead to the connection; the rest waits in the relay.
const AHEAD: usize = 256 << 10;
/// First and longest pause before a broken connection is made again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Time limits for a connection and for the portmapper's answer.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const PORTMAP_MAX: Duration = Duration::from_secs(3);
/// Interval of the check that the server acknowledges data, and the failures after which the connection is closed.
/// The kernel's own retransmission may take two minutes to notice a server that is back.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const SILENT_MAX: u32 = 5;

/// A program of NFS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Program {
    Nfs,
    Mount,
}

/// Carries calls until the relay ends this task.
pub(super) async fn run(
    relay: Arc<Relay>,
    program: Program,
    server: NfsServer,
    mut calls: mpsc::UnboundedReceiver<Bytes>,
) {
    let mut pause = RECONNECT.0;
    let mut port = None;
    loop {
        // A received call is among the unanswered ones.
        if relay.is_answered(program) && calls.recv().await.is_none() {
            return;
        }
        if let Ok(line) = connect(program, &server, &mut port).await {
            relay.counts.connections.fetch_add(1, Ordering::Relaxed);
            let _counted = ConnectionCount(&relay);
            if serve(&relay, program, line, &mut calls).await {
                pause = RECONNECT.0;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

/// Counts a connection while it exists.
struct ConnectionCount<'r>(&'r Relay);

impl Drop for ConnectionCount<'_> {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, and whether the program may be unavailable there.
struct ServerConnection {
    tcp: TcpStream,
    is_guess: bool,
}

/// Serves a connection until it breaks or is useless: sends unanswered calls, then new ones. Returns whether it
/// answered any.
async fn serve(
    relay: &Arc<Relay>,
    program: Program,
    mut line: ServerConnection,
    calls: &mut mpsc::UnboundedReceiver<Bytes>,
) -> bool {
    let (mut read, mut write) = line.tcp.split();
    let mut records = RecordReader::new(RECORD_MAX);
    let mut out = BytesMut::new();
    let mut answered = false;
    let (mut look, mut silent) = (interval(CHECK_INTERVAL), 0);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    relay.requeue(program, calls).into_iter().for_each(|call| put(&mut out, &call));
    loop {
        tokio::select! {
            n = read.read_buf(records.buffer()) => {
                if !matches!(n, Ok(1..)) {
                    return answered;
                }
                let mut is_elsewhere = false;
                loop {
                    let record = match records.next_record() {
                        Ok(Some(record)) => record,
                        Ok(None) => break,
                        Err(_) => return answered,
                    };
                    answered = true;
                    is_elsewhere |= line.is_guess && is_unavailable(&record);
                    // Back-pressure: the server waits while the client takes no replies.
                    let bytes = u32::try_from(record.len()).unwrap_or(u32::MAX);
                    let Ok(permit) = relay.room.clone().acquire_many_owned(bytes).await else { return answered };
                    relay.answer(record, permit);
                }
                if is_elsewhere {
                    return answered;
                }
            }
            n = write.write(&out), if !out.is_empty() => match n {
                Ok(n) => out.advance(n),
                Err(_) => return answered,
            },
            call = calls.recv(), if out.len() < AHEAD => match call {
                Some(call) => put(&mut out, &call),
                None => return answered,
            },
            _ = look.tick() => {
                let is_silent = unacknowledged_for(read.as_ref()) >= Some(CHECK_INTERVAL);
                silent = if is_silent { silent + 1 } else { 0 };
                if silent == SILENT_MAX {
                    // Frees the port at once for the next connection. Fails only on a broken connection.
                    let _ = sockopt::set_socket_linger(read.as_ref(), Some(Duration::ZERO));
                    return answered;
                }
            }
        }
    }
}

/// Whether the server does not serve the program.
fn is_unavailable(reply: &Bytes) -> bool {
    let header = ReplyHeader::decode(&mut Reader::new(reply.clone()));
    header.is_ok_and(|header| header.outcome == RpcOutcome::ProgUnavail)
}

fn put(out: &mut BytesMut, call: &Bytes) {
    out.extend_from_slice(&mark(call.len()));
    out.extend_from_slice(call);
}

/// Connects, from the previous `port` if any: some servers identify clients by it.
async fn connect(program: Program, server: &NfsServer, port: &mut Option<u16>) -> io::Result<ServerConnection> {
    let host = server.nfs.host();
    let known = match (program, server.mount_port) {
        (Program::Nfs, _) => Some(server.nfs.port()),
        (Program::Mount, Some(port)) => Some(port),
        (Program::Mount, None) => ask_portmapper(host).await,
    };
    let (at, is_guess) = (known.unwrap_or(server.nfs.port()), known.is_none());
    let mut failure = io::ErrorKind::NotFound.into();
    for addr in tokio::net::lookup_host((host, at)).await? {
        match in_time(CONNECT_MAX, reserved::connect(addr, *port)).await {
            Ok(tcp) => {
                harden(&tcp, &KEEP_ALIVE)?;
                *port = Some(tcp.local_addr()?.port());
                return Ok(ServerConnection { tcp, is_guess });
            }
            Err(e) => failure = e,
        }
    }
    Err(failure)
}

async fn in_time<T>(max: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(max, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Asks the portmapper for the port of MOUNT (RFC 1833, section 3).
async fn ask_portmapper(host: &str) -> Option<u16> {
    let portmapper = Target::new(host, portmap::PORT).ok()?;
    let asked = async {
        let mut tcp = TcpStream::connect((portmapper.host(), portmapper.port())).await?;
        let question = Mapping { prog: mount::PROGRAM, vers: mount::VERSION, prot: portmap::IPPROTO_TCP, port: 0 };
        let call = portmap::Call::GetPort(question);
        let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
        let header =
            CallHeader { xid: 1, prog: portmap::PROGRAM, vers: portmap::VERSION, proc: call.proc(), cred, verf };
        let mut message = Vec::new();
        header.encode(&mut message);
        call.encode(&mut message);
        tcp.write_all(&[&mark(message.len())[..], &message].concat()).await?;
        let mut records = RecordReader::new(1024);
        loop {
            if tcp.read_buf(records.buffer()).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(reply) = records.next_record().map_err(io::Error::other)? {
                return Ok(reply);
            }
        }
    };
    let reply = in_time(PORTMAP_MAX, asked).await.ok()?;
    port_in(reply)
}

/// The port in a portmapper's reply.
fn port_in(reply: Bytes) -> Option<u16> {
    let mut r = Reader::new(reply);
    match ReplyHeader::decode(&mut r) {
        Ok(ReplyHeader { outcome: RpcOutcome::Success, .. }) => {}
        _ => return None,
    }
    match portmap::Reply::decode(portmap::PROC_GETPORT, &mut r).ok()? {
        portmap::Reply::Port(port) => u16::try_from(port).ok().filter(|port| *port > 0),
        _ => None,
    }
}
