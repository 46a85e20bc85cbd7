//! Servers, clients and caches, and the values of DRC 89, tables 2 and 3.

use std::time::Duration;

use remora_client::{RetryPolicy, Transport};
use remora_server::cache;
use remora_sim::drc::{Client, Config, Machine, Timers};
use serde::Serialize;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// A μVAX-II with an RD53.
    Small,
    /// A VAX 8550 with an RA81.
    Large,
}

/// A form of the duplicate request cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Off,
    Reference,
    Juszczak,
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Patience {
    /// The reference port's: 0.7 s, quadrupled each time.
    #[serde(rename = "1989")]
    Reference,
    /// Linux over UDP: 1.1 s, doubled each time.
    #[serde(rename = "linux-udp")]
    LinuxUdp,
    /// TCP: no retransmission on one connection.
    #[serde(rename = "tcp")]
    Tcp,
    /// Remora's over UDP, which measures the round-trip time.
    #[serde(rename = "remora")]
    Remora,
}

impl Server {
    pub const ALL: [Server; 2] = [Server::Small, Server::Large];

    pub const fn name(self) -> &'static str {
        match self {
            Server::Small => "small",
            Server::Large => "large",
        }
    }

    pub(super) const fn machine(self) -> Machine {
        match self {
            Server::Small => Machine::SMALL,
            Server::Large => Machine::LARGE,
        }
    }
}

impl Mode {
    pub const ALL: [Mode; 4] = [Mode::Off, Mode::Reference, Mode::Juszczak, Mode::Full];

    /// As in `remora serve --cache`.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Reference => "reference",
            Mode::Juszczak => "juszczak",
            Mode::Full => "full",
        }
    }

    pub(super) const fn config(self) -> cache::Config {
        match self {
            Mode::Off => cache::Config::Off,
            Mode::Reference => cache::Config::reference(),
            Mode::Juszczak => cache::Config::juszczak(),
            Mode::Full => cache::Config::full(),
        }
    }

    /// Whether it detects a duplicate before execution.
    pub(super) const fn is_modified(self) -> bool {
        matches!(self, Mode::Juszczak | Mode::Full)
    }
}

impl Patience {
    pub const TODAY: [Patience; 3] = [Patience::LinuxUdp, Patience::Tcp, Patience::Remora];

    pub const fn name(self) -> &'static str {
        match self {
            Patience::Reference => "0.7 s x 4",
            Patience::LinuxUdp => "Linux, UDP, 1.1 s x 2",
            Patience::Tcp => "TCP",
            Patience::Remora => "Remora, UDP",
        }
    }

    pub(super) const fn timers(self) -> Timers {
        let max = Duration::from_secs(60);
        let (transport, retry) = match self {
            Patience::Reference => {
                (Transport::Udp, RetryPolicy::Exponential { initial: Duration::from_millis(700), factor: 4, max })
            }
            Patience::LinuxUdp => {
                (Transport::Udp, RetryPolicy::Exponential { initial: Duration::from_millis(1100), factor: 2, max })
            }
            Patience::Tcp => (Transport::Tcp, RetryPolicy::Adaptive),
            Patience::Remora => (Transport::Udp, RetryPolicy::Adaptive),
        };
        Timers { transport, retry }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) server: Server,
    pub(super) patience: Patience,
    pub(super) mode: Mode,
    pub(super) variation: Option<Variation>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Variation {
    Scaled(Parameter, f64),
    /// Daemons get an inode's lock in order of request.
    InOrder,
}

impl Variation {
    pub(super) fn name(self) -> String {
        match self {
            Variation::Scaled(parameter, factor) => format!("{} x {factor}", parameter.name()),
            Variation::InOrder => "daemons in their order".into(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parameter {
    Seek,
    Cpu,
    HoldUpChance,
    HoldUpMean,
    Copy,
}

impl Parameter {
    pub(super) const ALL: [Parameter; 5] =
        [Parameter::Seek, Parameter::Cpu, Parameter::HoldUpChance, Parameter::HoldUpMean, Parameter::Copy];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Parameter::Seek => "longest seek",
            Parameter::Cpu => "server's processor",
            Parameter::HoldUpChance => "hold-ups, how often",
            Parameter::HoldUpMean => "hold-ups, how long",
            Parameter::Copy => "client's processor",
        }
    }
}

impl Cell {
    pub(super) fn config(&self) -> Config {
        let (mut server, mut client) = (self.server.machine(), Client::MICROVAX);
        let ufs = &mut server.ufs;
        match self.variation {
            None => {}
            Some(Variation::InOrder) => ufs.overtaking = false,
            Some(Variation::Scaled(parameter, factor)) => match parameter {
                Parameter::Seek => ufs.seek_max = ufs.seek_max.mul_f64(factor),
                Parameter::Cpu => ufs.cpu = ufs.cpu.mul_f64(factor),
                Parameter::HoldUpChance => ufs.hold_up_chance *= factor,
                Parameter::HoldUpMean => ufs.hold_up_mean = ufs.hold_up_mean.mul_f64(factor),
                Parameter::Copy => client.copy = client.copy.mul_f64(factor),
            },
        }
        Config { server, client, timers: self.patience.timers(), cache: self.mode.config() }
    }

    /// The paper's values. Its unmodified server has the reference port's cache, which ignores writes, so that no
    /// cache is equivalent.
    pub(super) fn paper(&self) -> Option<Paper> {
        if self.patience != Patience::Reference || self.variation.is_some() {
            return None;
        }
        let (sent, duplicates_sent, processed, unmodified, modified, change) = match self.server {
            Server::Small => (190.0, 62.0, 61.0, 35.0, 48.0, 37.0),
            Server::Large => (141.0, 13.0, 13.0, 75.0, 83.0, 11.0),
        };
        let is_modified = self.mode.is_modified();
        Some(Paper {
            sent,
            duplicates_sent,
            duplicates_processed: if is_modified { 0.0 } else { processed },
            speed: if is_modified { modified } else { unmodified },
            change_percent: is_modified.then_some(change),
        })
    }
}

/// DRC 89, tables 2 and 3: means of 20 runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Paper {
    pub sent: f64,
    pub duplicates_sent: f64,
    pub duplicates_processed: f64,
    /// KB per second.
    pub speed: f64,
    /// Speed-up of the modified server in percent.
    pub change_percent: Option<f64>,
}

/// Tables 2 and 3.
pub(super) fn tables() -> Vec<Cell> {
    all(&[Patience::Reference])
}

pub(super) fn today() -> Vec<Cell> {
    all(&Patience::TODAY)
}

fn all(patiences: &[Patience]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &patience in patiences {
        for server in Server::ALL {
            cells.extend(Mode::ALL.map(|mode| Cell { server, patience, mode, variation: None }));
        }
    }
    cells
}

/// Each fitted parameter a quarter less and a quarter more, and daemons that do not overtake, without and with a
/// cache.
pub(super) fn sensitivity() -> Vec<Cell> {
    let scaled = Parameter::ALL.into_iter().flat_map(|p| [0.75, 1.25].map(|f| Some(Variation::Scaled(p, f))));
    let variations: Vec<Option<Variation>> =
        std::iter::once(None).chain(scaled).chain([Some(Variation::InOrder)]).collect();
    let mut cells = Vec::new();
    for server in Server::ALL {
        for &variation in &variations {
            let cell = |mode| Cell { server, patience: Patience::Reference, mode, variation };
            cells.extend([Mode::Off, Mode::Juszczak].map(cell));
        }
    }
    cells
}
