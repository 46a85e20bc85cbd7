//! `copy`: times file copies across the emulated channel, seed by seed.

mod flags;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use flags::Flags;
use remora_base::Time;
use remora_channel::{Duplex, ErrorModel, Opportunities, Outage, PerSide};
use remora_client::{BlockSize, WindowSize};
use remora_sim::copy::{self, CopyConfig, Direction, HandOff, Manner, MobileCopy};
use remora_sim::programs::{duration, median};
use remora_sim::world::disk::DiskModel;
use remora_sim::{ServerConfig, Trace};

/// Copies a file between client and server over the papers' channel, in virtual time, and compares
/// the time with the floor: that of the best possible sender.
#[derive(Parser)]
#[command(name = "copy")]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Direction of the file.
    #[arg(long, value_enum, default_value_t = DirectionArg::Read)]
    direction: DirectionArg,
    /// Bytes to copy.
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u64,
    /// One-way delay, such as 2ms.
    #[arg(long, default_value = "2ms", value_parser = duration)]
    delay: Duration,
    /// Maximum random delay added to each frame, which reorders frames.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    jitter: Duration,
    /// Mean length of good periods.
    #[arg(long, default_value = "1s", value_parser = duration)]
    good_mean: Duration,
    /// Capacity of each device queue in frames.
    #[arg(long, default_value_t = 50)]
    queue: usize,
    /// Gives each direction a separate medium.
    #[arg(long)]
    full_duplex: bool,
    /// Sends from either end at the opportunities of this Mahimahi trace, instead of at --rate.
    #[arg(long, value_name = "FILE", value_parser = trace)]
    trace: Option<Arc<Opportunities>>,
    /// Calls in addition to those of the direction.
    #[arg(long, value_enum, default_value_t = MannerArg::Mounting)]
    manner: MannerArg,
    /// Holds frames in bad periods, as the papers emulate link-level retransmission.
    #[arg(long)]
    hold: bool,
    /// Number of mobiles that each copy a file at the same time.
    #[arg(long, default_value_t = 1)]
    mobiles: usize,
    /// An outage at AT for LENGTH, as in 3s+10s; may be repeated.
    #[arg(long, value_name = "AT+LENGTH", value_parser = stretch)]
    outage: Vec<(Time, Duration)>,
    /// A hand-off: an outage announced to link and client.
    #[arg(long, value_name = "AT+LENGTH", value_parser = stretch)]
    handoff: Vec<(Time, Duration)>,
    /// Time after which a copy is censored.
    #[arg(long, default_value = "300s", value_parser = duration)]
    limit: Duration,
    /// Service time of a request at the server.
    #[arg(long, default_value = "0.1ms", value_parser = duration)]
    service: Duration,
    /// READ and WRITE size in bytes, instead of the policy's.
    #[arg(long)]
    block: Option<u32>,
    /// Outstanding READs and WRITEs, instead of the policy's.
    #[arg(long)]
    window: Option<u32>,
    /// Prints the counters of the channel and the links.
    #[arg(long)]
    counters: bool,
    /// Prints every message.
    #[arg(long)]
    log: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum DirectionArg {
    Read,
    Write,
}

#[derive(Clone, Copy, ValueEnum)]
enum MannerArg {
    /// A MNT first.
    Mounting,
    /// None, as on a mounted file system.
    Mounted,
    /// Those of `remora cp` with a server known from before.
    Command,
}

impl Args {
    fn config(&self) -> CopyConfig {
        let mut client = self.flags.client();
        client.block = self.block.map_or(client.block, BlockSize::Fixed);
        client.window = self.window.map_or(client.window, WindowSize::Fixed);
        let mut channel = self.flags.channel();
        if let ErrorModel::TwoState { good_mean, .. } = &mut channel.errors {
            *good_mean = self.good_mean;
        }
        let channel = remora_channel::Config {
            delay: self.delay,
            jitter: self.jitter,
            queue_frames: self.queue,
            hold: self.hold,
            trace: PerSide { base: self.trace.clone(), mobile: self.trace.clone() },
            outages: self.outage.iter().map(|(start, length)| Outage { start: *start, length: *length }).collect(),
            duplex: if self.full_duplex { Duplex::Full } else { Duplex::Half },
            ..channel
        };
        let disk = DiskModel { cpu: self.service, ..DiskModel::instant() };
        let server = ServerConfig { disk, ..ServerConfig::default() };
        let direction = match self.direction {
            DirectionArg::Read => Direction::Read,
            DirectionArg::Write => Direction::Write,
        };
        let config = CopyConfig {
            channel,
            server,
            bytes: self.bytes,
            mobiles: self.mobiles,
            handoffs: self.handoff.iter().map(|(at, length)| signalled(*at, *length)).collect(),
            limit: self.limit,
            manner: match self.manner {
                MannerArg::Mounting => Manner::Mounting,
                MannerArg::Mounted => Manner::Mounted,
                MannerArg::Command => Manner::Command,
            },
            ..CopyConfig::new(client, direction)
        };
        if self.flags.link { config.with_link() } else { config }
    }
}

fn trace(path: &str) -> Result<Arc<Opportunities>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    Opportunities::parse(&text).map(Arc::new).map_err(|e| e.to_string())
}

fn signalled(at: Time, length: Duration) -> HandOff {
    HandOff { at, length, signalled: true }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = args.config();
    println!("seed mobile   seconds    floor  ratio   sent resent spurious probes window  resumed after");
    let mut copies = Vec::new();
    for seed in args.flags.seeds() {
        let trace = if args.log { Trace::to(Box::new(std::io::stdout())) } else { Trace::quiet() };
        match copy::run_traced(&config, seed, trace) {
            Ok(result) => {
                for (mobile, copy) in result.copies.iter().enumerate() {
                    println!("{seed:4} {mobile:6} {}", row(copy, &args));
                    if args.counters {
                        println!("{:#?}\n{:#?}", copy.frames, copy.link);
                    }
                }
                copies.extend(result.copies);
            }
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    // A censored copy took longer than any other.
    let or_longer = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
    let seconds = median(copies.iter().map(|c| or_longer(c.seconds)).collect());
    let ratio = median(copies.iter().map(|c| or_longer(c.ratio())).collect());
    println!("median {seconds:7.2} s, {ratio:.3} times the floor");
    ExitCode::SUCCESS
}

fn row(copy: &MobileCopy, args: &Args) -> String {
    let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let client = copy.client;
    let ends = args.outage.iter().chain(&args.handoff).map(|(start, length)| *start + *length);
    let resumed = ends.map(|end| match copy.first_bytes_after(end) {
        Some(after) => format!("{:6.3}", after.as_secs_f64()),
        None => "     -".to_string(),
    });
    format!(
        "{:9.3} {:8.3} {:6.3} {:6} {:6} {:8} {:6} {:6}  {}",
        number(copy.seconds),
        number(copy.floor_seconds),
        number(copy.ratio()),
        client.sent,
        client.retransmissions,
        client.spurious,
        client.probes,
        copy.window,
        resumed.collect::<Vec<_>>().join(" ")
    )
}

/// Parses `3s+10s`: start and length.
fn stretch(text: &str) -> Result<(Time, Duration), String> {
    let (at, length) = text.split_once('+').ok_or_else(|| format!("'{text}' is not AT+LENGTH, as in 3s+10s"))?;
    Ok((Time::ZERO + duration(at)?, duration(length)?))
}
