//! Transmissions whose fate is not known yet.
//!
//! Every DATA and RTS to a destination has a stamp, one higher than the last. Frames do not
//! overtake one another, so an echoed stamp tells the fate of every earlier transmission, a
//! retransmission's too: acknowledged, or lost. This is what RACK (RFC 8985) infers from
//! times, made exact by two bytes.

use std::collections::VecDeque;

use remora_base::Time;

use crate::pacing::pacer::Departure;

/// Transmissions remembered: two windows full. Only probes of a silent peer can ever make it this many,
/// and the oldest of those are of no use.
const LOG_MAX: usize = 4096;

/// One transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tx {
    /// Its number.
    pub(crate) stamp: u64,
    /// The packet in it; `None`: a probe.
    pub(crate) seq: Option<u64>,
    /// Whether it asked for an answer at once.
    pub(crate) polled: bool,
    /// When it was sent and will have left.
    pub(crate) departure: Departure,
}

/// The transmissions to one destination.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    log: VecDeque<Tx>,
    next: u64,
    /// The latest stamp that was echoed, or the one before the first.
    echoed: u64,
}

impl Flight {
    /// Begins with the stamp `first`.
    pub(crate) fn new(first: u64) -> Flight {
        Flight { log: VecDeque::new(), next: first, echoed: first.saturating_sub(1) }
    }

    /// The stamp of the next transmission.
    pub(crate) fn next_stamp(&self) -> u64 {
        self.next
    }

    /// Notes a transmission with that stamp; returns the one that there is no room for any more,
    /// of which nobody will tell what became of it.
    pub(crate) fn push(&mut self, seq: Option<u64>, polled: bool, departure: Departure) -> Option<Tx> {
        let gone = if self.log.len() >= LOG_MAX { self.log.pop_front() } else { None };
        self.log.push_back(Tx { stamp: self.next, seq, polled, departure });
        self.next += 1;
        gone
    }

    /// Takes the oldest transmission that the echo of `stamp` tells the fate of. The one
    /// echoed is the last.
    pub(crate) fn resolve(&mut self, stamp: u16) -> Option<Tx> {
        let first = self.log.front()?;
        // How far the echoed one is behind the next to be sent: 1 is the latest. An echo of
        // something longer ago than the log goes tells nothing, one from the future neither.
        let age = u64::from((self.next as u16).wrapping_sub(stamp));
        let echoed = self.next.checked_sub(age).filter(|_| age > 0)?;
        self.echoed = self.echoed.max(echoed);
        if first.stamp <= echoed { self.log.pop_front() } else { None }
    }

    /// When a transmission that awaits an answer will have left: the first such, or with
    /// `patient` the second if there are two.
    pub(crate) fn awaited_since(&self, patient: bool) -> Option<Time> {
        let mut awaited = self.log.iter().filter(|tx| tx.polled).map(|tx| tx.departure.at);
        let first = awaited.next();
        if patient { awaited.next().or(first) } else { first }
    }

    /// How far the next stamp is ahead of what the other end has seen, at most.
    pub(crate) fn ahead(&self) -> u64 {
        self.next - self.echoed
    }

    /// How many transmissions with open fates there are after the latest that asks for an answer.
    pub(crate) fn unasked(&self) -> usize {
        self.log.iter().rev().take_while(|tx| !tx.polled).count()
    }

    /// The latest transmission.
    pub(crate) fn latest(&self) -> Option<&Tx> {
        self.log.back()
    }

    /// The latest transmission that will have left by `at`.
    pub(crate) fn latest_by(&self, at: Time) -> Option<&Tx> {
        self.log.iter().rfind(|tx| tx.departure.at <= at)
    }

    /// Whether the fate of DATA is open.
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
    fn an_echo_tells_the_fate_of_all_before_it() {
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
    fn its_length_is_bounded() {
        let mut flight = Flight::new(0);
        for _ in 0..LOG_MAX + 10 {
            flight.push(None, true, Departure::default());
        }
        assert_eq!(flight.log.len(), LOG_MAX);
    }
}
