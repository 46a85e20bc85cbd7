//! What a channel is like: rate, delay, queues and errors. The defaults are the wireless side
//! of the testbed of NFS/W 95, without its errors.

use std::sync::Arc;
use std::time::Duration;

use remora_base::{Rate, Time};
use thiserror::Error;

use crate::burst::Distribution;
use crate::lane::PerSide;
use crate::opportunities::Opportunities;

/// The smallest MTU every IPv4 host must take (RFC 791), in bytes.
const MTU_MIN: usize = 576;
/// The longest IPv4 packet, in bytes.
const MTU_MAX: usize = 65_535;
const QUEUE_FRAMES_MAX: usize = 1_000_000;
const TRACE_FRAMES_MAX: usize = 10_000_000;
const DELAY_MAX: Duration = Duration::from_secs(3600);
/// Below this a period would almost always round to nothing on the 20 ms grid.
const MEAN_MIN: Duration = Duration::from_millis(1);
const GOOD_MEAN_MAX: Duration = Duration::from_secs(3600);
const BAD_MEAN_MAX: Duration = Duration::from_secs(30);
const OUTAGES_MAX: usize = 1024;
const RECEIVER_FRAMES_MAX: usize = 1_000_000;
const SERVICE_MAX: Duration = Duration::from_secs(3600);
/// The most mobiles a channel may have.
pub const MOBILES_MAX: usize = 64;

/// A channel's properties. Start from [`Config::default`] and change what differs:
/// `Config { mtu: 576, ..Config::default() }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// How fast bits leave (default 1 Mbit/s).
    pub rate: Rate,
    /// Recorded links (default none): what a side sends leaves at the opportunities of its trace
    /// instead of at `rate`. With a trace, each direction has a medium of its own, whatever
    /// `duplex` says.
    pub trace: PerSide<Option<Arc<Opportunities>>>,
    /// Whether the two directions share one medium (default: half duplex, they do).
    pub duplex: Duplex,
    /// How stations that share a medium find their turns (default: by turns, without collisions).
    pub access: Access,
    /// Propagation delay one way (0 to 1 h, default 2 ms).
    pub delay: Duration,
    /// How much longer a frame may take, each a time of its own between none and this: some overtake others (0 to
    /// 1 h, default 0).
    pub jitter: Duration,
    /// Frames that may wait in a station's device queue (1 to 1 000 000, default 50). The base
    /// station has one queue for all mobiles. The frame in the air has left the queue.
    pub queue_frames: usize,
    /// A mobile's slow receive buffer (default none: mobiles are infinitely fast).
    pub receiver: Option<Receiver>,
    /// Longest frame in bytes, IP header included (576 to 65535, default 1500).
    pub mtu: usize,
    /// Probability that a frame is lost, whatever the weather (0 to 1, default 0).
    pub loss: f64,
    /// Good and bad periods (default: always good).
    pub errors: ErrorModel,
    /// Periods that are bad on top of `errors`; they may overlap (at most 1024, default none).
    pub outages: Vec<Outage>,
    /// Link-level retransmission at its best, as NFS/W 95 emulates it: a frame that would
    /// touch a bad period waits for the first good period that it fits into (default false:
    /// it is sent and lost).
    pub hold: bool,
    /// How many frames' fates are kept for [`Channel::poll_trace`](crate::Channel::poll_trace)
    /// (0 to 10 000 000, default 0: none). The oldest give way.
    pub trace_frames: usize,
}

/// The receive buffer of a slow mobile host (NFS/W 95 §4): each mobile has one, for what comes
/// from the base station. Frames that arrive wait in it, those of datagrams that have lost
/// another frame too; the host takes them one after another. A datagram is there when the last
/// of its frames has been taken. The base station has no such buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// Frames it holds, the one being taken included (1 to 1 000 000). One more is dropped.
    pub frames: usize,
    /// How long the host takes for a frame (0 to 1 h).
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

/// How stations that share a medium find their turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Frame by frame, all that wait in a round: nothing is lost, and no time.
    Turns,
    /// As on a shared Ethernet (IEEE 802.3 clause 4, half duplex): carrier sense, collisions, back-off
    /// ([`csma`](crate::csma)); `delay` is from any station to any other. A packet's time on the
    /// medium is that of its Ethernet frame: 26 bytes more, with those before the gap, and 72 at
    /// least. Only with a shared medium (half duplex, no trace) and without `hold`.
    Collisions,
}

/// The law of good and bad periods.
#[derive(Clone, PartialEq, Debug)]
pub enum ErrorModel {
    /// Always good.
    None,
    /// The two-state model of NFS/W 95 §3.2: good and bad periods take turns, whatever the
    /// traffic.
    TwoState {
        /// The law of the lengths, the same for good and bad periods.
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
}

/// A period in which nothing gets through.
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

/// Why a [`Config`] cannot be a channel.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// The MTU is out of range.
    #[error("MTU of {0} bytes: it must be from {MTU_MIN} to {MTU_MAX}")]
    Mtu(usize),
    /// The queue is out of range.
    #[error("queue of {0} frames: it must be from 1 to {QUEUE_FRAMES_MAX}")]
    QueueFrames(usize),
    /// Collisions where there is no shared medium, or with held frames.
    #[error("collisions: they need a medium that is shared, half duplex at a rate, and frames that are not held")]
    Collisions,
    /// The receive buffer is out of range.
    #[error("receive buffer of {0} frames: it must be from 1 to {RECEIVER_FRAMES_MAX}")]
    ReceiverFrames(usize),
    /// The receiver is too slow.
    #[error("a receiver that takes {0:?} for a frame: it must be at most {SERVICE_MAX:?}")]
    ReceiverService(Duration),
    /// There are no mobiles, or too many.
    #[error("{0} mobiles: it must be from 1 to {MOBILES_MAX}")]
    Mobiles(usize),
    /// The trace of frames is too long.
    #[error("trace of {0} frames: it must be at most {TRACE_FRAMES_MAX}")]
    TraceFrames(usize),
    /// The delay, or its jitter, is too long.
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
    fn the_defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
        let errors = ErrorModel::bursts(Duration::ZERO);
        assert_eq!(Config { errors, loss: 1.0, mtu: 576, ..Config::default() }.validate(), Ok(()));
    }

    #[test]
    fn every_range_is_checked() {
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
