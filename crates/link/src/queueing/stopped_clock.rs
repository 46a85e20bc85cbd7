//! A clock that stands still while a destination is blocked, so that CoDel does not take an
//! outage for a queue (facts: FQ-CoDel inside each destination, its clock stopped).

use std::time::Duration;

use remora_base::Time;

/// Time as a queue feels it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// How long it had run when it was last set going or stopped.
    ran: Duration,
    /// Since when it has been running; `None`: it stands still.
    since: Option<Time>,
}

impl Clock {
    /// A running clock.
    pub(crate) fn new(now: Time) -> Clock {
        Clock { ran: Duration::ZERO, since: Some(now) }
    }

    /// What it says.
    pub(crate) fn read(&self, now: Time) -> Time {
        Time::ZERO + self.ran + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Sets it going or stops it.
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
    fn it_runs_only_while_it_is_let() {
        let at = Time::from_millis;
        let mut clock = Clock::new(at(5));
        assert_eq!(clock.read(at(7)), at(2));
        clock.set_running(at(10), false);
        clock.set_running(at(20), false);
        assert_eq!(clock.read(at(100)), at(5));
        clock.set_running(at(100), true);
        clock.set_running(at(101), true);
        assert_eq!(clock.read(at(103)), at(8));
    }
}
