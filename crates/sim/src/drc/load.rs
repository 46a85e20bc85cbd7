//! The load on the machines of DRC 89, section 3: what is known of them, and what was fitted.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rate, Time};
use remora_client::{BlockSize, Transport, WindowSize};
use remora_server::cache;
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::nfs3::{CreateHow, Proc, SetAttr, Stable};

use super::writer::{BIODS, BLOCK, CALLS_BEFORE, Process, WRITES, Writer, is_intact};
use crate::events::Trace;
use crate::events::{Packet, PacketKind};
use crate::net::{Hop, Medium};
use crate::world::ClientNode;
use crate::world::disk::DiskModel;
use crate::world::ufs::Ufs;
use crate::world::{Execution, ServerConfig, ServerNode};
use crate::world::{Stuck, World};

/// Daemons of the server.
pub const NFSDS: usize = 4;
pub const NAME: &str = "file";
/// Beyond any run.
const DEADLINE: Time = Time::from_secs(1000);

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: Machine,
    pub client: Client,
    /// The client's transport and retransmission.
    pub timers: Timers,
    pub cache: cache::Config,
}

/// A client's transport and retransmission policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timers {
    pub transport: Transport,
    pub retry: remora_client::RetryPolicy,
}

impl Timers {
    /// The client core's configuration with these timers, and five outstanding requests for four
    /// daemons and a process.
    pub fn config(&self) -> remora_client::ClientConfig {
        remora_client::ClientConfig {
            retry: self.retry,
            block: BlockSize::Fixed(BLOCK),
            window: WindowSize::Fixed(BIODS as u32 + 1),
            ..remora_client::ClientConfig::new(self.transport)
        }
    }
}

/// The result of a run, in the terms of DRC 89, table 2.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Writes sent, including retransmissions.
    pub sent: u32,
    pub duplicates_sent: u32,
    /// Writes that the server executed again.
    pub duplicates_processed: u32,
    /// Seconds to open, truncate, write and close the file, as the client sees it.
    pub seconds: f64,
    /// Whether the final file holds the written data.
    pub intact: bool,
}

impl Outcome {
    /// KB a second.
    pub fn speed(&self) -> f64 {
        f64::from(WRITES * BLOCK / 1024) / self.seconds
    }
}

/// A run without an [`Outcome`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrcError {
    #[error("the server cannot be set up")]
    SetUp,
    #[error("{0}")]
    Call(String),
    /// The run did not end.
    #[error("it did not end within {} s", DEADLINE.as_secs_f64())]
    TooLong,
    /// The clock made no progress.
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// Runs the load once.
pub fn run(config: &Config, seed: u64) -> Result<Outcome, DrcError> {
    let mut server = ServerNode::new(server_config(config), seed);
    let fs = server.fs().clone();
    let root = server.root_handle().ok_or(DrcError::SetUp)?;
    prepare(&fs, NAME).ok_or(DrcError::SetUp)?;
    let writer = Writer::new(root, NAME, Process::new(config.client.copy));
    let mut client = ClientNode::new(config.timers.config(), seed, writer);
    client.log_packets();
    server.log_executions();
    let mut world = World::new(seed, server, Trace::quiet());
    world.add_client(client, Medium::Hop(Hop::clean(config.client.wire)));
    // Quiet, not merely closed: queued duplicates are executed, too.
    let quiet = |w: &World<Writer>| w.clients[0].user().is_over() && w.net.is_empty() && w.server.jobs() == 0;
    if !world.run(DEADLINE, quiet)? {
        return Err(DrcError::TooLong);
    }
    let Some(client) = world.clients.first() else { return Err(DrcError::SetUp) };
    let ended = client.user().ended().map_err(DrcError::Call)?;
    let (sent, duplicates_sent) = count(client.packets());
    Ok(Outcome {
        sent,
        duplicates_sent,
        duplicates_processed: repeated(world.server.executions()),
        seconds: ended.as_secs_f64(),
        intact: contents(&fs, NAME).is_some_and(|bytes| is_intact(&bytes)),
    })
}

