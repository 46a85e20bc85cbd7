//! What is emulated, and why it may not start.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;
use remora_channel::{Config, ConfigError};

use super::station::{DEVICE, Station};

/// The most mobiles of one emulator.
pub const MOBILES_MAX: usize = 8;

/// What is emulated. Start from [`Setup::default`].
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many mobiles share the channel (1 to [`MOBILES_MAX`], default 1).
    pub mobiles: usize,
    /// The channel (default: the testbed of NFS/W 95 without errors). Its `trace_frames` is
    /// the emulator's own business.
    pub config: Config,
    /// Draws the weather and the losses (default 1).
    pub seed: u64,
    /// The stations' network: the base has its first address, the mobiles those after it
    /// (room for 10 addresses at least, default 10.77.0.0/24).
    pub network: Ipv4Net,
    /// The congestion control of TCP on both sides, so that results do not depend on the
    /// machine's default (default cubic).
    pub congestion: String,
    /// The latest a delivery may be in a valid run (default 5 ms).
    pub lateness_max: Duration,
    /// Where to write `base.pcapng` and `mobile-N.pcapng` (default: nowhere).
    pub pcap: Option<PathBuf>,
    /// How many packets' offers and fates are kept in the report's journal (default 0).
    pub journal: usize,
    /// The program, and its first arguments, that calls [`inside::run`] with what follows
    /// them: namespace, program, arguments (default: this program, `lab inside`).
    pub inside: Vec<OsString>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
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
    /// The channel makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The number of mobiles is out of range.
    #[error("{0} mobiles: it must be from 1 to {MOBILES_MAX}")]
    Mobiles(usize),
    /// The network has too few addresses.
    #[error("{0} is too small a network: it must be a /28 or larger")]
    Network(Ipv4Net),
    /// Packets to these addresses never leave a machine, or are for many.
    #[error(
        "{0} cannot be the stations' network: 0.0.0.0, 127.0.0.0/8 and what is multicast are no station's; choose a \
         private one, as 10.77.0.0/24"
    )]
    NotForStations(Ipv4Net),
    /// This user may not.
    #[error("cannot make {what}: {source} (it takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    NotPermitted {
        /// What was to be made.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system does not let programs choose this congestion control here.
    #[error(
        "TCP's congestion control {name} may not be chosen in the stations: {source}; only root of the machine's \
         first network namespace can allow it, and --congestion takes one of those that are: {allowed}"
    )]
    Congestion {
        /// Which was asked for.
        name: String,
        /// What can be had, separated by blanks.
        allowed: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such congestion control.
    #[error("no TCP congestion control '{name}' here; there are: {available}")]
    NoCongestion {
        /// Which was asked for.
        name: String,
        /// What the kernel has, separated by blanks.
        available: String,
    },
    /// There are no TUN devices.
    #[error("no TUN devices here: is the module loaded? (modprobe tun)")]
    NoTun,
    /// The system refused something else.
    #[error("cannot make {what}: {source}")]
    System {
        /// What was to be made.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A station's device was taken away while the channel used it.
    #[error("the network device of {station} ({DEVICE}) was taken away: {why}")]
    DeviceGone {
        /// Whose.
        station: Station,
        /// What the system said.
        why: String,
    },
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
