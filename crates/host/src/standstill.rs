//! Standstills: time in which the process does not run, because it is stopped (SIGSTOP), its control group is frozen,
//! or its virtual machine is paused. The kernel's monotonic clock continues, but the process neither sends nor
//! receives. Its peers are not silent, so no timer of a connection may expire.
//!
//! A thread beats every [`BEAT`]. If a clock reading is more than [`STEP_MAX`] after the last beat, no thread has run
//! in between, and only [`STEP_MAX`] of that time counts. It counts that much so that time never goes backwards and
//! no round-trip time across a standstill is measured much too short. A process that waits for a processor for longer
//! counts as stopped, too.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// The longest time between two beats.
pub(crate) const BEAT: Duration = Duration::from_millis(500);
/// The most time that counts after a beat: a beat may be late by as much again.
const STEP_MAX: Duration = Duration::from_secs(1);
/// How late the kernel may wake the beating thread, to combine it with other wake-ups.
const SLACK_NS: u64 = 50_000_000;
/// No beat yet, hence no standstill.
const NEVER: u64 = u64::MAX;

static OF_THIS_PROCESS: Standstill = Standstill::new();

/// The total of all standstills since the first beat, in nanoseconds.
#[derive(Debug)]
struct Standstill {
    sum: AtomicU64,
    /// The time of the last beat.
    beat: AtomicU64,
    beating: Mutex<()>,
}

impl Standstill {
    const fn new() -> Standstill {
        Standstill { sum: AtomicU64::new(0), beat: AtomicU64::new(NEVER), beating: Mutex::new(()) }
    }

    /// The reading of `clock`, and the total standstill until then, both in nanoseconds.
    fn read(&self, clock: impl Fn() -> u64) -> (u64, u64) {
        loop {
            let sum = self.sum.load(SeqCst);
            let now = clock();
            if now.saturating_sub(self.beat.load(SeqCst)) > nanos(STEP_MAX) {
                self.beat(&clock);
            } else if sum == self.sum.load(SeqCst) {
                // Otherwise this thread was stopped between the two reads.
                return (now, sum);
            }
        }
    }

    /// Notes that the process runs. Adds the standstill since the last beat.
    fn beat(&self, clock: impl Fn() -> u64) {
        let _one_at_a_time = self.beating.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock();
        let since = now.saturating_sub(self.beat.load(SeqCst));
        // In this order: a thread that sees the new beat must see the new sum.
        self.sum.fetch_add(since.saturating_sub(nanos(STEP_MAX)), SeqCst);
        self.beat.store(now, SeqCst);
    }
}

pub(crate) fn beat() {
    OF_THIS_PROCESS.beat(monotonic);
}

/// Starts a thread that beats for the life of the process. Without it there are no standstills.
pub(crate) fn watch() {
    static BEATING: Once = Once::new();
    BEATING.call_once(|| {
        let beats = || {
            // If the kernel refuses, it wakes the thread on time.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(SLACK_NS));
            loop {
                beat();
                std::thread::sleep(BEAT);
            }
        };
        drop(std::thread::Builder::new().name("standstill".into()).spawn(beats));
    });
}

/// The present time, and the total standstill until then.
pub(crate) fn read() -> (Instant, Duration) {
    let (now, sum) = OF_THIS_PROCESS.read(monotonic);
    (origin() + Duration::from_nanos(now), Duration::from_nanos(sum))
}

/// The kernel's monotonic clock in nanoseconds.
fn monotonic() -> u64 {
    nanos(origin().elapsed())
}

fn origin() -> Instant {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: u64 = 1_000_000;

    /// The process's own time at `ms` of the clock, in milliseconds.
    fn own(s: &Standstill, ms: u64) -> u64 {
        let (now, sum) = s.read(|| ms * MS);
        (now - sum) / MS
    }

    #[test]
    fn long_pause_counts_as_one_step() {
        let s = Standstill::new();
        s.beat(|| 0);
        assert_eq!([own(&s, 700), own(&s, 1000)], [700, 1000], "no longer than the step");
        // Stopped for 40 s.
        assert_eq!([own(&s, 41_000), own(&s, 41_001), own(&s, 41_900)], [1000, 1001, 1900]);
        s.beat(|| 42_000 * MS);
        assert_eq!(own(&s, 42_500), 2500);
        // The beating thread runs first.
        s.beat(|| 60_000 * MS);
        assert_eq!([own(&s, 60_000), own(&s, 60_700)], [3000, 3700]);
    }

    #[test]
    fn time_never_runs_backwards_across_a_standstill() {
        for stopped_at in (0..1000).step_by(50) {
            let s = Standstill::new();
            s.beat(|| 0);
            let before = own(&s, stopped_at);
            let after = own(&s, stopped_at + 40_000);
            assert!(before <= after && after - before <= 1000, "{before} {after}");
        }
    }

    #[test]
    fn stopped_thread_reads_clock_again() {
        let s = Standstill::new();
        s.beat(|| 0);
        let readings = Cell::new(0);
        let clock = || {
            readings.set(readings.get() + 1);
            if readings.get() == 1 {
                // Stopped again; another thread runs first.
                s.beat(|| 40_000 * MS);
                return 300 * MS;
            }
            40_001 * MS
        };
        let (now, sum) = s.read(clock);
        assert_eq!((now, sum, readings.get()), (40_001 * MS, 39_000 * MS, 2));
    }

    #[test]
    fn missing_beat_is_no_standstill() {
        let s = Standstill::new();
        assert_eq!([own(&s, 5), own(&s, 400_000)], [5, 400_000]);
        s.beat(|| 500_000 * MS);
        assert_eq!(own(&s, 500_001), 500_001);
    }
}
