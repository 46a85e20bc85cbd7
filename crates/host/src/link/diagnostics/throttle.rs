//! Limits how often the same thing is reported. A stranger calls every 2 s, and an attacker can generate any number of
//! keys; neither may fill a log.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_base::{Peer, Time};

use crate::link::tunnel::LinkPublicKey;

/// Most strangers reported in the interval of their topic.
const STRANGERS_MAX: usize = 64;

/// What a notice is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::link) enum Topic {
    /// A call with this unknown key.
    Stranger(LinkPublicKey),
    /// A call for another base, whose caller has no known key.
    OtherBase,
    /// A foreign source address of this mobile.
    ForeignSource(Peer),
    /// The window towards this peer.
    ShortWindow(Peer),
    /// Lost large frames to this peer.
    LargeFrames(Peer),
    /// Two mobiles with the key of this peer.
    DuplicateKey(Peer),
}

impl Topic {
    /// Shortest time between two notices.
    fn interval(self) -> Duration {
        Duration::from_secs(match self {
            Topic::Stranger(_) | Topic::OtherBase | Topic::ForeignSource(_) => 60,
            Topic::ShortWindow(_) | Topic::LargeFrames(_) | Topic::DuplicateKey(_) => 600,
        })
    }
}

/// Topics reported within their interval.
#[derive(Debug, Default)]
pub(in crate::link) struct NoticeThrottle {
    quiet_until: BTreeMap<Topic, Time>,
}

impl NoticeThrottle {
    /// Whether `topic` may be reported now. If so it is quiet for its interval.
    pub(in crate::link) fn admits(&mut self, now: Time, topic: Topic) -> bool {
        if self.quiet_until.get(&topic).is_some_and(|until| now < *until) {
            return false;
        }
        self.quiet_until.retain(|_, until| now < *until);
        let is_stranger = |topic: &Topic| matches!(topic, Topic::Stranger(_));
        if is_stranger(&topic) && self.quiet_until.keys().filter(|t| is_stranger(t)).count() >= STRANGERS_MAX {
            return false;
        }
        self.quiet_until.insert(topic, now + topic.interval());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(n: u8) -> Topic {
        Topic::Stranger(LinkPublicKey([n; 32]))
    }

    #[test]
    fn topic_is_reported_once_in_its_interval() {
        let peer = Peer::datagram(([10, 0, 0, 2], 0).into());
        let mut throttle = NoticeThrottle::default();
        let topics = [stranger(1), stranger(2), Topic::OtherBase, Topic::DuplicateKey(peer)];
        let mut reported = [0; 4];
        for second in 0..600 {
            for (n, topic) in topics.into_iter().enumerate() {
                reported[n] += u32::from(throttle.admits(Time::from_secs(second), topic));
            }
        }
        assert_eq!(reported, [10, 10, 10, 1]);
    }

    #[test]
    fn flood_of_keys_bounds_reports_and_memory() {
        let mut throttle = NoticeThrottle::default();
        let reported = (0..=255).filter(|n| throttle.admits(Time::from_secs(1), stranger(*n))).count();
        assert_eq!((reported, throttle.quiet_until.len()), (STRANGERS_MAX, STRANGERS_MAX));
        assert!(throttle.admits(Time::from_secs(1), Topic::OtherBase));
        assert!(throttle.admits(Time::from_secs(61), stranger(255)));
    }
}
