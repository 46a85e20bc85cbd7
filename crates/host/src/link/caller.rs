//! When a mobile calls the base: at the start, when keys are worn, and when the base keeps
//! silent although it was asked. On a bad link the same question is sent again and again.

use std::time::Duration;

use remora_base::{Rng, Time};

use super::handshake::Initiation;

/// The first wait for an answer; it doubles from there.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// The longest.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A question that was not answered for so long is put anew: the base may have forgotten it.
const QUESTION_FOR: Duration = Duration::from_secs(20);
/// Calls without an answer for so long are worth telling about.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// A call under way.
pub(super) struct Call {
    /// The question, waiting for its answer.
    pub(super) question: Initiation,
    /// The index that the answer bears.
    pub(super) index: u32,
    /// When this question was put first.
    asked: Time,
    /// When calling began.
    since: Time,
    again_at: Time,
    wait: Duration,
    told: bool,
    told_secret: bool,
    /// Whether the base has answered that a question was older than another.
    told_stale: bool,
    /// Whether it has said so of this one, which is not put again.
    is_stale: bool,
}

/// What a call wants at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    /// Nothing yet.
    Patience,
    /// The same question sent again.
    Again,
    /// A new question.
    Anew,
}

impl Call {
    /// A call whose question is sent now; `since` and `wait` go on where an earlier question
    /// had no answer.
    pub(super) fn new(now: Time, question: Initiation, index: u32, earlier: Option<&Call>, rng: &mut Rng) -> Call {
        let (since, wait) = earlier.map_or((now, WAIT_MIN), |c| (c.since, c.wait));
        let (told, told_secret) = earlier.map_or((false, false), |c| (c.told, c.told_secret));
        let (told_stale, is_stale) = (earlier.is_some_and(|c| c.told_stale), false);
        let again_at = now + spread(wait, rng);
        Call { question, index, asked: now, since, again_at, wait, told, told_secret, told_stale, is_stale }
    }

    /// Whether an answer to session index `index` is one to this question.
    pub(super) fn awaits(&self, index: u32) -> bool {
        self.index == index && !self.is_stale
    }

    /// Takes note that the base has seen a newer question; true if it had said so before of this call. Then the
    /// next one waits until it is due.
    pub(super) fn is_told_again(&mut self) -> bool {
        self.is_stale = true;
        std::mem::replace(&mut self.told_stale, true)
    }

    /// What is to be done now; counts a sending if that is the answer.
    pub(super) fn wants(&mut self, now: Time, rng: &mut Rng) -> Wants {
        if now < self.again_at {
            return Wants::Patience;
        }
        self.wait = (self.wait * 2).min(WAIT_MAX);
        self.again_at = now + spread(self.wait, rng);
        if self.is_stale || now.since(self.asked) >= QUESTION_FOR { Wants::Anew } else { Wants::Again }
    }

    /// When [`Call::wants`] has something to say.
    pub(super) fn due(&self) -> Time {
        self.again_at
    }

    /// True once, when the base has not answered for a while.
    pub(super) fn is_news(&mut self, now: Time) -> bool {
        let news = !self.told && now.since(self.since) >= TELL_AFTER;
        self.told |= news;
        news
    }

    /// Takes note of an answer that does not open; true once. That there is none is not told after that.
    pub(super) fn is_news_of_secret(&mut self) -> bool {
        self.told = true;
        !std::mem::replace(&mut self.told_secret, true)
    }
}

/// A tenth more or less, so that many mobiles do not call in step after their base was away.
fn spread(wait: Duration, rng: &mut Rng) -> Duration {
    wait.mul_f64(0.9 + 0.2 * rng.unit())
}
