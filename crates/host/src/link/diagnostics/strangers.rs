//! Limits the reports of calls by strangers. A stranger calls every 2 s, and an attacker can generate any number of
//! keys; neither may fill a log.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_base::Time;

use crate::link::tunnel::LinkPublicKey;

/// Shortest time between two reports of one key.
const EVERY: Duration = Duration::from_secs(60);
/// Most reports in that time.
const KEYS_MAX: usize = 64;

/// Strangers reported in the last minute.
#[derive(Debug, Default)]
pub(in crate::link) struct Strangers {
    /// End of the quiet period by key. `None` stands for callers without a known key, whose calls are for another
    /// base.
    quiet_until: BTreeMap<Option<LinkPublicKey>, Time>,
}

impl Strangers {
    /// Records a call with `key`; true if it is to be reported.
    pub(in crate::link) fn called(&mut self, now: Time, key: Option<LinkPublicKey>) -> bool {
        self.quiet_until.retain(|_, until| *until > now);
        // One entry is reserved for callers without a key.
        let has_room = key.is_none() || self.quiet_until.len() < KEYS_MAX;
        let is_news = has_room && !self.quiet_until.contains_key(&key);
        if is_news {
            self.quiet_until.insert(key, now + EVERY);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Option<LinkPublicKey> {
        Some(LinkPublicKey([n; 32]))
    }

    #[test]
    fn stranger_is_reported_once_a_minute() {
        let mut strangers = Strangers::default();
        let mut told = [0; 3];
        for second in 0..600 {
            for (n, key) in [key(1), key(2), None].into_iter().enumerate() {
                told[n] += u32::from(strangers.called(Time::from_secs(second), key));
            }
        }
        assert_eq!(told, [10; 3]);
    }

    #[test]
    fn flood_of_keys_bounds_reports_and_memory() {
        let mut strangers = Strangers::default();
        let told = (0..=255).filter(|n| strangers.called(Time::from_secs(1), key(*n))).count();
        assert_eq!((told, strangers.quiet_until.len()), (KEYS_MAX, KEYS_MAX));
        assert!(strangers.called(Time::from_secs(1), None));
        assert!(strangers.called(Time::from_secs(61), key(255)));
    }
}
