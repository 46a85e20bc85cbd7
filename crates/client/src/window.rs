//! How many requests for file data are outstanding.
//!
//! Like TCP Vegas, the adaptive window compares the round trip with the shortest one seen:
//! what is longer was spent in a queue. It keeps between [`QUEUED_MIN`] and [`QUEUED_MAX`]
//! requests queued in front of the slowest hop, enough that the link never waits for the
//! client, too few to overflow a base station's queue. A loss does not shrink it: on the
//! links this is for, a lost block means noise, and the queue shows congestion earlier.

use std::time::Duration;

use crate::WindowSize;

const QUEUED_MIN: f64 = 1.0;
const QUEUED_MAX: f64 = 2.2;
/// The window before anything is known.
const INITIAL: u32 = 2;
/// The largest window.
const MAX: u32 = 128;

#[derive(Clone, Debug)]
pub(crate) struct Window {
    rule: WindowSize,
    current: u32,
    /// Doubling each round trip, until a queue shows.
    opening: bool,
    /// Replies since the last change.
    replies: u32,
}

impl Window {
    pub(crate) fn new(rule: WindowSize) -> Window {
        let current = match rule {
            WindowSize::Fixed(n) => n.max(1),
            WindowSize::Adaptive => INITIAL,
        };
        Window { rule, current, opening: true, replies: 0 }
    }

    pub(crate) fn size(&self) -> u32 {
        self.current
    }

    /// A reply to a request sent once: it took `rtt`, where `shortest` is the least that was
    /// ever seen. `full`: the window held requests back.
    pub(crate) fn on_reply(&mut self, rtt: Duration, shortest: Duration, full: bool) {
        if self.rule != WindowSize::Adaptive || rtt.is_zero() {
            return;
        }
        self.replies += 1;
        let queued = f64::from(self.current) * (1.0 - shortest.as_secs_f64() / rtt.as_secs_f64()).max(0.0);
        if queued >= QUEUED_MIN {
            self.opening = false;
        }
        if self.replies < if self.opening { 1 } else { self.current } {
            return;
        }
        if queued < QUEUED_MIN && full {
            self.current = (self.current + 1).min(MAX);
        } else if queued > QUEUED_MAX {
            self.current = (self.current - 1).max(2);
        }
        self.replies = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window that settles on a pipe where a request takes `service` at the bottleneck
    /// and `delay` elsewhere.
    fn settled(service_ms: f64, delay_ms: f64) -> u32 {
        let mut w = Window::new(WindowSize::Adaptive);
        let shortest = service_ms + delay_ms;
        for _ in 0..5000 {
            let rtt = shortest.max(f64::from(w.size()) * service_ms);
            w.on_reply(Duration::from_secs_f64(rtt / 1e3), Duration::from_secs_f64(shortest / 1e3), true);
        }
        w.size()
    }

    #[test]
    fn keeps_the_pipe_full_and_the_queue_short() {
        for (service, delay) in [(48.0, 5.0), (48.0, 600.0), (5.0, 50.0), (1.0, 100.0)] {
            let pipe: f64 = (service + delay) / service;
            let w = f64::from(settled(service, delay));
            assert!(w >= pipe && w <= pipe + 3.5, "service {service}, delay {delay}: window {w}, pipe {pipe}");
        }
    }

    #[test]
    fn a_fixed_window_stays() {
        let mut w = Window::new(WindowSize::Fixed(5));
        w.on_reply(Duration::from_secs(9), Duration::from_millis(1), true);
        assert_eq!(w.size(), 5);
    }
}
