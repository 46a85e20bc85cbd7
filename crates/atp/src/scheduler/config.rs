//! Settings of a scheduler.

use std::time::Duration;

/// Policy for admission, order and eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// ATP 02, section 3.3: strict priority, deadline safety by a scan in sending order, the available bandwidth
    /// spent in intervals of 50 ms.
    Paper,
    /// Chooses the set by priority and the order by deadline; evicts the largest object of the lowest class first;
    /// evicts nothing while the rate is unknown or in a blackout.
    #[default]
    Remora,
}

/// Margins of the policy `remora`; factors, except `horizon`.
///
/// The defaults were chosen on the workloads of ATP 02 (`tests/scheduler_fluid.rs`). Two of them matter: without
/// `foresight`, low objects are started that new objects of a higher class then starve; with a longer `horizon`, a
/// fading link catches a class that yielded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// Share of the forecast that objects may use, 0 to 1.
    pub margin: f64,
    /// Share of the forecast at which a class must stay safe while a lower one precedes it, 0 to 1.
    pub reserve: f64,
    /// How far ahead the forecast is trusted for that.
    pub horizon: Duration,
    /// Factor on the upper bound of the link above which an object that does not fit is ended; at least 1.
    pub hope: f64,
    /// The same factor below which such an object is sent while nothing else is waiting; 0 for never.
    pub gamble: f64,
    /// Factor on the size of an object suspended for lack of bandwidth, so that it resumes only with a reserve; at
    /// least 1.
    pub return_margin: f64,
    /// Share of the recent demand of higher classes that is kept free for them, 0 to 1.
    pub foresight: f64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            margin: 0.95,
            reserve: 0.75,
            horizon: Duration::from_millis(1500),
            hope: 2.0,
            gamble: 1.0,
            return_margin: 1.25,
            foresight: 0.5,
        }
    }
}

/// Settings of a scheduler. It uses at most about 400 bytes for each of `objects_max` and 4 KB for each of
/// `queues_max`, without the bytes of the objects.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// How objects are admitted and ordered.
    pub policy: Policy,
    /// Maximum number of requests that have not ended.
    pub objects_max: usize,
    /// Maximum bytes of requests that have not ended.
    pub bytes_max: u64,
    /// Maximum size of an object, in bytes.
    pub size_max: u64,
    /// Maximum number of queues with objects.
    pub queues_max: usize,
    /// Bytes of an object in a full packet.
    pub payload: u64,
    /// Other bytes of a packet: IP, UDP and QUIC headers, the tag.
    pub overhead: u64,
    /// Time from the last byte of an object to its acknowledgement, without its transmission time.
    pub latency: Duration,
    /// The margins of the policy `remora`.
    pub tuning: Tuning,
}

impl Config {
    /// Bytes on the wire for `bytes` of an object.
    pub(super) fn wire(&self, bytes: u64) -> u64 {
        let packets = bytes.div_ceil(self.payload.max(1)).max(1);
        bytes.saturating_add(packets.saturating_mul(self.overhead))
    }

    /// Bytes on the wire of a full packet.
    pub(super) fn packet(&self) -> u64 {
        self.payload.saturating_add(self.overhead).max(1)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: Policy::Remora,
            objects_max: 65_536,
            bytes_max: 256 << 20,
            size_max: 256 << 20,
            queues_max: 64,
            payload: 1400,
            overhead: 72,
            latency: Duration::from_millis(10),
            tuning: Tuning::default(),
        }
    }
}
