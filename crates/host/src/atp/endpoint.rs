//! The endpoint as an async program holds it.

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
use super::farewell;
use super::interface::datagram_max;
use super::request::Request;
use super::shared::{Arrived, Crossing, Limits, Line, Notice, Shared, State};
use super::socket::Socket;
use super::worker::Worker;
use crate::Clock;

/// What an endpoint is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 for any. `[::]` takes IPv4, too.
    pub listen: SocketAddr,
    /// The core's settings: who may connect, the policies and every bound.
    pub session: Config,
    /// The largest datagrams that are tried and taken, in bytes without IP and UDP headers (1200 to
    /// 65527); `None`: what the interfaces it can send from carry, 1452 to 8952.
    pub datagram_max: Option<u16>,
    /// Received objects that wait for [`AtpEndpoint::recv`]; 0 if the program does not receive:
    /// then what comes is thrown away. While as many wait, or as many bytes, what comes stays in the
    /// session, and beyond the bounds of that it is refused: its sender is told. The ends of
    /// requests and all else are told meanwhile.
    pub received_max: usize,
    /// Bytes of the same, not counting the last one.
    pub received_bytes_max: usize,
}

impl Settings {
    /// The defaults, on any port of any address, for a program that only sends.
    pub fn sender() -> Settings {
        Settings {
            listen: SocketAddr::from(([0u16; 8], 0)),
            session: Config::default(),
            datagram_max: None,
            received_max: 0,
            received_bytes_max: 0,
        }
    }

    /// The defaults, listening on `listen`, for a program that receives.
    pub fn receiver(listen: SocketAddr) -> Settings {
        Settings { listen, received_max: 4096, received_bytes_max: 64 << 20, ..Settings::sender() }
    }
}

/// One end of ATP on a socket. Clones share it; with the last one it is closed.
#[derive(Clone)]
pub struct AtpEndpoint {
    handle: Arc<Handle>,
}

/// Closes the endpoint when it goes.
struct Handle {
    shared: Arc<Shared>,
    key: PublicKey,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A peer, from the first word to the last.
#[derive(Clone)]
pub struct Remote {
    id: PeerId,
    shared: Arc<Shared>,
    line: watch::Receiver<Line>,
}

/// An object that came in.
#[derive(Debug)]
pub struct Received {
    /// From whom; answers can be sent there.
    pub from: Remote,
    /// As the sender had it.
    pub priority: Priority,
    /// Its bytes.
    pub object: Bytes,
}

impl AtpEndpoint {
    /// An endpoint that is `identity`, on a socket and a thread of its own.
    pub fn bind(settings: Settings, identity: Identity) -> Result<AtpEndpoint, AtpError> {
        let bind = |source| AtpError::Bind { addr: settings.listen, source };
        let socket = Socket::bind(settings.listen).map_err(bind)?;
        let local = socket.udp().local_addr().map_err(bind)?;
        let clock = Clock::start_for_beating_thread();
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|e| AtpError::Start(std::io::Error::other(e.to_string())))?;
        let mut config = settings.session;
        // Larger datagrams are found by those that do not get through.
        config.discover &= !socket.may_fragment();
        config.datagram_max = match settings.datagram_max {
            Some(bytes) => bytes,
            None => config.datagram_max.max(datagram_max(local.ip())),
        };
        // Also where the system chose the port: who begins again may ask for that one.
        config.listens = Some(local);
        let epoch = clock.instant(remora_base::Time::ZERO);
        let core = Endpoint::new(config, identity, epoch, clock.now(), u64::from_ne_bytes(seed))?;
        let key = core.public_key();
        let limits = Limits { objects: settings.received_max, bytes: settings.received_bytes_max };
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|e| AtpError::Start(e.into()))?;
        let shared = Shared::new(State::new(core, limits, local), clock, bell);
        let worker = Worker::new(shared.clone(), socket);
        let running = farewell::begins(&shared);
        let work = move || {
            let _running = running;
            worker.run();
        };
        std::thread::Builder::new().name("atp".into()).spawn(work).map_err(AtpError::Start)?;
        Ok(AtpEndpoint { handle: Arc::new(Handle { shared, key }) })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The key others know it by.
    pub fn public_key(&self) -> PublicKey {
        self.handle.key
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().lock().local
    }

