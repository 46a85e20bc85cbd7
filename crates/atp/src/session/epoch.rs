//! Where QUIC's time and ours meet: QUIC wants `Instant`s, and no clock is read here.

use std::time::{Duration, Instant};

use remora_base::Time;

/// The `Instant` of [`Time::ZERO`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch(pub(super) Instant);

impl Epoch {
    pub(super) fn instant(self, t: Time) -> Instant {
        let wanted = Duration::from_nanos(t.as_nanos());
        // Past what the system can express (centuries), time stands still.
        self.0.checked_add(wanted).unwrap_or(self.0)
    }

    pub(super) fn time(self, i: Instant) -> Time {
        Time::ZERO + i.saturating_duration_since(self.0)
    }
}
