//! The options of a server, and the errors of its start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use remora_atp::session::{Guests, Identity};
use remora_server::Config;
use remora_wire::nfs3::PORT;

use crate::server::access_sink::AccessSink;
use crate::server::executor::{EXTRA_THREADS_MAX, Queueing, available_processors};
use crate::server::groups::lookup::GroupLookup;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses for NFS and MOUNT, over TCP and UDP. Port 0 selects a port that is free for both. Default
    /// 127.0.0.1:2049.
    pub listen: Vec<SocketAddr>,
    /// Whether to serve over UDP, too. Default true.
    pub udp: bool,
    /// A further address on which only MOUNT is served, for clients that expect MOUNT on a port of its own.
    pub mount_listen: Option<SocketAddr>,
    /// A further address on which only the portmapper is served, by convention with port 111. Default `None`.
    pub portmap_listen: Option<SocketAddr>,
    /// Whether and how to serve over ATP. Default `None`.
    pub objects: Option<Objects>,
    pub core: Config,
    /// Takes a record of each answered call. Default `None`: no records are made.
    pub access_log: Option<AccessSink>,
    /// Looks up the groups of each caller, in place of those that calls name. Default `None`.
    pub groups: Option<GroupLookup>,
    /// Seed of the cores' secrets. Default `None`: a seed that cannot be guessed.
    pub seed: Option<u64>,
    /// Threads that wait for disks (at least 1). Default twice the processors, at least 4.
    pub executor_threads: usize,
    /// Most extra threads that start while those wait for disks. Default 60.
    pub executor_threads_more: usize,
    /// How jobs that exclude each other wait. Default [`Queueing::Serial`].
    pub queueing: Queueing,
    /// Threads that serve sockets (at least 1). Default the processors, at most 8.
    pub socket_threads: usize,
    pub limits: ServeLimits,
}

impl ServerOptions {
    /// The defaults, for the cores' configuration.
    pub fn new(core: Config) -> ServerOptions {
        ServerOptions {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            udp: true,
            mount_listen: None,
            portmap_listen: None,
            objects: None,
            core,
            access_log: None,
            groups: None,
            seed: None,
            executor_threads: ServerOptions::default_threads(),
            executor_threads_more: EXTRA_THREADS_MAX,
            queueing: Queueing::Serial,
            socket_threads: available_processors().min(8),
            limits: ServeLimits::default(),
        }
    }

    /// The default of [`ServerOptions::executor_threads`].
    pub fn default_threads() -> usize {
        (2 * available_processors()).max(4)
    }
}

/// Sockets that the service manager has opened, to serve on instead of [`ServerOptions::listen`].
#[derive(Debug, Default)]
pub struct InheritedSockets {
    pub tcp: Vec<TcpListener>,
    /// Each has a TCP socket with the same address.
    pub udp: Vec<UdpSocket>,
}

/// How to serve over ATP, on a UDP port of its own, because the packets are encrypted.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The address; port 0 selects any.
    pub listen: SocketAddr,
    /// The server's identity. Clients know its public key and connect to no other server.
    pub identity: Identity,
    /// The keys of the clients that may connect. What they may do depends on their addresses and the exports, as over
    /// TCP.
    pub guests: Guests,
}

/// Limits of the sockets. Those of requests are the cores'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeLimits {
    /// Most TCP connections; fewer if the process may not open as many files. At the limit a new connection evicts
    /// the longest idle one that has been idle for [`ServeLimits::evict_min`], or one of the host (for IPv6 a network of
    /// 64 bits) with the most connections, if the newcomer's host has fewer. Otherwise it is closed at once. Default
    /// 16,384.
    pub connections_max: usize,
    /// How long a connection must be idle to be evicted. Default 10 s.
    pub evict_min: Duration,
    /// Most bytes that requests and unsent replies of one connection hold; a single request may exceed it. Default 8
    /// MiB.
    pub connection_bytes_max: usize,
    /// Most bytes of half-received requests of all connections, beyond 16 KiB for each; a host may have a quarter of
    /// it. Default 64 MiB.
    pub receive_bytes_max: usize,
    /// How long a request may take to arrive, from its first byte, plus 1 s for each KiB that has arrived. While
    /// other addresses need the memory: 2 s plus 1 s for each 8 KiB. Default 60 s.
    pub partial_max: Duration,
    /// How long a connection may leave replies unread. At most 30 s while its client's address holds nearly all that
    /// it may, 5 s while more than half of the cores' capacity is taken, 2 s while its host exceeds its share.
    /// Default 5 min.
    pub stall_max: Duration,
    /// How long a connection may be idle. Default `None`: for ever, because TCP keep-alive finds dead peers.
    pub idle_max: Option<Duration>,
    /// How long a shutdown waits for executing requests and for the delivery of replies. Default 10 s.
    pub shutdown_max: Duration,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
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

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The options have no address.
    #[error("there is no address to listen on")]
    NoAddress,
    /// Another server uses the port.
    #[error("{addr} ({protocol}) is taken by another server: stop that one, or choose another port")]
    InUse {
        /// The address that is in use.
        addr: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
    },
    /// The port is reserved for privileged processes.
    #[error("port {} may be opened by root only: choose a port from 1024 on, or grant CAP_NET_BIND_SERVICE", .0.port())]
    Privileged(SocketAddr),
    /// The address is not one of this machine.
    #[error("{0} is not an address of this machine: choose one that is, or 0.0.0.0 for all of them")]
    NotHere(SocketAddr),
    /// A UDP socket of the service manager is alone.
    #[error(
        "the service manager passes a UDP socket on {0} and no TCP socket: add ListenStream= beside ListenDatagram="
    )]
    Unpaired(SocketAddr),
    /// A socket of the service manager is of no use.
    #[error("cannot use a socket of the service manager: {0}")]
    Inherited(io::Error),
    /// Another error of an address.
    #[error("cannot listen on {addr} ({protocol}): {source}")]
    Bind {
        addr: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
        source: io::Error,
    },
    /// The limit of open files leaves none for connections.
    #[error(
        "for {exports} export{} this process must be allowed {needed} open files, and is allowed {max}: export less, or \
         raise the limit (ulimit -Hn; LimitNOFILE= in a unit of systemd)", if *exports == 1 { "" } else { "s" }
    )]
    Descriptors {
        /// The limit of open files.
        max: usize,
        /// The number of open files that would suffice.
        needed: usize,
        exports: usize,
    },
    /// The ATP endpoint did not start.
    #[error("cannot serve over ATP: {0}")]
    Objects(crate::atp::AtpError),
    /// The system has no random numbers.
    #[error("cannot get random numbers from the system: {0}")]
    Random(String),
    /// The system has no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

impl StartError {
    /// The error for a failed bind of `addr`.
    pub fn bind(addr: SocketAddr, protocol: &'static str, source: io::Error) -> StartError {
        match source.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse { addr, protocol },
            io::ErrorKind::PermissionDenied => StartError::Privileged(addr),
            io::ErrorKind::AddrNotAvailable => StartError::NotHere(addr),
            _ => StartError::Bind { addr, protocol, source },
        }
    }
}
