//! The emulator: its stations, its channel and the programs in them.

use super::namespace::Spawner;
use super::report::Report;
use super::runner::Runner;
use super::station::{Link, Station};
use crate::Clock;
use remora_channel::{Config, ErrorModel};
use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::setup::{EmulateError, MOBILES_MAX, Setup, is_for_stations};

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
