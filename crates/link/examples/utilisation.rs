//! Prints the utilisation of a hop of 1 Mbit/s by delivered packets, on the toy medium of the tests: half duplex, 2
//! ms, 1500-byte frames including 50 bytes of the host's overhead, all destinations saturated.
//!
//! Run with `cargo run --release -p remora-link --example utilisation`; with the argument `learn` the link learns the
//! rate.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{Medium, World};
use remora_base::{Rate, Time};
use remora_link::{ArqMode, LinkConfig};

const LENGTH: Time = Time::from_secs(60);

/// Returns the utilisation and the mean share of good time.
fn run(destinations: usize, bad_mean: u64, seed: u64, config: &LinkConfig) -> (f64, f64, World) {
    let medium = Medium::new(destinations).with_weather(Duration::from_millis(bad_mean), seed, LENGTH);
    let good: f64 = (0..destinations).map(|m| medium.good_share(m, LENGTH)).sum::<f64>() / destinations as f64;
    let mut world = World::new(config, medium, seed);
    let (size, mut next) = (config.packet_max(), 0);
    world.run(LENGTH, |w| (1..=destinations).for_each(|m| w.saturate(0, m, m as u32, &mut next, size, 4)));
    let bytes: usize = world.delivered.iter().flatten().map(|(_, _, p)| p.len()).sum();
    (bytes as f64 * 8.0 / 1e6 / LENGTH.as_secs_f64(), good, world)
}

fn main() {
    let rate = if std::env::args().any(|a| a == "learn") { None } else { Some(Rate::mbit(1)) };
    for mode in [ArqMode::Arq, ArqMode::None] {
        println!("{mode:?}  bad mean  destinations  utilisation  of good share  lost  device");
        for destinations in [1, 8] {
            for bad_mean in [0, 40, 160, 500] {
                let config = LinkConfig { rate, mode, ..LinkConfig::default() };
                let seeds = 3;
                let mut sum = (0.0, 0.0, 0, 0);
                for seed in 0..seeds {
                    let (u, good, world) = run(destinations, bad_mean, seed, &config);
                    sum = (sum.0 + u, sum.1 + good, sum.2 + world.lost, sum.3.max(world.device_max));
                }
                let (u, good) = (sum.0 / seeds as f64, sum.1 / seeds as f64);
                println!(
                    "{bad_mean:>10} ms {destinations:>10} {u:>14.3} {:>12.3} {:>9} {:>5}",
                    u / good,
                    sum.2 / seeds,
                    sum.3
                );
            }
        }
    }
}
