//! `small`: how long saving a small file takes while a large one crosses the same radio hop.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use remora_base::Rate;
use remora_channel::ErrorModel;
use remora_client::{Config, Transport};
use remora_sim::copy::{CopyConfig, Direction};
use remora_sim::programs::duration;
use remora_sim::small::{self, SmallConfig};

/// Writes 1 MiB through the papers' channel in virtual time and meanwhile, about every 300 ms,
/// creates and writes a file of 100 bytes.
#[derive(Parser)]
#[command(name = "small")]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How the client behaves.
    #[arg(long, value_enum, default_value_t = Policy::Adaptive)]
    policy: Policy,
    /// Rate of the channel.
    #[arg(long, default_value = "1Mbit")]
    rate: Rate,
    /// Mean length of bad periods; 0ms for none.
    #[arg(long, default_value = "80ms", value_parser = duration)]
    bad_mean: Duration,
    /// Probability that a frame is lost by itself.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Runs the link protocol at both ends of the radio hop.
    #[arg(long)]
    link: bool,
    /// A client of its own saves the small files.
    #[arg(long)]
    own_client: bool,
    /// UNSTABLE and COMMIT instead of FILE_SYNC.
    #[arg(long)]
    commit: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// A client of the 1990s: 8 KiB, 0.7 s doubled, five outstanding.
    Stock,
    /// The papers' settings: 4 KiB, hybrid linear back-off.
    Paper,
    /// Remora's.
    Adaptive,
}

impl Args {
    fn config(&self) -> SmallConfig {
        let client = match self.policy {
            Policy::Stock => Config::stock(),
            Policy::Paper => Config::paper(),
            Policy::Adaptive => Config::new(Transport::Udp),
        };
        let errors = ErrorModel::bursts(self.bad_mean);
        let channel = remora_channel::Config { rate: self.rate, loss: self.loss, errors, ..Default::default() };
        let bulk = CopyConfig { channel, ..CopyConfig::new(client, Direction::Write) };
        let bulk = if self.link { bulk.with_link() } else { bulk };
        SmallConfig { commit: self.commit, own_client: self.own_client, ..SmallConfig::under(bulk) }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = args.config();
    let mut all = Vec::new();
    for seed in args.from..args.from.saturating_add(args.seeds) {
        match small::run(&config, seed) {
            Ok(result) => all.extend(result.latencies),
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    // One that was not done waited longer than any that was.
    let mut seconds: Vec<f64> = all.iter().map(|l| l.map_or(f64::INFINITY, |l| l.as_secs_f64())).collect();
    seconds.sort_by(f64::total_cmp);
    let quantile = |q: f64| seconds.get(((seconds.len() as f64 * q) as usize).min(seconds.len().saturating_sub(1)));
    print!("{} files:", seconds.len());
    for (name, q) in [("median", 0.5), ("95%", 0.95), ("99%", 0.99), ("max", 1.0)] {
        print!("  {name} {:.3} s", quantile(q).copied().unwrap_or(f64::NAN));
    }
    println!();
    ExitCode::SUCCESS
}
