//! Scenarios: the configuration and the faults of a world, drawn from a seed.

use std::time::Duration;

use remora_base::{Rate, Rng, Time};
use remora_channel::{ConfigError, ErrorModel};
use remora_client::{ClientConfig, RetryPolicy, Transport, WindowSize};
use remora_link::{ArqMode, MediumScheduler, PerClass, RetransmissionLimits};
use remora_server::cache;

use crate::copy::link_on;
use crate::net::{Hop, Medium, Radio};
use crate::swarm::workload::Mix;
use crate::world::Fault;
use crate::world::disk::DiskModel;
use crate::world::{Intake, ServerConfig};

/// Maximum lifetime of a datagram.
const LIFETIME: Duration = Duration::from_millis(1500);
/// Minimum downtime of a server. No datagram sent before a crash, or before the receipt of a reply
/// from before the crash, reaches the restarted server. All it receives are retransmissions of
/// waiting clients, which the oracle excuses.
const DOWN_MIN: Duration = Duration::from_secs(4);

/// Bytes that a server executes at a time: few, so that the limit is reached.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;
/// Replies of one job and of those it released, in bytes: they leave at once.
const OUTPUT_MAX: usize = 2 << 20;

/// A world to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub server: ServerConfig,
    pub clients: Vec<ClientPlan>,
    pub radio: RadioPlan,
    /// Mean pause between two operations of an actor.
    pub think: Duration,
    pub mix: Mix,
    /// Probability that a disk operation fails.
    pub disk_error_chance: f64,
    /// Crashes, partitions and cuts, with their times.
    pub faults: Vec<(Time, Fault)>,
    /// End of all faults.
    pub heal_at: Time,
}

/// A client and its network.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    pub config: ClientConfig,
    pub network: NetworkPlan,
    /// Actors with their own directories.
    pub actors: usize,
    /// Whether a sharer works in the common directory, too.
    pub shares: bool,
}

/// A client's network.
#[derive(Clone, Debug)]
pub enum NetworkPlan {
    /// A plain network with faults.
    Hop(Hop),
    /// The radio, as its own mobile.
    Radio,
}

/// The radio shared by all mobiles.
#[derive(Clone, Debug)]
pub struct RadioPlan {
    pub channel: remora_channel::Config,
    /// The link protocol, if any.
    pub link: Option<remora_link::LinkConfig>,
}

/// The choice of the duplicate request cache in a swarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheChoice {
    /// Full, or Juszczak's in worlds that it can handle.
    Drawn,
    /// A fixed one.
    Always(cache::Config),
}

impl Scenario {
    pub fn draw(seed: u64, choice: CacheChoice) -> Scenario {
        let mut rng = Rng::stream(seed, "scenario");
        let length = Duration::from_secs(10 + rng.below(50));
        let clients: Vec<ClientPlan> = (0..1 + rng.below(4)).map(|_| draw_client(&mut rng)).collect();
        let mut scenario = Scenario {
            server: draw_server(&mut rng),
            radio: draw_radio(&mut rng),
            think: Duration::from_millis([1, 50, 300][rng.below(3) as usize]),
            mix: Mix { upload_max: [4 << 10, 32 << 10, 128 << 10][rng.below(3) as usize], failures: true },
            disk_error_chance: if rng.chance(0.25) { 0.02 } else { 0.0 },
            faults: draw_faults(&mut rng, length, clients.len()),
            heal_at: Time::ZERO + length,
            clients,
        };
        // A separate stream, so that seeds from before group commit keep their draws.
        scenario.server.group_commit = Rng::stream(seed, "group commit").chance(0.5);
        let juszczak = rng.chance(0.2);
        scenario.server.cache = match choice {
            CacheChoice::Always(config) => config,
            CacheChoice::Drawn if juszczak => {
                scenario.make_mild();
                cache::Config::juszczak()
            }
            CacheChoice::Drawn => {
                // 2 MiB hold two thousand entries: those of one second of a client, and duplicates
                // arrive later than that.
                let bytes_max = if rng.chance(0.5) { 2 << 20 } else { cache::Config::BYTES_MAX };
                cache::Config::Full { bytes_max, keep: cache::Config::KEEP }
            }
        };
        scenario
    }

