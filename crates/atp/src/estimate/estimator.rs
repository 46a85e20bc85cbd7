//! The estimator that is used: the paper's or ours.

use std::time::Duration;

use remora_base::{Rate, Time};

use super::forecast::Forecast;
use super::interface::{Arrival, Config, Demand, Direction, Gate, Kind, Probe, Stats};
use super::paper::PaperEstimator;
use super::rate::RateEstimator;

/// An estimator for one path.
#[derive(Clone, Debug)]
pub struct Estimator {
    kind: Inner,
    /// The forecast last polled.
    polled: Option<Forecast>,
}

#[derive(Clone, Debug)]
enum Inner {
    Paper(Box<PaperEstimator>),
    Rate(Box<RateEstimator>),
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
            Kind::Paper => Inner::Paper(Box::new(PaperEstimator::new(config, now))),
            Kind::Rate => Inner::Rate(Box::new(RateEstimator::new(config, now))),
        };
        Estimator { kind, polled: None }
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
    pub fn peer_probed(&mut self, now: Time) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.peer_probed(now);
        }
    }

    /// A full packet of the peer's takes so long: an answer has to wait for those that are in front of it.
    pub fn reverse_packet_time(&mut self, takes: Duration) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.reverse_packet_time(takes);
        }
    }

    /// On a slow link: until when an answer that is waited for may well be under way.
    pub fn answer_due(&self) -> Option<Time> {
        match &self.kind {
            Inner::Rate(rate) => rate.answer_due(),
            Inner::Paper(_) => None,
        }
    }

    /// Something of an object left or came. For a while after that our estimator sees to it that
    /// an outage is noticed though nothing is sent.
    pub fn object_progress(&mut self, now: Time, way: Direction) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.object_progress(now, way);
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
        let changed = self.polled.is_none_or(|old| {
            old.state != new.state
                || is_apart(old.rate, new.rate)
                || is_apart(old.available, new.available)
                || is_apart(old.at_most, new.at_most)
        });
        changed.then(|| {
            self.polled = Some(new);
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
        inner!(self, e => e.in_flight().bytes().saturating_add(e.in_flight().stale()))
    }

    /// The smoothed round trip.
    pub fn round_trip(&self) -> Option<Duration> {
        inner!(self, e => e.in_flight().smoothed())
    }

    /// The shortest round trip of the last ten seconds or so.
    pub fn round_trip_min(&self) -> Option<Duration> {
        inner!(self, e => e.in_flight().round_trip_min())
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
fn is_apart(a: Option<Rate>, b: Option<Rate>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.bits().abs_diff(b.bits()) > a.bits() / 100,
        (a, b) => a != b,
    }
}
