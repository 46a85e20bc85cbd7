//! The results of copies.

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

/// The result of a run, with a copy for each mobile.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyResult {
    pub copies: Vec<MobileCopy>,
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
    pub client: Stats,
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
    /// [`CopyConfig::progress`]: super::CopyConfig::progress
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
