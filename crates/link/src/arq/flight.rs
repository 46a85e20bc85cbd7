//! Log of transmissions in flight.
//!
//! Every DATA and RTS to a destination has a stamp, one higher than the previous one. Frames do not overtake one
//! another, so an echoed stamp decides the fate of every earlier transmission, retransmissions included: acknowledged
//! or lost. RACK (RFC 8985) infers the same from times; two bytes make it exact.

use std::collections::VecDeque;

use remora_base::Time;

use crate::pacing::pacer::Departure;

/// Maximum number of transmissions in [`Flight::log`]: two full windows. Only probes to a silent peer reach it, and the
/// oldest of them are useless.
const LOG_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tx {
    /// The transmission number, as in [`Flight::next_stamp`].
    pub(crate) stamp: u64,
    /// The chunk's sequence number; `None` for a probe.
    pub(crate) seq: Option<u64>,
    /// Whether it requested an immediate acknowledgement.
    pub(crate) polled: bool,
    pub(crate) departure: Departure,
}

/// Transmissions to one destination, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    log: VecDeque<Tx>,
    next: u64,
    /// The latest echoed stamp, or the one before the first.
    echoed: u64,
}

impl Flight {
    /// Starts at stamp `first`.
    pub(crate) fn new(first: u64) -> Flight {
        Flight { log: VecDeque::new(), next: first, echoed: first.saturating_sub(1) }
    }

    pub(crate) fn next_stamp(&self) -> u64 {
        self.next
    }

    /// Records a transmission with the next stamp. If the log is full, removes and returns the oldest, whose fate
    /// stays unknown.
    pub(crate) fn push(&mut self, seq: Option<u64>, polled: bool, departure: Departure) -> Option<Tx> {
        let gone = if self.log.len() >= LOG_MAX { self.log.pop_front() } else { None };
        self.log.push_back(Tx { stamp: self.next, seq, polled, departure });
        self.next += 1;
        gone
    }

    /// Removes the oldest transmission whose fate the echo of `stamp` decides. The echoed transmission comes last.
    pub(crate) fn resolve(&mut self, stamp: u16) -> Option<Tx> {
        let first = self.log.front()?;
        // Distance from the next stamp to the echoed one: 1 is the latest. Echoes older than the log or from the
        // future are ignored.
        let age = u64::from((self.next as u16).wrapping_sub(stamp));
        let echoed = self.next.checked_sub(age).filter(|_| age > 0)?;
        self.echoed = self.echoed.max(echoed);
        if first.stamp <= echoed { self.log.pop_front() } else { None }
    }

    /// Departure of the first transmission that awaits an acknowledgement, or of the second if there is one and
    /// `patient` is set.
    pub(crate) fn awaited_since(&self, patient: bool) -> Option<Time> {
        let mut awaited = self.log.iter().filter(|tx| tx.polled).map(|tx| tx.departure.at);
        let first = awaited.next();
        if patient { awaited.next().or(first) } else { first }
    }

    /// Upper bound of the distance between the next stamp and the latest one that the peer has seen.
    pub(crate) fn ahead(&self) -> u64 {
        self.next - self.echoed
    }

    /// Transmissions in flight after the latest that requested an acknowledgement.
    pub(crate) fn unasked(&self) -> usize {
        self.log.iter().rev().take_while(|tx| !tx.polled).count()
    }

    pub(crate) fn latest(&self) -> Option<&Tx> {
        self.log.back()
    }

    /// The latest transmission with a departure at or before `at`.
    pub(crate) fn latest_by(&self, at: Time) -> Option<&Tx> {
        self.log.iter().rfind(|tx| tx.departure.at <= at)
    }

    /// Whether any DATA is in flight.
    pub(crate) fn has_data(&self) -> bool {
        self.log.iter().any(|tx| tx.seq.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(flight: &mut Flight, stamp: u64) -> Vec<u64> {
        std::iter::from_fn(|| flight.resolve(stamp as u16)).map(|tx| tx.stamp).collect()
    }

    #[test]
    fn echo_resolves_all_earlier_transmissions() {
        for first in [5, 65_530, (1 << 32) - 3] {
            let mut flight = Flight::new(first);
            for _ in 0..10 {
                flight.push(None, true, Departure::default());
            }
            assert_eq!(resolved(&mut flight, first + 3), [first, first + 1, first + 2, first + 3]);
            assert_eq!(resolved(&mut flight, first + 2), [], "an old echo");
            assert_eq!(resolved(&mut flight, first + 10), [], "an echo of what was never sent");
            assert_eq!(resolved(&mut flight, first + 9).len(), 6);
            assert!(flight.log.is_empty());
            assert_eq!(flight.next_stamp(), first + 10);
        }
    }

    #[test]
    fn flight_log_is_bounded() {
        let mut flight = Flight::new(0);
        for _ in 0..LOG_MAX + 10 {
            flight.push(None, true, Departure::default());
        }
        assert_eq!(flight.log.len(), LOG_MAX);
    }
}
