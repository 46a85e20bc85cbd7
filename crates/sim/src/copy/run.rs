//! Runs a copy in a world, and its results.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Path, Rng, Time};
use remora_channel::{Channel, Lane, PerSide, Side, SideStats};
use remora_client::ClientStats;
use remora_link::PeerStats;
use remora_wire::nfs3::Fh;

use super::config::{CopyConfig, CopyError, Direction, Manner, SWITCH_NOTICE, floor_seconds};
use super::copier::{Copier, Start, Task};
use crate::events::{Packet, Trace};
use crate::net::{Carried, Medium, NetStats, Radio};
use crate::world::{ClientNode, ServerNode, User, World};

/// The result of a run, with a copy for each mobile.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyResult {
    pub copies: Vec<MobileCopy>,
    /// What the medium carried from the copies' begin to the last one's end; `None` without a load.
    pub carried: Option<Carried>,
    pub net: NetStats,
    /// Hash of the run: the same for the same configuration and seed.
    pub trace: u64,
}

/// The result of one mobile's copy. Seconds are of virtual time, from the first call to the last
/// reply.
#[derive(Clone, PartialEq, Debug)]
pub struct MobileCopy {
    /// Duration; `None` if not done by the limit: censored.
    pub seconds: Option<f64>,
    /// Duration of the data alone for the best sender over the same error process, with the medium
    /// to itself; `None` if impossible. See [`remora_channel::floor`].
    pub floor_seconds: Option<f64>,
    pub client: ClientStats,
    /// The client's final window.
    pub window: u32,
    /// The channel's counters of each side's frames.
    pub frames: PerSide<SideStats>,
    /// The counters of each side's link, if the protocol runs.
    pub link: Option<PerSide<PeerStats>>,
    /// Bytes confirmed over time. Those written again after a crash count again.
    pub progress: Vec<(Time, u64)>,
    /// Arrivals of data frames in the file's direction.
    pub data_frames: Vec<Time>,
    /// Every packet of this client, if asked for ([`CopyConfig::progress`]).
    ///
    /// [`CopyConfig::progress`]: super::config::CopyConfig::progress
    pub packets: Vec<Packet>,
}

impl CopyResult {
    /// The first mobile's copy; always present.
    pub fn first(&self) -> &MobileCopy {
        &self.copies[0]
    }
}

impl MobileCopy {
    /// The result of the copier of client `mobile` on the mobile of that number.
    pub(crate) fn of<U: User>(
        world: &World<U>,
        mobile: usize,
        copier: &Copier,
        floor_seconds: Option<f64>,
    ) -> MobileCopy {
        let node = &world.clients[mobile];
        let air = world.net.radio().map(Radio::air);
        let [base, back] = Side::ALL.map(|from| Lane { mobile, from });
        let data = if copier.direction() == Direction::Read { base } else { back };
        let frames = |lane| air.map(|air| *air.channel().stats(lane)).unwrap_or_default();
        let link = |lane| air.and_then(|air| air.link_stats(lane));
        MobileCopy {
            seconds: copier.took().map(|took| took.as_secs_f64()),
            floor_seconds,
            client: node.core().stats(),
            window: node.core().window(),
            frames: PerSide { base: frames(base), mobile: frames(back) },
            link: link(base).zip(link(back)).map(|(base, mobile)| PerSide { base, mobile }),
            progress: copier.progress().to_vec(),
            data_frames: air.map(|air| air.data_frames(data).collect()).unwrap_or_default(),
            packets: node.packets().to_vec(),
        }
    }

    /// Duration over the floor, unless censored.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.seconds? / self.floor_seconds?)
    }

    /// Time from `end`, the end of an outage, until the first data frame arrived. `None` if all had
    /// arrived, or none did before the limit.
    pub fn first_bytes_after(&self, end: Time) -> Option<Duration> {
        let next = self.data_frames.partition_point(|at| *at < end);
        self.data_frames.get(next).map(|at| at.since(end))
    }

    /// Time from `end` until the next bytes, a whole block, were confirmed.
    pub fn first_confirmed_after(&self, end: Time) -> Option<Duration> {
        let next = self.progress.partition_point(|(at, _)| *at < end);
        self.progress.get(next).map(|(at, _)| at.since(end))
    }
}

/// Runs a copy in virtual time.
pub fn run(config: &CopyConfig, seed: u64) -> Result<CopyResult, CopyError> {
    run_traced(config, seed, Trace::quiet())
}

/// [`run`] with a log of every message.
pub fn run_traced(config: &CopyConfig, seed: u64, trace: Trace) -> Result<CopyResult, CopyError> {
    let mut world = build(config, seed, trace, |copier| copier)?;
    let carried = |world: &World<Copier>| world.net.radio().and_then(|radio| radio.carried(world.now()));
    if config.load.is_some() {
        world.run(config.begin, |_| false)?;
    }
    let before = carried(&world);
    world.run(config.begin + config.limit, |w| w.clients.iter().all(|c| c.user().is_over()))?;
    let carried = carried(&world).zip(before).map(|(after, before)| after.since(before));
    let mut copies = Vec::new();
    for (mobile, node) in world.clients.iter().enumerate() {
        node.user().check(world.server.fs())?;
        copies.push(MobileCopy::of(&world, mobile, node.user(), floor_seconds(config, seed, mobile)?));
    }
    Ok(CopyResult { copies, carried, net: world.net.stats(), trace: world.trace.hash() })
}

/// The world of a copy, with the user that `user` makes of each mobile's copier.
pub(crate) fn build<U: User>(
    config: &CopyConfig,
    seed: u64,
    trace: Trace,
    user: impl Fn(Copier) -> U,
) -> Result<World<U>, CopyError> {
    let server = ServerNode::new(config.server.clone(), seed);
    let start = match config.manner {
        Manner::Mounting => Start::Mounting,
        Manner::Mounted => Start::Mounted(root_of(&server)?),
        Manner::Command => Start::Command(root_of(&server)?),
    };
    let mut world = World::new(seed, server, trace);
    let load = config.load.as_ref();
    let mut radio = Radio::loaded(config.channel(), config.link.as_ref(), seed, config.mobiles, load)?;
    if let Some(host) = config.host {
        radio.limit_mobiles(host.device_frames);
    }
    world.net.set_radio(radio);
    for mobile in 0..config.mobiles {
        let copier = Copier::new(Task {
            direction: config.direction,
            start: start.clone(),
            name: format!("file{mobile}"),
            original: random_bytes(config.bytes, Channel::seed_of(seed, mobile)),
            io_max: config.server.limits.io_max(Path::Datagram),
            host: config.host,
            begin: config.begin,
        });
        copier.prepare(world.server.fs())?;
        let mut node = ClientNode::new(config.client.clone(), Channel::seed_of(seed, mobile), user(copier));
        if let Some(host) = config.host {
            node = node.on_host(host);
        }
        if config.progress {
            node.log_packets();
        }
        world.add_client(node, Medium::Radio { mobile });
    }
    for handoff in config.handoffs.iter().filter(|h| h.signalled) {
        world.schedule_hand_off(handoff.at - SWITCH_NOTICE, handoff.at + handoff.length);
    }
    Ok(world)
}

/// The handle that MNT would return.
pub(crate) fn root_of(server: &ServerNode) -> Result<Fh, CopyError> {
    server.root_handle().ok_or_else(|| CopyError::Failed("the server has no root handle".into()))
}

fn random_bytes(len: u64, seed: u64) -> Bytes {
    let mut bytes = vec![0; len as usize];
    Rng::stream(seed, "copy").fill(&mut bytes);
    Bytes::from(bytes)
}
