//! `attack`: attacks a server that it starts, and says whether it held.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use remora_lab::attack::{self, Plan, Report, Verdict};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Attacks a live `remora serve` on loopback, with a well-behaved client beside.
#[derive(Parser)]
#[command(name = "attack")]
struct Args {
    /// The program that is to serve.
    #[arg(long, value_name = "FILE")]
    server: PathBuf,
    /// How long each attack lasts.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    seconds: f64,
    /// What 99 of 100 calls of the good client may take, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    p99_max_ms: u64,
    /// Draws what is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Names of attacks; all of them if none is named.
    names: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    raise_file_limit();
    let length = Duration::try_from_secs_f64(args.seconds.clamp(0.0, 3600.0)).unwrap_or_default();
    let plan = Plan {
        program: args.server,
        length,
        p99_max: Duration::from_millis(args.p99_max_ms),
        names: args.names,
        seed: args.seed,
    };
    if !args.json {
        println!("{}", Report::heading());
    }
    let report = attack::run(&plan, |row| {
        if !args.json {
            println!("{row}");
        }
    });
    match report {
        Err(why) => {
            eprintln!("attack: {why}");
            ExitCode::from(2)
        }
        Ok(report) => {
            match serde_json::to_string(&report) {
                Ok(line) if args.json => println!("{line}"),
                _ => println!("{report}"),
            }
            if report.count(Verdict::Failed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// Some attacks take thousands of connections.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it may not be raised, those attacks say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
