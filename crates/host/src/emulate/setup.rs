//! Setup of an emulator, its stations, and why it may not start.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use remora_channel::{Config, ConfigError};

/// Name of the device in every station.
pub const DEVICE: &str = "remora0";

/// A station. Printed as `the base` or `mobile 1`, `mobile 2`, ...
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Station {
    Base,
    /// A mobile; the first is 0.
    Mobile(usize),
}

impl Station {
    /// Its index: the base is 0.
    pub(super) fn index(self) -> usize {
        match self {
            Station::Base => 0,
            Station::Mobile(i) => i.saturating_add(1),
        }
    }

    /// The station of an index.
    pub(super) fn at(index: usize) -> Station {
        index.checked_sub(1).map_or(Station::Base, Station::Mobile)
    }

    /// Its address in `network`.
    pub(super) fn addr(self, network: Ipv4Net) -> Ipv4Addr {
        let host = u32::try_from(self.index()).unwrap_or(u32::MAX).saturating_add(1);
        Ipv4Addr::from_bits(network.network().to_bits().saturating_add(host))
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Station::Base => f.write_str("the base"),
            Station::Mobile(_) => write!(f, "mobile {}", self.index()),
        }
    }
}

/// Maximum number of mobiles.
pub const MOBILES_MAX: usize = 8;

/// Setup of an emulator. Start from [`EmulationSetup::default`].
#[derive(Clone, Debug)]
pub struct EmulationSetup {
    /// Number of mobiles that share the channel (1 to [`MOBILES_MAX`], default 1).
    pub mobiles: usize,
    /// The channel (default: the testbed of NFS/W 95 without errors). The emulator sets `trace_frames`.
    pub config: Config,
    /// Seed of the bad periods and the losses (default 1).
    pub seed: u64,
    /// The stations' network: the base has its first address, the mobiles the next (at least 10 addresses, default
    /// 10.77.0.0/24).
    pub network: Ipv4Net,
    /// TCP congestion control of all stations, independent of the machine's default (default cubic).
    pub congestion: String,
    /// Maximum lateness of a delivery in a valid run (default 5 ms).
    pub lateness_max: Duration,
    /// Directory for `base.pcapng` and `mobile-N.pcapng` (default: none).
    pub pcap: Option<PathBuf>,
    /// Number of packets in the report's journal (default 0).
    pub journal: usize,
    /// The program, and its first arguments, that calls [`inside::run`](super::inside::run) with its further
    /// arguments: namespace, program, arguments (default: this program, `lab inside`).
    pub inside: Vec<OsString>,
}

impl Default for EmulationSetup {
    fn default() -> EmulationSetup {
        EmulationSetup {
            mobiles: 1,
            config: Config::default(),
            seed: 1,
            network: Ipv4Net::new_assert(Ipv4Addr::new(10, 77, 0, 0), 24),
            congestion: "cubic".into(),
            lateness_max: Duration::from_millis(5),
            pcap: None,
            journal: 0,
            inside: ["/proc/self/exe", "lab", "inside"].map(OsString::from).to_vec(),
        }
    }
}

/// Why an emulator does not start.
#[derive(Debug, thiserror::Error)]
pub enum EmulateError {
    /// The channel's configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The number of mobiles is out of range.
    #[error("{0} mobiles: it must be from 1 to {MOBILES_MAX}")]
    Mobiles(usize),
    /// The network has too few addresses.
    #[error("{0} is too small a network: it must be a /28 or larger")]
    Network(Ipv4Net),
    /// Packets to these addresses stay on the machine, or are multicast.
    #[error(
        "{0} cannot be the stations' network: 0.0.0.0, 127.0.0.0/8 and what is multicast are no station's; choose a \
         private one, as 10.77.0.0/24"
    )]
    NotForStations(Ipv4Net),
    /// The user lacks a permission.
    #[error("cannot make {what}: {source} (it takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    NotPermitted {
        /// The object to create.
        what: String,
        source: io::Error,
    },
    /// The system does not permit this congestion control in a namespace.
    #[error(
        "TCP's congestion control {name} may not be chosen in the stations: {source}; only root of the machine's \
         first network namespace can allow it, and --congestion takes one of those that are: {allowed}"
    )]
    Congestion {
        /// The requested algorithm.
        name: String,
        /// Permitted algorithms, separated by blanks.
        allowed: String,
        source: io::Error,
    },
    /// The kernel lacks this congestion control.
    #[error("no TCP congestion control '{name}' here; there are: {available}")]
    NoCongestion {
        /// The requested algorithm.
        name: String,
        /// Available algorithms, separated by blanks.
        available: String,
    },
    /// The system has no TUN devices.
    #[error("no TUN devices here: is the module loaded? (modprobe tun)")]
    NoTun,
    /// Another system error.
    #[error("cannot make {what}: {source}")]
    System {
        /// The object to create.
        what: String,
        source: io::Error,
    },
    /// A station's device was removed while in use.
    #[error("the network device of {station} ({DEVICE}) was taken away: {why}")]
    DeviceGone { station: Station, why: String },
    /// The emulator's thread has ended.
    #[error("the emulator has stopped")]
    Stopped,
}

impl EmulateError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> EmulateError {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => EmulateError::NotPermitted { what: what.into(), source },
            _ => EmulateError::System { what: what.into(), source },
        }
    }
}

pub(super) fn is_for_stations(network: Ipv4Net) -> bool {
    let first = network.network();
    !(first.is_unspecified() || first.is_loopback() || first.is_multicast())
}
