//! Configuration of a link.

use std::time::Duration;

use remora_base::Rate;
use remora_wire::link::{ACK_MIN, CHUNKS_MAX, DATA_HEADER_MAX, WINDOW_MAX};
use remora_wire::urgency::PROBE_LIFETIME;

use crate::Class;

/// Space behind a full packet for an acknowledgement in its last frame, with nine bytes of bitmap.
const RIDER: usize = ACK_MIN + 9;
/// Most frames for each requested acknowledgement while the rate is learned.
const POLL_EVERY_LEARNING: u32 = 6;
/// Frames of the longest packet. More would save few header bytes, and TCP would keep more data queued.
const PACKET_FRAMES: usize = 3;

/// As many frames as an acknowledgement covers. A lost frame holds the window for two RTTs, a lost retransmission for
/// three. So a large window does no harm: the pacer limits the frames in flight.
const WINDOW_FRAMES: usize = WINDOW_MAX as usize - CHUNKS_MAX as usize;

/// The packet size that every hop of IPv6 carries, in bytes (RFC 8200, section 5).
const ALWAYS_CARRIED: u64 = 1280;

/// Extra time for which a receiver waits for a gap beyond the sender's longest lifetime: the time of a frame on its
/// way.
pub(crate) const HOLD_MARGIN: Duration = Duration::from_secs(1);
/// Shortest lifetime of a packet, in airtimes of a full frame.
const LIFETIME_FRAMES: u32 = 3;
/// Longest spacing of released packets while the rate is unknown.
const SPACING_UNKNOWN: Duration = Duration::from_millis(20);

/// An acknowledgement waits for DATA for 1/6 of a full frame's airtime,
const ANSWER_PART: u32 = 6;
/// and at most this long.
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(2);

/// Whether lost frames are retransmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArqMode {
    /// Retransmits until the packet arrives or reaches its limits.
    #[default]
    Arq,
    /// Sends each frame once, without acknowledgements, for comparison.
    None,
}

/// How the destinations share the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MediumScheduler {
    /// One frame each in turn (NFS/W 95, section 5).
    RoundRobin,
    /// Deficit round robin by airtime, which charges failed attempts and probes.
    #[default]
    Airtime,
}

/// Whether the two ends of the hop share its medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplex {
    /// They share it: an acknowledgement may wait for a frame of either end.
    #[default]
    Half,
    /// Each direction has its own medium.
    Full,
}

/// Persistence of retransmission, bounded in attempts and time (RFC 3366).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionLimits {
    /// Transmissions of one packet (at least 1).
    pub attempts: u32,
    /// Time from enqueueing to abandonment. At least three full frames' airtime, limited by the longest lifetime of
    /// all classes.
    pub lifetime: Duration,
}

/// A value for each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerClass<T> {
    /// The value for [`Class::Interactive`].
    pub interactive: T,
    /// The value for [`Class::Default`].
    pub default: T,
    /// The value for [`Class::Bulk`].
    pub bulk: T,
    /// The value for [`Class::Probe`].
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

    /// The value for `class`, to be changed.
    pub fn get_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Interactive => &mut self.interactive,
            Class::Default => &mut self.default,
            Class::Bulk => &mut self.bulk,
            Class::Probe => &mut self.probe,
        }
    }
}

/// Parameters of CoDel (RFC 8289).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Codel {
    /// Acceptable standing delay. At least three frames at the destination's share of the link, and half the RTT.
    pub target: Duration,
    /// The same for packets that are not [`responsive`](crate::Packet::responsive); at least 48 frames. The windows of
    /// request-reply protocols stay below it, and senders that ignore drops stay bounded.
    pub target_unresponsive: Duration,
    /// How long the delay must exceed the target before the first drop; the measured RTT is added.
    pub interval: Duration,
}