    /// Removes faults that Juszczak's cache cannot handle:
    /// * failures, which it executes again with a possibly different result (DRC 89, section 4.2);
    /// * lost replies, after which the client retransmits until the throwaway window ends: a late
    ///   duplicate may arrive after the file changed, and is executed (section 4.3);
    /// * more concurrent requests than entries.
    fn make_mild(&mut self) {
        self.mix.failures = false;
        self.disk_error_chance = 0.0;
        self.faults.clear();
        self.think = self.think.max(Duration::from_millis(50));
        self.clients.truncate(2);
        for client in &mut self.clients {
            client.actors = client.actors.min(2);
            client.shares = false;
            client.network = NetworkPlan::Hop(match &client.network {
                NetworkPlan::Hop(hop) => Hop { loss: 0.0, corrupt: 0.0, ..hop.clone() },
                NetworkPlan::Radio => Hop { double: 0.2, ..Hop::clean(self.radio.channel.delay) },
            });
        }
    }

    pub fn media(&self) -> Vec<Medium> {
        let mut mobiles = 0..;
        let medium = |client: &ClientPlan| match &client.network {
            NetworkPlan::Hop(hop) => Medium::Hop(hop.clone()),
            NetworkPlan::Radio => Medium::Radio { mobile: mobiles.next().unwrap_or_default() },
        };
        self.clients.iter().map(medium).collect()
    }

    /// The radio, if a client uses it.
    pub fn radio(&self, seed: u64) -> Option<Result<Radio, ConfigError>> {
        let mobiles = self.clients.iter().filter(|c| matches!(c.network, NetworkPlan::Radio)).count();
        let RadioPlan { channel, link } = &self.radio;
        (mobiles > 0).then(|| Radio::new(channel.clone(), link.as_ref(), seed, mobiles))
    }

    /// Whether every request executes at most once without a crash.
    pub fn exactly_once(&self) -> bool {
        matches!(self.server.cache, cache::Config::Full { .. })
    }

    /// Maximum memory of the server in bytes: its cache, jobs in flight, and replies to send.
    pub fn memory_bound(&self) -> usize {
        let cache = match self.server.cache {
            cache::Config::Full { bytes_max, .. } => bytes_max,
            // 400 entries, of which the replies to READ are the largest.
            _ => cache::Config::ENTRIES * (self.server.limits.datagram_io_max as usize + 1024),
        };
        cache + self.server.limits.in_flight_bytes_max + OUTPUT_MAX
    }
}

fn ms(rng: &mut Rng, max: u64) -> Duration {
    Duration::from_millis(rng.below(max + 1))
}

/// Zero half of the time, otherwise up to `max`: worlds without a fault find other errors.
fn sometimes(rng: &mut Rng, max: f64) -> f64 {
    if rng.chance(0.5) { 0.0 } else { max * rng.unit() }
}

fn draw_client(rng: &mut Rng) -> ClientPlan {
    let (config, network) = match rng.below(8) {
        0..3 => (ClientConfig::new(Transport::Udp), draw_network(rng)),
        3 | 4 => (legacy(rng), draw_network(rng)),
        5 => (ClientConfig::paper(), draw_network(rng)),
        _ => (ClientConfig::new(Transport::Tcp), NetworkPlan::Hop(draw_hop(rng))),
    };
    ClientPlan { config, network, actors: 1 + rng.below(3) as usize, shares: rng.chance(0.5) }
}

/// A client with fixed timeouts, as in 1989.
fn legacy(rng: &mut Rng) -> ClientConfig {
    let stock = ClientConfig::stock();
    if rng.chance(0.5) {
        return stock;
    }
    // The shortest timeout that a mount option allows: most of its messages are duplicates.
    let initial = Duration::from_millis(100);
    let retry = RetryPolicy::Exponential { initial, factor: 2, max: Duration::from_secs(20) };
    ClientConfig { retry, window: WindowSize::Fixed(8), ..stock }
}

