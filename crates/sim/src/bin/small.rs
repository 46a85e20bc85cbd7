//! `small`: measures the latency of saving small files while a large one crosses the same radio
//! hop.

mod flags;

use std::process::ExitCode;

use clap::Parser;
use flags::Flags;
use remora_sim::copy::small::{self, SmallConfig};
use remora_sim::copy::{CopyConfig, Direction};

/// Writes 1 MiB over the papers' channel in virtual time and meanwhile, about every 300 ms, creates
/// and writes a file of 100 bytes.
#[derive(Parser)]
#[command(name = "small")]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Saves the small files from a separate client.
    #[arg(long)]
    own_client: bool,
    /// Uses UNSTABLE and COMMIT instead of FILE_SYNC.
    #[arg(long)]
    commit: bool,
}

impl Args {
    fn config(&self) -> SmallConfig {
        let bulk =
            CopyConfig { channel: self.flags.channel(), ..CopyConfig::new(self.flags.client(), Direction::Write) };
        let bulk = if self.flags.link { bulk.with_link() } else { bulk };
        SmallConfig { commit: self.commit, own_client: self.own_client, ..SmallConfig::under(bulk) }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = args.config();
    let mut all = Vec::new();
    for seed in args.flags.seeds() {
        match small::run(&config, seed) {
            Ok(result) => all.extend(result.latencies),
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    // A file not done took longer than any other.
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
