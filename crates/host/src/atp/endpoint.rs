//! The async interface of an endpoint.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use remora_atp::session::{Config, Counters, Endpoint, Identity, PeerId, PublicKey, Status};
use remora_atp::{Gone, Options, Priority};
use remora_base::Rate;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::{oneshot, watch};

use super::error::AtpError;
use super::local_network::datagram_max;
use super::notice::{AtpNotice, Crossing};
use super::request::Request;
use super::shared::{ConnectionState, EndpointState, ReceiveLimits, ReceivedObject, SharedEndpoint};
use super::shutdown;
use super::socket::EndpointSocket;
use super::worker::EndpointWorker;
use crate::Clock;

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Address to listen on; port 0 for any. `[::]` includes IPv4.
    pub listen: SocketAddr,
    /// Settings of the core: admitted keys, policies and all bounds.
    pub session: Config,
    /// Largest datagram to probe and accept, in bytes without IP and UDP headers (1200 to 65527); `None`: by the
    /// interfaces' MTU, 1452 to 8952.
    pub datagram_max: Option<u16>,
    /// Maximum objects that wait for [`AtpEndpoint::recv`]; 0 if the program does not receive, which discards them.
    /// Beyond it objects stay in the session, and beyond its bounds they are refused. Other events are delivered
    /// meanwhile.
    pub received_max: usize,
    /// Maximum bytes of these objects, not counting the last one.
    pub received_bytes_max: usize,
}

impl EndpointSettings {
    /// Defaults for a program that only sends, on any port.
    pub fn sender() -> EndpointSettings {
        EndpointSettings {
            listen: SocketAddr::from(([0u16; 8], 0)),
            session: Config::default(),
            datagram_max: None,
            received_max: 0,
            received_bytes_max: 0,
        }
    }

    /// Defaults for a program that receives on `listen`.
    pub fn receiver(listen: SocketAddr) -> EndpointSettings {
        EndpointSettings { listen, received_max: 4096, received_bytes_max: 64 << 20, ..EndpointSettings::sender() }
    }
}

/// An ATP endpoint on a socket. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct AtpEndpoint {
    handle: Arc<Handle>,
}

/// Closes the endpoint when dropped.
struct Handle {
    shared: Arc<SharedEndpoint>,
    key: PublicKey,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A handle of a peer's connection.
#[derive(Clone)]
pub struct Remote {
    id: PeerId,
    shared: Arc<SharedEndpoint>,
    line: watch::Receiver<ConnectionState>,
}

/// A received object.
#[derive(Debug)]
pub struct Received {
    /// The sender, to which answers can be sent.
    pub from: Remote,
    pub priority: Priority,
    pub object: Bytes,
}

impl AtpEndpoint {
    /// Starts an endpoint with its own socket and thread.
    pub fn bind(settings: EndpointSettings, identity: Identity) -> Result<AtpEndpoint, AtpError> {
        let bind = |source| AtpError::Bind { addr: settings.listen, source };
        let socket = EndpointSocket::bind(settings.listen).map_err(bind)?;
        let local = socket.udp().local_addr().map_err(bind)?;
        let clock = Clock::start_for_beating_thread();
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|e| AtpError::Start(std::io::Error::other(e.to_string())))?;
        let mut config = settings.session;
        // MTU discovery needs that datagrams are not fragmented.
        config.discover &= !socket.may_fragment();
        config.datagram_max = match settings.datagram_max {
            Some(bytes) => bytes,
            None => config.datagram_max.max(datagram_max(local.ip())),
        };
        // Also for a port that the system chose: the program may request it again.
        config.listens = Some(local);
        let epoch = clock.instant(remora_base::Time::ZERO);
        let core = Endpoint::new(config, identity, epoch, clock.now(), u64::from_ne_bytes(seed))?;
        let key = core.public_key();
        let limits = ReceiveLimits { objects: settings.received_max, bytes: settings.received_bytes_max };
        let waker =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|e| AtpError::Start(e.into()))?;
        let shared = SharedEndpoint::new(EndpointState::new(core, limits, local), clock, waker);
        let worker = EndpointWorker::new(shared.clone(), socket);
        let running = shutdown::register(&shared);
        let work = move || {
            let _running = running;
            worker.run();
        };
        std::thread::Builder::new().name("atp".into()).spawn(work).map_err(AtpError::Start)?;
        Ok(AtpEndpoint { handle: Arc::new(Handle { shared, key }) })
    }

    fn shared(&self) -> &Arc<SharedEndpoint> {
        &self.handle.shared
    }

    /// This endpoint's public key.
    pub fn public_key(&self) -> PublicKey {
        self.handle.key
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().lock().local
    }

    /// Connects to the owner of `key` at `addr`. Objects can be sent at once, and leave with the first packets to a
    /// known peer; [`Remote::up`] waits for the answer.
    pub fn connect(&self, addr: SocketAddr, key: PublicKey) -> Result<Remote, AtpError> {
        let shared = self.shared();
        let mut state = shared.lock();
        if shared.is_closing() {
            return Err(AtpError::Closed);
        }
        let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let id = state.core.connect(shared.now(), addr, key)?;
        let line = state.peer(id).subscribe();
        shared.deliver(&mut state);
        drop(state);
        shared.wake();
        Ok(Remote { id, shared: shared.clone(), line })
    }

    /// Waits for the next received object.
    pub async fn recv(&self) -> Result<Received, AtpError> {
        let shared = self.shared();
        loop {
            if let Some(received) = self.try_recv() {
                return Ok(received);
            }
            if shared.is_closed() {
                shared.arrived.notify_one(); // for the others who wait
                return Err(AtpError::Closed);
            }
            shared.arrived.notified().await;
        }
    }

    /// The next received object, if any.
    pub fn try_recv(&self) -> Option<Received> {
        let shared = self.shared();
        let mut state = shared.lock();
        let ReceivedObject { from, priority, object } = state.take_received()?;
        shared.deliver(&mut state);
        if !state.received.is_empty() {
            shared.arrived.notify_one(); // for the others who wait
        }
        let from = remote(shared, &state, from);
        drop(state);
        shared.wake(); // there is room for more
        Some(Received { from, priority, object })
    }

    /// Number of received objects up to the last one from `peers`.
    pub fn waiting(&self, peers: impl Fn(PeerId) -> bool) -> usize {
        let state = self.shared().lock();
        state.received.iter().rposition(|arrived| peers(arrived.from)).map_or(0, |last| last + 1)
    }

    /// Waits for the next notice. The oldest are dropped if not taken, except the newest of each request, which
    /// stays until the request ends.
    pub async fn notice(&self) -> Result<AtpNotice, AtpError> {
        let shared = self.shared();
        loop {
            {
                let mut state = shared.lock();
                if let Some(notice) = state.notices.pop_front() {
                    if !state.notices.is_empty() {
                        shared.noticed.notify_one();
                    }
                    return Ok(notice);
                }
            }
            if shared.is_closed() {
                shared.noticed.notify_one();
                return Err(AtpError::Closed);
            }
            shared.noticed.notified().await;
        }
    }

    /// Binds to `addr` and informs the peers; requests go on. Not needed when an address of a wildcard endpoint
    /// changes: that is detected within a second for each 64 peers. Returns the new local address.
    pub async fn rebind(&self, addr: SocketAddr) -> Result<SocketAddr, AtpError> {
        let (told, hear) = oneshot::channel();
        {
            let mut state = self.shared().lock();
            // The thread would not handle the request.
            if self.shared().is_closed() {
                return Err(AtpError::Closed);
            }
            state.rebind = Some((addr, told));
        }
        self.shared().wake();
        let bound = hear.await.map_err(|_| AtpError::Closed)?;
        bound.map_err(|source| AtpError::Bind { addr, source })
    }

    /// Counters of rejected input.
    pub fn counters(&self) -> Counters {
        self.shared().lock().core.counters()
    }

    /// Objects discarded because the program does not receive.
    pub fn ignored(&self) -> u64 {
        self.shared().lock().ignored
    }

    /// Closes all connections and informs the peers, within a second.
    pub async fn close(&self) {
        self.shared().close();
        while !self.shared().is_closed() {
            self.shared().ended.notified().await;
        }
        self.shared().ended.notify_one(); // for the others who wait
    }
}

