//! What the link carries: bandwidth estimators, packet-agnostic and pure.
//!
//! Two of them stand behind one [`Estimator`]: the one of ATP 02 (section 3.1, Figure 3;
//! `Kind::Paper`), which looks once a second, and ours (`Kind::Rate`), which looks at every packet
//! that the receiver reports. The session tells them what it sent, what was acknowledged and when
//! the receiver got it; they tell the scheduler a [`Forecast`] and the session when the next
//! packet may leave ([`Gate`]), how much may be under way, and when to send a [`Probe`].
//!
//! All bytes are those of whole IP packets: it is they that take the link's time.
//!
//! The law is that of `remora_base::Core`: mutate once, then drain the probes and the forecast,
//! then ask for the timeout. `now` never goes backwards.

mod dispersal;
mod evidence;
mod flight;
mod pacer;
mod pairs;
mod paper;
mod rate;
mod slowness;
mod stall;

use std::time::Duration;

use remora_base::{Rate as ByteRate, Time};

use paper::Paper;
use rate::Rate;

/// How long a receiver may hold back an acknowledgement (RFC 9000, section 18.2, `max_ack_delay`).
pub(crate) const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// Which estimator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// ATP 02, Figure 3.
    Paper,
    /// Delivery rate from the receiver's timestamps.
    #[default]
    Rate,
}

/// How to estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which estimator.
    pub kind: Kind,
    /// The largest IP packet, in bytes (used within 100..=65535).
    pub mtu: u64,
    /// Packets that may be under way before anything is known (used within 2..=64). More of them
    /// start a fast link sooner; on a slow one they stand in the way of what is urgent.
    pub initial_packets: u64,
}

impl Config {
    /// The defaults: packets of 1,280 bytes, four of them at first.
    pub const fn new(kind: Kind) -> Config {
        Config { kind, mtu: 1280, initial_packets: 4 }
    }

    /// With all values in their ranges.
    fn checked(self) -> Config {
        Config { kind: self.kind, mtu: self.mtu.clamp(100, 65_535), initial_packets: self.initial_packets.clamp(2, 64) }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::new(Kind::default())
    }
}

/// What the scheduler can count on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// What the link carries (`curbw` in ATP 02); `None` before anything is known.
    pub rate: Option<ByteRate>,
    /// What may be spent now: above `rate` to probe, below it to drain a queue.
    pub available: Option<ByteRate>,
    /// What the link has been shown not to exceed, `rate` or more; `None` while too little has been
    /// seen to say. Nothing is given up that this would carry.
    pub at_most: Option<ByteRate>,
    /// How far `rate` is to be believed.
    pub state: Knowledge,
    /// When `rate` was last confirmed by a measurement.
    pub measured: Option<Time>,
}

/// How far a rate is to be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knowledge {
    /// Not at all: objects may be sent, and none is refused for lack of bandwidth. The rate, if
    /// there is one, is from before a blackout.
    Unknown,
    /// Admission may count on it.
    Known,
    /// Nothing has come back for about a round trip: objects are held, none is refused for lack
    /// of bandwidth, and the rate is the last one from before.
    Blackout {
        /// When something was last heard of the peer.
        since: Time,
    },
}

/// A packet's arrival at the receiver, as it reported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it left here, by our clock.
    pub sent: Time,
    /// When it arrived, by the receiver's clock. Its origin does not matter.
    pub received: Time,
    /// Bytes that the receiver had got in all, with this packet. As it is a running total, reports
    /// that get lost only make the measurement coarser.
    pub total: u64,
}

/// Whether the next packet with objects' bytes may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// It may.
    Open,
    /// From then on.
    At(Time),
    /// Not before an acknowledgement, a report or a timeout changes something.
    Shut,
}

/// Something to send for the sake of the answer. It need not pass the [`Gate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// A small packet (about 70 bytes) that asks for an acknowledgement.
    Small,
    /// Two full packets back to back, filled up where no data wait.
    Pair,
    /// Four of them: asks again what a pair has shown.
    Train,
}

/// Which way an object moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To the peer.
    Out,
    /// From the peer.
    In,
}

/// Who would like to know the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Objects wait or are suspended, or an application asked to be told of changes: if nothing is
    /// sent, the rate is to be found out by probes.
    pub waiting: bool,
    /// Objects refused for lack of bandwidth since the last time this was said.
    pub rejected: u32,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// Bytes declared lost.
    pub lost: u64,
    /// Measurements of the rate that were used.
    pub samples: u64,
    /// Blackouts declared.
    pub blackouts: u64,
    /// Probes sent, of either sort.
    pub probes: u64,
}

/// An estimator for one path.
#[derive(Clone, Debug)]
pub struct Estimator {
    kind: Inner,
    /// The forecast last polled.
    told: Option<Forecast>,
}

#[derive(Clone, Debug)]
enum Inner {
    Paper(Box<Paper>),
    Rate(Box<Rate>),
}

/// Hands the call to whichever estimator there is.
macro_rules! inner {
    ($self:ident, $e:ident => $call:expr) => {
        match &$self.kind {
            Inner::Paper($e) => $call,
            Inner::Rate($e) => $call,
        }
    };
    (mut $self:ident, $e:ident => $call:expr) => {
        match &mut $self.kind {
            Inner::Paper($e) => $call,
            Inner::Rate($e) => $call,
        }
    };
}

impl Estimator {
    /// An estimator that knows nothing yet. Values of `config` out of range are brought into it.
    pub fn new(config: Config, now: Time) -> Estimator {
        let config = config.checked();
        let kind = match config.kind {
            Kind::Paper => Inner::Paper(Box::new(Paper::new(config, now))),
            Kind::Rate => Inner::Rate(Box::new(Rate::new(config, now))),
        };
        Estimator { kind, told: None }
    }

