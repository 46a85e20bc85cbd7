//! Pacing of file data: at little more than the bottleneck bandwidth (RFC 9002, section 7.7), and never more at once
//! than a device queue holds.
//!
//! The window does not limit bursts. When it opens on a long path, or a whole window is retransmitted, everything would
//! go out at once, overflow the queue in front of the slowest hop, be lost, and be retransmitted in one burst again.
//! This is the virtual scheduling algorithm of ITU-T I.371 (GCRA): each request moves the time at which the hop has
//! finished, which may run ahead by a limited number of frames.

use std::time::Duration;

use remora_base::Time;

use crate::congestion::window::ReplySample;
use crate::transport::block_size::frames;

/// Largest burst in full frames. Devices hold 50 and more, and the last block comes on top.
const AHEAD_FRAMES: u32 = 32;
/// Largest burst in time, if that is more: clocks and timers are no finer.
const AHEAD_MIN: Duration = Duration::from_millis(4);
/// Gain over the measured pace, to find a faster one.
const GAIN: f64 = 1.05;
/// Factor of the gain after each round trip without a queue.
const SEARCH: f64 = 1.25;
const SEARCH_MAX: f64 = 64.0;
/// Airtime of this many frames above the minimum RTT is no queue.
const NO_QUEUE_FRAMES: f64 = 4.0;

/// With jitter, the minimum of this many RTTs shows whether there is a queue.
const JITTER_REPLIES: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    /// When the slowest hop has finished all that was sent, at its measured pace.
    done_at: Time,
    /// How far `done_at` may be ahead.
    ahead: Duration,
    /// Factor of the pace.
    gain: f64,
    /// When the gain last changed.
    since: Time,
    /// With jitter: minimum RTT of the latest replies, and their number.
    low: Option<(Duration, u32)>,
}

impl Default for Pacer {
    fn default() -> Pacer {
        Pacer { done_at: Time::ZERO, ahead: Duration::ZERO, gain: GAIN, since: Time::ZERO, low: None }
    }
}

impl Pacer {
    /// When the next request may be sent.
    pub(crate) fn opens_at(&self) -> Time {
        self.done_at - self.ahead
    }

    /// A request was sent that takes the hop `airtime`; a full frame takes `frame`.
    pub(crate) fn on_sent(&mut self, now: Time, airtime: Duration, frame: Duration) {
        self.ahead = (frame * AHEAD_FRAMES).max(AHEAD_MIN);
        self.done_at = self.done_at.max(now) + airtime.div_f64(self.gain);
    }

    /// File data was answered.
    pub(crate) fn on_reply(&mut self, now: Time, seen: &ReplySample) {
        let (Some(rtt), Some(shortest), Some(spacing)) = (seen.rtt, seen.shortest, seen.spacing) else { return };
        let Some(rtt) = self.telling(rtt, seen) else { return };
        let wait = spacing.mul_f64(NO_QUEUE_FRAMES / frames(seen.bytes).max(1.0)) + seen.jitter;
        if rtt > shortest + wait {
            (self.gain, self.since) = (GAIN, now);
        } else if seen.full && now.since(self.since) > rtt {
            // An idle client causes no queue.
            (self.gain, self.since) = ((self.gain * SEARCH).min(SEARCH_MAX), now);
        }
    }

    /// The RTT that shows whether there is a queue.
    fn telling(&mut self, rtt: Duration, seen: &ReplySample) -> Option<Duration> {
        if seen.jitter.is_zero() {
            self.low = None;
            return Some(rtt);
        }
        let (least, replies) = self.low.map_or((rtt, 1), |(low, replies)| (low.min(rtt), replies + 1));
        self.low = Some((least, replies)).filter(|_| replies < JITTER_REPLIES);
        if self.low.is_none() { Some(least) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(1);

    /// When each of `n` requests of `frames` frames is sent.
    fn times(pacer: &mut Pacer, mut now: Time, n: u32, frames: u32) -> Vec<Time> {
        let send = |_| {
            now = now.max(pacer.opens_at());
            pacer.on_sent(now, FRAME * frames, FRAME);
            now
        };
        (0..n).map(send).collect()
    }

    fn reply(rtt: Duration) -> ReplySample {
        ReplySample {
            bytes: 16_000,
            sent: Time::ZERO,
            rtt: Some(rtt),
            shortest: Some(Duration::from_millis(100)),
            spacing: Some(FRAME * 11),
            pause: Duration::ZERO,
            jitter: Duration::ZERO,
            repair: Duration::ZERO,
            noise: 0.0,
            full: true,
            repaired: false,
        }
    }

    #[test]
    fn burst_fits_a_device_queue_and_the_rest_is_paced() {
        let now = Time::from_secs(7);
        let sent = times(&mut Pacer::default(), now, 500, 11);
        let at_once = sent.iter().filter(|t| **t == now).count() as u32 * 11;
        assert!((AHEAD_FRAMES..=AHEAD_FRAMES + 12).contains(&at_once), "{at_once}");
        let took = sent[499].since(now).as_secs_f64();
        let carried = 500.0 * 11.0 * FRAME.as_secs_f64();
        let in_queue = f64::from(at_once) * FRAME.as_secs_f64();
        assert!(took < carried && (took + in_queue) * GAIN > carried - in_queue, "{took} for {carried}");
    }

    #[test]
    fn idle_time_adds_no_burst() {
        let mut pacer = Pacer::default();
        times(&mut pacer, Time::from_secs(1), 10, 11);
        let later = Time::from_secs(60);
        let at_once = times(&mut pacer, later, 100, 11).into_iter().filter(|t| *t == later).count() as u32;
        assert!(at_once * 11 <= AHEAD_FRAMES + 12, "{at_once}");
    }

    #[test]
    fn minimum_of_several_rtts_shows_a_queue_despite_jitter() {
        let mut pacer = Pacer::default();
        let reply = |ms| ReplySample { jitter: Duration::from_millis(8), ..reply(Duration::from_millis(ms)) };
        let eight = |pacer: &mut Pacer, at, least| {
            (0..JITTER_REPLIES).for_each(|n| pacer.on_reply(Time::from_secs(at), &reply(least + u64::from(n) * 5)));
            pacer.gain
        };
        assert_eq!(eight(&mut pacer, 100, 105), GAIN * SEARCH);
        assert_eq!(eight(&mut pacer, 200, 105), GAIN * SEARCH * SEARCH);
        assert_eq!(eight(&mut pacer, 300, 115), GAIN, "none of them came without a wait");
    }

    #[test]
    fn idle_client_without_queue_keeps_its_gain() {
        let mut pacer = Pacer::default();
        for n in 0..40 {
            let seen = ReplySample { full: false, ..reply(Duration::from_millis(101)) };
            pacer.on_reply(Time::from_secs(100 + n), &seen);
        }
        assert_eq!(pacer.gain, GAIN);
    }

    #[test]
    fn gain_grows_without_a_queue_and_resets_with_one() {
        let mut pacer = Pacer::default();
        let second = |pacer: &mut Pacer, at| {
            let sent = times(pacer, Time::from_secs(at), 1000, 11);
            sent[999].since(sent[500]).as_secs_f64()
        };
        let at_first = second(&mut pacer, 1);
        for n in 0..10 {
            pacer.on_reply(Time::from_secs(100 + n), &reply(Duration::from_millis(101)));
        }
        assert!(second(&mut pacer, 200) < at_first / 8.0);
        pacer.on_reply(Time::from_secs(300), &reply(Duration::from_millis(120)));
        assert_eq!(second(&mut pacer, 400), at_first);
    }
}
