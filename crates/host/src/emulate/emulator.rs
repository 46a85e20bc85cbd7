//! The emulated channel in real time, under real programs: a network namespace for the base
//! and one for each mobile, joined by the channel core through TUN devices.
//!
//! * Every IP packet a station sends is one frame of the channel; what survives is handed to
//!   the kernel on the other side. No offloads: a frame is a packet of at most the MTU.
//! * The channel reckons in logical time from [`Emulator::begin`], so lateness delays single
//!   deliveries and never accumulates. It is recorded for every delivery, and a run in which
//!   any exceeds [`Setup::lateness_max`] is not [`valid`](Report::valid).
//! * The weather depends on the seed and the time since `begin` alone; what the channel did
//!   can be computed again from the journal ([`Journal::replay`]).
//! * Nothing outlives the emulator: namespaces have no names, devices are not persistent, and
//!   programs die with it ([`inside`]), after `kill -9` too.
//!
//! It needs the rights to make namespaces and TUN devices (root).

mod congestion;
pub mod inside;
mod journal;
mod lateness;
mod namespace;
mod pcap;
mod probe;
mod report;
mod runner;
mod selftest;
mod spawn;
mod station;

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use ipnet::Ipv4Net;
use remora_channel::{Config, ConfigError, ErrorModel};

pub use congestion::leave_machine;
pub use journal::{Journal, Offer};
pub use lateness::Lateness;
pub use report::{LaneReport, Report};
pub use selftest::{Check, self_test};
pub use station::{DEVICE, Station};

use crate::Clock;
use runner::Runner;
use spawn::Spawner;
use station::Link;

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
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> EmulateError {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => EmulateError::NotPermitted { what: what.into(), source },
            _ => EmulateError::System { what: what.into(), source },
        }
    }
}

/// A running emulator; dropping it ends everything in it.
#[derive(Debug)]
pub struct Emulator {
    setup: Setup,
    // In the order in which they go: programs first, the devices under them last.
    spawner: Spawner,
    runner: Runner,
    /// The base first, then the mobiles.
    links: Vec<Link>,
    /// Packets that the devices had dropped when the present channel began.
    dropped_before: u64,
}

impl Emulator {
    /// Makes the namespaces and devices and lets the channel begin.
    pub fn start(setup: Setup) -> Result<Emulator, EmulateError> {
        setup.config.validate()?;
        if !(1..=MOBILES_MAX).contains(&setup.mobiles) {
            return Err(EmulateError::Mobiles(setup.mobiles));
        }
        if setup.network.prefix_len() > 28 {
            return Err(EmulateError::Network(setup.network));
        }
        if !is_for_stations(setup.network) {
            return Err(EmulateError::NotForStations(setup.network));
        }
        let links =
            stations(setup.mobiles).map(|station| Link::make(station, &setup)).collect::<Result<Vec<_>, _>>()?;
        let spawner = Spawner::start().map_err(EmulateError::system("a thread"))?;
        let runner = Runner::start(&setup, &links)?;
        Ok(Emulator { setup, spawner, runner, links, dropped_before: 0 })
    }

    /// Lets a fresh channel begin, with good weather at its time zero, which is now. Frames
    /// on their way in the old channel are lost. Returns the report on the old one.
    pub fn begin(&mut self, config: Config, seed: u64) -> Result<Report, EmulateError> {
        let errors = config.errors.clone();
        self.begin_each(config, seed, |_| errors.clone())
    }

    /// The same, with errors of its own for each mobile in place of the configuration's.
    pub fn begin_each(
        &mut self,
        config: Config,
        seed: u64,
        errors: impl Fn(usize) -> ErrorModel,
    ) -> Result<Report, EmulateError> {
        config.validate()?;
        let errors: Vec<ErrorModel> = (0..self.setup.mobiles).map(errors).collect();
        if config.mtu != self.setup.config.mtu {
            for link in &self.links {
                link.set_mtu(config.mtu).map_err(EmulateError::system("the MTU"))?;
            }
        }
        let report = self.runner.begin(config.clone(), seed, &errors)?;
        let dropped = self.dropped()?;
        let report = Report { overflowed: dropped.saturating_sub(self.dropped_before), ..report };
        (self.setup.config, self.setup.seed, self.dropped_before) = (config, seed, dropped);
        Ok(report)
    }

