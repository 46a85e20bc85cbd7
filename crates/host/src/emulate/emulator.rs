//! The emulator: its stations, its channel, and the programs in them.

use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use remora_channel::{Config, ErrorModel};

use super::namespace::Spawner;
use super::report::EmulationReport;
use super::runner::Runner;
use super::setup::{EmulateError, EmulationSetup, MOBILES_MAX, Station, is_for_stations};
use super::station::Link;
use crate::Clock;

/// A running emulator. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Emulator {
    setup: EmulationSetup,
    // Dropped in this order: programs first, then the devices.
    spawner: Spawner,
    runner: Runner,
    /// The base first, then the mobiles.
    links: Vec<Link>,
    /// Packets that the devices dropped before the current channel began.
    dropped_before: u64,
}

impl Emulator {
    /// Creates namespaces and devices, and starts the channel.
    pub fn start(setup: EmulationSetup) -> Result<Emulator, EmulateError> {
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

    /// Starts a new channel at time zero, in a good period. Frames in flight in the old channel are lost. Returns
    /// the old channel's report.
    pub fn begin(&mut self, config: Config, seed: u64) -> Result<EmulationReport, EmulateError> {
        let errors = config.errors.clone();
        self.begin_each(config, seed, |_| errors.clone())
    }

    /// The same, with an error model for each mobile.
    pub fn begin_each(
        &mut self,
        config: Config,
        seed: u64,
        errors: impl Fn(usize) -> ErrorModel,
    ) -> Result<EmulationReport, EmulateError> {
        config.validate()?;
        let errors: Vec<ErrorModel> = (0..self.setup.mobiles).map(errors).collect();
        if config.mtu != self.setup.config.mtu {
            for link in &self.links {
                link.set_mtu(config.mtu).map_err(EmulateError::system("the MTU"))?;
            }
        }
        let report = self.runner.begin(config.clone(), seed, &errors)?;
        let dropped = self.dropped()?;
        let report = EmulationReport { overflowed: dropped.saturating_sub(self.dropped_before), ..report };
        (self.setup.config, self.setup.seed, self.dropped_before) = (config, seed, dropped);
        Ok(report)
    }

    /// Packets that the devices dropped so far.
    fn dropped(&self) -> Result<u64, EmulateError> {
        let counts = self.links.iter().map(Link::dropped).collect::<io::Result<Vec<_>>>();
        Ok(counts.map_err(EmulateError::system("the count of dropped packets"))?.into_iter().sum())
    }

    /// Report of the current channel. Copying a long journal delays deliveries, so call it when the channel is
    /// quiet.
    pub fn report(&self) -> Result<EmulationReport, EmulateError> {
        let report = self.runner.report()?;
        Ok(EmulationReport { overflowed: self.dropped()?.saturating_sub(self.dropped_before), ..report })
    }

    /// Why the emulator stopped by itself, if it has.
    pub fn failure(&self) -> Option<EmulateError> {
        self.runner.failure()
    }

    /// Clock of the current channel; its zero is the channel's start.
    pub fn clock(&self) -> Result<Clock, EmulateError> {
        self.runner.clock()
    }

    /// The setup, with the configuration and seed of the current channel.
    pub fn setup(&self) -> &EmulationSetup {
        &self.setup
    }

    /// Address of a station.
    pub fn addr(&self, station: Station) -> Ipv4Addr {
        station.addr(self.setup.network)
    }

    /// All stations, the base first.
    pub fn stations(&self) -> impl Iterator<Item = Station> + use<> {
        stations(self.setup.mobiles)
    }

    /// Creates a command to run in a station with [`spawn`](Emulator::spawn). Arguments, environment and standard
    /// streams may be added. The environment has `REMORA_BASE_ADDR`, `REMORA_MOBILE_ADDR` (in the base, that of the
    /// first mobile) and `MAHIMAHI_BASE`.
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

    /// Starts a command of [`command`](Emulator::command). The child is process 1 of a PID namespace: killing it
    /// kills all its descendants, SIGTERM reaches the program, and its exit code is the program's.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        self.spawner.spawn(command)
    }

    /// Runs `work` on a thread in the station's network namespace, for instance to create sockets, which then work
    /// anywhere.
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