fn draw_network(rng: &mut Rng) -> NetworkPlan {
    if rng.chance(0.7) { NetworkPlan::Hop(draw_hop(rng)) } else { NetworkPlan::Radio }
}

fn draw_radio(rng: &mut Rng) -> RadioPlan {
    let rate = [Rate::mbit(1), Rate::mbit(2), Rate::mbit(10)][rng.below(3) as usize];
    let channel = remora_channel::Config {
        rate,
        delay: ms(rng, 50),
        errors: ErrorModel::bursts(Duration::from_millis([0, 20, 80, 200][rng.below(4) as usize])),
        loss: sometimes(rng, 0.05),
        ..Default::default()
    };
    RadioPlan { link: rng.chance(0.6).then(|| draw_link(rng, &channel)), channel }
}

/// A link that gives up a packet before a crashed server restarts, like the hops: see [`DOWN_MIN`].
fn draw_link(rng: &mut Rng, channel: &remora_channel::Config) -> remora_link::LinkConfig {
    let on = link_on(channel);
    let lifetime = Duration::from_millis([200, 600, 1000][rng.below(3) as usize]);
    let limits = RetransmissionLimits { attempts: [2, 8, 30][rng.below(3) as usize], lifetime };
    remora_link::LinkConfig {
        mode: if rng.chance(0.2) { ArqMode::None } else { ArqMode::Arq },
        scheduler: if rng.chance(0.5) { MediumScheduler::RoundRobin } else { MediumScheduler::Airtime },
        rate: on.rate.filter(|_| rng.chance(0.5)),
        window_frames: [4, 32, 2024][rng.below(3) as usize],
        queue_packets_max: [16, 512][rng.below(2) as usize],
        limits: PerClass { interactive: limits, default: limits, bulk: limits, probe: limits },
        ..on
    }
}

fn draw_hop(rng: &mut Rng) -> Hop {
    Hop {
        delay: Duration::from_micros(100) + ms(rng, 100),
        jitter: if rng.chance(0.5) { Duration::ZERO } else { ms(rng, 100) },
        lifetime: LIFETIME,
        loss: sometimes(rng, 0.2),
        double: sometimes(rng, 0.2),
        straggle: sometimes(rng, 0.1),
        corrupt: sometimes(rng, 0.05),
    }
}

fn draw_server(rng: &mut Rng) -> ServerConfig {
    let slow = rng.chance(0.5);
    let disk = DiskModel {
        cpu: Duration::from_micros(100),
        seek: if slow { Duration::from_millis(8) } else { Duration::ZERO },
        rate: slow.then_some(Rate::mbit(40)),
        jitter: 0.5,
        block_chance: sometimes(rng, 0.05),
        block_max: Duration::from_millis(1500),
    };
    ServerConfig {
        slots: [1, 4, 16][rng.below(3) as usize],
        intake: if rng.chance(0.5) { Intake::WhenFree } else { Intake::AtOnce },
        inbox_bytes_max: [16 << 10, 256 << 10][rng.below(2) as usize],
        disk,
        limits: remora_server::Limits { in_flight_bytes_max: IN_FLIGHT_BYTES_MAX, ..Default::default() },
        ..ServerConfig::default()
    }
}

fn draw_faults(rng: &mut Rng, length: Duration, clients: usize) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    let crashes = if rng.chance(0.4) { 1 + rng.below(3) } else { 0 };
    let partitions = if rng.chance(0.5) { 1 + rng.below(4) } else { 0 };
    let cuts = if rng.chance(0.7) { 1 + rng.below(12) } else { 0 };
    let at = |rng: &mut Rng| Time::ZERO + length.mul_f64(rng.unit());
    let who = |rng: &mut Rng| rng.below(clients as u64) as usize;
    for _ in 0..crashes {
        faults.push((at(rng), Fault::Crash { down: DOWN_MIN + ms(rng, 6000) }));
    }
    for _ in 0..partitions {
        faults.push((at(rng), Fault::Partition { client: who(rng), length: ms(rng, 20_000) }));
    }
    for _ in 0..cuts {
        faults.push((at(rng), Fault::Cut { client: who(rng), keep_port: rng.chance(0.3) }));
    }
    faults
}
