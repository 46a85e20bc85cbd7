//! Detects two mobiles that use one key. The base takes them for one mobile that moves, and they cut each other off in
//! turn.

use std::net::SocketAddr;
use std::time::Duration;

use remora_base::Time;

/// Returns to the previous address ...
const RETURNS: u32 = 5;
/// ... within this time, more than a roaming mobile makes between two networks. Each of two mobiles with one key calls
/// about every 3 s.
const WITHIN: Duration = Duration::from_secs(30);
/// Shortest time between two reports.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// The latest addresses of one key.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::link) struct DuplicateKeyDetector {
    last: Option<SocketAddr>,
    before: Option<SocketAddr>,
    since: Time,
    returns: u32,
    quiet_until: Time,
}

impl DuplicateKeyDetector {
    /// Records a new address of the key. Returns the previous address if the change indicates a duplicate key.
    pub(in crate::link) fn moved(&mut self, now: Time, to: SocketAddr) -> Option<SocketAddr> {
        let is_return = self.before == Some(to);
        (self.before, self.last) = (self.last, Some(to));
        if now.since(self.since) > WITHIN {
            (self.since, self.returns) = (now, 0);
        }
        self.returns = self.returns.saturating_add(u32::from(is_return));
        if self.returns < RETURNS || now < self.quiet_until {
            return None;
        }
        self.quiet_until = now + TELL_EVERY;
        self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves to the next of `places` addresses every `seconds` for ten minutes; returns the number of reports and the
    /// time of the first.
    fn told(seconds: u64, places: u16) -> (usize, Option<u64>) {
        let mut detector = DuplicateKeyDetector::default();
        let moves = (0..600 / seconds).map(|i| (i * seconds, i));
        let at = |i: u64| SocketAddr::from(([192, 0, 2, 1], 1 + (i % u64::from(places)) as u16));
        let told = moves.filter_map(|(s, i)| detector.moved(Time::from_secs(s), at(i)).map(|_| s)).collect::<Vec<_>>();
        (told.len(), told.first().copied())
    }

    #[test]
    fn duplicate_key_is_reported_and_roaming_is_not() {
        for (seconds, places, expected) in [
            (3, 2, (1, Some(18))),
            (10, 2, (0, None)),
            // A new port with each move, as behind some NATs.
            (1, 600, (0, None)),
        ] {
            assert_eq!(told(seconds, places), expected, "{places} places, {seconds} s each");
        }
    }
}
