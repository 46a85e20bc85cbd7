//! The channel's configuration: rate, delay, queues and errors. The defaults are the wireless part
//! of the NFS/W 95 testbed, without its errors.

use std::sync::Arc;
use std::time::Duration;

use remora_base::{Rate, Time};
use thiserror::Error;

use crate::lane::PerSide;
use crate::opportunities::Opportunities;

/// The smallest MTU an IPv4 host must support (RFC 791), in bytes.
const MTU_MIN: usize = 576;
/// The longest IPv4 packet, in bytes.
const MTU_MAX: usize = 65_535;
const QUEUE_FRAMES_MAX: usize = 1_000_000;
const TRACE_FRAMES_MAX: usize = 10_000_000;
const DELAY_MAX: Duration = Duration::from_secs(3600);
/// A shorter period would almost always round to 0 on the 20 ms grid.
const MEAN_MIN: Duration = Duration::from_millis(1);
const GOOD_MEAN_MAX: Duration = Duration::from_secs(3600);
const BAD_MEAN_MAX: Duration = Duration::from_secs(30);
const OUTAGES_MAX: usize = 1024;
const RECEIVER_FRAMES_MAX: usize = 1_000_000;
const SERVICE_MAX: Duration = Duration::from_secs(3600);
/// The most mobiles a channel may have.
pub const MOBILES_MAX: usize = 64;

/// The configuration of a channel. Start from [`Config::default`]: `Config { mtu: 576,
/// ..Config::default() }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Bit rate (default 1 Mbit/s).
    pub rate: Rate,
    /// Recorded links (default none): the side sends at the delivery opportunities of its trace
    /// instead of at `rate`. With a trace each direction has its own medium, whatever `duplex`
    /// says.
    pub trace: PerSide<Option<Arc<Opportunities>>>,
    /// Whether the two directions share one medium (default: half duplex, they do).
    pub duplex: Duplex,
    /// Medium access for stations that share a medium (default: turns, without collisions).
    pub access: Access,
    /// Propagation delay one way (0 to 1 h, default 2 ms).
    pub delay: Duration,
    /// Jitter: the upper bound of a random delay added to each frame (0 to 1 h, default 0). Frames
    /// may overtake each other.
    pub jitter: Duration,
    /// Capacity of a station's device queue in frames (1 to 1 000 000, default 50). The base
    /// station has one queue for all mobiles. The frame on the medium is not in the queue.
    pub queue_frames: usize,
    /// A mobile's receive buffer (default none: mobiles are infinitely fast).
    pub receiver: Option<Receiver>,
    /// Longest frame in bytes, IP header included (576 to 65535, default 1500).
    pub mtu: usize,
    /// Probability of independent frame loss (0 to 1, default 0).
    pub loss: f64,
    /// Good and bad periods (default: always good).
    pub errors: ErrorModel,
    /// Bad periods in addition to `errors`; they may overlap (at most 1024, default none).
    pub outages: Vec<Outage>,
    /// Ideal link-level retransmission, as NFS/W 95 emulates it: a frame that would overlap a bad
    /// period waits for the first good period into which it fits (default false: it is sent and
    /// lost).
    pub hold: bool,
    /// Frame records kept for [`Channel::poll_trace`](crate::Channel::poll_trace) (0 to 10 000 000,
    /// default 0: none). New records overwrite the oldest.
    pub trace_frames: usize,
}

/// The receive buffer of a slow mobile host (NFS/W 95 §4), for frames from the base station. The
/// host takes the frames one after another, including those of incomplete datagrams. A datagram
/// arrives when the host takes its last frame. The base station has no such buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// Capacity in frames, including the one being taken (1 to 1 000 000). Further frames are
    /// dropped.
    pub frames: usize,
    /// Service time of a frame (0 to 1 h).
    pub service: Duration,
}

/// How the two directions share the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplex {
    /// One medium: one frame at a time, in either direction.
    Half,
    /// A medium for each direction.
    Full,
}

/// Medium access for stations that share a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Round robin, frame by frame, without loss or overhead.
    Turns,
    /// Shared Ethernet (IEEE 802.3 clause 4, half duplex): carrier sense, collisions, back-off
    /// ([`csma`](crate::csma)). `delay` separates any two stations. A packet occupies the medium as
    /// an Ethernet frame: 26 bytes more, and at least 72. Requires a shared medium (half duplex, no
    /// trace) and no `hold`.
    Collisions,
}

