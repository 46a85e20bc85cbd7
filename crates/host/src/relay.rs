//! The emulated channel in real time, between UDP sockets on loopback, without root.
//!
//! Mobiles send to the relay's address; it passes what the channel delivers to the server, and the replies back.
//! Each mobile address has its own channel with the same seed, so that parallel runs meet the same bad periods. The
//! channel uses logical time, so a late wake-up delays one delivery and does not accumulate; [`Progress`] has the
//! largest lateness.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_channel::{Channel, Config, ConfigError, Side, SideStats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;

use crate::Clock;

/// Maximum number of mobiles; datagrams of others are dropped.
const MOBILES_MAX: usize = 64;
/// Silence after which a mobile may be replaced. If it returns, its new channel has the same bad periods.
const SILENT_MIN: Duration = Duration::from_secs(2);
/// Longest sleep, so that a stop is noticed.
const TICK: Duration = Duration::from_millis(50);
/// The largest UDP payload.
const DATAGRAM_MAX: usize = 65_507;

/// Why a relay does not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The channel's configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A socket could not be created.
    #[error("cannot open the relay's socket on {at}: {source}")]
    Socket { at: SocketAddr, source: io::Error },
}

/// Counters of one mobile.
#[derive(Clone, Debug)]
pub struct Progress {
    pub mobile: SocketAddr,
    /// Frames from the mobile, and their fates.
    pub up: SideStats,
    /// Frames to the mobile.
    pub down: SideStats,
    /// The largest lateness of a delivery.
    pub lateness: Duration,
}

/// A running relay; dropping it stops it.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    progress: Arc<Mutex<Vec<Progress>>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on `listen` and relays to `server` through channels of `config` and `seed`, whose time zero is that
    /// of `clock`.
    pub fn start(
        listen: SocketAddr,
        server: SocketAddr,
        config: Config,
        seed: u64,
        clock: Clock,
    ) -> Result<Relay, RelayError> {
        config.validate()?;
        let socket = open(listen).map_err(|source| RelayError::Socket { at: listen, source })?;
        let addr = socket.local_addr().map_err(|source| RelayError::Socket { at: listen, source })?;
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Mutex::new(Vec::new()));
        let mut worker = Worker {
            socket,
            server,
            config,
            seed,
            clock,
            mobiles: BTreeMap::new(),
            came: 0,
            progress: progress.clone(),
            buffer: vec![0; DATAGRAM_MAX + 1],
        };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || worker.run(&stopped))
            .map_err(|source| RelayError::Socket { at: listen, source })?;
        Ok(Relay { addr, stop, progress, thread: Some(thread) })
    }

    /// The address for mobiles.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Counters of each mobile, in the order of their arrival.
    pub fn progress(&self) -> Vec<Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    // Best effort: the channel's own queue makes up for a smaller buffer.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    Ok(socket)
}

/// A mobile, its channel and its socket to the server.
struct Mobile {
    /// Its position in the order of arrival.
    index: usize,
    last_heard: Time,
    channel: Channel,
    upstream: UdpSocket,
    lateness: Duration,
}

struct Worker {
    socket: UdpSocket,
    server: SocketAddr,
    config: Config,
    seed: u64,
    clock: Clock,
    mobiles: BTreeMap<SocketAddr, Mobile>,
    came: usize,
    progress: Arc<Mutex<Vec<Progress>>>,
    buffer: Vec<u8>,
}

impl Worker {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.take_from_mobiles();
            self.take_from_server();
            self.deliver();
            self.publish();
            self.sleep();
        }
    }

    fn take_from_mobiles(&mut self) {
        // Bounded, so that a flood does not delay deliveries.
        for _ in 0..64 {
            let Ok((n, from)) = self.socket.recv_from(&mut self.buffer) else { return };
            let datagram = Bytes::copy_from_slice(&self.buffer[..n]);
            let now = self.clock.now();
            if !self.mobiles.contains_key(&from) {
                let Some(mobile) = self.new_mobile(now) else { continue };
                self.mobiles.insert(from, mobile);
            }
            if let Some(m) = self.mobiles.get_mut(&from) {
                m.last_heard = now;
                m.channel.send(now, Side::Mobile, datagram);
            }
        }
    }

    fn new_mobile(&mut self, now: Time) -> Option<Mobile> {
        if self.mobiles.len() >= MOBILES_MAX {
            self.make_room(now)?;
        }
        let any: SocketAddr = match self.server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let upstream = open(any).ok()?;
        upstream.connect(self.server).ok()?;
        let channel = Channel::new(self.config.clone(), self.seed).ok()?;
        self.came += 1;
        debug!(client = self.came, "new client");
        Some(Mobile { index: self.came, last_heard: now, channel, upstream, lateness: Duration::ZERO })
    }

    /// Removes the mobile that was silent for longest, if long enough.
    fn make_room(&mut self, now: Time) -> Option<()> {
        let (addr, mobile) = self.mobiles.iter().min_by_key(|(_, m)| m.last_heard)?;
        if now.since(mobile.last_heard) < SILENT_MIN {
            return None;
        }
        let addr = *addr;
        self.mobiles.remove(&addr);
        Some(())
    }

    fn take_from_server(&mut self) {
        for m in self.mobiles.values_mut() {
            for _ in 0..64 {
                let Ok(n) = m.upstream.recv(&mut self.buffer) else { break };
                let datagram = Bytes::copy_from_slice(&self.buffer[..n]);
                m.channel.send(self.clock.now(), Side::Base, datagram);
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.clock.now();
        for (addr, m) in &mut self.mobiles {
            m.channel.handle_timeout(now);
            while let Some(d) = m.channel.poll_delivery(now) {
                m.lateness = m.lateness.max(now.since(d.at));
                // A failed send is one more loss, which both ends repair.
                let _ = match d.to {
                    Side::Base => m.upstream.send(&d.datagram),
                    Side::Mobile => self.socket.send_to(&d.datagram, addr),
                };
            }
        }
    }

    fn publish(&mut self) {
        let mut all: Vec<(usize, Progress)> = self
            .mobiles
            .iter()
            .map(|(addr, m)| {
                let (up, down) = (*m.channel.stats(Side::Mobile), *m.channel.stats(Side::Base));
                (m.index, Progress { mobile: *addr, up, down, lateness: m.lateness })
            })
            .collect();
        all.sort_by_key(|(index, _)| *index);
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = all.into_iter().map(|(_, p)| p).collect();
    }

    fn sleep(&self) {
        let now = self.clock.now();
        let due = self.mobiles.values().filter_map(|m| m.channel.poll_timeout()).min().unwrap_or(Time::MAX);
        let wait = due.since(now).min(TICK);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let sockets = std::iter::once(&self.socket).chain(self.mobiles.values().map(|m| &m.upstream));
        let mut fds: Vec<PollFd<'_>> = sockets.map(|s| PollFd::new(s, PollFlags::IN)).collect();
        // An interrupted wait means another turn of the loop.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
