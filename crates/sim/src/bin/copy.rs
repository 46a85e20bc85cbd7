//! `copy`: times a file across the emulated channel, seed by seed.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use remora_base::Rate;
use remora_channel::{Duplex, ErrorModel};
use remora_client::{BlockSize, Config, Transport, WindowSize};
use remora_sim::copy::{self, CopyConfig, CopyResult, Direction};
use remora_sim::disk::DiskModel;
use remora_sim::{ServerConfig, Trace};

/// Copies a file between client and server through the papers' channel, in virtual time, and
/// compares the time it takes with the floor: what the best sender could have done.
#[derive(Parser)]
#[command(name = "copy")]
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
    /// Which way the file goes.
    #[arg(long, value_enum, default_value_t = Way::Read)]
    direction: Way,
    /// Bytes to copy.
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u64,
    /// Rate of the channel.
    #[arg(long, default_value = "1Mbit")]
    rate: Rate,
    /// One-way delay, such as 2ms.
    #[arg(long, default_value = "2ms", value_parser = duration)]
    delay: Duration,
    /// Mean length of good periods.
    #[arg(long, default_value = "1s", value_parser = duration)]
    good_mean: Duration,
    /// Mean length of bad periods; 0ms for none.
    #[arg(long, default_value = "80ms", value_parser = duration)]
    bad_mean: Duration,
    /// Probability that a frame is lost by itself.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Frames in each device queue.
    #[arg(long, default_value_t = 50)]
    queue: usize,
    /// A medium for each direction instead of one for both.
    #[arg(long)]
    full_duplex: bool,
    /// Time the server takes for each request.
    #[arg(long, default_value = "0.1ms", value_parser = duration)]
    service: Duration,
    /// READ and WRITE size in bytes, in place of the policy's.
    #[arg(long)]
    block: Option<u32>,
    /// Outstanding READs and WRITEs, in place of the policy's.
    #[arg(long)]
    window: Option<u32>,
    /// Prints every message.
    #[arg(long)]
    log: bool,
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

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    Read,
    Write,
}

impl Args {
    fn config(&self) -> CopyConfig {
        let mut client = match self.policy {
            Policy::Stock => Config::stock(),
            Policy::Paper => Config::paper(),
            Policy::Adaptive => Config::new(Transport::Udp),
        };
        client.block = self.block.map_or(client.block, BlockSize::Fixed);
        client.window = self.window.map_or(client.window, WindowSize::Fixed);
        let mut errors = ErrorModel::bursts(self.bad_mean);
        if let ErrorModel::TwoState { good_mean, .. } = &mut errors {
            *good_mean = self.good_mean;
        }
        let channel = remora_channel::Config {
            rate: self.rate,
            delay: self.delay,
            loss: self.loss,
            errors,
            queue_frames: self.queue,
            duplex: if self.full_duplex { Duplex::Full } else { Duplex::Half },
            ..Default::default()
        };
        let disk = DiskModel { cpu: self.service, ..DiskModel::instant() };
        let server = ServerConfig { disk, ..ServerConfig::default() };
        let direction = match self.direction {
            Way::Read => Direction::Read,
            Way::Write => Direction::Write,
        };
        CopyConfig { client, channel, server, direction, bytes: self.bytes }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = args.config();
    println!("seed   seconds    floor  ratio   sent resent spurious probes window");
    let mut results = Vec::new();
    for seed in args.from..args.from.saturating_add(args.seeds) {
        let trace = if args.log { Trace::to(Box::new(std::io::stdout())) } else { Trace::quiet() };
        match copy::run_traced(&config, seed, trace) {
            Ok(result) => {
                println!("{seed:4} {}", row(&result));
                results.push(result);
            }
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = median(results.iter().map(|r| r.seconds).collect());
    let ratio = median(results.iter().filter_map(CopyResult::ratio).collect());
    println!("median {seconds:7.2} s, {ratio:.3} times the floor");
    ExitCode::SUCCESS
}

fn row(r: &CopyResult) -> String {
    let floor = r.floor_seconds.unwrap_or(f64::NAN);
    let ratio = r.ratio().unwrap_or(f64::NAN);
    let c = r.client;
    format!(
        "{:9.3} {floor:8.3} {ratio:6.3} {:6} {:6} {:8} {:6} {:6}",
        r.seconds, c.sent, c.retransmissions, c.spurious, c.probes, r.window
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.get(middle.wrapping_sub(1))) {
        (Some(upper), Some(lower)) if values.len().is_multiple_of(2) => (upper + lower) / 2.0,
        (Some(v), _) => *v,
        (None, _) => f64::NAN,
    }
}

/// Reads `80ms`, `1.5s`, `200us`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a duration: expected a number and us, ms or s, as in 80ms");
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let unit = match &text[at..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad()),
    };
    let number: f64 = text[..at].trim().parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| bad())
}