/// The distribution of good and bad periods.
#[derive(Clone, PartialEq, Debug)]
pub enum ErrorModel {
    None,
    /// The two-state model of NFS/W 95 §3.2: good and bad periods alternate, independent of the
    /// traffic.
    TwoState {
        /// The distribution of the lengths of good and of bad periods.
        distribution: Distribution,
        /// Mean length of a good period (1 ms to 1 h).
        good_mean: Duration,
        /// Mean length of a bad period (1 ms to 30 s, or 0 for never bad).
        bad_mean: Duration,
    },
}

impl ErrorModel {
    /// The papers' model: uniform periods, good for 1 s on average, bad for `bad_mean`.
    pub const fn bursts(bad_mean: Duration) -> ErrorModel {
        ErrorModel::TwoState { distribution: Distribution::Uniform, good_mean: Duration::from_secs(1), bad_mean }
    }

    /// The same means with another distribution.
    pub fn distributed(self, distribution: Distribution) -> ErrorModel {
        match self {
            ErrorModel::None => ErrorModel::None,
            ErrorModel::TwoState { good_mean, bad_mean, .. } => {
                ErrorModel::TwoState { distribution, good_mean, bad_mean }
            }
        }
    }
}

/// The distribution of a period's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Uniform on 0, 20, 40, ... ms up to twice the mean (NFS/W 97). The mean is exact: where twice
    /// the mean lies between two steps, the upper end is drawn from both in proportion. A length of
    /// 0 joins its neighbours into one period.
    Uniform,
    /// Always the mean, to the nanosecond.
    Deterministic,
    /// Exponential, to the nanosecond.
    Exponential,
}

/// A configured bad period: every frame that overlaps it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it begins.
    pub start: Time,
    /// How long it lasts (more than 0).
    pub length: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rate: Rate::mbit(1),
            trace: PerSide::default(),
            duplex: Duplex::Half,
            access: Access::Turns,
            delay: Duration::from_millis(2),
            jitter: Duration::ZERO,
            queue_frames: 50,
            receiver: None,
            mtu: 1500,
            loss: 0.0,
            errors: ErrorModel::None,
            outages: Vec::new(),
            hold: false,
            trace_frames: 0,
        }
    }
}

impl Config {
    /// Checks every field against its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(ConfigError::Mtu(self.mtu));
        }
        if !(1..=QUEUE_FRAMES_MAX).contains(&self.queue_frames) {
            return Err(ConfigError::QueueFrames(self.queue_frames));
        }
        if self.trace_frames > TRACE_FRAMES_MAX {
            return Err(ConfigError::TraceFrames(self.trace_frames));
        }
        if let Some(long) = [self.delay, self.jitter].into_iter().find(|d| *d > DELAY_MAX) {
            return Err(ConfigError::Delay(long));
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(ConfigError::Loss(self.loss));
        }
        let apart = self.duplex == Duplex::Full || self.trace.base.is_some() || self.trace.mobile.is_some();
        if self.access == Access::Collisions && (apart || self.hold) {
            return Err(ConfigError::Collisions);
        }
        self.errors.validate()?;
        self.receiver.map_or(Ok(()), Receiver::validate)?;
        if self.outages.len() > OUTAGES_MAX {
            return Err(ConfigError::Outages(self.outages.len()));
        }
        match self.outages.iter().find(|o| o.length.is_zero()) {
            Some(empty) => Err(ConfigError::EmptyOutage(empty.start)),
            None => Ok(()),
        }
    }
}

impl Receiver {
    fn validate(self) -> Result<(), ConfigError> {
        if !(1..=RECEIVER_FRAMES_MAX).contains(&self.frames) {
            return Err(ConfigError::ReceiverFrames(self.frames));
        }
        if self.service > SERVICE_MAX {
            return Err(ConfigError::ReceiverService(self.service));
        }
        Ok(())
    }
}

impl ErrorModel {
    fn validate(&self) -> Result<(), ConfigError> {
        let ErrorModel::TwoState { good_mean, bad_mean, .. } = *self else { return Ok(()) };
        if !(MEAN_MIN..=GOOD_MEAN_MAX).contains(&good_mean) {
            return Err(ConfigError::GoodMean(good_mean));
        }
        if !bad_mean.is_zero() && !(MEAN_MIN..=BAD_MEAN_MAX).contains(&bad_mean) {
            return Err(ConfigError::BadMean(bad_mean));
        }
        Ok(())
    }
}