pub(super) fn server_config(config: &Config) -> ServerConfig {
    ServerConfig {
        cache: config.cache,
        slots: NFSDS,
        disk: DiskModel { cpu: config.server.small_call, ..DiskModel::instant() },
        ufs: Some(config.server.ufs),
        ..ServerConfig::default()
    }
}

/// Creates the file that the load truncates: "The file was always 1 Mbyte in size when the program
/// started." `None` on failure.
pub fn prepare(fs: &MemFs, name: &str) -> Option<()> {
    let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
    let attr = SetAttr { mode: Some(0o666), ..SetAttr::NONE };
    let made = fs.create(&root, &fs.root(), name.as_bytes(), &CreateHow::Guarded(attr)).ok()?;
    let old = Bytes::from(vec![0xff; (WRITES * BLOCK) as usize]);
    fs.write(&root, &made.id, 0, &old, Stable::FileSync).ok().map(|_| ())
}

/// The file as a crash would leave it.
pub fn contents(fs: &MemFs, name: &str) -> Option<Bytes> {
    fs.tree().get(name.as_bytes()).and_then(|node| fs.read_durable(&node.id).ok())
}

/// WRITEs executed again.
fn repeated(executions: &[Execution]) -> u32 {
    let mut seen = BTreeSet::new();
    let again = executions.iter().filter(|e| e.proc == Proc::Write && !seen.insert(e.xid));
    u32::try_from(again.count()).unwrap_or(u32::MAX)
}

/// WRITEs sent, and retransmissions among them.
fn count(packets: &[Packet]) -> (u32, u32) {
    let writes = || packets.iter().filter(|p| p.number >= CALLS_BEFORE);
    let of = |kind| u32::try_from(writes().filter(|p| p.kind == kind).count()).unwrap_or(u32::MAX);
    let again = of(PacketKind::Retransmission);
    (of(PacketKind::Call) + again, again)
}

/// A server's machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Processor time of a call without disk access, such as LOOKUP.
    pub small_call: Duration,
    /// Its file system.
    pub ufs: Ufs,
}

/// The client's machine and its network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Client {
    /// Time in which the process produces a block.
    pub copy: Duration,
    /// One-way network delay, including the interface at either end.
    pub wire: Duration,
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Both disks turn 3600 times a minute.
const TURN: Duration = us(16_700);
/// How often another activity holds the disk, and for how long: the same on both servers.
const HOLD_UP_CHANCE: f64 = 0.06;
const HOLD_UP_MEAN: Duration = us(535_000);

impl Machine {
    /// The "small server": a μVAX-II with an RD53 disk. Fitted: the maximum seek, the processor and
    /// the hold-ups.
    pub const SMALL: Machine = Machine {
        small_call: us(5_000),
        ufs: Ufs {
            cpu: us(10_300),
            seek_max: us(67_000),
            turn: TURN,
            rate: Rate::of_bits(5_000_000),
            hold_up_chance: HOLD_UP_CHANCE,
            hold_up_mean: HOLD_UP_MEAN,
            overtaking: true,
        },
    };

    /// The "large server": a VAX 8550 with an RA81 disk. Fitted likewise.
    pub const LARGE: Machine = Machine {
        small_call: us(2_000),
        ufs: Ufs {
            cpu: us(5_200),
            seek_max: us(20_300),
            turn: TURN,
            rate: Rate::of_bits(17_600_000),
            hold_up_chance: HOLD_UP_CHANCE,
            hold_up_mean: HOLD_UP_MEAN,
            overtaking: true,
        },
    };
}

impl Client {
    /// A μVAX-II on the same Ethernet, which needs 7 ms for a write. Both are fitted.
    pub const MICROVAX: Client = Client { copy: us(23_000), wire: us(8_600) };
}
