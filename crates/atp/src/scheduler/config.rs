//! What a scheduler is told once: its policy and its bounds.

use std::time::Duration;

/// How objects are admitted, ordered and given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// ATP 02, section 3.3: strict priority, deadline safety by a scan in the order of sending,
    /// the available bandwidth spent in intervals of 50 ms.
    Paper,
    /// The set by priority, the order by deadline, the largest of the lowest class given up
    /// first, nothing given up while the rate is unknown or nothing gets through.
    #[default]
    Remora,
}

/// The margins of the `remora` policy; each a factor but for `horizon`.
///
/// The defaults were chosen on ATP 02's workloads (`tests/scheduler_fluid.rs`), where all but
/// two hardly matter: without `foresight` low objects are begun that newcomers of a higher class
/// then starve, and with a longer `horizon` a class that stepped back is caught by a fading link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// Part of the forecast that objects may be counted against, 0 to 1.
    pub margin: f64,
    /// Part of the forecast at which a class has to stay safe when a lower one goes first, 0 to 1.
    pub reserve: f64,
    /// How far ahead the forecast is relied on for that: no class steps back on the strength of
    /// what the link may carry later.
    pub horizon: Duration,
    /// How many times what the link is known to carry at most_bytes an object that does not fit may need
    /// before it has no hope, and is ended; at least 1.
    pub hope: f64,
    /// How many times the same such an object may need to be sent while nothing else is there to
    /// send; 0 for never.
    pub gamble: f64,
    /// How much larger an object suspended for lack of bandwidth counts: it has to fit with that to
    /// spare before it goes on; at least 1.
    pub return_margin: f64,
    /// Part of what higher classes lately asked for that is kept free for more of it, 0 to 1.
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

/// A scheduler's settings. Memory is exceeded_bound by about 400 bytes for each of `objects_max`
/// and 4 KB for each of `queues_max`; the bytes of the objects are the session's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// How objects are admitted, ordered and given up.
    pub policy: Policy,
    /// Objects that have not ended; more are rejected.
    pub objects_max: usize,
    /// Bytes of objects that have not ended; more are rejected.
    pub bytes_max: u64,
    /// The largest object, in bytes; larger ones are rejected.
    pub size_max: u64,
    /// Queues with objects in them; objects for more are rejected.
    pub queues_max: usize,
    /// Bytes of objects that fit into one packet.
    pub payload: u64,
    /// Bytes a packet has beyond those: headers of IP, UDP and QUIC, the tag.
    pub overhead: u64,
    /// From the last byte of an object to its acknowledgement, beyond its time on the wire.
    pub latency: Duration,
    /// The margins of the `remora` policy.
    pub tuning: Tuning,
}

impl Config {
    /// Bytes on the wire of `bytes` bytes of an object.
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
