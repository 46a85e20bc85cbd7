//! What a server is started with, and why it may not start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use remora_atp::session::{Guests, Identity};
use remora_server::Config;
use remora_wire::nfs3::PORT;

use crate::server::executor::{EXTRA_THREADS_MAX, Queueing, available_processors};

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen, UDP and TCP alike, for NFS and MOUNT. Port 0 takes any port that is
    /// free for both. Default 127.0.0.1:2049.
    pub listen: Vec<SocketAddr>,
    /// Serve over UDP, too, wherever TCP is served. Default yes.
    pub udp: bool,
    /// A further address, for clients that look for MOUNT on a port of its own. Nothing else is
    /// answered there.
    pub mount_listen: Option<SocketAddr>,
    /// A further address, to answer as a portmapper that tells where this server is, and to nothing
    /// else; by custom its port is 111. Default `None`.
    pub portmap_listen: Option<SocketAddr>,
    /// Serve over ATP, too. Default `None`.
    pub objects: Option<Objects>,
    /// What is served, and the core's bounds.
    pub core: Config,
    /// Seed of the core's secrets; `None`, the default, for one that cannot be guessed.
    pub seed: Option<u64>,
    /// Threads that wait for disks (range: from 1). Default twice the cores, at least 4.
    pub executor_threads: usize,
    /// Threads that join those while they wait and more is to be done (range: from 0). Default 60.
    pub executor_threads_more: usize,
    /// How jobs that exclude one another wait. Default [`Queueing::Serial`].
    pub queueing: Queueing,
    /// Threads that serve sockets (range: from 1). Default the cores, at most 8.
    pub socket_threads: usize,
    /// Bounds on sockets.
    pub limits: Limits,
}

impl Options {
    /// The defaults, for `core`.
    pub fn new(core: Config) -> Options {
        Options {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            udp: true,
            mount_listen: None,
            portmap_listen: None,
            objects: None,
            core,
            seed: None,
            executor_threads: Options::default_threads(),
            executor_threads_more: EXTRA_THREADS_MAX,
            queueing: Queueing::Serial,
            socket_threads: available_processors().min(8),
            limits: Limits::default(),
        }
    }

    /// The default of [`Options::executor_threads`].
    pub fn default_threads() -> usize {
        (2 * available_processors()).max(4)
    }
}

/// How to serve over ATP: a UDP port of its own, for the packets are encrypted.
#[derive(Clone, Debug)]
pub struct Objects {
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Who the server is: clients are told its public key, and talk to nobody else.
    pub identity: Identity,
    /// Which clients may connect, by their keys. What they may see and change their addresses and
    /// the exports say, as over TCP.
    pub guests: Guests,
}

/// Bounds on sockets. Those on requests are the core's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most TCP connections; fewer if the process may not open as many files. When all are
    /// taken, a new one takes the place of the one that has been idle longest, if that has
    /// been idle for [`Limits::evict_min`], or of one of the host (of IPv6 a network of 64 bits) that holds the most
    /// if the newcomer's holds fewer; otherwise it is closed at once. Default 16,384.
    pub connections_max: usize,
    /// How long a connection must have been idle to be closed for a new one. Default 10 s.
    pub evict_min: Duration,
    /// Most bytes that requests and unsent replies of one connection hold; one request may
    /// always pass. Default 8 MiB.
    pub connection_bytes_max: usize,
    /// Most bytes of half-received requests of all connections, beyond 16 KiB for each; one
    /// host may have a quarter of it. Default 64 MiB.
    pub receive_bytes_max: usize,
    /// How long a request may take to arrive, from its first byte; a second more for each KiB
    /// of it that has arrived. 2 s, and a second more for each 8 KiB, while other addresses need the room that it takes.
    /// Default 60 s.
    pub partial_max: Duration,
    /// How long a connection may leave a reply waiting without taking a byte of it; 30 s at most while
    /// its client's address has taken nearly all that it may, 5 s at
    /// most while half of the core's room is taken, 2 s while its host is over its share. Default 5 min.
    pub stall_max: Duration,
    /// How long a connection may bring nothing while nothing is under way; `None` for ever
    /// (dead peers are found by TCP's keep-alive). Default `None`.
    pub idle_max: Option<Duration>,
    /// How long a shutdown waits for what executes and for replies to arrive. Default 10 s.
    pub shutdown_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 16_384,
            evict_min: Duration::from_secs(10),
            connection_bytes_max: 8 << 20,
            receive_bytes_max: 64 << 20,
            partial_max: Duration::from_secs(60),
            stall_max: Duration::from_secs(300),
            idle_max: None,
            shutdown_max: Duration::from_secs(10),
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address was given.
    #[error("there is no address to listen on")]
    NoAddress,
    /// Another server has the port.
    #[error("{addr} ({protocol}) is taken by another server: stop that one, or choose another port")]
    InUse {
        /// The address.
        addr: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
    },
    /// The port is for privileged processes.
    #[error("port {} may be opened by root only: choose a port from 1024 on, or grant CAP_NET_BIND_SERVICE", .0.port())]
    Privileged(SocketAddr),
    /// The address is not one of this machine's.
    #[error("{0} is not an address of this machine: choose one that is, or 0.0.0.0 for all of them")]
    NotHere(SocketAddr),
    /// Any other trouble with an address.
    #[error("cannot listen on {addr} ({protocol}): {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing could be opened any more, least of all connections.
    #[error(
        "for {exports} export{} this process must be allowed {needed} open files, and is allowed {max}: export less, or \
         raise the limit (ulimit -Hn; LimitNOFILE= in a unit of systemd)", if *exports == 1 { "" } else { "s" }
    )]
    Descriptors {
        /// How many files may be open.
        max: usize,
        /// How many it takes.
        needed: usize,
        /// How many exports there are.
        exports: usize,
    },
    /// ATP.
    #[error("cannot serve over ATP: {0}")]
    Objects(crate::atp::AtpError),
    /// The system has no random numbers.
    #[error("cannot get random numbers from the system: {0}")]
    Random(String),
    /// No threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

impl StartError {
    /// What went wrong when `addr` was bound.
    pub fn bind(addr: SocketAddr, protocol: &'static str, source: io::Error) -> StartError {
        match source.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse { addr, protocol },
            io::ErrorKind::PermissionDenied => StartError::Privileged(addr),
            io::ErrorKind::AddrNotAvailable => StartError::NotHere(addr),
            _ => StartError::Bind { addr, protocol, source },
        }
    }
}
