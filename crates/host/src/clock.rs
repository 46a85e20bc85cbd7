//! The monotonic clock of the cores.

use std::pin::pin;
use std::time::{Duration, Instant};

use remora_base::Time;
use tokio::time::sleep_until;

use crate::standstill;

/// Counts the nanoseconds since its creation in which the process ran. While the process is stopped, its control
/// group frozen or its virtual machine paused, the clock advances by at most one second. So no timer of a connection
/// expires in time in which the process could not receive.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    /// The total standstill at its creation.
    stood: Duration,
}

/// The time limit was reached first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl Clock {
    /// Starts at zero.
    pub fn start() -> Clock {
        standstill::watch();
        Clock::new()
    }

    /// Starts at zero, for a thread that calls [`standstill::beat`] while it uses the clock: a library must not leave
    /// a thread behind.
    pub(crate) fn start_for_beating_thread() -> Clock {
        standstill::beat();
        Clock::new()
    }

    fn new() -> Clock {
        let (began, stood) = standstill::read();
        Clock { began, stood }
    }

    /// The time since the start.
    pub fn now(&self) -> Time {
        let (now, stood) = standstill::read();
        Time::ZERO + now.saturating_duration_since(self.began).saturating_sub(stood.saturating_sub(self.stood))
    }

    /// The total standstill since the start.
    pub fn stood(&self) -> Duration {
        standstill::read().1.saturating_sub(self.stood)
    }

    /// The machine's time at `t`, if there is no standstill until then.
    pub fn instant(&self, t: Time) -> Instant {
        self.began + self.stood() + t.since(Time::ZERO)
    }

    /// Waits until `t`.
    pub async fn until(&self, t: Time) {
        while self.now() < t {
            sleep_until(self.instant(t).into()).await;
        }
    }
}

/// Awaits `work` for at most `limit` of the process's running time.
pub async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
    let clock = Clock::start();
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => Ok(done),
        () = clock.until(Time::ZERO + limit) => Err(Elapsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn timeout_ends_only_what_takes_longer() {
        let never = std::future::pending::<()>();
        assert_eq!(timeout(Duration::from_millis(5), never).await, Err(Elapsed));
        assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7), "what is done counts");
        assert_eq!(timeout(Duration::MAX, async { 7 }).await, Ok(7));
        let soon = tokio::time::sleep(Duration::from_millis(5));
        assert_eq!(timeout(Duration::MAX, soon).await, Ok(()));
    }

    #[test]
    fn clock_is_never_ahead_of_machine_clock() {
        let before = Instant::now();
        let clock = Clock::start();
        let (now, hour) = (clock.now(), Duration::from_secs(3600));
        assert!(now.since(Time::ZERO) <= before.elapsed());
        assert!(clock.instant(now + hour) >= before + hour);
    }
}
