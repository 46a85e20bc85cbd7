//! Path MTU black holes: paths that silently drop long packets (RFC 2923, section 2.1). Many firewalls and address
//! translators drop fragments; some tunnels drop whole packets.
//!
//! A longer request or reply never arrives there, however often it is retransmitted, while small ones do. That is
//! assumed when enough such messages were lost for some time and none of this length got through. Then the next of
//! [`DATAGRAM_SIZES`] is tried. A server that is slow at such requests looks the same until its replies come; then the
//! assumption is dropped for good.
//!
//! Where long messages got through before, the receiver may have no room for fragments (`reassembly_budget`). Then
//! single packets are used for a while.

use std::time::Duration;

use remora_base::Time;

use crate::call::{PendingCall, Transmission};
use crate::transport::block_size::{FRAME_PAYLOAD, UDP_HEADER};

/// Largest datagrams in bytes that are tried: an Ethernet packet; what QUIC and IPv6 require of any path (RFC 9000,
/// section 14); what every IPv4 host must take (RFC 791).
pub(crate) const DATAGRAM_SIZES: [u32; 3] = [1472, 1200, 548];
/// A datagram that fills two Ethernet packets, in bytes.
pub(crate) const PAIR: u32 = 2 * FRAME_PAYLOAD - UDP_HEADER;
/// Largest overhead of a reply in bytes, beside what its request allows.
pub(crate) const REPLY_HEADER: u32 = 128;
/// Consecutive lost transmissions that prove a black hole, together with [`TIMES`] and [`TRIED`]. A path that
/// loses every fifth frame loses eight messages of four frames in a row with a probability near 1.5 %; single frames
/// are better there anyway.
const ROW: u32 = 8;
/// Minimum number of transmissions of the request that was lost last.
const TIMES: u32 = 3;
/// The same two where messages of that length got through before.
const ROW_LATER: u32 = 32;
const TIMES_LATER: u32 = 5;
/// Time that a request was tried: longer than most slow disks. The same where such messages got through before.
const TRIED: Duration = Duration::from_secs(4);
const TRIED_LATER: Duration = Duration::from_secs(12);

/// The same where the receiver may have no room: [`RoomGuess::Soon`] and [`RoomGuess::Slowly`].
const TRIED_NOW: Duration = Duration::from_secs(1);
const TRIED_NOW_LATE: Duration = Duration::from_secs(6);

/// How soon the client assumes that the receiver's reassembly queue is full. A slow server looks the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoomGuess {
    /// Never: the block size is fixed.
    Never,
    /// Late: retransmissions were spurious lately.
    Slowly,
    Soon,
}

/// A direction of the path, for messages longer than one of [`DATAGRAM_SIZES`].
#[derive(Clone, Copy, Debug, Default)]
struct PathDirection {
    /// Transmissions lost in a row.
    lost: u32,
    /// When a message last got through.
    passed: Option<Time>,
}

/// What is known of the path.
#[derive(Debug, Default)]
pub(crate) struct PmtuBlackhole {
    /// Requests and replies, by length.
    directions: [[PathDirection; 2]; DATAGRAM_SIZES.len()],
    /// Number of lengths above which messages are dropped.
    steps: usize,
    /// When the receiver seemed to have no room for fragments, if none got through since.
    no_room_since: Option<Time>,
    /// The assumption was wrong once.
    is_disproved: bool,
}

/// Lengths of the request and its reply.
fn lengths(call: &PendingCall, reply: u32) -> [u32; 2] {
    [u32::try_from(call.message.len()).unwrap_or(u32::MAX), reply]
}

/// Largest reply, if the request sets it.
fn reply_of(call: &PendingCall) -> u32 {
    if call.reply_max == 0 { 0 } else { call.reply_max.saturating_add(REPLY_HEADER) }
}

