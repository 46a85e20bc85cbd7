//! Detects a standing queue in the device below. Hidden stations use the medium without the pacer's knowledge. Each of
//! their frames makes the pacer run ahead of the device, too little to be seen in one acknowledgement. As in CoDel,
//! the minimum of many delays reveals the queue: transient delays do not raise it.

use std::time::Duration;

/// Acknowledgements in an interval.
const ANSWERS: u32 = 32;

/// The minimum delay of the current interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StandingQueue {
    least: Option<Duration>,
    answers: u32,
}

impl StandingQueue {
    /// Adds the delay of an acknowledgement. Returns the minimum at the end of an interval of [`ANSWERS`]
    /// acknowledgements.
    pub(crate) fn take(&mut self, behind: Duration) -> Option<Duration> {
        self.least = Some(self.least.map_or(behind, |least| least.min(behind)));
        self.answers += 1;
        if self.answers < ANSWERS {
            return None;
        }
        std::mem::take(self).least
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use remora_base::{Rate, Time};

    use super::*;
    use crate::LinkConfig;
    use crate::arq::ack_delay::AckDelay;
    use crate::pacing::pacer::{Departure, Gate, Pacer};

    #[test]
    fn transient_ack_delay_is_no_standing_queue() {
        let ms = Duration::from_millis;
        let mut standing = StandingQueue::default();
        let mut minima = |late: &[u64]| {
            let all = late.iter().cycle().take(ANSWERS as usize);
            all.filter_map(|late| standing.take(ms(*late))).collect::<Vec<_>>()
        };
        assert_eq!(minima(&[30, 0, 12]), [ms(0)]);
        assert_eq!(minima(&[30, 5, 12]), [ms(5)]);
        assert_eq!(minima(&[0]), [ms(0)], "each interval starts anew");
    }

    /// A saturated hop of 1 Mbit/s with an RTT of 5 ms, where every hundredth frame meets 1 ms of a hidden station.
    #[test]
    fn hidden_station_frames_build_no_device_queue() {
        let config = LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() };
        let (mut pacer, mut ack_delay) = (Pacer::new(&config, Time::ZERO), AckDelay::default());
        let (mut free, mut sent, mut longest) = (Time::ZERO, 0u32, Duration::ZERO);
        let mut answers: VecDeque<(Time, Departure)> = VecDeque::new();
        for ms in 0..300_000 {
            let now = Time::from_millis(ms);
            while let Some((_, departure)) = answers.front().filter(|(at, _)| *at <= now).copied() {
                answers.pop_front();
                ack_delay.sample(now, now.since(departure.at), pacer.slack(&departure, &config));
                pacer.confirm(now, &departure, true, 0, &ack_delay, &config);
            }
            while pacer.gate(now, &config) == Gate::Open {
                let departure = pacer.send(now, config.cost_max(), true, &config);
                sent += 1;
                let unheard = Duration::from_millis(u64::from(sent.is_multiple_of(100)));
                free = free.max(now) + Duration::from_millis(12) + unheard;
                longest = longest.max(free.since(now));
                answers.push_back((free + Duration::from_millis(5), departure));
            }
        }
        assert!(longest <= Duration::from_millis(36), "{longest:?} in the device");
        assert!(sent >= 24_700, "{sent} frames");
    }
}
