//! Runs as data, for the simulator and for real programs.

use std::time::Duration;

use remora_base::{Rng, Time};
use remora_channel::{Config, Distribution, Duplex, ErrorModel, Outage};
use remora_client as client;
use remora_host::client::STREAMS_LOSS;
use remora_sim::copy::Direction;
use serde::Serialize;

pub use remora_sim::testbed::Treatment;

/// Largest random delay of outages and cell switches.
const JITTER: Duration = Duration::from_secs(1);

/// Everything about a run but its seed.
#[derive(Clone, Debug)]
pub enum Job {
    /// A file on the papers' testbed with its slow hosts.
    Testbed(Testbed),
    /// A file across a channel, between infinitely fast hosts.
    Copy(Copy),
    /// Small operations while a large file is written.
    SmallOperations(SmallOperations),
    /// The link layer under overload.
    Saturation(Saturation),
    Tcp(Tcp),
}

/// A file on the papers' testbed (NFS/W 95, section 3).
#[derive(Clone, Debug)]
pub struct Testbed {
    pub treatment: Treatment,
    pub direction: Direction,
    /// Mean length of bad periods; zero for none.
    pub bad_mean: Duration,
    /// Bytes of a READ or WRITE.
    pub block: u32,
    /// Mobiles that copy a file each at the same time.
    pub mobiles: usize,
    pub distribution: Distribution,
    /// Capacity of a mobile's receive buffer in frames, in place of the fitted one.
    pub receive_frames: Option<usize>,
    pub packets: bool,
}

#[derive(Clone, Debug)]
pub struct Copy {
    pub system: System,
    pub channel: Config,
    pub direction: Direction,
    pub bytes: u64,
    /// Bytes of a READ or WRITE, in place of the system's own.
    pub block: Option<u32>,
    /// Mobiles that copy a file each at the same time; the first is measured.
    pub mobiles: usize,
    pub hand_offs: Vec<HandOff>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// A client of the 1990s: 8 KiB, 0.7 s doubled, five outstanding.
    Stock,
    /// The papers' settings: 4 KiB, hybrid linear back-off.
    Papers,
    Adaptive,
    /// The client of the 1990s on Remora's link layer.
    LinkStock,
    /// The papers' settings on Remora's link layer.
    LinkPapers,
    /// Remora's client on Remora's link layer.
    LinkAdaptive,
    /// Remora's client, told to use UDP.
    OverUdp,
    /// Remora's client, told to use TCP.
    OverTcp,
    /// Remora's client on Remora's link layer, told to use UDP.
    LinkOverUdp,
    /// The Linux kernel's NFS client, over TCP.
    Linux,
    Libnfs,
    Scp,
    Rsync,
}

/// A cell switch: all frames are lost for its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOff {
    pub at: Time,
    pub length: Duration,
    pub announced: bool,
}

/// Small operations while a large file is written.
#[derive(Clone, Debug)]
pub struct SmallOperations {
    pub system: System,
    pub channel: Config,
    pub bytes: u64,
    /// A second client on the same mobile makes the small operations.
    pub second_client: bool,
}

/// The link layer under overload.
#[derive(Clone, Debug)]
pub struct Saturation {
    pub destinations: usize,
    pub channel: Config,
    /// The first destination's channel is always good.
    pub one_good: bool,
    pub length: Duration,
}

impl Job {
    /// The job with this seed's random delays: outages and cell switches begin up to [`JITTER`] later.
    pub(crate) fn drawn(&self, seed: u64) -> Job {
        let mut job = self.clone();
        if let Job::Copy(copy) = &mut job {
            let later = JITTER.mul_f64(Rng::stream(seed, "laboratory").unit());
            copy.channel.outages.iter_mut().for_each(|o| o.start += later);
            copy.hand_offs.iter_mut().for_each(|h| h.at += later);
        }
        job
    }
}

impl Job {
    /// The job with another distribution of good and bad periods.
    pub(crate) fn distributed(mut self, distribution: Distribution) -> Job {
        let channel = match &mut self {
            Job::Testbed(job) => {
                job.distribution = distribution;
                return self;
            }
            Job::Copy(job) => &mut job.channel,
            Job::SmallOperations(job) => &mut job.channel,
            Job::Saturation(job) => &mut job.channel,
            Job::Tcp(job) => &mut job.channel,
        };
        channel.errors = channel.errors.clone().distributed(distribution);
        self
    }
}

/// Its name on the command line and in reports.
pub(crate) fn name_of(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Uniform => "uniform",
        Distribution::Deterministic => "fixed",
        Distribution::Exponential => "exponential",
    }
}

impl Copy {
    /// A copy from or to one mobile with the system's default settings.
    pub(crate) fn new(system: System, channel: Config, direction: Direction, bytes: u64) -> Copy {
        Copy { system, channel, direction, bytes, block: None, mobiles: 1, hand_offs: Vec::new() }
    }

    /// The channel, with cell switches as outages.
    pub(crate) fn crossed(&self) -> Config {
        let mut channel = self.channel.clone();
        channel.outages.extend(self.hand_offs.iter().map(|h| Outage { start: h.at, length: h.length }));
        channel
    }

    /// Whether the simulator makes the same copy. Its clients use UDP; on lossy channels the adaptive client would use
    /// TCP.
    pub(crate) fn is_simulated(&self) -> bool {
        let chooses_streams = self.system == System::Adaptive && self.channel.loss >= STREAMS_LOSS.start;
        self.system.client().is_some() && !chooses_streams
    }
}

impl System {
    pub const SIMULATED: [System; 5] =
        [System::Stock, System::Papers, System::Adaptive, System::LinkStock, System::LinkAdaptive];
    pub const REAL: [System; 6] =
        [System::Adaptive, System::LinkAdaptive, System::Linux, System::Libnfs, System::Scp, System::Rsync];

