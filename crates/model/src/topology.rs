//! What a network is made of, as its author writes it down. Names are resolved and all of it is
//! checked by [`Network::new`](crate::Network::new).

use remora_base::Rate;

use crate::quantity::{PacketRate, Seconds, Size};
use crate::ring::Discipline;
use crate::wifi::Weather;

/// Media, groups, gateways or flows at most.
pub const TABLES_MAX: usize = 10_000;
/// Copies at most; each is solved with all others.
pub const COPIES_MAX: usize = 16;
/// Stations in a group at most.
pub const STATIONS_MAX: u32 = 1_000_000;

/// A network and what goes over it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Topology {
    /// What stations are attached to.
    pub media: Vec<Medium>,
    /// Stations, by kinds.
    pub groups: Vec<Group>,
    /// What joins media.
    pub gateways: Vec<Gateway>,
    /// Packets that come by themselves, whatever the network does.
    pub flows: Vec<Flow>,
    /// File copies, whose packets wait for one another.
    pub copies: Vec<Copy>,
}

/// Something that carries packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Medium {
    /// Its name, unique among media.
    pub name: String,
    /// Bits a second; on a switch, of each port in each direction.
    pub rate: Rate,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of media.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A shared Ethernet (CSMA/CD); propagation from one station to another.
    Ethernet {
        /// One way.
        propagation: Seconds,
    },
    /// A token ring.
    Ring {
        /// From one station to the next.
        walk: Seconds,
        /// When a station passes the token on.
        discipline: Discipline,
    },
    /// A switch with a full-duplex link to each station.
    Switch {
        /// From the end of a packet coming in to when it may go out, cables included.
        latency: Seconds,
    },
    /// A wireless cell.
    Wifi {
        /// Airtime of a frame beside its bits: gaps, mean back-off, acknowledgement.
        overhead: Seconds,
        /// The channel of each station.
        weather: Weather,
    },
}

/// Stations of the same kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its name, unique among groups.
    pub name: String,
    /// The medium they are attached to.
    pub medium: String,
    /// How many (1 to [`STATIONS_MAX`]).
    pub stations: u32,
    /// Processor time for each packet that one sends or receives.
    pub cost: Seconds,
}

/// Something that passes packets on between media.
#[derive(Clone, PartialEq, Debug)]
pub struct Gateway {
    /// Its name, unique among gateways.
    pub name: String,
    /// The media it joins: two or more.
    pub joins: Vec<String>,
    /// Time for each packet.
    pub cost: Seconds,
    /// The law of that time.
    pub law: Law,
}

/// How service times are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// All the same.
    Constant,
    Exponential,
}

/// Packets from each station of a group to those of another, or of the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// The group that sends.
    pub from: String,
    /// The group that receives.
    pub to: String,
    /// Packets a second of each station of `from`.
    pub rate: PacketRate,
    /// Their sizes.
    pub size: Size,
}

/// Packets that go together for each block of a copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// How many (0 to 10,000; a part of one where several blocks share it).
    pub packets: f64,
    /// Their sizes.
    pub size: Size,
}

/// A file on its way from one station to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Copy {
    /// The sender's group.
    pub from: String,
    /// The receiver's group.
    pub to: String,
    /// The file, in bytes (1 or more).
    pub file_bytes: u64,
    /// Of which a block brings so many bytes (1 or more).
    pub block_bytes: u64,
    /// Blocks under way at once (1 to [`mva::WINDOW_MAX`](crate::mva::WINDOW_MAX)).
    pub window: u32,
    /// What the sender sends for a block.
    pub data: Burst,
    /// What the receiver sends for a block.
    pub reply: Burst,
    /// Time of the sender's software for a block, beside its cost for each packet.
    pub software: Seconds,
    /// Time of the receiver's disk for a block.
    pub disk: Seconds,
    /// Time in each round that nothing queues for.
    pub think: Seconds,
}

impl Copy {
    /// Blocks under way at once: the window, or as many as the file has.
    pub fn under_way(&self) -> u32 {
        u32::try_from(self.file_bytes.div_ceil(self.block_bytes.max(1)))
            .unwrap_or(u32::MAX)
            .clamp(1, self.window.max(1))
    }
}

/// Where a copy's blocks queue, by its number in the topology. Names do not tell: a gateway may be called what a medium is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// Of [`Topology::media`].
    Medium(usize),
    /// Of [`Topology::gateways`].
    Gateway(usize),
    /// A station's of that one of [`Topology::groups`].
    Software(usize),
    /// The same.
    Disk(usize),
}

/// The kinds of things in a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// [`Topology::media`].
    Media,
    /// [`Topology::groups`].
    Groups,
    /// [`Topology::gateways`].
    Gateways,
    /// [`Topology::flows`].
    Flows,
    /// [`Topology::copies`].
    Copies,
}

/// Why a topology makes no sense: which entry, which of its keys, and what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {why}")]
pub struct TopologyError {
    /// Among what.
    pub table: Table,
    /// Which, from 0.
    pub index: usize,
    pub key: &'static str,
    /// What is wrong, and what was expected.
    pub why: String,
}