/// A [`Config`] field out of its range.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// The MTU is out of range.
    #[error("MTU of {0} bytes: it must be from {MTU_MIN} to {MTU_MAX}")]
    Mtu(usize),
    /// The queue is out of range.
    #[error("queue of {0} frames: it must be from 1 to {QUEUE_FRAMES_MAX}")]
    QueueFrames(usize),
    /// Collisions without a shared medium, or with `hold`.
    #[error("access by collisions requires half duplex at a rate, without a trace and without held frames")]
    Collisions,
    /// The receive buffer's capacity is out of range.
    #[error("receive buffer of {0} frames: it must be from 1 to {RECEIVER_FRAMES_MAX}")]
    ReceiverFrames(usize),
    /// The receiver's service time is out of range.
    #[error("receiver service time of {0:?}: it must be at most {SERVICE_MAX:?}")]
    ReceiverService(Duration),
    /// There are no mobiles, or too many.
    #[error("{0} mobiles: it must be from 1 to {MOBILES_MAX}")]
    Mobiles(usize),
    /// The number of frame records is out of range.
    #[error("trace of {0} frames: it must be at most {TRACE_FRAMES_MAX}")]
    TraceFrames(usize),
    /// The delay or the jitter is out of range.
    #[error("delay of {0:?}: it must be at most {DELAY_MAX:?}")]
    Delay(Duration),
    /// The loss is not a probability.
    #[error("loss of {0}: it must be from 0 to 1")]
    Loss(f64),
    /// The good periods' mean is out of range.
    #[error("good periods of {0:?} on average: it must be from {MEAN_MIN:?} to {GOOD_MEAN_MAX:?}")]
    GoodMean(Duration),
    /// The bad periods' mean is out of range.
    #[error("bad periods of {0:?} on average: it must be 0 or from {MEAN_MIN:?} to {BAD_MEAN_MAX:?}")]
    BadMean(Duration),
    /// Too many outages.
    #[error("{0} outages: at most {OUTAGES_MAX} are possible")]
    Outages(usize),
    /// An outage of no length.
    #[error("the outage at {0} has no length")]
    EmptyOutage(Time),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_default_is_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
        let errors = ErrorModel::bursts(Duration::ZERO);
        assert_eq!(Config { errors, loss: 1.0, mtu: 576, ..Config::default() }.validate(), Ok(()));
    }

    #[test]
    fn config_field_out_of_range_is_refused() {
        let d = Config::default;
        let two = |good_ms, bad_ms| ErrorModel::TwoState {
            distribution: Distribution::Exponential,
            good_mean: Duration::from_millis(good_ms),
            bad_mean: Duration::from_millis(bad_ms),
        };
        let receiver = |frames, secs| Some(Receiver { frames, service: Duration::from_secs(secs) });
        let outage = Outage { start: Time::from_secs(3), length: Duration::ZERO };
        let long = Outage { start: Time::ZERO, length: Duration::from_secs(1) };
        let cases = [
            (Config { mtu: 575, ..d() }, ConfigError::Mtu(575)),
            (Config { mtu: 65_536, ..d() }, ConfigError::Mtu(65_536)),
            (Config { receiver: receiver(0, 1), ..d() }, ConfigError::ReceiverFrames(0)),
            (Config { receiver: receiver(1, 3601), ..d() }, ConfigError::ReceiverService(Duration::from_secs(3601))),
            (Config { queue_frames: 0, ..d() }, ConfigError::QueueFrames(0)),
            (Config { queue_frames: usize::MAX, ..d() }, ConfigError::QueueFrames(usize::MAX)),
            (Config { trace_frames: usize::MAX, ..d() }, ConfigError::TraceFrames(usize::MAX)),
            (Config { delay: Duration::MAX, ..d() }, ConfigError::Delay(Duration::MAX)),
            (Config { access: Access::Collisions, duplex: Duplex::Full, ..d() }, ConfigError::Collisions),
            (Config { access: Access::Collisions, hold: true, ..d() }, ConfigError::Collisions),
            (Config { jitter: Duration::MAX, ..d() }, ConfigError::Delay(Duration::MAX)),
            (Config { loss: -0.1, ..d() }, ConfigError::Loss(-0.1)),
            (Config { loss: 1.1, ..d() }, ConfigError::Loss(1.1)),
            (Config { errors: two(0, 10), ..d() }, ConfigError::GoodMean(Duration::ZERO)),
            (Config { errors: two(10, 30_001), ..d() }, ConfigError::BadMean(Duration::from_millis(30_001))),
            (Config { outages: vec![outage], ..d() }, ConfigError::EmptyOutage(Time::from_secs(3))),
            (Config { outages: vec![long; 1025], ..d() }, ConfigError::Outages(1025)),
        ];
        for (config, error) in cases {
            assert_eq!(config.validate(), Err(error));
        }
        assert!(Config { loss: f64::NAN, ..d() }.validate().is_err());
    }
}