    pub fn name(self) -> &'static str {
        match self {
            System::Stock => "stock",
            System::Papers => "papers' settings",
            System::Adaptive => "Remora",
            System::LinkStock => "stock + link",
            System::LinkPapers => "papers' settings + link",
            System::LinkAdaptive => "Remora + link",
            System::OverUdp => "Remora, UDP",
            System::OverTcp => "Remora, TCP",
            System::LinkOverUdp => "Remora + link, UDP",
            System::Linux => "Linux NFS",
            System::Libnfs => "libnfs",
            System::Scp => "scp",
            System::Rsync => "rsync",
        }
    }

    /// Its client, if it can be simulated.
    pub fn client(self) -> Option<client::ClientConfig> {
        Some(match self {
            System::Stock | System::LinkStock => client::ClientConfig::stock(),
            System::Papers | System::LinkPapers => client::ClientConfig::paper(),
            System::Adaptive | System::LinkAdaptive | System::OverUdp | System::LinkOverUdp => {
                client::ClientConfig::new(client::Transport::Udp)
            }
            System::OverTcp | System::Linux | System::Libnfs | System::Scp | System::Rsync => return None,
        })
    }

    /// Whether Remora's client can act as it.
    pub fn is_ours(self) -> bool {
        !matches!(self, System::Linux | System::Libnfs | System::Scp | System::Rsync)
    }

    pub fn has_link(self) -> bool {
        matches!(self, System::LinkStock | System::LinkPapers | System::LinkAdaptive | System::LinkOverUdp)
    }
}

#[derive(Clone, Debug)]
pub struct Tcp {
    pub link: bool,
    pub channel: Config,
    pub direction: Direction,
    pub length: Duration,
}

/// A job's settings in reports. Times in milliseconds, rates in bits per second.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Settings {
    Testbed {
        treatment: &'static str,
        way: &'static str,
        bad_mean_ms: f64,
        block: u32,
        mobiles: usize,
        distribution: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        receive_frames: Option<usize>,
    },
    Copy {
        system: &'static str,
        way: &'static str,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        block: Option<u32>,
        mobiles: usize,
        hand_offs: Vec<HandOffSettings>,
        channel: Channel,
    },
    SmallOperations {
        system: &'static str,
        bytes: u64,
        second_client: bool,
        channel: Channel,
    },
    Saturation {
        destinations: usize,
        one_good: bool,
        seconds: f64,
        channel: Channel,
    },
    Tcp {
        link: bool,
        way: &'static str,
        seconds: f64,
        channel: Channel,
    },
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct HandOffSettings {
    at_ms: f64,
    length_ms: f64,
    announced: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Channel {
    rate_bits: u64,
    full_duplex: bool,
    delay_ms: f64,
    queue_frames: usize,
    mtu: usize,
    loss: f64,
    errors: Errors,
    outages_ms: Vec<(f64, f64)>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "law", rename_all = "snake_case")]
enum Errors {
    None,
    TwoState { distribution: &'static str, good_mean_ms: f64, bad_mean_ms: f64 },
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

pub(crate) fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

impl Settings {
    pub(crate) fn of(job: &Job) -> Settings {
        match job {
            Job::Testbed(t) => Settings::Testbed {
                treatment: t.treatment.name(),
                way: way(t.direction),
                bad_mean_ms: ms(t.bad_mean),
                block: t.block,
                mobiles: t.mobiles,
                distribution: name_of(t.distribution),
                receive_frames: t.receive_frames,
            },
            Job::Copy(c) => Settings::Copy {
                system: c.system.name(),
                way: way(c.direction),
                bytes: c.bytes,
                block: c.block,
                mobiles: c.mobiles,
                hand_offs: c.hand_offs.iter().map(HandOffSettings::of).collect(),
                channel: Channel::of(&c.channel),
            },
            Job::SmallOperations(s) => Settings::SmallOperations {
                system: s.system.name(),
                bytes: s.bytes,
                second_client: s.second_client,
                channel: Channel::of(&s.channel),
            },
            Job::Saturation(s) => Settings::Saturation {
                destinations: s.destinations,
                one_good: s.one_good,
                seconds: s.length.as_secs_f64(),
                channel: Channel::of(&s.channel),
            },
            Job::Tcp(t) => Settings::Tcp {
                link: t.link,
                way: way(t.direction),
                seconds: t.length.as_secs_f64(),
                channel: Channel::of(&t.channel),
            },
        }
    }
}

impl HandOffSettings {
    fn of(h: &HandOff) -> HandOffSettings {
        HandOffSettings { at_ms: h.at.as_secs_f64() * 1e3, length_ms: ms(h.length), announced: h.announced }
    }
}

impl Channel {
    fn of(c: &Config) -> Channel {
        let outage = |o: &Outage| (o.start.as_secs_f64() * 1e3, ms(o.length));
        Channel {
            rate_bits: c.rate.bits(),
            full_duplex: c.duplex == Duplex::Full,
            delay_ms: ms(c.delay),
            queue_frames: c.queue_frames,
            mtu: c.mtu,
            loss: c.loss,
            errors: Errors::of(&c.errors),
            outages_ms: c.outages.iter().map(outage).collect(),
        }
    }
}

impl Errors {
    fn of(model: &ErrorModel) -> Errors {
        match *model {
            ErrorModel::None => Errors::None,
            ErrorModel::TwoState { distribution, good_mean, bad_mean } => Errors::TwoState {
                distribution: name_of(distribution),
                good_mean_ms: ms(good_mean),
                bad_mean_ms: ms(bad_mean),
            },
        }
    }
}
