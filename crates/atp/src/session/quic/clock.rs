//! Conversion between Remora's time and that of QUIC and TLS. No clock is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use remora_base::Time;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The `Instant` of [`Time::ZERO`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(pub(crate) Instant);

impl Epoch {
    pub(crate) fn instant(self, t: Time) -> Instant {
        let wanted = Duration::from_nanos(t.as_nanos());
        // Beyond the range of the system's clock (centuries) time stands still.
        self.0.checked_add(wanted).unwrap_or(self.0)
    }

    pub(crate) fn time(self, i: Instant) -> Time {
        Time::ZERO + i.saturating_duration_since(self.0)
    }
}

/// The endpoint's time for the libraries that ask for it. They use only differences (ticket ages), so the origin
/// does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Sets the time.
    pub(crate) fn set(&self, now: Time) {
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn since_origin(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_origin()))
    }
}

impl noq_proto::TimeSource for Clock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.since_origin()
    }
}
