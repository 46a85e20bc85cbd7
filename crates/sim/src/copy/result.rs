//! How a copy went.

use std::time::Duration;

use remora_base::Time;
use remora_channel::{Lane, PerSide, Side, SideStats};
use remora_client::Stats;
use remora_link::PeerStats;

use super::{Copier, Direction};
use crate::client_node::User;
use crate::net::{NetStats, Radio};
use crate::packet_log::Packet;
use crate::world::World;

/// How a run went, with a copy for each mobile.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyResult {
    pub copies: Vec<MobileCopy>,
    /// What the network counted.
    pub net: NetStats,
    /// Identifies what happened: the same for the same configuration and seed.
    pub trace: u64,
}

/// How one mobile's copy went. Seconds are of virtual time, from the first call to the last
/// reply.
#[derive(Clone, PartialEq, Debug)]
pub struct MobileCopy {
    /// How long it took; `None` if it was not done by the limit: censored.
    pub seconds: Option<f64>,
    /// How long the data alone would have taken the best sender in the same weather, had it the
    /// medium to itself; `None` if never. See [`remora_channel::floor`].
    pub floor_seconds: Option<f64>,
    /// What the client counted.
    pub client: Stats,
    /// The client's window at the end.
    pub window: u32,
    /// What the channel counted of the frames each side sent.
    pub frames: PerSide<SideStats>,
    /// What each side's link counted, if there is the link protocol.
    pub link: Option<PerSide<PeerStats>>,
    /// How many bytes had been confirmed when, in order. Those written again (the server had
    /// crashed) count again.
    pub progress: Vec<(Time, u64)>,
    /// When frames that carry data arrived in the file's direction, in order.
    pub data_frames: Vec<Time>,
    /// Every packet of this client, if asked for ([`CopyConfig::progress`]).
    ///
    /// [`CopyConfig::progress`]: super::CopyConfig::progress
    pub packets: Vec<Packet>,
}

impl CopyResult {
    /// The first mobile's copy. There is always one.
    pub fn first(&self) -> &MobileCopy {
        &self.copies[0]
    }
}

impl MobileCopy {
    /// What became of the copier of client `mobile`, which is on the mobile of that number.
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
            seconds: copier.ended().map(Time::as_secs_f64),
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

    /// How many times longer than the floor it took, unless it was censored.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.seconds? / self.floor_seconds?)
    }

    /// How long after `end`, the end of an outage, the file's bytes flowed again: until the first frame that carries
    /// data has arrived. `None` if all had by then, or if none did before the limit.
    pub fn first_bytes_after(&self, end: Time) -> Option<Duration> {
        let next = self.data_frames.partition_point(|at| *at < end);
        self.data_frames.get(next).map(|at| at.since(end))
    }

    /// The same until the next bytes, a whole block of them, were confirmed.
    pub fn first_confirmed_after(&self, end: Time) -> Option<Duration> {
        let next = self.progress.partition_point(|(at, _)| *at < end);
        self.progress.get(next).map(|(at, _)| at.since(end))
    }
}
