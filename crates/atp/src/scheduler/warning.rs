//! Warnings while the forecast is unknown: in an outage, and before the first measurement.

use std::time::Duration;

use remora_base::Time;

use super::state::Scheduler;
use crate::estimate::Outage;
use crate::object::{Probability, RequestId, Upcall};

/// Maximum number of objects with earlier deadlines whose transmission is counted for a probability.
const AHEAD_MAX: usize = 64;

impl Scheduler {
    /// Tells the application the probability that an object meets its deadline, if the forecast is unknown. A
    /// suspended object would not be sent anyway.
    pub(super) fn warn(&mut self, now: Time, request: RequestId) {
        let Some(probability) = self.probability(now, request) else { return };
        self.upcalls.push_back(Upcall::Uncertain { request, probability });
    }

    /// `None` if the forecast is known or the object has no deadline to miss.
    fn probability(&self, now: Time, id: RequestId) -> Option<Probability> {
        let object = self.objects.get(&id).filter(|o| !o.asked && !o.short)?;
        let deadline = object.deadline?;
        let unmeasured = self.forecast.rate.is_none().then(|| Outage::new(now));
        let outage = self.unreachable.get(&object.dest).or(unmeasured.as_ref())?;
        let least = self.config.latency.saturating_add(self.transmission(deadline, id));
        let left = deadline.since(now).checked_sub(least);
        Some(left.map_or(Probability::ZERO, |left| outage.ends_within(now, left)))
    }

    /// Time that the object, and those before it by priority and deadline, take at the last known rate.
    fn transmission(&self, deadline: Time, id: RequestId) -> Duration {
        let (Some(rate), Some(object)) = (self.forecast.rate, self.objects.get(&id)) else { return Duration::ZERO };
        let before = self.expiries.range(..(deadline, id)).rev().take(AHEAD_MAX);
        let before = before.filter_map(|(_, other)| self.objects.get(other)).filter(|o| o.priority >= object.priority);
        let bytes: f64 = before.chain([object]).map(|o| self.config.wire(o.size - o.written) as f64).sum();
        Duration::try_from_secs_f64(bytes * 8.0 / rate.bits() as f64).unwrap_or(Duration::MAX)
    }
}
