//! What stands in the device below for good. Frames of others that we do not hear take the medium,
//! too, and nothing tells the pacer of them: each makes its clock run ahead of the device by as
//! much, and no answer is ever late enough to show it. But when even the least late of many
//! answers is late, it was nothing that now delays one of them and now another.

use std::time::Duration;

/// So many answers in a row are looked at.
const ANSWERS: u32 = 32;

/// The least late of the latest answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    least: Option<Duration>,
    answers: u32,
}

impl Standing {
    /// An answer was late by `behind`. By how much all of the last [`ANSWERS`] were, once there
    /// have been as many.
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
    use crate::Config;
    use crate::arq::ack_delay::Lag;
    use crate::pacing::pacer::{Departure, Gate, Pacer};

    #[test]
    fn what_delays_one_answer_and_not_another_does_not_stand() {
        let ms = Duration::from_millis;
        let mut standing = Standing::default();
        let mut told = |late: &[u64]| {
            let all = late.iter().cycle().take(ANSWERS as usize);
            all.filter_map(|late| standing.take(ms(*late))).collect::<Vec<_>>()
        };
        assert_eq!(told(&[30, 0, 12]), [ms(0)]);
        assert_eq!(told(&[30, 5, 12]), [ms(5)]);
        assert_eq!(told(&[0]), [ms(0)], "each time anew");
    }

    /// A saturated hop of 1 Mbit/s with a round trip of 5 ms, where one in a hundred frames meets one of
    /// 1 ms that we do not hear.
    #[test]
    fn what_nobody_tells_us_of_does_not_pile_up_in_the_device() {
        let config = Config { rate: Some(Rate::mbit(1)), ..Config::default() };
        let (mut pacer, mut lag) = (Pacer::new(&config, Time::ZERO), Lag::default());
        let (mut free, mut sent, mut longest) = (Time::ZERO, 0u32, Duration::ZERO);
        let mut answers: VecDeque<(Time, Departure)> = VecDeque::new();
        for ms in 0..300_000 {
            let now = Time::from_millis(ms);
            while let Some((_, departure)) = answers.front().filter(|(at, _)| *at <= now).copied() {
                answers.pop_front();
                lag.sample(now, now.since(departure.at), pacer.slack(&departure, &config));
                pacer.confirm(now, &departure, true, 0, &lag, &config);
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
