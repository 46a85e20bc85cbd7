//! Errors of starting and running a link.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Why a link does not start, or why it ends.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// Two ends have the same addresses.
    #[error("{prefix} is given to {first} and to {second}")]
    Overlap {
        /// The network of both.
        prefix: IpNet,
        first: String,
        second: String,
    },
    /// The route to the base leads through the tunnel.
    #[error("the base's address {endpoint} is inside the tunnel's own network {network}")]
    Loop {
        /// The address of the base.
        endpoint: IpAddr,
        network: IpNet,
    },
    /// The MTU is too small.
    #[error("an MTU of {outer} leaves {inner} bytes in the tunnel: at least {least} are needed")]
    Mtu {
        /// The MTU below the tunnel.
        outer: u16,
        /// The bytes left for packets in the tunnel.
        inner: usize,
        /// The bytes required.
        least: usize,
    },
    /// The user lacks permission to create network devices.
    #[error("making a network device needs root, or the capability CAP_NET_ADMIN")]
    NotAllowed,
    /// The kernel has no TUN driver.
    #[error("/dev/net/tun is missing: is the kernel's tun module there? Try modprobe tun")]
    NoTun,
    /// A device with this name exists.
    #[error("a network device called {0} exists already: choose another name with --device")]
    DeviceBusy(String),
    /// The device cannot be created or configured.
    #[error("cannot set up network device {name}: {source}")]
    Device { name: String, source: io::Error },
    /// The device was removed while in use.
    #[error("the network device was taken away: {0}")]
    DeviceGone(io::Error),
    /// The address or port is in use, or not local.
    #[error("cannot listen on {at}: {source}")]
    Socket { at: SocketAddr, source: io::Error },
    /// A route cannot be set.
    #[error("cannot route {prefix} into the tunnel: {source}")]
    Route { prefix: IpNet, source: io::Error },
    /// Another interface has the route.
    #[error(
        "cannot route {prefix} into the tunnel: another interface has just that network (ip route show {prefix}); \
         name narrower ones, or take it away there"
    )]
    RouteTaken { prefix: IpNet },
    /// Another interface has the tunnel's network.
    #[error(
        "the tunnel's network {network} is another interface's, too (ip route show {network}), and packets would go \
         there: choose another one at both ends with --address, or take it away there"
    )]
    NetworkTaken { network: IpNet },
    /// Forwarding cannot be enabled.
    #[error("cannot switch on forwarding in {conf}: {source}")]
    Forward {
        /// The directory of the kernel's switches.
        conf: String,
        source: io::Error,
    },
    /// The system provides no random numbers, threads or descriptors.
    #[error("cannot start: {0}")]
    System(io::Error),
}
