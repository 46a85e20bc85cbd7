//! `swarm`: runs drawn worlds, many of them, and says which seeds failed.

use std::io::{IsTerminal, Write};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use remora_server::cache;
use remora_sim::Trace;
use remora_sim::scenario::{CacheChoice, Scenario};
use remora_sim::swarm::{self, Outcome};

/// Runs clients and a server in worlds drawn from seeds, with an oracle watching. A failing
/// seed is printed with the command that repeats it.
#[derive(Parser)]
#[command(name = "swarm")]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many to run side by side.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Runs every N-th seed twice and compares: a difference is a failure. 0 for never.
    #[arg(long, value_name = "N", default_value_t = 1)]
    check_determinism: u64,
    /// The server's duplicate request cache, in place of the one drawn.
    #[arg(long, value_enum)]
    cache: Option<CacheForm>,
    /// Stop after this many failures.
    #[arg(long, default_value_t = 10)]
    failures_max: usize,
    /// Runs this one seed and prints everything that happens.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from", "jobs"])]
    repro: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CacheForm {
    Off,
    Reference,
    Juszczak,
    Full,
}

impl Args {
    /// The command that repeats `seed`.
    fn repeat(&self, seed: u64) -> String {
        match self.cache.and_then(|c| c.to_possible_value()) {
            None => format!("cargo xtask repro {seed}"),
            Some(cache) => {
                let program = "cargo run --release -p remora-sim --bin swarm --";
                format!("{program} --cache {} --repro {seed}", cache.get_name())
            }
        }
    }

    fn choice(&self) -> CacheChoice {
        match self.cache {
            None => CacheChoice::Drawn,
            Some(CacheForm::Off) => CacheChoice::Always(cache::Config::Off),
            Some(CacheForm::Reference) => CacheChoice::Always(cache::Config::reference()),
            Some(CacheForm::Juszczak) => CacheChoice::Always(cache::Config::juszczak()),
            Some(CacheForm::Full) => CacheChoice::Always(cache::Config::full()),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.repro {
        Some(seed) => repro(seed, args.choice()),
        None => Swarm::new(args).run(),
    }
}

fn repro(seed: u64, choice: CacheChoice) -> ExitCode {
    let scenario = Scenario::draw(seed, choice);
    println!("{scenario:#?}");
    let outcome = swarm::run(&scenario, seed, Trace::to(Box::new(std::io::stdout())));
    println!("{outcome:#?}");
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What all threads share.
struct Swarm {
    args: Args,
    next: AtomicU64,
    tally: Mutex<Tally>,
    began: Instant,
}

#[derive(Default)]
struct Tally {
    seeds: u64,
    operations: u64,
    excused: u64,
    messages: u64,
    retransmissions: u64,
    crashes: u64,
    virtual_seconds: f64,
    failures: usize,
}

#[expect(clippy::disallowed_methods, reason = "the program has threads and a clock; the worlds it runs have not")]
impl Swarm {
    fn new(args: Args) -> Swarm {
        // A panic is caught and reported with its seed; its default message would only add noise.
        std::panic::set_hook(Box::new(|_| {}));
        let next = AtomicU64::new(args.from);
        Swarm { args, next, tally: Mutex::default(), began: Instant::now() }
    }

    fn run(&self) -> ExitCode {
        std::thread::scope(|scope| {
            for _ in 0..self.args.jobs.max(1) {
                scope.spawn(|| while self.run_next() {});
            }
        });
        let tally = self.tally();
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        println!(
            "{} seeds, {} failed; {} operations ({} excused), {} messages ({} retransmissions), {} crashes; \
             {:.0} virtual seconds in {:.1} s",
            tally.seeds,
            tally.failures,
            tally.operations,
            tally.excused,
            tally.messages,
            tally.retransmissions,
            tally.crashes,
            tally.virtual_seconds,
            self.began.elapsed().as_secs_f64()
        );
        if tally.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs one seed; `false` if there is none left to run.
    fn run_next(&self) -> bool {
        let end = self.args.from.saturating_add(self.args.seeds);
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        if seed >= end || self.tally().failures >= self.args.failures_max {
            return false;
        }
        let outcome = self.run_seed(seed);
        let again = NonZeroU64::new(self.args.check_determinism).is_some_and(|n| seed % n == 0);
        let mut tally = self.tally();
        tally.seeds += 1;
        match outcome {
            Ok(outcome) => {
                tally.add(&outcome);
                drop(tally);
                if !outcome.violations.is_empty() {
                    self.fail(seed, &outcome.violations.join("\n  "));
                } else if again && self.run_seed(seed).as_ref() != Ok(&outcome) {
                    self.fail(seed, "two runs of this seed differ");
                }
            }
            Err(panic) => {
                drop(tally);
                self.fail(seed, &panic);
            }
        }
        self.show_progress();
        true
    }

    fn run_seed(&self, seed: u64) -> Result<Outcome, String> {
        let run = || swarm::run(&Scenario::draw(seed, self.args.choice()), seed, Trace::quiet());
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown kind"))
        })
    }

    fn fail(&self, seed: u64, what: &str) {
        self.tally().failures += 1;
        let mut out = std::io::stdout().lock();
        // A closed pipe must not end the run: the exit code still tells.
        let _ = writeln!(out, "seed {seed} failed:\n  {what}\n  repeat it with: {}", self.args.repeat(seed));
    }

    fn show_progress(&self) {
        if std::io::stderr().is_terminal() {
            let tally = self.tally();
            eprint!("\r{} of {} seeds, {} failed ", tally.seeds, self.args.seeds, tally.failures);
        }
    }
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.operations += outcome.operations.0;
        self.excused += outcome.operations.1;
        self.messages += outcome.messages;
        self.retransmissions += outcome.retransmissions;
        self.crashes += outcome.server.crashes;
        self.virtual_seconds += outcome.ended.as_secs_f64();
    }
}
