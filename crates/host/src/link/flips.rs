//! Notices that two mobiles run with one key: the base takes each to be the other, which has
//! moved, and they take turns in cutting each other off.

use std::net::SocketAddr;
use std::time::Duration;

use remora_base::Time;

/// So many returns to the place before the last ...
const RETURNS: u32 = 5;
/// ... in this time are more than a mobile makes between two networks. Each of two mobiles
/// with one key calls about every 3 s.
const WITHIN: Duration = Duration::from_secs(30);
/// It is told again after this.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// Where one key was last.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Flips {
    last: Option<SocketAddr>,
    before: Option<SocketAddr>,
    since: Time,
    returns: u32,
    quiet_until: Time,
}

impl Flips {
    /// The key is heard from another place now; the other one, if this is worth telling.
    pub(super) fn moved(&mut self, now: Time, to: SocketAddr) -> Option<SocketAddr> {
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

    /// Moves every `seconds` to the next of so many places, for ten minutes; how often and
    /// when first it was told.
    fn told(seconds: u64, places: u16) -> (usize, Option<u64>) {
        let mut flips = Flips::default();
        let moves = (0..600 / seconds).map(|i| (i * seconds, i));
        let at = |i: u64| SocketAddr::from(([192, 0, 2, 1], 1 + (i % u64::from(places)) as u16));
        let told = moves.filter_map(|(s, i)| flips.moved(Time::from_secs(s), at(i)).map(|_| s)).collect::<Vec<_>>();
        (told.len(), told.first().copied())
    }

    #[test]
    fn twins_are_told_of_once_and_travellers_are_not() {
        for (seconds, places, expected) in [
            (3, 2, (1, Some(18))),
            (10, 2, (0, None)),
            // A new port with each move, as behind some routers.
            (1, 600, (0, None)),
        ] {
            assert_eq!(told(seconds, places), expected, "{places} places, {seconds} s each");
        }
    }
}
