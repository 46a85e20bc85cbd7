//! The monotonic clock, as the cores count time.

use std::pin::pin;
use std::time::{Duration, Instant};

use remora_base::Time;
use tokio::time::sleep_until;

use crate::standstill;

/// Counts nanoseconds from its creation in which the process ran: while it is stopped, or its control group is frozen,
/// or its virtual machine is paused, the clock stands, but for a second at most. So no timer of a connection expires
/// by time in which this process could not have heard its peer.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    /// How long the process had stood still by then.
    stood: Duration,
}

/// The time was up first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl Clock {
    /// Starts at zero now.
    pub fn start() -> Clock {
        standstill::watch();
        Clock::new()
    }

    /// Starts at zero now, for a thread that beats ([`standstill::beat`]) while the clock is in use: a library must not
    /// leave a thread behind.
    pub(crate) fn start_for_beating_thread() -> Clock {
        standstill::beat();
        Clock::new()
    }

    fn new() -> Clock {
        let (began, stood) = standstill::read();
        Clock { began, stood }
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        let (now, stood) = standstill::read();
        Time::ZERO + now.saturating_duration_since(self.began).saturating_sub(stood.saturating_sub(self.stood))
    }

    /// How long it has stood.
    pub fn stood(&self) -> Duration {
        standstill::read().1.saturating_sub(self.stood)
    }

    /// The moment `t` on the machine's clock, if the process runs until then; if it does not, `t` is later.
    pub fn instant(&self, t: Time) -> Instant {
        self.began + self.stood() + t.since(Time::ZERO)
    }

    /// Waits until it is `t`.
    pub async fn until(&self, t: Time) {
        while self.now() < t {
            sleep_until(self.instant(t).into()).await;
        }
    }
}

/// Waits for `work`, but no longer than `limit`, in which this process runs.
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
    async fn a_timeout_ends_what_takes_longer_and_nothing_else() {
        let never = std::future::pending::<()>();
        assert_eq!(timeout(Duration::from_millis(5), never).await, Err(Elapsed));
        assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7), "what is done counts");
        assert_eq!(timeout(Duration::MAX, async { 7 }).await, Ok(7));
        let soon = tokio::time::sleep(Duration::from_millis(5));
        assert_eq!(timeout(Duration::MAX, soon).await, Ok(()));
    }

    #[test]
    fn the_clock_is_never_ahead_of_the_machine_s() {
        let before = Instant::now();
        let clock = Clock::start();
        let (now, hour) = (clock.now(), Duration::from_secs(3600));
        assert!(now.since(Time::ZERO) <= before.elapsed());
        assert!(clock.instant(now + hour) >= before + hour);
    }
}
