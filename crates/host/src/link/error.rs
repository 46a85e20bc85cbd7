//! Why a link does not start, or ends.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Why a link does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The settings make no sense together.
    #[error("{0}")]
    Settings(String),
    /// Two ends want the same addresses.
    #[error("{prefix} is given to {first} and to {second}")]
    Overlap {
        /// What both want.
        prefix: IpNet,
        /// Who has it.
        first: String,
        /// Who wants it, too.
        second: String,
    },
    /// The base would be reached through the tunnel that needs it.
    #[error("the base's address {endpoint} is inside the tunnel's own network {network}")]
    Loop {
        /// Where the base is.
        endpoint: IpAddr,
        /// The tunnel's network.
        network: IpNet,
    },
    /// There is no room for packets.
    #[error("an MTU of {outer} leaves {inner} bytes in the tunnel: at least {least} are needed")]
    Mtu {
        /// The MTU below the tunnel.
        outer: u16,
        /// What remains.
        inner: usize,
        /// What is needed.
        least: usize,
    },
    /// The user may not make network devices.
    #[error("making a network device needs root, or the capability CAP_NET_ADMIN")]
    NotAllowed,
    /// The kernel has no TUN devices.
    #[error("/dev/net/tun is missing: is the kernel's tun module there? Try modprobe tun")]
    NoTun,
    /// The name of the device is taken.
    #[error("a network device called {0} exists already: choose another name with --device")]
    DeviceBusy(String),
    /// The device cannot be made or set up.
    #[error("cannot set up network device {name}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The device went away while it was in use.
    #[error("the network device was taken away: {0}")]
    DeviceGone(io::Error),
    /// The address or port is in use, or not this machine's.
    #[error("cannot listen on {at}: {source}")]
    Socket {
        /// The address wanted.
        at: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A route cannot be set.
    #[error("cannot route {prefix} into the tunnel: {source}")]
    Route {
        /// Where to.
        prefix: IpNet,
        /// What the system said.
        source: io::Error,
    },
    /// Another interface has that route.
    #[error(
        "cannot route {prefix} into the tunnel: another interface has just that network (ip route show {prefix}); \
         name narrower ones, or take it away there"
    )]
    RouteTaken {
        /// Where to.
        prefix: IpNet,
    },
    /// Another interface has the tunnel's own network.
    #[error(
        "the tunnel's network {network} is another interface's, too (ip route show {network}), and packets would go \
         there: choose another one at both ends with --address, or take it away there"
    )]
    NetworkTaken {
        /// The network.
        network: IpNet,
    },
    /// Forwarding cannot be switched on.
    #[error("cannot switch on forwarding in {conf}: {source}")]
    Forward {
        /// Where the kernel's switches are.
        conf: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no random numbers, threads or descriptors.
    #[error("cannot start: {0}")]
    System(io::Error),
}
