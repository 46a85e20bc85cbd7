//! What a link can be told.

use std::time::Duration;

use remora_base::Rate;
use remora_wire::link::{ACK_MIN, CHUNKS_MAX, DATA_HEADER_MAX, WINDOW_MAX};
use remora_wire::urgency::PROBE_LIFETIME;

use crate::Class;

/// Room kept free behind a full packet for an acknowledgement that rides on its last frame,
/// bytes of bitmap included.
const RIDER: usize = ACK_MIN + 9;
/// The most frames for each acknowledgement asked for while the rate is being learned.
const POLL_EVERY_LEARNING: u32 = 6;
/// Frames that carry the longest packet. More would save little of the headers above, and a
/// TCP whose packets take long keeps more of them waiting.
const PACKET_FRAMES: usize = 3;

/// As many as an acknowledgement can tell of. What is lost holds the window for two round trips, and
/// for three if it is lost again, so it is never too large: what is under way is the pacer's affair.
const WINDOW_FRAMES: usize = WINDOW_MAX as usize - CHUNKS_MAX as usize;

/// Packets that IPv6 needs of every hop, in bytes (RFC 8200, section 5).
const ALWAYS_CARRIED: u64 = 1280;

/// A packet is held this much longer than its sender may send what it waits for: the time
/// that may be on its way.
pub(crate) const HOLD_MARGIN: Duration = Duration::from_secs(1);
/// A packet is not too old to be sent before so many full frames' time.
const LIFETIME_FRAMES: u32 = 3;
/// What a packet that was held may take of the way out where no rate is known.
const SPACING_UNKNOWN: Duration = Duration::from_millis(20);

/// An answer waits this part of a frame's time for a packet to ride on,
const ANSWER_PART: u32 = 6;
/// or this long if that is less.
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(2);

/// Whether lost frames are sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Yes, until they arrive or their limits are reached.
    #[default]
    Arq,
    /// No: each frame is sent once and nothing is acknowledged, for comparison.
    None,
}

/// Who is next among the destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// A frame each in turn (NFS/W 95, section 5).
    RoundRobin,
    /// Deficit round robin by airtime, failed attempts and probes charged.
    #[default]
    Airtime,
}

/// Whether the two ends of the hop share its medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplex {
    /// They do: an acknowledgement may have to wait for a frame of either end.
    #[default]
    Half,
    /// Each has its own.
    Full,
}

/// How long a packet is tried for (RFC 3366: persistence is bounded in time).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Transmissions of one packet (at least 1).
    pub attempts: u32,
    /// From when it was handed to the link until it is given up; what three full frames take if that is more, but
    /// no longer than the longest of all classes.
    pub lifetime: Duration,
}

/// A value for each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerClass<T> {
    /// For [`Class::Interactive`].
    pub interactive: T,
    /// For [`Class::Default`].
    pub default: T,
    /// For [`Class::Bulk`].
    pub bulk: T,
    /// For [`Class::Probe`].
    pub probe: T,
}

impl<T> PerClass<T> {
    /// The value for `class`.
    pub fn get(&self, class: Class) -> &T {
        match class {
            Class::Interactive => &self.interactive,
            Class::Default => &self.default,
            Class::Bulk => &self.bulk,
            Class::Probe => &self.probe,
        }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Interactive => &mut self.interactive,
            Class::Default => &mut self.default,
            Class::Bulk => &mut self.bulk,
            Class::Probe => &mut self.probe,
        }
    }
}

/// The queue's discipline (CoDel, RFC 8289).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Codel {
    /// The least standing delay that is too much; three frames at the destination's share of
    /// the link, or half the round trip, if that is more.
    pub target: Duration,
    /// The same for packets that are not [`responsive`](crate::Packet::responsive); 48 frames
    /// if that is more. The window of a request and reply protocol never gets there, and who
    /// sends on whatever is dropped is bounded all the same.
    pub target_unresponsive: Duration,
    /// How long it must stand; the measured round trip is added.
    pub interval: Duration,
}

/// How a link behaves. Both ends are to have the same limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether lost frames are sent again.
    pub mode: Mode,
    /// Who is next among the destinations.
    pub scheduler: Scheduler,
    /// The rate of the hop; frames are paced by it. `None`: it is learned from the
    /// acknowledgements (and in [`Mode::None`] frames are not paced).
    pub rate: Option<Rate>,
    /// Whether the ends share the medium.
    pub duplex: Duplex,
    /// Bytes the host adds to each frame below this core: IP, UDP, session, tag.
    pub overhead: usize,
    /// The largest frame this core may emit, in bytes (at least 128).
    pub mtu: usize,
    /// How many frames the sender may be ahead of the oldest unacknowledged one, but for the
    /// rest of a packet (1 to 2024, less where an acknowledgement of so many does not fit in a frame). It
    /// bounds what the other end holds for order, and only on long ways what is under way.
    pub window_frames: usize,
    /// Packets waiting for one destination, in all its flows.
    pub queue_packets_max: usize,
    /// Their bytes.
    pub queue_bytes_max: usize,
    /// What keeps the queue short.
    pub codel: Codel,
    /// How long a packet is tried for, by class.
    pub limits: PerClass<Limits>,
    /// The most frames between two that ask for an acknowledgement (at least 1); no more than
    /// six while the rate is learned.
    pub poll_every: u32,
    /// The receiver acknowledges after this many frames though nobody asked (at least 1).
    pub ack_every: u32,
    /// And after this long.
    pub ack_delay: Duration,
    /// Between two probes of a suspect destination, at first, when nobody else waits for the
    /// medium; it grows with the outage.
    pub rts_interval: Duration,
    /// The same while other destinations do: then a probe costs them airtime, and a later
    /// resumption costs nothing.
    pub rts_interval_busy: Duration,
    /// The most between two probes in outages of up to a minute.
    pub rts_interval_max: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let patient = Limits { attempts: 30, lifetime: Duration::from_secs(20) };
        Config {
            mode: Mode::default(),
            scheduler: Scheduler::default(),
            rate: None,
            duplex: Duplex::default(),
            overhead: 50,
            mtu: 1500 - 50,
            window_frames: WINDOW_FRAMES,
            queue_packets_max: 512,
            queue_bytes_max: 1 << 20,
            codel: Codel {
                target: Duration::from_millis(20),
                target_unresponsive: Duration::from_millis(500),
                interval: Duration::from_millis(100),
            },
            limits: PerClass {
                interactive: Limits { attempts: 12, lifetime: Duration::from_millis(200) },
                default: patient,
                bulk: patient,
                probe: Limits { lifetime: PROBE_LIFETIME, ..patient },
            },
            poll_every: 16,
            ack_every: 24,
            ack_delay: Duration::from_millis(500),
            rts_interval: Duration::from_millis(6),
            rts_interval_busy: Duration::from_millis(64),
            rts_interval_max: Duration::from_millis(100),
        }
    }
}

