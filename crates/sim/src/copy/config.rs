//! The configuration of a copy, and its floor.

use std::time::Duration;

use remora_base::Time;
use remora_channel::{Channel, ConfigError, Duplex, Outage, Side, floor};

use crate::net::{BackgroundLoad, START};
use crate::world::ServerConfig;
use crate::world::Stuck;
use crate::world::slow_host::SlowHost;

/// Time between the announcement of a hand-off and its start.
pub const SWITCH_NOTICE: Duration = Duration::from_millis(50);

/// Direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the server: LOOKUP, READs.
    Read,
    /// To the server: CREATE, WRITEs, COMMIT.
    Write,
}

/// The calls in addition to those of the [`Direction`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Manner {
    /// A MNT first.
    #[default]
    Mounting,
    /// None: the papers copied on a mounted file system.
    Mounted,
    /// Those of `remora cp` with a server known from before: at first FSINFO, GETATTR, MNT, LOOKUP
    /// and for a write CREATE, all at once; at the end of a write RENAME and SETATTR.
    Command,
}

/// A hand-off between cells, during which the link is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOff {
    pub at: Time,
    pub length: Duration,
    /// Whether link and client learn of it, [`SWITCH_NOTICE`] before its start and at its end;
    /// otherwise it is an outage.
    pub signalled: bool,
}

/// Configuration of a copy. Start from [`CopyConfig::new`] and change fields.
#[derive(Clone, Debug)]
pub struct CopyConfig {
    /// The client; its transport must be UDP, since the channel carries datagrams.
    pub client: remora_client::ClientConfig,
    /// The channel between the clients (mobiles) and the server (behind the base station).
    pub channel: remora_channel::Config,
    /// The link protocol, if any.
    pub link: Option<remora_link::LinkConfig>,
    pub server: ServerConfig,
    pub manner: Manner,
    pub direction: Direction,
    /// Size of the file (range: 1 byte to 1 GiB).
    pub bytes: u64,
    /// Mobiles that each copy a file at the same time (range: 1 to 64).
    pub mobiles: usize,
    /// Service times of the mobiles' hosts; `None` for none.
    pub host: Option<SlowHost>,
    /// Hand-offs of all mobiles at once.
    pub handoffs: Vec<HandOff>,
    /// Other stations that load the medium from the run's start on.
    pub load: Option<BackgroundLoad>,
    /// When the copies begin; a load is steady by then.
    pub begin: Time,
    /// Whether to log every packet ([`MobileCopy::packets`](crate::copy::MobileCopy::packets)).
    pub progress: bool,
    /// A copy that takes longer is censored (the papers: 300 s).
    pub limit: Duration,
}

impl CopyConfig {
    /// A copy of one megabyte by one mobile over the papers' channel without errors.
    pub fn new(client: remora_client::ClientConfig, direction: Direction) -> CopyConfig {
        CopyConfig {
            client,
            channel: remora_channel::Config::default(),
            link: None,
            server: ServerConfig::default(),
            manner: Manner::default(),
            direction,
            bytes: 1 << 20,
            mobiles: 1,
            host: None,
            handoffs: Vec::new(),
            load: None,
            begin: Time::ZERO,
            progress: false,
            limit: Duration::from_secs(300),
        }
    }

    /// Adds a load that is steady when the copies begin.
    pub fn beside(self, load: BackgroundLoad) -> CopyConfig {
        CopyConfig { load: Some(load), begin: Time::ZERO + START, ..self }
    }

    /// Adds the link protocol as configured by [`link_on`].
    pub fn with_link(self) -> CopyConfig {
        let link = link_on(&self.channel);
        // As the kernel would report the MTU of the tunnel's device.
        let path_mtu = u32::try_from(link.packet_max()).unwrap_or(self.client.path_mtu);
        CopyConfig { client: remora_client::ClientConfig { path_mtu, ..self.client }, link: Some(link), ..self }
    }

    /// The channel with the hand-offs as outages.
    pub(super) fn channel(&self) -> remora_channel::Config {
        let mut channel = self.channel.clone();
        channel.outages.extend(self.handoffs.iter().map(|h| Outage { start: h.at, length: h.length }));
        channel
    }
}

/// A link configuration for `channel`: its rate, duplex and frame size. A recorded trace has no
/// rate; there the link measures it.
pub fn link_on(channel: &remora_channel::Config) -> remora_link::LinkConfig {
    let defaults = remora_link::LinkConfig::default();
    let recorded = channel.trace.base.is_some() || channel.trace.mobile.is_some();
    remora_link::LinkConfig {
        rate: (!recorded).then_some(channel.rate),
        duplex: match channel.duplex {
            Duplex::Half if !recorded => remora_link::Duplex::Half,
            Duplex::Half | Duplex::Full => remora_link::Duplex::Full,
        },
        mtu: channel.mtu.saturating_sub(defaults.overhead),
        ..defaults
    }
}

/// A failed copy.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CopyError {
    /// Invalid channel configuration.
    #[error("channel: {0}")]
    Channel(#[from] ConfigError),
    /// The clock made no progress.
    #[error("{0}")]
    Stuck(#[from] Stuck),
    /// A request failed.
    #[error("{0}")]
    Failed(String),
    /// The copy differs from the original.
    #[error("the copy differs from the original")]
    Differs,
}

/// The time of the data alone for this mobile with the medium to itself.
pub(crate) fn floor_seconds(config: &CopyConfig, seed: u64, mobile: usize) -> Result<Option<f64>, ConfigError> {
    let from = match config.direction {
        Direction::Read => Side::Base,
        Direction::Write => Side::Mobile,
    };
    let floor = floor(&config.channel(), Channel::seed_of(seed, mobile), from, config.bytes, Time::ZERO)?;
    Ok(floor.map(Time::as_secs_f64))
}