/// A handle for a peer of the core.
fn remote(shared: &Arc<SharedEndpoint>, state: &EndpointState, id: PeerId) -> Remote {
    let remove_peer = || watch::Sender::new(ConnectionState::Down(remora_atp::session::Ending::Closed)).subscribe();
    let line = state.peers.get(&id).map_or_else(remove_peer, watch::Sender::subscribe);
    Remote { id, shared: shared.clone(), line }
}

impl Remote {
    /// The peer's id in notices.
    pub fn id(&self) -> PeerId {
        self.id
    }

    /// Waits until the connection is established; an error says why not.
    pub async fn up(&self) -> Result<(), AtpError> {
        let mut line = self.line.clone();
        loop {
            match &*line.borrow_and_update() {
                ConnectionState::Connecting => {}
                ConnectionState::Up { .. } => return Ok(()),
                ConnectionState::Refused(why) => return Err(AtpError::Refused(why.clone())),
                ConnectionState::Down(why) => return Err(AtpError::Down(why.clone())),
            }
            line.changed().await.map_err(|_| AtpError::Closed)?;
        }
    }

    /// Why the connection ended, if it has.
    pub fn ended(&self) -> Option<AtpError> {
        match &*self.line.borrow() {
            ConnectionState::Refused(why) => Some(AtpError::Refused(why.clone())),
            ConnectionState::Down(why) => Some(AtpError::Down(why.clone())),
            _ => None,
        }
    }

    /// The peer's key, once authenticated.
    pub fn key(&self) -> Option<PublicKey> {
        match &*self.line.borrow() {
            ConnectionState::Up { key, .. } => Some(*key),
            _ => None,
        }
    }

    /// Submits an object. The request reports its end.
    pub fn send(&self, object: Bytes, options: Options) -> Result<Request, AtpError> {
        let (told, end) = oneshot::channel();
        let mut state = self.shared.lock();
        let id = state.core.send(self.shared.now(), self.id, object, options)?;
        state.requests.insert(id, told);
        self.shared.deliver(&mut state);
        drop(state);
        self.shared.wake();
        Ok(Request { id, shared: self.shared.clone(), end })
    }

    /// Waits until the bandwidth leaves the bounds (`callback` in ATP 02), once. An endpoint has one such wait; a
    /// new one replaces it.
    pub async fn bounds(&self, low: Option<Rate>, high: Option<Rate>) -> Result<Crossing, AtpError> {
        let (told, hear) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            // Only an accepted wait replaces the current one.
            state.core.bounds(self.shared.now(), self.id, low, high)?;
            state.bounds = Some(told);
            self.shared.deliver(&mut state);
        }
        self.shared.wake();
        hear.await.map_err(|_| if self.shared.is_closed() { AtpError::Closed } else { AtpError::Replaced })
    }

    pub fn status(&self) -> Result<Status, Gone> {
        self.shared.lock().core.status(self.id).ok_or(Gone)
    }

    /// Closes the connection; its requests are lost.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.core.close(self.shared.now(), self.id);
        self.shared.deliver(&mut state);
        drop(state);
        self.shared.wake();
    }
}

impl fmt::Debug for AtpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtpEndpoint({})", self.handle.key)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.id.dest().0)
    }
}