/// Configuration of a link. Both ends need the same limits.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Whether lost frames are retransmitted.
    pub mode: ArqMode,
    /// How the destinations share the medium.
    pub scheduler: MediumScheduler,
    /// The rate of the hop, by which frames are paced. `None`: the rate is learned from acknowledgements (in
    /// [`ArqMode::None`] frames are not paced).
    pub rate: Option<Rate>,
    /// Whether the ends share the medium.
    pub duplex: Duplex,
    /// Bytes that the host adds to each frame: IP, UDP, session, tag.
    pub overhead: usize,
    /// Largest frame of this core, in bytes (at least 128).
    pub mtu: usize,
    /// Window: frames sent beyond the oldest unacknowledged one, not counting the rest of a packet (1 to 2024, fewer
    /// if their acknowledgement does not fit in a frame). It bounds the reordering buffer of the peer. It limits the
    /// frames in flight only over long RTTs.
    pub window_frames: usize,
    /// Most packets queued for one destination, over all flows.
    pub queue_packets_max: usize,
    /// Most bytes queued for one destination.
    pub queue_bytes_max: usize,
    /// The active queue management.
    pub codel: Codel,
    /// Persistence of retransmission by class.
    pub limits: PerClass<RetransmissionLimits>,
    /// Most frames between two requested acknowledgements (at least 1); at most six while the rate is learned.
    pub poll_every: u32,
    /// Frames after which the receiver acknowledges without a request (at least 1).
    pub ack_every: u32,
    /// Time after which it does so.
    pub ack_delay: Duration,
    /// First interval between probes of a suspect destination while no other destination has DATA to send. It grows
    /// with the outage.
    pub rts_interval: Duration,
    /// The same while others have DATA to send: a probe costs their airtime, and a later resumption costs nothing.
    pub rts_interval_busy: Duration,
    /// Longest interval between probes in outages of up to a minute.
    pub rts_interval_max: Duration,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        let patient = RetransmissionLimits { attempts: 30, lifetime: Duration::from_secs(20) };
        LinkConfig {
            mode: ArqMode::default(),
            scheduler: MediumScheduler::default(),
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
                interactive: RetransmissionLimits { attempts: 12, lifetime: Duration::from_millis(200) },
                default: patient,
                bulk: patient,
                probe: RetransmissionLimits { lifetime: PROBE_LIFETIME, ..patient },
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

impl LinkConfig {
    /// The largest packet: the MTU of the tunnel device. It fills three frames, with space for an acknowledgement in
    /// the last, so three frames share one set of IP and transport headers. In [`ArqMode::None`] it fills one frame.
    pub fn packet_max(&self) -> usize {
        match self.mode {
            ArqMode::Arq => (self.chunk_max() * PACKET_FRAMES).saturating_sub(RIDER),
            ArqMode::None => self.chunk_max().saturating_sub(RIDER),
        }
    }

    /// Bytes of a packet in one frame.
    pub(crate) fn chunk_max(&self) -> usize {
        self.mtu.saturating_sub(DATA_HEADER_MAX).max(1)
    }

    /// The longest lifetime of all classes.
    pub fn lifetime_max(&self) -> Duration {
        Class::ALL.into_iter().map(|c| self.limits.get(c).lifetime).max().unwrap_or_default()
    }

    /// The shortest lifetime of a packet where a full frame takes `frame`. On a slow hop the frame on the medium and
    /// the wait for an acknowledgement would exceed a short lifetime.
    pub(crate) fn lifetime_min(&self, frame: Duration) -> Duration {
        frame.saturating_mul(LIFETIME_FRAMES).min(self.lifetime_max())
    }

    /// After this time no chunk of a packet is in flight.
    pub(crate) fn quiet(&self) -> Duration {
        (self.lifetime_max() + HOLD_MARGIN) * 2
    }

    /// Most frames for each requested acknowledgement. Fewer while the rate is learned from acknowledgements.
    pub(crate) fn poll_every(&self) -> u32 {
        if self.rate.is_some() { self.poll_every } else { self.poll_every.min(POLL_EVERY_LEARNING) }
    }

    /// The window in frames, within its bounds.
    pub(crate) fn window(&self) -> u64 {
        let bitmap = self.mtu.saturating_sub(1 + ACK_MIN) as u64;
        let covered = (bitmap * 8).min(WINDOW_MAX).saturating_sub(u64::from(CHUNKS_MAX));
        (self.window_frames as u64).clamp(1, covered.max(1))
    }

    /// The rate to which the window limits one destination without loss, where acknowledgements take `round_trip`;
    /// `None` if there is no limit.
    pub fn window_rate(&self, round_trip: Duration) -> Option<Rate> {
        let bits = u128::from(self.window() * self.cost_max()) * 8_000_000_000;
        match self.mode {
            ArqMode::Arq => {
                Rate::from_bits(u64::try_from(bits.checked_div(round_trip.as_nanos())?).unwrap_or(u64::MAX))
            }
            ArqMode::None => None,
        }
    }

    /// The cost of a frame of `len` bytes on the medium, in bytes.
    pub(crate) fn cost(&self, len: usize) -> u64 {
        len.saturating_add(self.overhead) as u64
    }

    /// How long an acknowledgement may wait for DATA to carry it. A received frame often triggers a packet of the
    /// layer above, and on a shared medium a separate acknowledgement costs airtime.
    pub(crate) fn answer_delay(&self) -> Duration {
        match (self.rate, self.duplex) {
            (Some(rate), Duplex::Half) => (rate.airtime(self.cost_max()) / ANSWER_PART).min(ANSWER_DELAY_MAX),
            _ => Duration::ZERO,
        }
    }

    /// Longest spacing between two released packets, the second of `len` bytes: the airtime of the second.
    pub(crate) fn spacing_max(&self, len: usize) -> Duration {
        let frames = len.div_ceil(self.chunk_max());
        let cost = len.saturating_add(frames.saturating_mul(self.overhead)) as u64;
        self.rate.map_or(SPACING_UNKNOWN, |rate| rate.airtime(cost))
    }

    /// Whether a chunk of `len` bytes makes a frame longer than some hops carry.
    pub(crate) fn is_long(&self, len: usize) -> bool {
        self.cost(len) > ALWAYS_CARRIED
    }

    /// The cost of the longest frame, in bytes.
    pub(crate) fn cost_max(&self) -> u64 {
        self.cost(self.mtu)
    }
}
