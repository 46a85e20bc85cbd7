//! The input: a network as its author describes it. [`Network::new`](crate::Network::new) resolves
//! names and validates.

use remora_base::Rate;

use crate::formulas::ring::Discipline;
use crate::formulas::wifi::TwoStateChannel;
use crate::quantity::{PacketRate, Seconds, Size};

/// Maximum of media, groups, gateways or flows.
pub const TABLES_MAX: usize = 10_000;
/// Maximum of copies; each is solved with all others.
pub const COPIES_MAX: usize = 16;
/// Maximum of stations in a group.
pub const STATIONS_MAX: u32 = 1_000_000;

/// A network and its traffic.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Topology {
    pub media: Vec<Medium>,
    pub groups: Vec<Group>,
    pub gateways: Vec<Gateway>,
    /// Open traffic, independent of the network's state.
    pub flows: Vec<Flow>,
    /// File copies: closed traffic.
    pub copies: Vec<Copy>,
}

/// Something that carries packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Medium {
    /// Its name, unique among media.
    pub name: String,
    /// Bits a second; on a switch, of each port in each direction.
    pub rate: Rate,
    pub kind: Kind,
}

/// The kinds of media.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A shared Ethernet (CSMA/CD); propagation from one station to another.
    Ethernet { propagation: Seconds },
    /// A token ring.
    Ring { walk: Seconds, discipline: Discipline },
    /// A switch with a full-duplex link to each station.
    Switch {
        /// Time from the end of a packet's arrival to its possible departure, including cables.
        latency: Seconds,
    },
    /// A wireless cell.
    Wifi {
        /// Airtime of a frame beyond its bits: gaps, mean back-off, acknowledgement.
        overhead: Seconds,
        /// The channel of each station.
        channel: TwoStateChannel,
    },
}

/// Stations of the same kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its name, unique among groups.
    pub name: String,
    pub medium: String,
    /// Number of stations (1 to [`STATIONS_MAX`]).
    pub stations: u32,
    /// Processor time for each packet sent or received.
    pub cost: Seconds,
}

/// A router or bridge between media.
#[derive(Clone, PartialEq, Debug)]
pub struct Gateway {
    /// Its name, unique among gateways.
    pub name: String,
    /// The media it joins: two or more.
    pub joins: Vec<String>,
    /// Service time of a packet.
    pub cost: Seconds,
    /// Distribution of the service time.
    pub law: Law,
}

/// The distribution of service times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// All the same.
    Constant,
    Exponential,
}

/// Packets from each station of a group to those of another, or of the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    pub from: String,
    pub to: String,
    /// Packets a second of each station of `from`.
    pub rate: PacketRate,
    pub size: Size,
}

/// The packets of one block of a copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// Number of packets (0 to 10,000; fractional where several blocks share one).
    pub packets: f64,
    pub size: Size,
}

/// A file copy from one station to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Copy {
    /// The sender's group.
    pub from: String,
    /// The receiver's group.
    pub to: String,
    /// The file, in bytes (1 or more).
    pub file_bytes: u64,
    /// Bytes of a block (1 or more).
    pub block_bytes: u64,
    /// Outstanding blocks (1 to [`mva::WINDOW_MAX`](crate::formulas::mva::WINDOW_MAX)).
    pub window: u32,
    /// Packets of the data of a block.
    pub data: Burst,
    /// Packets of the reply to a block.
    pub reply: Burst,
    /// Time of the sender's software for a block, beyond its cost for each packet.
    pub software: Seconds,
    /// Time of the receiver's disk for a block.
    pub disk: Seconds,
    /// Fixed time of each round (a block and its reply), without queueing.
    pub think: Seconds,
}

impl Copy {
    /// Outstanding blocks: the window, or the file's blocks if fewer.
    pub fn under_way(&self) -> u32 {
        u32::try_from(self.file_bytes.div_ceil(self.block_bytes.max(1)))
            .unwrap_or(u32::MAX)
            .clamp(1, self.window.max(1))
    }
}

/// A resource at which a copy's blocks queue, by index in the topology: names are not unique across
/// media and gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Index into [`Topology::media`].
    Medium(usize),
    /// Index into [`Topology::gateways`].
    Gateway(usize),
    /// A station's processor; index into [`Topology::groups`].
    Software(usize),
    /// A station's disk; index into [`Topology::groups`].
    Disk(usize),
}

/// The tables of a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    Media,
    Groups,
    Gateways,
    Flows,
    Copies,
}

/// An invalid topology: the table, the entry, and what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {why}")]
pub struct TopologyError {
    pub table: Table,
    /// The entry, from 0.
    pub index: usize,
    pub key: &'static str,
    /// What is wrong, and what was expected.
    pub why: String,
}
