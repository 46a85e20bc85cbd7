//! Selects the channel changes to report: only those that last. During error bursts the state changes every second;
//! the counters show that.

use std::time::Duration;

use remora_base::Time;

use super::report::ChannelState;

/// How long a state must last to be reported.
const LASTS: Duration = Duration::from_secs(1);

/// The channel state of a peer.
#[derive(Clone, Copy, Debug)]
pub(in crate::link) struct ChannelNotices {
    told: ChannelState,
    is: ChannelState,
    since: Time,
}

impl Default for ChannelNotices {
    fn default() -> ChannelNotices {
        ChannelNotices { told: ChannelState::Good, is: ChannelState::Good, since: Time::ZERO }
    }
}

impl ChannelNotices {
    pub(in crate::link) fn changed(&mut self, now: Time, to: ChannelState) {
        (self.is, self.since) = (to, now);
    }

    /// The state to report now, if there is one.
    pub(in crate::link) fn news(&mut self, now: Time) -> Option<ChannelState> {
        let is_news = self.is != self.told && now.since(self.since) >= LASTS;
        is_news.then(|| {
            self.told = self.is;
            self.is
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_state_is_reported_once() {
        use ChannelState::{Good, Suspect};
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut notices = ChannelNotices::default();
        assert_eq!(notices.news(at(5000)), None);
        for burst in 0..100 {
            notices.changed(at(6000 + burst * 1000), Suspect);
            assert_eq!(notices.news(at(6250 + burst * 1000)), None);
            notices.changed(at(6300 + burst * 1000), Good);
            assert_eq!(notices.news(at(6500 + burst * 1000)), None, "nothing was told of it");
        }
        notices.changed(at(200_000), Suspect);
        assert_eq!([200_999, 201_000, 205_000].map(|ms| notices.news(at(ms))), [None, Some(Suspect), None]);
        notices.changed(at(206_000), Good);
        notices.changed(at(206_500), Suspect);
        assert_eq!(notices.news(at(210_000)), None, "as it was told");
        notices.changed(at(211_000), Good);
        assert_eq!([211_999, 212_000].map(|ms| notices.news(at(ms))), [None, Some(Good)]);
    }
}
