//! Scenarios: the endpoints, the link and the faults of a world, drawn from a seed.

use std::time::Duration;

use remora_atp::session::{Bottleneck, Config, Guests};
use remora_atp::{Policy, estimate, scheduler};
use remora_base::{Rate, Rng, Time};
use remora_channel::{self as channel, ErrorModel, Outage};

/// Idle timeout where ends may restart, or close and move: a server does not learn that a client
/// restarted at another address, or moved before its CLOSE arrived.
const SHORT_HOLD: Duration = Duration::from_secs(40);
const LONG_HOLD: Duration = Duration::from_secs(24 * 3600);
/// Tiny limits in bytes.
const TINY: u32 = 12_000;

#[derive(Clone, Debug)]
pub struct Scenario {
    /// The server's configuration, then those of one or two clients.
    pub nodes: Vec<Config>,
    /// The link, with its losses and outages.
    pub channel: channel::Config,
    /// Probability that a datagram is duplicated.
    pub duplicate: f64,
    /// Probability that a datagram is delayed by up to `jitter`.
    pub reorder: f64,
    /// Maximum of that delay.
    pub jitter: Duration,
    pub faults: Faults,
    /// Random actions before all faults end.
    pub actions: u64,
    /// Mean time between two actions.
    pub pause: Duration,
    /// Probability that an object has a deadline.
    pub deadlines: f64,
    /// Maximum size of an object in bytes.
    pub largest: u64,
}

/// The faults of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Clients change their addresses.
    pub moves: bool,
    /// Ends restart without state.
    pub restarts: bool,
    /// Programs close connections.
    pub closes: bool,
    /// Programs change or cancel requests.
    pub commands: bool,
    /// Limits are so small that they are reached.
    pub tiny: bool,
    /// Silent peers are dropped soon.
    pub short_hold: bool,
    /// Idle connections end soon.
    pub short_idle: bool,
}

impl Scenario {
    pub fn draw(seed: u64) -> Scenario {
        let mut rng = Rng::stream(seed, "atp scenario");
        let restarts = rng.chance(0.25);
        let faults = Faults {
            moves: rng.chance(0.4),
            restarts,
            closes: rng.chance(0.15),
            commands: rng.chance(0.6),
            tiny: rng.chance(0.25),
            short_hold: restarts || rng.chance(0.1),
            short_idle: rng.chance(0.15),
        };
        let faults = Faults { short_hold: faults.short_hold || faults.closes && faults.moves, ..faults };
        let clients = if rng.chance(0.3) { 2 } else { 1 };
        let rate = [16_000, 128_000, 1_000_000, 8_000_000][rng.below(4) as usize];
        let nodes = (0..=clients).map(|n| node(&mut rng, faults, n == 0)).collect();
        Scenario {
            nodes,
            channel: link(&mut rng, rate),
            duplicate: [0.0, 0.0, 0.02, 0.2][rng.below(4) as usize],
            reorder: [0.0, 0.05, 0.5][rng.below(3) as usize],
            jitter: Duration::from_millis(1 + rng.below(150)),
            faults,
            actions: 5 + rng.below(30),
            pause: Duration::from_millis(20 + rng.below(800)),
            deadlines: [0.0, 0.3, 0.9][rng.below(3) as usize],
            // Ten seconds of a slow link; more would only cost time on a fast one.
            largest: (rate * 10 / 8).clamp(2_000, 300_000),
        }
    }
}

fn node(rng: &mut Rng, faults: Faults, server: bool) -> Config {
    let policy = if rng.chance(0.2) { Policy::Paper } else { Policy::Remora };
    let kind = match policy {
        Policy::Paper => estimate::Kind::Paper,
        Policy::Remora => estimate::Kind::Rate,
    };
    let config = Config {
        guests: if server { Guests::Anyone } else { Guests::Nobody },
        scheduler: scheduler::Config { policy, ..scheduler::Config::default() },
        estimator: estimate::Config::new(kind),
        bottleneck: if rng.chance(0.5) { Bottleneck::Shared } else { Bottleneck::PerPeer },
        datagram: if rng.chance(0.5) { 1200 } else { 1452 },
        discover: rng.chance(0.3),
        early: rng.chance(0.7),
        hold: if faults.short_hold { SHORT_HOLD } else { LONG_HOLD },
        idle: Duration::from_secs(if faults.short_idle { 3 + rng.below(10) } else { 1_000_000 }),
        keep_alive: [None, Some(Duration::from_secs(1)), Some(Duration::from_secs(25))][rng.below(3) as usize],
        ..Config::default()
    };
    if faults.tiny { tiny(rng, config) } else { config }
}

/// Makes each limit tiny or not, independently.
fn tiny(rng: &mut Rng, mut config: Config) -> Config {
    if rng.chance(0.5) {
        (config.object_max, config.buffer_peer) = (TINY, TINY.into());
    }
    if rng.chance(0.5) {
        config.buffer_total = TINY.into();
    }
    if rng.chance(0.5) {
        config.window = 2_000 + rng.next_u32() % 10_000;
    }
    if rng.chance(0.5) {
        config.streams = 1 + rng.next_u32() % 3;
    }
    if rng.chance(0.5) {
        config.peers = 1 + rng.below(3) as usize;
    }
    if rng.chance(0.5) {
        config.scheduler.objects_max = 1 + rng.below(5) as usize;
        config.scheduler.bytes_max = TINY.into();
    }
    config
}

fn link(rng: &mut Rng, rate: u64) -> channel::Config {
    let mut outages = Vec::new();
    let mut start = Time::from_millis(1_000 + rng.below(5_000));
    for _ in 0..rng.below(3) {
        let length = Duration::from_millis(50 + rng.below(8_000));
        outages.push(Outage { start, length });
        start += length + Duration::from_millis(1 + rng.below(4_000));
    }
    let bursts = ErrorModel::bursts(Duration::from_millis(10 + rng.below(300)));
    channel::Config {
        rate: Rate::from_bits(rate).unwrap_or(Rate::mbit(1)),
        duplex: if rng.chance(0.5) { channel::Duplex::Half } else { channel::Duplex::Full },
        delay: Duration::from_millis(rng.below(200)),
        queue_frames: [5, 20, 100][rng.below(3) as usize],
        loss: [0.0, 0.01, 0.1, 0.3][rng.below(4) as usize],
        errors: if rng.chance(0.3) { bursts } else { ErrorModel::None },
        outages,
        hold: rng.chance(0.3),
        ..channel::Config::default()
    }
}
