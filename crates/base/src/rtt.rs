//! The round-trip time estimator of RFC 6298, section 2: a smoothed RTT and its variation.

use std::time::Duration;

/// Smoothed round-trip time (SRTT) and round-trip time variation (RTTVAR).
///
/// The first sample sets SRTT to the sample and RTTVAR to half of it. Each further sample moves SRTT by 1/8 and RTTVAR by
/// 1/4 of the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttEstimator {
    estimate: Option<(Duration, Duration)>,
}

impl RttEstimator {
    /// Adds a measured round-trip time.
    pub fn sample(&mut self, rtt: Duration) {
        self.estimate = Some(match self.estimate {
            None => (rtt, rtt / 2),
            Some((srtt, rttvar)) => ((srtt * 7 + rtt) / 8, (rttvar * 3 + srtt.abs_diff(rtt)) / 4),
        });
    }

    /// SRTT and RTTVAR, after the first sample.
    pub fn get(&self) -> Option<(Duration, Duration)> {
        self.estimate
    }

    /// SRTT, after the first sample.
    pub fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|(srtt, _)| srtt)
    }

    /// RTTVAR, or zero before the first sample.
    pub fn variation(&self) -> Duration {
        self.estimate.map_or(Duration::ZERO, |(_, rttvar)| rttvar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimator_follows_samples_as_rfc_6298_says() {
        let ms = Duration::from_millis;
        let mut rtt = RttEstimator::default();
        assert_eq!((rtt.get(), rtt.variation()), (None, Duration::ZERO));
        rtt.sample(ms(80));
        assert_eq!(rtt.get(), Some((ms(80), ms(40))));
        rtt.sample(ms(160));
        assert_eq!(rtt.get(), Some((ms(90), ms(50))));
        assert_eq!(rtt.smoothed(), Some(ms(90)));
    }
}
