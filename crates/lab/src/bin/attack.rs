//! `attack`: attacks a server that it starts, and reports whether it held.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use remora_lab::attack::{self, AttackPlan, AttackReport, Verdict};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code after a signal.
const INTERRUPTED: u8 = 130;

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
    /// Highest 99th percentile of the reference client's latency, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    p99_max_ms: u64,
    /// Least share of the reference client's rate during attacks on shared memory
    #[arg(long, value_name = "RATIO", default_value_t = 0.5)]
    rate_ratio_min: f64,
    /// Draws what is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Names of attacks; all if none is given
    names: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    raise_file_limit();
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(why) = stop_at_signals(stop.clone()) {
        eprintln!("attack: signals: {why}");
        return ExitCode::from(2);
    }
    let length = Duration::try_from_secs_f64(args.seconds.clamp(0.0, 3600.0)).unwrap_or_default();
    let plan = AttackPlan {
        program: args.server,
        length,
        p99_max: Duration::from_millis(args.p99_max_ms),
        rate_ratio_min: args.rate_ratio_min,
        names: args.names,
        seed: args.seed,
        stop: stop.clone(),
    };
    if !args.json {
        say(AttackReport::heading());
    }
    let report = attack::run(&plan, |row| {
        if !args.json {
            say(row);
        }
    });
    match report {
        Err(_) if stop.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
        Err(why) => {
            eprintln!("attack: {why}");
            ExitCode::from(2)
        }
        Ok(report) => {
            match remora_host::json::line(&report) {
                Ok(line) if args.json => say(line),
                _ => say(&report),
            }
            if report.count(Verdict::Failed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// Sets `stop` on SIGINT or SIGTERM, so that the server and its files are removed; a second signal exits at once.
fn stop_at_signals(stop: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _inside = runtime.enter();
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            let [mut interrupts, mut kills] = signals;
            loop {
                tokio::select! {
                    _ = interrupts.recv() => {}
                    _ = kills.recv() => {}
                }
                if stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED.into());
                }
                let _ = writeln!(io::stderr(), "attack: stopping; a second signal exits at once");
            }
        });
    });
    Ok(())
}

/// Prints a line. A closed pipe must not end the run: the exit code still counts.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Some attacks take thousands of connections.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Attacks that need more report it themselves.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
