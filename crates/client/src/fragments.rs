//! Paths that carry whole packets and drop fragments, as many firewalls and address translators do.
//!
//! A request or a reply that fills more than one frame never arrives there, however often it is
//! sent again, while small ones do. That is taken for proven when so much of it was found lost by
//! what was answered meanwhile, for some time, and nothing of more than a frame has got through that way
//! since. A server that is slow at such requests and answers others looks the same until its answers
//! come; then all this is forgotten, and not believed again.

use std::time::Duration;

use remora_base::Time;

use crate::block::fragments;
use crate::pending::{Pending, Sent};

/// Transmissions of more than a frame that must have been lost in a row,
const ROW: u32 = 8;
/// and of one request. A path that loses every fifth frame loses so many of four frames in one case
/// of a hundred; there one frame at a time is better anyway.
const TIMES: u32 = 3;
/// The same where such things got through before: the path may have become another.
const ROW_LATER: u32 = 32;
const TIMES_LATER: u32 = 5;
/// How long a request has been tried at least: slow disks take less, mostly. The same later.
const TRIED: Duration = Duration::from_secs(4);
const TRIED_LATER: Duration = Duration::from_secs(12);

/// One of the two directions.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Lost in a row.
    lost: u32,
    /// When something last got through.
    passed: Option<Time>,
}

/// What is known of the path. See the module.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// Requests, replies.
    ways: [Way; 2],
    are_dropped: bool,
    /// That was wrong once.
    is_disproved: bool,
}

/// Whether the request, and its reply, fill more than a frame.
fn long(call: &Pending) -> [bool; 2] {
    let message = u32::try_from(call.message.len()).unwrap_or(u32::MAX);
    [fragments(message) > 1, fragments(call.reply_max) > 1]
}

impl Fragments {
    /// Whether the path drops them.
    pub(crate) fn are_dropped(&self) -> bool {
        self.are_dropped
    }

    /// `call` is answered at `now`, by `reply` bytes.
    pub(crate) fn on_answer(&mut self, now: Time, call: &Pending, reply: usize) {
        let reply = u32::try_from(reply).unwrap_or(u32::MAX);
        for (way, got) in self.ways.iter_mut().zip([long(call)[0], fragments(reply) > 1]) {
            if got {
                *way = Way { lost: 0, passed: Some(now) };
            }
        }
    }

    /// Something that had failed for that reason was answered after all.
    pub(crate) fn disprove(&mut self) {
        *self = Fragments { is_disproved: true, ..Fragments::default() };
    }

    /// A transmission of `call` was found lost at `now`.
    pub(crate) fn on_loss(&mut self, now: Time, call: &Pending, sent: Sent) {
        for (way, is_long) in self.ways.iter_mut().zip(long(call)) {
            if is_long && !self.is_disproved {
                way.lost = way.lost.saturating_add(1);
                let (row, times, tried) = match way.passed {
                    Some(_) => (ROW_LATER, TIMES_LATER, TRIED_LATER),
                    None => (ROW, TIMES, TRIED),
                };
                let nothing = way.passed.is_none_or(|t| t < call.submitted) && now.since(call.submitted) >= tried;
                self.are_dropped |= nothing && way.lost >= row && sent.retries + 1 >= times;
            }
        }
    }

    /// Whether `call` will never be answered.
    pub(crate) fn stop(&self, call: &Pending) -> bool {
        self.are_dropped && long(call).contains(&true)
    }
}