    /// Turns to the owner of `key` at `addr`. Objects can be sent at once, and leave with the
    /// first packets if the peer is an old acquaintance; [`Remote::up`] waits for an answer.
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
        shared.ring();
        Ok(Remote { id, shared: shared.clone(), line })
    }

    /// The next object that came in.
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

    /// The next object that came in, if there is one.
    pub fn try_recv(&self) -> Option<Received> {
        let shared = self.shared();
        let mut state = shared.lock();
        let Arrived { from, priority, object } = state.take_received()?;
        shared.deliver(&mut state);
        if !state.received.is_empty() {
            shared.arrived.notify_one(); // for the others who wait
        }
        let from = remote(shared, &state, from);
        drop(state);
        shared.ring(); // there is room for more
        Some(Received { from, priority, object })
    }

    /// How many objects that came in are to be taken until none of those that wait here now is from
    /// one of `peers`.
    pub fn waiting(&self, peers: impl Fn(PeerId) -> bool) -> usize {
        let state = self.shared().lock();
        state.received.iter().rposition(|arrived| peers(arrived.from)).map_or(0, |last| last + 1)
    }

    /// The next thing worth knowing. Notices not taken in time are dropped, the oldest first; but the newest of
    /// each request stays until the request has ended.
    pub async fn notice(&self) -> Result<Notice, AtpError> {
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

    /// Binds to `addr` instead and tells the peers; requests go on. Not needed when an address
    /// of the machine changes and the endpoint is bound to all of them: that is noticed within a
    /// second, or one for each 64 peers. Gives the new local address.
    pub async fn rebind(&self, addr: SocketAddr) -> Result<SocketAddr, AtpError> {
        let (told, hear) = oneshot::channel();
        {
            let mut state = self.shared().lock();
            // Nobody would take it from there.
            if self.shared().is_closed() {
                return Err(AtpError::Closed);
            }
            state.rebind = Some((addr, told));
        }
        self.shared().ring();
        let bound = hear.await.map_err(|_| AtpError::Closed)?;
        bound.map_err(|source| AtpError::Bind { addr, source })
    }

    /// Counts of what was dropped.
    pub fn counters(&self) -> Counters {
        self.shared().lock().core.counters()
    }

    /// Objects that were thrown away, for the program does not receive.
    pub fn ignored(&self) -> u64 {
        self.shared().lock().ignored
    }

    /// Ends all connections and waits until the peers have been told, for a second at most.
    pub async fn close(&self) {
        self.shared().close();
        while !self.shared().is_closed() {
            self.shared().ended.notified().await;
        }
        self.shared().ended.notify_one(); // for the others who wait
    }
}

/// The handle of a peer that the core knows, or knew.
fn remote(shared: &Arc<Shared>, state: &State, id: PeerId) -> Remote {
    let gone = || watch::Sender::new(Line::Down(remora_atp::session::Ending::Closed)).subscribe();
    let line = state.peers.get(&id).map_or_else(gone, watch::Sender::subscribe);
    Remote { id, shared: shared.clone(), line }
}

impl Remote {
    /// Its name in notices.
    pub fn id(&self) -> PeerId {
        self.id
    }

    /// Waits until the peer has shown its key; says why if it will not.
    pub async fn up(&self) -> Result<(), AtpError> {
        let mut line = self.line.clone();
        loop {
            match &*line.borrow_and_update() {
                Line::Connecting => {}
                Line::Up { .. } => return Ok(()),
                Line::Refused(why) => return Err(AtpError::Refused(why.clone())),
                Line::Down(why) => return Err(AtpError::Down(why.clone())),
            }
            line.changed().await.map_err(|_| AtpError::Closed)?;
        }
    }

    /// Why there is no connection any more, if so.
    pub fn ended(&self) -> Option<AtpError> {
        match &*self.line.borrow() {
            Line::Refused(why) => Some(AtpError::Refused(why.clone())),
            Line::Down(why) => Some(AtpError::Down(why.clone())),
            _ => None,
        }
    }

    /// The peer's key, once it has shown it.
    pub fn key(&self) -> Option<PublicKey> {
        match &*self.line.borrow() {
            Line::Up { key, .. } => Some(*key),
            _ => None,
        }
    }

    /// Hands over an object. Whether it is accepted, and how it ends, the request says.
    pub fn send(&self, object: Bytes, options: Options) -> Result<Request, AtpError> {
        let (told, end) = oneshot::channel();
        let mut state = self.shared.lock();
        let id = state.core.send(self.shared.now(), self.id, object, options)?;
        state.requests.insert(id, told);
        self.shared.deliver(&mut state);
        drop(state);
        self.shared.ring();
        Ok(Request { id, shared: self.shared.clone(), end })
    }

    /// Waits until the bandwidth leaves the bounds: the paper's `callback`. It ends with the
    /// first crossing; to hear of more, ask again. One wait an endpoint: a new one replaces it.
    pub async fn bounds(&self, low: Option<Rate>, high: Option<Rate>) -> Result<Crossing, AtpError> {
        let (told, hear) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            // A wait that stands is replaced by one that is accepted only.
            state.core.bounds(self.shared.now(), self.id, low, high)?;
            state.bounds = Some(told);
            self.shared.deliver(&mut state);
        }
        self.shared.ring();
        hear.await.map_err(|_| if self.shared.is_closed() { AtpError::Closed } else { AtpError::Replaced })
    }

    /// How it is doing.
    pub fn status(&self) -> Result<Status, Gone> {
        self.shared.lock().core.status(self.id).ok_or(Gone)
    }

    /// Ends the connection; requests that have not ended are lost.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.core.close(self.shared.now(), self.id);
        self.shared.deliver(&mut state);
        drop(state);
        self.shared.ring();
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
