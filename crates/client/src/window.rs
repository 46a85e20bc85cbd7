//! How many requests for file data are outstanding.
//!
//! Like TCP Vegas, the adaptive window compares the round trip with the shortest one seen:
//! what is longer was spent in a queue. Once a round (as many replies as the window has
//! places) it takes the round's shortest, which the client's own bursts disturb least, and
//! keeps between [`QUEUED_MIN`] and [`QUEUED_MAX`] requests queued in front of the slowest
//! hop: enough that the link never waits for the client, too few to overflow a base
//! station's queue. A loss by itself does not shrink it: on the links this is for, a lost
//! block means noise, and the queue shows congestion earlier. Only when a round loses half
//! of what it sends, which no burst of noise does for long, the window is halved.

use std::time::Duration;

use crate::WindowSize;

const QUEUED_MIN: f64 = 0.5;
const QUEUED_MAX: f64 = 1.7;
/// The window before anything is known.
const INITIAL: u32 = 2;
/// The largest window.
const MAX: u32 = 128;

/// What came of the requests of a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Replies until it ends.
    length: u32,
    replies: u32,
    losses: u32,
    /// The shortest round trip and the longest.
    shortest: Option<Duration>,
    longest: Duration,
}

impl Round {
    fn new(length: u32) -> Round {
        Round { length, replies: 0, losses: 0, shortest: None, longest: Duration::ZERO }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Window {
    rule: WindowSize,
    current: u32,
    /// Doubling each round trip, until a queue shows.
    opening: bool,
    /// The last round lost half of what it sent.
    lossy: bool,
    round: Round,
}

impl Window {
    pub(crate) fn new(rule: WindowSize) -> Window {
        let current = match rule {
            WindowSize::Fixed(n) => n.max(1),
            WindowSize::Adaptive => INITIAL,
        };
        Window { rule, current, opening: true, lossy: false, round: Round::new(current) }
    }

    pub(crate) fn size(&self) -> u32 {
        self.current
    }

    /// A reply to a request. `rtt`: how long it took, if that is certain; `shortest`: the
    /// least that was ever seen. `full`: the window held requests back.
    pub(crate) fn on_reply(&mut self, rtt: Option<Duration>, shortest: Option<Duration>, full: bool) {
        if self.rule != WindowSize::Adaptive {
            return;
        }
        self.round.replies += 1;
        self.round.shortest = self.round.shortest.into_iter().chain(rtt).min();
        self.round.longest = self.round.longest.max(rtt.unwrap_or_default());
        if self.opening {
            self.open(shortest, full);
        }
        if self.round.replies >= self.round.length {
            self.end_round(shortest, full);
            self.round = Round::new(self.current);
        }
    }

    /// Requests were found lost.
    pub(crate) fn on_losses(&mut self, n: u32) {
        self.round.losses = self.round.losses.saturating_add(n);
    }

    /// Opens a window by one for each reply, until a train of replies is half as long as the
    /// round trip: twice the window fills the pipe then (after HyStart, which waits for the
    /// whole; a device queue is shorter than a router's). What was sent too much meanwhile is
    /// taken back.
    fn open(&mut self, shortest: Option<Duration>, full: bool) {
        let train = shortest.filter(|s| self.round.longest > *s * 3 / 2);
        if let Some(shortest) = train {
            self.shrink_to_pipe(shortest, self.round.longest);
        }
        if train.is_some() || self.round.losses > 0 {
            self.opening = false;
        } else if full {
            self.current = (self.current + 1).min(MAX);
        }
    }

    /// To what fits the pipe when `seen` is the round trip, and a short queue.
    fn shrink_to_pipe(&mut self, shortest: Duration, seen: Duration) {
        let stretch = shortest.as_secs_f64() / seen.as_secs_f64().max(1e-9);
        let pipe = f64::from(self.current) * stretch + QUEUED_MAX;
        self.current = self.current.min(pipe.ceil() as u32).max(2);
    }

    fn end_round(&mut self, shortest: Option<Duration>, full: bool) {
        if self.round.losses * 2 >= self.round.replies {
            // The first such round may be a burst that took a small window whole.
            if self.lossy {
                self.current = (self.current / 2).max(2);
            }
            self.lossy = true;
            return;
        }
        self.lossy = false;
        let (Some(seen), Some(shortest)) = (self.round.shortest, shortest) else { return };
        let stretch = shortest.as_secs_f64() / seen.as_secs_f64().max(1e-9);
        let queued = f64::from(self.round.length) * (1.0 - stretch).max(0.0);
        if queued >= QUEUED_MIN {
            self.opening = false;
        }
        if queued > 2.0 * QUEUED_MAX {
            self.shrink_to_pipe(shortest, seen);
        } else if queued > QUEUED_MAX {
            self.current = (self.current - 1).max(2);
        } else if queued < QUEUED_MIN && full {
            self.current = (self.current + 1).min(MAX);
        }
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
            let ms = |t: f64| Some(Duration::from_secs_f64(t / 1e3));
            w.on_reply(ms(rtt), ms(shortest), true);
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
        w.on_reply(Some(Duration::from_secs(9)), Some(Duration::from_millis(1)), true);
        assert_eq!(w.size(), 5);
    }

    #[test]
    fn an_overflowing_queue_halves_it_and_a_burst_does_not() {
        let mut w = Window::new(WindowSize::Adaptive);
        let ms = |t| Some(Duration::from_millis(t));
        (0..200).for_each(|_| w.on_reply(ms(10), ms(10), true));
        let open = w.size();
        w.on_losses(open);
        (0..open * 3).for_each(|_| w.on_reply(None, ms(10), false));
        assert_eq!(w.size(), open, "one burst that took the whole window");
        for _ in 0..open * 8 {
            w.on_losses(1);
            w.on_reply(None, ms(10), false);
        }
        assert!(w.size() <= open / 4, "{} of {open}", w.size());
    }
}