impl PmtuBlackhole {
    /// Largest datagram that the path carries, in bytes, if it drops longer ones.
    pub(crate) fn longest(&self) -> Option<u32> {
        self.steps.checked_sub(1).and_then(|last| DATAGRAM_SIZES.get(last).copied())
    }

    /// `call` was answered at `now` by `reply` bytes.
    pub(crate) fn on_answer(&mut self, now: Time, call: &PendingCall, reply: usize) {
        let got = lengths(call, u32::try_from(reply).unwrap_or(u32::MAX));
        for (directions, most) in self.directions.iter_mut().zip(DATAGRAM_SIZES) {
            for (way, _) in directions.iter_mut().zip(got).filter(|(_, length)| *length > most) {
                *way = PathDirection { lost: 0, passed: Some(now) };
                self.no_room_since = None;
            }
        }
    }

    /// Whether the receiver seems to have no room for fragments.
    pub(crate) fn lacks_room(&self) -> bool {
        self.no_room_since.is_some()
    }

    /// A request that had failed was answered: drops the assumption.
    pub(crate) fn disprove(&mut self) {
        *self = PmtuBlackhole { is_disproved: true, ..PmtuBlackhole::default() };
    }

    /// A transmission of `call` was lost at `now`. Returns whether the receiver's reassembly queue seems to be full;
    /// `guess` says how soon that is assumed.
    pub(crate) fn on_loss(&mut self, now: Time, call: &PendingCall, sent: Transmission, guess: RoomGuess) -> bool {
        if self.is_disproved {
            return false;
        }
        let lost = lengths(call, reply_of(call));
        let mut dropped = None;
        let mut lacks_room = false;
        for (step, (directions, most)) in self.directions.iter_mut().zip(DATAGRAM_SIZES).enumerate().skip(self.steps) {
            for (way, _) in directions.iter_mut().zip(lost).filter(|(_, length)| *length > most) {
                way.lost = way.lost.saturating_add(1);
                // Again, and nothing got through between: no lack of room.
                let is_again = self.no_room_since.is_some_and(|t| call.submitted > t);
                let is_now = step == 0 && way.is_dropping_now(now, call, sent, guess);
                if way.is_dropping(now, call, sent) || is_now && is_again {
                    dropped = dropped.or(Some(step));
                } else if is_now && self.no_room_since.is_none() {
                    (lacks_room, self.no_room_since) = (true, Some(now));
                }
            }
        }
        if let Some(step) = dropped {
            // Nothing is known of shorter messages: the same losses do not count twice.
            (self.steps, self.directions) = (step + 1, Default::default());
        }
        lacks_room
    }
}

/// Whether `call` or its reply is longer than `most` bytes.
pub(crate) fn is_longer(call: &PendingCall, most: u32) -> bool {
    lengths(call, reply_of(call)).into_iter().any(|length| length > most)
}

impl PathDirection {
    /// Whether nothing gets through, now that `call` was lost once more.
    fn is_dropping(&self, now: Time, call: &PendingCall, sent: Transmission) -> bool {
        let (row, times, tried) = match self.passed {
            Some(_) => (ROW_LATER, TIMES_LATER, TRIED_LATER),
            None => (ROW, TIMES, TRIED),
        };
        let nothing = self.passed.is_none_or(|t| t < call.submitted) && now.since(call.submitted) >= tried;
        nothing && self.lost >= row && sent.retries + 1 >= times
    }

    /// Whether nothing gets through for the moment.
    fn is_dropping_now(&self, now: Time, call: &PendingCall, sent: Transmission, guess: RoomGuess) -> bool {
        let tried = match guess {
            RoomGuess::Never => return false,
            // A synchronous WRITE takes as long as the disk does.
            _ if call.syncs => TRIED_LATER,
            RoomGuess::Slowly => TRIED_NOW_LATE,
            RoomGuess::Soon => TRIED_NOW,
        };
        let nothing = self.passed.is_some_and(|t| now.since(t) >= tried);
        nothing && self.lost >= ROW && sent.retries + 1 >= TIMES
    }
}