impl Config {
    /// The largest packet: the MTU of the device above. It fills three frames, with room for
    /// an acknowledgement on the last one, so that the headers of IP and what is above come but
    /// once for three frames; what is sent once is one frame.
    pub fn packet_max(&self) -> usize {
        match self.mode {
            Mode::Arq => (self.chunk_max() * PACKET_FRAMES).saturating_sub(RIDER),
            Mode::None => self.chunk_max().saturating_sub(RIDER),
        }
    }

    /// Bytes of a packet that one frame carries.
    pub(crate) fn chunk_max(&self) -> usize {
        self.mtu.saturating_sub(DATA_HEADER_MAX).max(1)
    }

    /// The longest any packet is tried for.
    pub fn lifetime_max(&self) -> Duration {
        Class::ALL.into_iter().map(|c| self.limits.get(c).lifetime).max().unwrap_or_default()
    }

    /// What a packet lives for at least where a full frame takes `frame`: on a slow hop one that is in the air, and
    /// what an answer had to wait for, would use up a short life.
    pub(crate) fn lifetime_min(&self, frame: Duration) -> Duration {
        frame.saturating_mul(LIFETIME_FRAMES).min(self.lifetime_max())
    }

    /// After so long nothing of a packet is on its way any more.
    pub(crate) fn quiet(&self) -> Duration {
        (self.lifetime_max() + HOLD_MARGIN) * 2
    }

    /// The most frames for each acknowledgement asked for. They tell the rate, so there are more
    /// of them where it must be learned.
    pub(crate) fn poll_every(&self) -> u32 {
        if self.rate.is_some() { self.poll_every } else { self.poll_every.min(POLL_EVERY_LEARNING) }
    }

    /// The window within its bounds.
    pub(crate) fn window(&self) -> u64 {
        let bitmap = self.mtu.saturating_sub(1 + ACK_MIN) as u64;
        let told = (bitmap * 8).min(WINDOW_MAX).saturating_sub(u64::from(CHUNKS_MAX));
        (self.window_frames as u64).clamp(1, told.max(1))
    }

    /// The most that the window lets through to one destination, where an answer takes `round_trip` and nothing
    /// is lost; `None`: there is no such bound.
    pub fn window_rate(&self, round_trip: Duration) -> Option<Rate> {
        let bits = u128::from(self.window() * self.cost_max()) * 8_000_000_000;
        match self.mode {
            Mode::Arq => Rate::from_bits(u64::try_from(bits.checked_div(round_trip.as_nanos())?).unwrap_or(u64::MAX)),
            Mode::None => None,
        }
    }

    /// What a frame of `len` bytes takes of the medium, in bytes.
    pub(crate) fn cost(&self, len: usize) -> u64 {
        len.saturating_add(self.overhead) as u64
    }

    /// How long an answer may wait for a packet to ride on: what a frame brings often makes the
    /// layer above send one, and on a shared medium an answer by itself is airtime lost.
    pub(crate) fn answer_delay(&self) -> Duration {
        match (self.rate, self.duplex) {
            (Some(rate), Duplex::Half) => (rate.airtime(self.cost_max()) / ANSWER_PART).min(ANSWER_DELAY_MAX),
            _ => Duration::ZERO,
        }
    }

    /// The most time between two packets that were held, the second of `len` bytes: what the hop
    /// needs for it.
    pub(crate) fn spacing_max(&self, len: usize) -> Duration {
        let frames = len.div_ceil(self.chunk_max());
        let cost = len.saturating_add(frames.saturating_mul(self.overhead)) as u64;
        self.rate.map_or(SPACING_UNKNOWN, |rate| rate.airtime(cost))
    }

    /// Whether a chunk of `len` bytes makes a frame that some hops do not carry.
    pub(crate) fn is_long(&self, len: usize) -> bool {
        self.cost(len) > ALWAYS_CARRIED
    }

    /// What the longest frame takes, in bytes.
    pub(crate) fn cost_max(&self) -> u64 {
        self.cost(self.mtu)
    }
}
