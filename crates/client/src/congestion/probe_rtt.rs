//! Draining the queue now and then, to measure the minimum RTT again (BBR's ProbeRTT).
//!
//! A minimum expires, since paths change. A client that always keeps something queued would then take its own queue for
//! a part of the path, and queue as much again on top.

use std::time::Duration;

use remora_base::Time;

/// Time between two drains: less than a minimum RTT lasts.
const EVERY: Duration = Duration::from_secs(20);
/// Share of the BDP in flight during a drain.
const PART: f64 = 0.75;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Until the first request is sent.
    #[default]
    Fresh,
    Idle(Time),
    /// Nothing is sent until little is in flight.
    Draining,
    /// When the first request was sent that meets no queue.
    Sent(Time),
}

/// The state of draining.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbeRtt {
    state: State,
    /// Bytes in flight during a drain.
    limit: Option<u64>,
}

impl ProbeRtt {
    /// Limit of the bytes in flight beside the first request; `None` outside of a drain.
    pub(crate) fn limit(&self) -> Option<u64> {
        match self.state {
            State::Draining | State::Sent(_) => self.limit,
            State::Fresh | State::Idle(_) => None,
        }
    }

    /// The BDP is `pipe` requests of `block` bytes.
    pub(crate) fn on_path(&mut self, pipe: f64, block: u64) {
        self.limit = Some(((pipe * PART).min(pipe - 1.0).max(0.0) * block as f64) as u64);
    }

    /// A request was sent; `steady` if the window only follows the queue.
    pub(crate) fn on_sent(&mut self, now: Time, steady: bool) {
        self.state = match self.state {
            State::Fresh => State::Idle(now + EVERY),
            State::Idle(at) if at <= now && steady && self.limit.is_some() => State::Draining,
            State::Draining => State::Sent(now),
            state => state,
        };
    }

    /// A request sent at `sent` was answered. Returns whether a drain was on.
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
    fn drain_ends_with_a_reply_that_met_no_queue() {
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
        // The drain goes on whatever the window does.
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
