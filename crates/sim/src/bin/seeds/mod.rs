//! Parallel runs of many seeds for the swarms: failures, and the command that reproduces each.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;

/// The seeds to run.
#[derive(Args)]
pub(crate) struct Flags {
    /// Number of seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Runs every N-th seed twice and compares the results; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 1)]
    check_determinism: u64,
    /// Stops after this many failures.
    #[arg(long, default_value_t = 10)]
    failures_max: usize,
    /// Runs this seed alone and prints all events.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from", "jobs"])]
    pub(crate) repro: Option<u64>,
}

/// The worlds of a swarm.
pub(crate) trait Worlds: Sync {
    /// The result of a run.
    type Outcome: PartialEq;
    /// Sums over all runs.
    type Totals: Default + Send;

    fn run(&self, seed: u64) -> Self::Outcome;
    /// The errors of a run.
    fn violations(outcome: &Self::Outcome) -> &[String];
    /// Adds a run to the totals.
    fn add(totals: &mut Self::Totals, outcome: &Self::Outcome);
    /// The totals as text.
    fn describe(totals: &Self::Totals) -> String;
    /// The command that reproduces `seed`.
    fn repeat(&self, seed: u64) -> String;
}

/// Runs the worlds selected by `flags`; fails if one does.
pub(crate) fn run<W: Worlds>(flags: Flags, worlds: W) -> ExitCode {
    if flags.from.checked_add(flags.seeds).is_none() {
        eprintln!("error: --from {}: {} seeds are too many from there on", flags.from, flags.seeds);
        return ExitCode::from(2);
    }
    // A panic is caught and reported with its seed; its default message would only add noise.
    std::panic::set_hook(Box::new(|_| {}));
    Swarm { next: AtomicU64::new(flags.from), flags, worlds, tally: Mutex::default() }.run()
}

/// Prints a line. A closed pipe must not end the run: the exit code still counts.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The state shared by all threads.
struct Swarm<W: Worlds> {
    flags: Flags,
    worlds: W,
    next: AtomicU64,
    tally: Mutex<Tally<W::Totals>>,
}

#[derive(Default)]
struct Tally<T> {
    seeds: u64,
    failures: usize,
    totals: T,
}

#[expect(clippy::disallowed_methods, reason = "the program has threads and a clock; the worlds it runs have not")]
impl<W: Worlds> Swarm<W> {
    fn run(&self) -> ExitCode {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.flags.jobs.max(1) {
                scope.spawn(|| while self.run_next() {});
            }
        });
        let tally = self.tally();
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        let (seeds, failures) = (tally.seeds, tally.failures);
        let totals = W::describe(&tally.totals);
        let seconds = began.elapsed().as_secs_f64();
        say(format_args!("{seeds} seeds, {failures} failed; {totals} in {seconds:.1} s"));
        if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally<W::Totals>> {
        self.tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs one seed; `false` if none is left.
    fn run_next(&self) -> bool {
        // The sum is bounded: `run` checked it.
        let end = self.flags.from.saturating_add(self.flags.seeds);
        let next = |seed: u64| (seed < end).then(|| seed + 1);
        let Ok(seed) = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else { return false };
        if self.tally().failures >= self.flags.failures_max {
            return false;
        }
        let outcome = self.run_seed(seed);
        let again = NonZeroU64::new(self.flags.check_determinism).is_some_and(|n| seed % n == 0);
        self.tally().seeds += 1;
        match outcome {
            Ok(outcome) => {
                W::add(&mut self.tally().totals, &outcome);
                let violations = W::violations(&outcome);
                if !violations.is_empty() {
                    self.fail(seed, &violations.join("\n  "));
                } else if again && self.run_seed(seed).as_ref() != Ok(&outcome) {
                    self.fail(seed, "two runs of this seed differ");
                }
            }
            Err(panic) => self.fail(seed, &panic),
        }
        self.show_progress();
        true
    }

    fn run_seed(&self, seed: u64) -> Result<W::Outcome, String> {
        catch_unwind(AssertUnwindSafe(|| self.worlds.run(seed))).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown kind"))
        })
    }

    fn fail(&self, seed: u64, what: &str) {
        self.tally().failures += 1;
        say(format_args!("seed {seed} failed:\n  {what}\n  repeat it with: {}", self.worlds.repeat(seed)));
    }

    fn show_progress(&self) {
        if std::io::stderr().is_terminal() {
            let tally = self.tally();
            eprint!("\r{} of {} seeds, {} failed ", tally.seeds, self.flags.seeds, tally.failures);
        }
    }
}
