//! Schedules a mobile's handshakes with the base: at the start, at rekeying, and when the base stays silent. On a bad
//! link the same initiation is retransmitted.

use std::time::Duration;

use remora_base::{Rng, Time};

use super::handshake::Initiation;

/// First retransmission timeout; it doubles from there.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// Longest retransmission timeout.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Age at which an unanswered initiation is replaced by a new one: the base may have forgotten it.
const QUESTION_FOR: Duration = Duration::from_secs(20);
/// Time without an answer after which the calls are reported.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// A handshake in progress.
pub(super) struct PendingHandshake {
    pub(super) initiation: Initiation,
    /// The session index that the response must carry.
    pub(super) index: u32,
    /// When the initiation in `question` was first sent.
    asked: Time,
    /// When the first unanswered initiation of this handshake was sent.
    since: Time,
    again_at: Time,
    wait: Duration,
    told: bool,
    told_secret: bool,
    /// Whether the base has rejected a timestamp of this call as stale.
    told_stale: bool,
    /// Whether it has rejected this initiation, which is not retransmitted.
    is_stale: bool,
}

/// The next action of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandshakeStep {
    Wait,
    Retransmit,
    /// Send a new initiation.
    Restart,
}

impl PendingHandshake {
    /// Starts a call whose initiation is sent now. After an unanswered earlier one, `since` and `wait` continue.
    pub(super) fn new(
        now: Time,
        initiation: Initiation,
        index: u32,
        earlier: Option<&PendingHandshake>,
        rng: &mut Rng,
    ) -> PendingHandshake {
        let (since, wait) = earlier.map_or((now, WAIT_MIN), |c| (c.since, c.wait));
        let (told, told_secret) = earlier.map_or((false, false), |c| (c.told, c.told_secret));
        let (told_stale, is_stale) = (earlier.is_some_and(|c| c.told_stale), false);
        let again_at = now + spread(wait, rng);
        PendingHandshake {
            initiation,
            index,
            asked: now,
            since,
            again_at,
            wait,
            told,
            told_secret,
            told_stale,
            is_stale,
        }
    }

    /// Whether a response for session index `index` answers this initiation.
    pub(super) fn awaits(&self, index: u32) -> bool {
        self.index == index && !self.is_stale
    }

    /// Records that the base rejected the timestamp as stale; true if it had rejected one of this call before. The
    /// next initiation then waits until it is due.
    pub(super) fn is_told_again(&mut self) -> bool {
        self.is_stale = true;
        std::mem::replace(&mut self.told_stale, true)
    }

    /// The next action at `now`; a transmission is counted.
    pub(super) fn wants(&mut self, now: Time, rng: &mut Rng) -> HandshakeStep {
        if now < self.again_at {
            return HandshakeStep::Wait;
        }
        self.wait = (self.wait * 2).min(WAIT_MAX);
        self.again_at = now + spread(self.wait, rng);
        if self.is_stale || now.since(self.asked) >= QUESTION_FOR {
            HandshakeStep::Restart
        } else {
            HandshakeStep::Retransmit
        }
    }

    /// When [`PendingHandshake::wants`] has an action.
    pub(super) fn due(&self) -> Time {
        self.again_at
    }

    /// True once, when the base has not answered for [`TELL_AFTER`].
    pub(super) fn is_news(&mut self, now: Time) -> bool {
        let news = !self.told && now.since(self.since) >= TELL_AFTER;
        self.told |= news;
        news
    }

    /// Records a response that cannot be decrypted; true once. Missing responses are not reported after that.
    pub(super) fn is_news_of_secret(&mut self) -> bool {
        self.told = true;
        !std::mem::replace(&mut self.told_secret, true)
    }
}

/// Varies the timeout by a tenth, so that mobiles do not call in step after an outage of their base.
fn spread(wait: Duration, rng: &mut Rng) -> Duration {
    wait.mul_f64(0.9 + 0.2 * rng.unit())
}