    /// Packets that the devices have dropped so far.
    fn dropped(&self) -> Result<u64, EmulateError> {
        let counts = self.links.iter().map(Link::dropped).collect::<io::Result<Vec<_>>>();
        Ok(counts.map_err(EmulateError::system("the count of dropped packets"))?.into_iter().sum())
    }

    /// What the present channel did so far. A long journal takes a while to copy, in which
    /// deliveries are late: ask when it is quiet.
    pub fn report(&self) -> Result<Report, EmulateError> {
        let report = self.runner.report()?;
        Ok(Report { overflowed: self.dropped()?.saturating_sub(self.dropped_before), ..report })
    }

    /// Why it has ended by itself, if it has: nothing crosses the channel any more.
    pub fn failure(&self) -> Option<EmulateError> {
        self.runner.failure()
    }

    /// The present channel's clock: its zero is when the channel began.
    pub fn clock(&self) -> Result<Clock, EmulateError> {
        self.runner.clock()
    }

    /// What is emulated: as started, with the configuration and seed of the last `begin`.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The address of a station.
    pub fn addr(&self, station: Station) -> Ipv4Addr {
        station.addr(self.setup.network)
    }

    /// Every station, the base first.
    pub fn stations(&self) -> impl Iterator<Item = Station> + use<> {
        stations(self.setup.mobiles)
    }

    /// A command to be run in a station by [`spawn`](Emulator::spawn); arguments, environment
    /// and standard streams may be added as usual. Its environment has `REMORA_BASE_ADDR`,
    /// `REMORA_MOBILE_ADDR` (in the base, the first mobile's) and `MAHIMAHI_BASE`.
    ///
    /// `None` if there is no such station.
    pub fn command(&self, station: Station, program: impl AsRef<OsStr>) -> Option<Command> {
        let link = self.links.get(station.index())?;
        let (first, rest) = self.setup.inside.split_first()?;
        let mut command = Command::new(first);
        command.arg0("remora");
        command.args(rest).arg(link.namespace_path()).arg(program);
        let (base, mobile) = (
            self.addr(Station::Base),
            match station {
                Station::Base => self.addr(Station::Mobile(0)),
                Station::Mobile(_) => self.addr(station),
            },
        );
        command.env("REMORA_BASE_ADDR", base.to_string()).env("MAHIMAHI_BASE", base.to_string());
        command.env("REMORA_MOBILE_ADDR", mobile.to_string());
        Some(command)
    }

    /// Starts a command made by [`command`](Emulator::command). The child is the first process
    /// of a PID namespace of its own: killing it kills all that the program has started, SIGTERM
    /// reaches the program itself, and its exit code is the program's.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        self.spawner.spawn(command)
    }

    /// Does `work` on a thread in the station's network namespace, for instance to make
    /// sockets, which then may be used from anywhere.
    pub fn within<T: Send>(&self, station: Station, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match self.links.get(station.index()) {
            Some(link) => link.run(work),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn is_for_stations(network: Ipv4Net) -> bool {
    let first = network.network();
    !(first.is_unspecified() || first.is_loopback() || first.is_multicast())
}

fn stations(mobiles: usize) -> impl Iterator<Item = Station> {
    std::iter::once(Station::Base).chain((0..mobiles).map(Station::Mobile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_have_addresses_that_lead_to_them() {
        for (network, may) in [
            ("10.77.0.0/24", true),
            ("10.77.0.5/24", true),
            ("126.0.0.0/8", true),
            ("0.0.0.0/0", false),
            ("0.0.0.9/24", false),
            ("127.0.0.0/8", false),
            ("127.3.0.0/28", false),
            ("239.1.0.0/16", false),
        ] {
            assert_eq!(is_for_stations(network.parse().unwrap()), may, "{network}");
        }
    }
}
