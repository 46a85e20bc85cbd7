//! A slow mobile host's receive buffer (NFS/W 95 §4): frames come faster than the host takes
//! them, and what finds the buffer full is lost after it has cost its airtime.

use std::collections::VecDeque;

use remora_base::Time;

use crate::config::Receiver;

/// The buffer of one mobile. Arrivals must be offered in order.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    receiver: Option<Receiver>,
    /// When the host will have taken each of the frames in it, which never decreases. At most
    /// `receiver.frames`.
    taken_at: VecDeque<Time>,
}

impl Buffer {
    pub(crate) fn new(receiver: Option<Receiver>) -> Buffer {
        Buffer { receiver, taken_at: VecDeque::new() }
    }

    /// When the host will have taken the frame that arrives at `arrival`; `None` if the buffer is
    /// full then.
    pub(crate) fn offer(&mut self, arrival: Time) -> Option<Time> {
        let Some(Receiver { frames, service }) = self.receiver else { return Some(arrival) };
        while self.taken_at.front().is_some_and(|taken| *taken <= arrival) {
            self.taken_at.pop_front();
        }
        if self.taken_at.len() >= frames {
            return None;
        }
        let taken = self.taken_at.back().map_or(arrival, |before| arrival.max(*before)) + service;
        self.taken_at.push_back(taken);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn offer(receiver: Option<Receiver>, arrivals_ms: &[u64]) -> Vec<Option<Time>> {
        let mut buffer = Buffer::new(receiver);
        arrivals_ms.iter().map(|ms| buffer.offer(Time::from_millis(*ms))).collect()
    }

    fn ms(times: &[u64]) -> Vec<Option<Time>> {
        times.iter().map(|ms| Some(Time::from_millis(*ms))).collect()
    }

    #[test]
    fn no_buffer_is_infinitely_fast() {
        assert_eq!(offer(None, &[1, 1, 2]), ms(&[1, 1, 2]));
    }

    #[test]
    fn frames_are_taken_one_after_another() {
        let receiver = Some(Receiver { frames: 3, service: Duration::from_millis(10) });
        assert_eq!(offer(receiver, &[0, 5, 12, 100]), ms(&[10, 20, 30, 110]));
    }

    #[test]
    fn the_frame_being_taken_counts_until_it_is() {
        let receiver = Some(Receiver { frames: 2, service: Duration::from_millis(10) });
        let got = offer(receiver, &[0, 1, 2, 9, 10, 11]);
        assert_eq!(got.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false, true, false]);
        assert_eq!(got[4], Some(Time::from_millis(30)));
    }
}
