//! A clock that stops while a destination is blocked, so that CoDel does not take an outage for a queue.

use std::time::Duration;

use remora_base::Time;

/// Time during which a queue could be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoppedClock {
    /// Running time up to the latest start or stop.
    ran: Duration,
    /// The latest start; `None` while stopped.
    since: Option<Time>,
}

impl StoppedClock {
    /// Starts running at `now`.
    pub(crate) fn new(now: Time) -> StoppedClock {
        StoppedClock { ran: Duration::ZERO, since: Some(now) }
    }

    /// The time on this clock.
    pub(crate) fn read(&self, now: Time) -> Time {
        Time::ZERO + self.ran + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Starts or stops the clock.
    pub(crate) fn set_running(&mut self, now: Time, running: bool) {
        match (self.since, running) {
            (Some(since), false) => {
                self.ran += now.since(since);
                self.since = None;
            }
            (None, true) => self.since = Some(now),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_clock_keeps_its_time() {
        let at = Time::from_millis;
        let mut clock = StoppedClock::new(at(5));
        assert_eq!(clock.read(at(7)), at(2));
        clock.set_running(at(10), false);
        clock.set_running(at(20), false);
        assert_eq!(clock.read(at(100)), at(5));
        clock.set_running(at(100), true);
        clock.set_running(at(101), true);
        assert_eq!(clock.read(at(103)), at(8));
    }
}
