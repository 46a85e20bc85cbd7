//! Now and then, a moment in which less is on its way than the path holds, so that the queue in front of
//! the slowest hop is empty and the shortest round trip is seen again (as BBR's ProbeRTT).
//!
//! A minimum is believed for a while only, since paths change. Who always keeps something queued would
//! else take its own queue for a part of the path after that, and queue as much again on top of it.

use std::time::Duration;

use remora_base::Time;

/// How long after the last one: less than a minimum is believed.
const EVERY: Duration = Duration::from_secs(20);
/// The most of what the path holds that is on its way then.
const PART: f64 = 0.75;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Until then, once something was sent.
    #[default]
    Fresh,
    Idle(Time),
    /// No more is sent until little is on its way.
    Draining,
    /// The first that met no queue was sent then.
    Sent(Time),
}

/// Whether it is time, and how little may be on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbeRtt {
    state: State,
    /// Bytes.
    limit: Option<u64>,
}

impl ProbeRtt {
    /// The most bytes on their way, beside the first request: `None` for what the window says.
    pub(crate) fn limit(&self) -> Option<u64> {
        match self.state {
            State::Draining | State::Sent(_) => self.limit,
            State::Fresh | State::Idle(_) => None,
        }
    }

    /// The path was seen to hold `pipe` requests of `block` bytes.
    pub(crate) fn on_path(&mut self, pipe: f64, block: u64) {
        self.limit = Some(((pipe * PART).min(pipe - 1.0).max(0.0) * block as f64) as u64);
    }

    /// Something was sent; `steady` if the window follows the queue and nothing else.
    pub(crate) fn on_sent(&mut self, now: Time, steady: bool) {
        self.state = match self.state {
            State::Fresh => State::Idle(now + EVERY),
            State::Idle(at) if at <= now && steady && self.limit.is_some() => State::Draining,
            State::Draining => State::Sent(now),
            state => state,
        };
    }

    /// What was sent at `sent` was answered. Says whether it was such a moment's.
    pub(crate) fn on_reply(&mut self, sent: Time) -> bool {
        match self.state {
            State::Draining => true,
            State::Sent(first) => {
                if sent >= first {
                    self.state = State::Idle(sent + EVERY);
                }
                true
            }
            State::Fresh | State::Idle(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_something_that_met_no_queue_is_answered() {
        let secs = Time::from_secs;
        let mut drain = ProbeRtt::default();
        drain.on_sent(secs(100), true);
        drain.on_sent(secs(130), true);
        assert_eq!(drain.limit(), None, "nothing is known of the path");
        drain.on_path(8.0, 1000);
        drain.on_sent(secs(131), false);
        assert_eq!(drain.limit(), None, "this is not the time");
        drain.on_sent(secs(131), true);
        assert_eq!(drain.limit(), Some(6000));
        assert!(drain.on_reply(secs(130)), "it waited in the queue");
        // It goes on whatever becomes of the window.
        drain.on_sent(secs(132), false);
        assert!(drain.on_reply(secs(131)) && drain.limit().is_some());
        assert!(drain.on_reply(secs(132)));
        assert_eq!(drain.limit(), None);
        assert!(!drain.on_reply(secs(133)));
        drain.on_sent(secs(151), true);
        assert_eq!(drain.limit(), None);
        drain.on_path(1.1, 1000);
        drain.on_sent(secs(152), true);
        assert_eq!(drain.limit(), Some(100), "one at a time");
    }
}
