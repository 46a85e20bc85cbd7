//! Pacing: packets leave in quanta of at least two packets back to back, so that each quantum is a packet pair, at
//! the estimated rate on average.

use std::time::Duration;

use remora_base::Time;

/// Lateness of a timer that costs no throughput.
const CREDIT: Duration = Duration::from_millis(2);
/// Minimum duration of a quantum on the link, in nanoseconds.
const QUANTUM_NS: f64 = 2e6;
/// Largest quantum, in bytes: one system call.
const QUANTUM_MAX: u64 = 65_536;

/// Departure schedule of quanta.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// Time when the link has transmitted all packets sent, at the estimated rate.
    due: Time,
    /// Bytes left of the current quantum.
    left: u64,
}

impl Pacer {
    /// Records that `bytes` were sent. `byte_time` is the transmission time of a byte in nanoseconds, `quantum` the
    /// size of a burst.
    pub(super) fn sent(&mut self, now: Time, bytes: u64, quantum: u64, byte_time: f64) {
        if now >= self.due {
            self.left = quantum;
        }
        self.left = self.left.saturating_sub(bytes);
        self.due = self.due.max(now - CREDIT) + Duration::from_nanos((bytes as f64 * byte_time) as u64);
    }

    /// Rescales the remaining transmission time after the byte time changed by `factor`.
    pub(super) fn rescale(&mut self, now: Time, factor: f64) {
        // An invalid factor counts as an idle link.
        let left = Duration::try_from_secs_f64(self.due.since(now).as_secs_f64() * factor).unwrap_or_default();
        if self.due > now {
            self.due = now + left;
        }
    }

    /// Bytes left of the current quantum, or all of a new one if it is over.
    pub(super) fn left(&self, now: Time, quantum: u64) -> u64 {
        if now >= self.due { quantum } else { self.left }
    }

    /// The time at which the next packet may leave; `None` for now. A quantum with less than half a packet left is
    /// over.
    pub(super) fn wait(&self, now: Time, mtu: u64) -> Option<Time> {
        (now < self.due && self.left <= mtu / 2).then_some(self.due)
    }
}

/// Size of a quantum, in bytes.
pub(super) fn quantum(byte_time: f64, mtu: u64) -> u64 {
    ((QUANTUM_NS / byte_time) as u64).clamp(2 * mtu, QUANTUM_MAX.max(2 * mtu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_in_pairs_at_the_rate_on_average() {
        let (mut pacer, mut now, mut times) = (Pacer::default(), Time::from_secs(1), Vec::new());
        for _ in 0..6 {
            if let Some(at) = pacer.wait(now, 1000) {
                now = at;
            }
            pacer.sent(now, 1000, quantum(20_000.0, 1000), 20_000.0);
            times.push(now.since(Time::from_secs(1)).as_millis());
        }
        // The credit makes the first one early.
        assert_eq!(times, [0, 0, 38, 38, 78, 78]);
    }

    #[test]
    fn what_has_left_is_counted_at_the_rate_that_turned_out() {
        let (mut pacer, now) = (Pacer::default(), Time::from_secs(1));
        pacer.sent(now, 1000, 1000, 1e6);
        pacer.rescale(now, 0.1);
        assert_eq!(pacer.wait(now, 1000), Some(now + Duration::from_micros(99_800)), "a second less the credit");
        pacer.rescale(now, f64::NAN);
        assert_eq!(pacer.wait(now, 1000), None);
    }

    #[test]
    fn quanta_grow_with_the_rate_and_are_bounded() {
        for (byte_time, expected) in [(1e9, 2000), (20_000.0, 2000), (100.0, 20_000), (1.0, 65_536), (0.0, 65_536)] {
            assert_eq!(quantum(byte_time, 1000), expected, "{byte_time} ns a byte");
        }
        assert_eq!(quantum(1.0, 65_535), 131_070);
    }
}
