//! `link`: saturates the link protocol and prints the share of the channel that carries packets,
//! and each mobile's share.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use remora_base::Rate;
use remora_channel::ErrorModel;
use remora_link::{ArqMode, MediumScheduler};
use remora_sim::copy::link_on;
use remora_sim::programs::{duration, median};
use remora_sim::saturation::{self, Account, Saturation, SaturationConfig};

/// Runs a base station that always has packets for each of its mobiles, in virtual time.
#[derive(Parser)]
#[command(name = "link")]
struct Args {
    /// Number of mobiles.
    #[arg(long, default_value_t = 8)]
    destinations: usize,
    /// Number of mobiles, from the first on, whose channel has no errors.
    #[arg(long, default_value_t = 0)]
    good: usize,
    /// Mean length of good periods.
    #[arg(long, default_value = "1s", value_parser = duration)]
    good_mean: Duration,
    /// Mean length of bad periods; 0ms for none.
    #[arg(long, default_value = "160ms", value_parser = duration)]
    bad_mean: Duration,
    /// Probability of independent frame loss.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Rate of the channel.
    #[arg(long, default_value = "1Mbit")]
    rate: Rate,
    /// One-way delay, such as 2ms.
    #[arg(long, default_value = "2ms", value_parser = duration)]
    delay: Duration,
    /// Duration of a run in virtual time.
    #[arg(long, default_value = "60s", value_parser = duration)]
    length: Duration,
    /// Number of seeds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Whether lost frames are retransmitted.
    #[arg(long, value_enum, default_value_t = RetransmitArg::Arq)]
    mode: RetransmitArg,
    /// Scheduling of the destinations.
    #[arg(long, value_enum, default_value_t = SchedulerArg::Airtime)]
    scheduler: SchedulerArg,
    /// Lets the link measure the rate instead of configuring it.
    #[arg(long)]
    learn_rate: bool,
    /// Lifetime of a packet, instead of the protocol's default.
    #[arg(long, value_parser = duration)]
    lifetime: Option<Duration>,
    /// Time between two probes of a suspect destination, instead of the protocol's default.
    #[arg(long, value_parser = duration)]
    rts_interval: Option<Duration>,
    /// Time between two probes while other destinations wait for the medium, instead of the
    /// default.
    #[arg(long, value_parser = duration)]
    rts_interval_busy: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RetransmitArg {
    Arq,
    None,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchedulerArg {
    RoundRobin,
    Airtime,
}

impl Args {
    fn config(&self) -> SaturationConfig {
        let mut errors = ErrorModel::bursts(self.bad_mean);
        if let ErrorModel::TwoState { good_mean, .. } = &mut errors {
            *good_mean = self.good_mean;
        }
        let (rate, delay, loss) = (self.rate, self.delay, self.loss);
        let channel = remora_channel::Config { rate, delay, loss, errors, ..Default::default() };
        let mut link = link_on(&channel);
        link.mode = match self.mode {
            RetransmitArg::Arq => ArqMode::Arq,
            RetransmitArg::None => ArqMode::None,
        };
        link.scheduler = match self.scheduler {
            SchedulerArg::RoundRobin => MediumScheduler::RoundRobin,
            SchedulerArg::Airtime => MediumScheduler::Airtime,
        };
        link.rate = link.rate.filter(|_| !self.learn_rate);
        if let Some(lifetime) = self.lifetime {
            link.limits.default.lifetime = lifetime;
        }
        link.rts_interval = self.rts_interval.unwrap_or(link.rts_interval);
        link.rts_interval_busy = self.rts_interval_busy.unwrap_or(link.rts_interval_busy);
        let (destinations, good, length) = (self.destinations, self.good, self.length);
        SaturationConfig { channel, link, destinations, good, length }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = args.config();
    println!("seed utilisation  share of each mobile, 1 is a fair one");
    let mut runs = Vec::new();
    for seed in args.from..args.from.saturating_add(args.seeds) {
        match saturation::run(&config, seed) {
            Ok(run) => {
                println!("{seed:4} {:11.3}  {}", run.utilisation, shares(&run));
                runs.push(run);
            }
            Err(why) => {
                eprintln!("seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("median {:9.3}", median(runs.iter().map(|r| r.utilisation).collect()));
    tell_where_the_time_went(&runs, config.length);
    if args.good > 0 {
        let all_good = SaturationConfig { good: args.destinations, ..config };
        let kept = runs.iter().zip(args.from..).filter_map(|(run, seed)| {
            let alone = saturation::run(&all_good, seed).ok()?;
            Some(run.delivered.first().copied()? as f64 / alone.delivered.first().copied()? as f64)
        });
        println!("the first mobile gets {:.3} times what it gets where all are good", median(kept.collect()));
    }
    ExitCode::SUCCESS
}

/// Prints the mean use of the channel's time. (Arrived minus utilisation is headers.)
fn tell_where_the_time_went(runs: &[Saturation], length: Duration) {
    let of = |what: fn(&Account) -> Duration| {
        let all: Duration = runs.iter().map(|r| what(&r.account)).sum();
        all.as_secs_f64() / length.as_secs_f64() / runs.len().max(1) as f64
    };
    println!(
        "DATA arrived {:.4}, lost {:.4}; ACK {:.4}; RTS {:.4}; CTS {:.4}; idle {:.4}, all channels bad {:.4}",
        of(|a| a.arrived),
        of(|a| a.lost),
        of(|a| a.acks),
        of(|a| a.probes),
        of(|a| a.answers),
        of(|a| a.idle),
        of(|a| a.hopeless),
    );
}

fn shares(run: &Saturation) -> String {
    let fair = run.delivered.len() as f64;
    let shares = (0..run.delivered.len()).map(|mobile| format!("{:.3}", run.share(mobile) * fair));
    shares.collect::<Vec<_>>().join(" ")
}