    /// A packet of `bytes` that asks for an acknowledgement left: data, again or for the first
    /// time, or a probe.
    pub fn sent(&mut self, now: Time, bytes: u64) {
        inner!(mut self, e => e.sent(now, bytes));
    }

    /// The packet of `bytes` that left at `sent` was acknowledged.
    pub fn acknowledged(&mut self, now: Time, sent: Time, bytes: u64) {
        inner!(mut self, e => e.acknowledged(now, sent, bytes));
    }

    /// `bytes` are no longer under way: declared lost. It is no sign of congestion here.
    pub fn lost(&mut self, now: Time, bytes: u64) {
        inner!(mut self, e => e.lost(now, bytes));
    }

    /// The receiver reported these, in the order of their arrival.
    pub fn arrivals(&mut self, now: Time, arrivals: &[Arrival]) {
        inner!(mut self, e => e.arrivals(now, arrivals));
    }

    /// The peer asked whether we are there: so it is, and the way from it carries.
    pub fn asked(&mut self, now: Time) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.asked(now);
        }
    }

    /// A full packet of the peer's takes so long: an answer has to wait for those that are in front of it.
    pub fn comes(&mut self, takes: Duration) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.comes(takes);
        }
    }

    /// On a slow link: until when an answer that is waited for may well be under way.
    pub fn patient_until(&self) -> Option<Time> {
        match &self.kind {
            Inner::Rate(rate) => rate.patient_until(),
            Inner::Paper(_) => None,
        }
    }

    /// Something of an object left or came. For a while after that our estimator sees to it that
    /// an outage is noticed though nothing is sent.
    pub fn moved(&mut self, now: Time, way: Way) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.moved(now, way);
        }
    }

    /// Who wants to know the rate, whenever that changes.
    pub fn demand(&mut self, now: Time, demand: Demand) {
        inner!(mut self, e => e.demand(now, demand));
    }

    /// Packets in the device's send queue, where the system tells. The paper's estimator infers
    /// it from what is under way otherwise; ours has no use for it.
    pub fn backlog(&mut self, packets: u64) {
        if let Inner::Paper(paper) = &mut self.kind {
            paper.backlog(packets);
        }
    }

    /// The path is another one: what was learned of its rate and round trip is forgotten.
    pub fn path_changed(&mut self, now: Time) {
        inner!(mut self, e => e.path_changed(now));
    }

    /// Acts on every timer that is due. Calling it early or twice is harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        inner!(mut self, e => e.handle_timeout(now));
    }

    /// When [`handle_timeout`](Self::handle_timeout) is next due; `None` for never.
    pub fn poll_timeout(&self) -> Option<Time> {
        inner!(self, e => e.poll_timeout())
    }

    /// The next probe to send at once, to be followed by [`sent`](Self::sent) for each packet.
    pub fn poll_probe(&mut self, now: Time) -> Option<Probe> {
        inner!(mut self, e => e.poll_probe(now))
    }

    /// The forecast, if it has changed noticeably since it was last polled.
    pub fn poll_forecast(&mut self) -> Option<Forecast> {
        let new = self.forecast();
        let changed = self.told.is_none_or(|old| {
            old.state != new.state
                || is_apart(old.rate, new.rate)
                || is_apart(old.available, new.available)
                || is_apart(old.at_most, new.at_most)
        });
        changed.then(|| {
            self.told = Some(new);
            new
        })
    }

    /// The forecast as it stands.
    pub fn forecast(&self) -> Forecast {
        inner!(self, e => e.forecast())
    }

    /// Whether the next packet with objects' bytes may leave: to be asked before each of them, and
    /// for no others.
    pub fn gate(&self, now: Time) -> Gate {
        inner!(self, e => e.gate(now))
    }

    /// Bytes that may leave in one call while the [gate](Self::gate) is open: a packet's while little
    /// is known of the link or it is slow; else what it carries in about half a millisecond, and no
    /// more than there is room for.
    pub fn burst(&self, now: Time) -> u64 {
        match &self.kind {
            Inner::Paper(paper) => paper.packet(),
            Inner::Rate(rate) => rate.burst(now),
        }
    }

    /// Bytes that may be under way, retransmissions and probes included: at least two packets.
    pub fn window(&self) -> u64 {
        inner!(self, e => e.window())
    }

    /// Bytes under way.
    pub fn in_flight(&self) -> u64 {
        inner!(self, e => e.flight().bytes().saturating_add(e.flight().stale()))
    }

    /// The smoothed round trip.
    pub fn round_trip(&self) -> Option<Duration> {
        inner!(self, e => e.flight().smoothed())
    }

    /// The shortest round trip of the last ten seconds or so.
    pub fn round_trip_min(&self) -> Option<Duration> {
        inner!(self, e => e.flight().round_trip_min())
    }

    /// How long a packet waits in the queue before the bottleneck beyond what its own burst causes,
    /// as last seen; zero with the paper's estimator, which does not look.
    pub fn queueing(&self) -> Duration {
        match &self.kind {
            Inner::Paper(_) => Duration::ZERO,
            Inner::Rate(rate) => rate.queueing(),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        inner!(self, e => e.stats())
    }
}

/// Whether two rates differ by more than one percent.
fn is_apart(a: Option<ByteRate>, b: Option<ByteRate>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.bits().abs_diff(b.bits()) > a.bits() / 100,
        (a, b) => a != b,
    }
}

/// The byte rate of `bytes` a second, at least one bit a second.
fn byte_rate(bytes: f64) -> Option<ByteRate> {
    // The cast saturates; NaN becomes zero.
    ByteRate::from_bits(((bytes * 8.0) as u64).max(1))
}
