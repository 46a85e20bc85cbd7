//! Congestion control: the share of the measured rate that this path uses while others use the bottleneck too.
//!
//! Packet pairs measure the whole rate of a bottleneck, even if several hosts queue in it. A full queue shows that
//! their sum is too large: packets are lost while the round-trip time is longer than the least one. Then the share
//! falls by a factor, at most once a round, and grows by a constant in every other round, so that all hosts come to
//! equal shares (RFC 8085, section 3.1.1; Chiu and Jain 1989). Loss on a path without a queue is a radio's, and
//! counts only if it is heavy.

use std::time::Duration;

use remora_base::Time;

/// Minimum duration of a round, and bytes in full packets.
const ROUND: Duration = Duration::from_millis(100);
const ROUND_PACKETS: u64 = 16;
/// Part of the bytes whose loss shows congestion, with a queue and without one.
const LOSS_QUEUED: f64 = 0.02;
const LOSS_HEAVY: f64 = 0.25;
/// A queue: a round-trip time that exceeds the least one by a quarter, by this, by the transmission time of two
/// packets, and by so many mean deviations (RFC 6298), which jitter explains.
const QUEUED: Duration = Duration::from_millis(5);
const QUEUED_DEVIATIONS: u32 = 4;
/// Factor of a fall (RFC 9438, section 4.6), and the least share.
const FALL: f64 = 0.7;
const SHARE_MIN: f64 = 1.0 / 64.0;
/// Growth in each of the first rounds after a fall; each later round adds as much to the growth.
const GROWTH: f64 = 0.01;
const STEADY_ROUNDS: u32 = 8;

/// The share, and the current round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    value: f64,
    began: Time,
    acknowledged: u64,
    lost: u64,
    /// Rounds since the last fall.
    rounds: u32,
    /// The least round-trip time of the path.
    least: Option<Duration>,
}

impl Share {
    pub(super) fn new(now: Time) -> Share {
        Share { value: 1.0, began: now, acknowledged: 0, lost: 0, rounds: 0, least: None }
    }

    /// The share, at most 1.
    pub(super) fn get(&self) -> f64 {
        self.value
    }

    /// Discards the current round; the next one begins at `from`. Packets lost in a blackout show no congestion.
    pub(super) fn restart(&mut self, from: Time) {
        (self.began, self.acknowledged, self.lost) = (from, 0, 0);
    }

    pub(super) fn lost(&mut self, now: Time, bytes: u64) {
        if now >= self.began {
            self.lost = self.lost.saturating_add(bytes);
        }
    }

    /// Records an acknowledgement after `trip`, and ends the round if it is over.
    pub(super) fn acknowledged(&mut self, now: Time, bytes: u64, trip: Duration, path: PathState) {
        let least = *self.least.insert(self.least.map_or(trip, |least| least.min(trip)));
        if now < self.began {
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        let all = self.acknowledged.saturating_add(self.lost);
        if now.since(self.began) < path.smoothed.max(ROUND) || all < ROUND_PACKETS * path.mtu {
            return;
        }
        let explained = least / 4 + QUEUED + path.airtime + path.deviation * QUEUED_DEVIATIONS;
        let is_queued = path.smoothed > least + explained;
        let tolerated = if is_queued { LOSS_QUEUED } else { LOSS_HEAVY };
        if self.lost as f64 > all as f64 * tolerated {
            self.value = (self.value * FALL).max(SHARE_MIN);
            self.rounds = 0;
        } else {
            self.rounds = self.rounds.saturating_add(1);
            let growth = GROWTH * f64::from(1 + self.rounds.saturating_sub(STEADY_ROUNDS));
            self.value = (self.value + growth).min(1.0);
        }
        self.restart(now);
    }
}

/// What is known of the path at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathState {
    /// The smoothed round-trip time.
    pub(super) smoothed: Duration,
    /// Mean deviation of the round-trip time.
    pub(super) deviation: Duration,
    /// Transmission time of two full packets.
    pub(super) airtime: Duration,
    /// Bytes of a full packet.
    pub(super) mtu: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1000;

    /// Sends `seconds` of a hundred packets each, of which each `lost_every`th is lost.
    fn send(share: &mut Share, from: Time, seconds: u64, trip_ms: u64, lost_every: u64) -> Time {
        let trip = Duration::from_millis(trip_ms);
        let path = PathState {
            smoothed: trip,
            deviation: Duration::from_millis(2),
            airtime: Duration::from_millis(5),
            mtu: MTU,
        };
        for n in 1..=100 * seconds {
            let now = from + Duration::from_millis(10 * n);
            if n.is_multiple_of(lost_every) {
                share.lost(now, MTU);
            } else {
                share.acknowledged(now, MTU, trip, path);
            }
        }
        from + Duration::from_secs(seconds)
    }

    #[test]
    fn share_falls_with_loss_in_a_queue_and_comes_back() {
        let mut share = Share::new(Time::ZERO);
        let now = send(&mut share, Time::ZERO, 1, 10, u64::MAX);
        assert_eq!(share.get(), 1.0);
        let now = send(&mut share, now, 1, 100, 12);
        assert!(share.get() < 0.3, "{}", share.get());
        let now = send(&mut share, now, 1, 100, u64::MAX);
        assert!(share.get() < 0.4, "{}", share.get());
        send(&mut share, now, 4, 10, u64::MAX);
        assert_eq!(share.get(), 1.0);
    }

    #[test]
    fn loss_without_a_queue_counts_only_if_heavy() {
        for (lost_every, falls) in [(20, false), (5, false), (3, true)] {
            let mut share = Share::new(Time::ZERO);
            send(&mut share, Time::ZERO, 3, 10, lost_every);
            assert_eq!(share.get() < 0.5, falls, "one of {lost_every}: {}", share.get());
        }
    }

    #[test]
    fn loss_around_a_blackout_does_not_count() {
        let mut share = Share::new(Time::ZERO);
        let now = send(&mut share, Time::ZERO, 1, 10, u64::MAX);
        share.restart(now + Duration::from_millis(500));
        (0..40).for_each(|n| share.lost(now + Duration::from_millis(n), MTU));
        send(&mut share, now, 2, 100, u64::MAX);
        assert_eq!(share.get(), 1.0);
    }
}
