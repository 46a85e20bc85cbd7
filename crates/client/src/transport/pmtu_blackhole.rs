//! Paths that carry packets up to some length and drop what is longer without a word: the fragments of datagrams, as
//! many firewalls and address translators do, or whole packets where a tunnel is narrower than it says (RFC 2923,
//! section 2.1).
//!
//! A request or a reply that is longer never arrives there, however often it is sent again, while small ones do. That is
//! taken for proven when so much of it was found lost by what was answered meanwhile, for some time, and nothing
//! so long has got through that way since. Then the next of [`DATAGRAM_SIZES`] is tried. A server that is slow at such
//! requests and answers others looks the same until its answers come; then all this is forgotten, and not believed
//! again.
//!
//! Where something long did get through, that may be for a while only: the receiver has no room for more fragments (see
//! `remains.rs`). Then single packets do meanwhile.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::transport::block_size::{FRAME_PAYLOAD, UDP_HEADER};

/// What datagrams are no longer than, in bytes, where longer ones never arrive: an Ethernet's packet; what QUIC takes any
/// path to carry (RFC 9000, section 14), which every IPv6 path must; what every IPv4 host must take (RFC 791).
pub(crate) const DATAGRAM_SIZES: [u32; 3] = [1472, 1200, 548];
/// What fills two of an Ethernet's packets.
pub(crate) const PAIR: u32 = 2 * FRAME_PAYLOAD - UDP_HEADER;
/// What a reply has beside the bytes that its request leaves room for, at most.
pub(crate) const REPLY_HEADER: u32 = 128;
/// Transmissions of something too long that must have been lost in a row,
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

/// The same where the receiver may be out of room: [`RoomSuspicion::Soon`] and [`RoomSuspicion::Slowly`].
const TRIED_NOW: Duration = Duration::from_secs(1);
const TRIED_NOW_LATE: Duration = Duration::from_secs(6);

/// How readily a receiver is taken to be out of room: a slow server looks the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoomSuspicion {
    /// Blocks have the length that people chose.
    Never,
    /// Requests were found lost of late that were only answered late.
    Slowly,
    Soon,
}

/// One of the two directions, and what is longer than one of [`DATAGRAM_SIZES`].
#[derive(Clone, Copy, Debug, Default)]
struct PathDirection {
    /// Lost in a row.
    lost: u32,
    /// When something last got through.
    passed: Option<Time>,
}

/// What is known of the path. See the module.
#[derive(Debug, Default)]
pub(crate) struct PmtuBlackhole {
    /// Requests and replies, for each length.
    ways: [[PathDirection; 2]; DATAGRAM_SIZES.len()],
    /// What is longer than the last of so many lengths is dropped.
    steps: usize,
    /// When the receiver last seemed to be out of room for fragments, if none got through since.
    crammed: Option<Time>,
    /// That was wrong once.
    is_disproved: bool,
}

/// How long the request, and its reply, are.
fn lengths(call: &PendingCall, reply: u32) -> [u32; 2] {
    [u32::try_from(call.message.len()).unwrap_or(u32::MAX), reply]
}

/// How long its reply may be, if that is a matter of its own.
fn reply_of(call: &PendingCall) -> u32 {
    if call.reply_max == 0 { 0 } else { call.reply_max.saturating_add(REPLY_HEADER) }
}

impl PmtuBlackhole {
    /// The longest datagrams that the path carries, in bytes, if it drops some.
    pub(crate) fn longest(&self) -> Option<u32> {
        self.steps.checked_sub(1).and_then(|last| DATAGRAM_SIZES.get(last).copied())
    }

    /// `call` is answered at `now`, by `reply` bytes.
    pub(crate) fn on_answer(&mut self, now: Time, call: &PendingCall, reply: usize) {
        let got = lengths(call, u32::try_from(reply).unwrap_or(u32::MAX));
        for (ways, most) in self.ways.iter_mut().zip(DATAGRAM_SIZES) {
            for (way, _) in ways.iter_mut().zip(got).filter(|(_, length)| *length > most) {
                *way = PathDirection { lost: 0, passed: Some(now) };
                self.crammed = None;
            }
        }
    }

    /// Whether the receiver seemed to be out of room, and nothing has shown otherwise.
    pub(crate) fn are_crammed(&self) -> bool {
        self.crammed.is_some()
    }

    /// Something that had failed for that reason was answered after all.
    pub(crate) fn disprove(&mut self) {
        *self = PmtuBlackhole { is_disproved: true, ..PmtuBlackhole::default() };
    }

    /// A transmission of `call` was found lost at `now`. True if that shows that the receiver has no room for fragments, as
    /// readily as `guess` says.
    pub(crate) fn on_loss(&mut self, now: Time, call: &PendingCall, sent: Transmission, guess: RoomSuspicion) -> bool {
        if self.is_disproved {
            return false;
        }
        let lost = lengths(call, reply_of(call));
        let mut dropped = None;
        let mut is_crammed = false;
        for (step, (ways, most)) in self.ways.iter_mut().zip(DATAGRAM_SIZES).enumerate().skip(self.steps) {
            for (way, _) in ways.iter_mut().zip(lost).filter(|(_, length)| *length > most) {
                way.lost = way.lost.saturating_add(1);
                // Once more, and nothing got through between: that is no matter of room.
                let is_again = self.crammed.is_some_and(|t| call.submitted > t);
                let is_now = step == 0 && way.is_shut_now(now, call, sent, guess);
                if way.is_shut(now, call, sent) || is_now && is_again {
                    dropped = dropped.or(Some(step));
                } else if is_now && self.crammed.is_none() {
                    (is_crammed, self.crammed) = (true, Some(now));
                }
            }
        }
        if let Some(step) = dropped {
            // Of what is shorter nothing is known yet: the same losses do not count twice.
            (self.steps, self.ways) = (step + 1, Default::default());
        }
        is_crammed
    }
}

/// Whether `call` or its reply is longer than so many bytes.
pub(crate) fn is_longer(call: &PendingCall, most: u32) -> bool {
    lengths(call, reply_of(call)).into_iter().any(|length| length > most)
}

impl PathDirection {
    /// Whether nothing gets through, now that `call` was lost once more.
    fn is_shut(&self, now: Time, call: &PendingCall, sent: Transmission) -> bool {
        let (row, times, tried) = match self.passed {
            Some(_) => (ROW_LATER, TIMES_LATER, TRIED_LATER),
            None => (ROW, TIMES, TRIED),
        };
        let nothing = self.passed.is_none_or(|t| t < call.submitted) && now.since(call.submitted) >= tried;
        nothing && self.lost >= row && sent.retries + 1 >= times
    }

    /// The same of what got through before, where that may be for now only.
    fn is_shut_now(&self, now: Time, call: &PendingCall, sent: Transmission, guess: RoomSuspicion) -> bool {
        let tried = match guess {
            RoomSuspicion::Never => return false,
            // What the server's disk must have takes as long as that does.
            _ if call.syncs => TRIED_LATER,
            RoomSuspicion::Slowly => TRIED_NOW_LATE,
            RoomSuspicion::Soon => TRIED_NOW,
        };
        let nothing = self.passed.is_some_and(|t| now.since(t) >= tried);
        nothing && self.lost >= ROW && sent.retries + 1 >= TIMES
    }
}
