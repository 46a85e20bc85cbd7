//! The monotonic clock, as the cores count time.

use std::time::Instant;

use remora_base::Time;

/// Counts nanoseconds from its creation.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The moment `t` on the machine's clock.
    pub fn instant(&self, t: Time) -> Instant {
        self.0 + t.since(Time::ZERO)
    }
}
