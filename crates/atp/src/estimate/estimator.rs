//! The estimator's interface: dispatches to the algorithm that the configuration selects.

use std::time::Duration;

use remora_base::{Rate, Time};

use super::forecast::Forecast;
use super::interface::{Arrival, Config, Demand, Direction, Gate, Kind, Probe, Stats};
use super::outage::PastOutages;
use super::paper::PaperEstimator;
use super::rate::RateEstimator;

/// Bandwidth estimator of one path.
#[derive(Clone, Debug)]
pub struct Estimator {
    kind: Inner,
    /// The forecast returned by the last poll.
    polled: Option<Forecast>,
}

#[derive(Clone, Debug)]
enum Inner {
    Paper(Box<PaperEstimator>),
    Rate(Box<RateEstimator>),
}

/// Forwards a call to the configured algorithm.
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
    /// Creates an estimator without measurements. Clamps values of `config` to their ranges.
    pub fn new(config: Config, now: Time) -> Estimator {
        let config = config.checked();
        let kind = match config.kind {
            Kind::Paper => Inner::Paper(Box::new(PaperEstimator::new(config, now))),
            Kind::Rate => Inner::Rate(Box::new(RateEstimator::new(config, now))),
        };
        Estimator { kind, polled: None }
    }

    /// Records that a packet of `bytes` was sent that elicits an acknowledgement: data, a retransmission or a
    /// probe.
    pub fn sent(&mut self, now: Time, bytes: u64) {
        inner!(mut self, e => e.sent(now, bytes));
    }

    /// Records the acknowledgement of the packet of `bytes` that was sent at `sent`.
    pub fn acknowledged(&mut self, now: Time, sent: Time, bytes: u64) {
        inner!(mut self, e => e.acknowledged(now, sent, bytes));
    }

    /// Records that `bytes` were declared lost: congestion, if there is a queue, or if it is heavy.
    pub fn lost(&mut self, now: Time, bytes: u64) {
        inner!(mut self, e => e.lost(now, bytes));
    }

    /// Records packets that the receiver reported, in the order of their arrival.
    pub fn arrivals(&mut self, now: Time, arrivals: &[Arrival]) {
        inner!(mut self, e => e.arrivals(now, arrivals));
    }

    /// Records a probe of the peer: the path from it carries packets.
    pub fn peer_probed(&mut self, now: Time) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.peer_probed(now);
        }
    }

    /// Sets the time that a full packet of the peer takes on the path from it. Acknowledgements wait behind such
    /// packets.
    pub fn reverse_packet_time(&mut self, takes: Duration) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.reverse_packet_time(takes);
        }
    }

    /// On a slow link, the time until which a missing acknowledgement may still be in flight.
    pub fn answer_due(&self) -> Option<Time> {
        match &self.kind {
            Inner::Rate(rate) => rate.answer_due(),
            Inner::Paper(_) => None,
        }
    }

    /// Records that bytes of an object were sent or received. The estimator then sends probes for a minute, to
    /// detect an outage although nothing else is sent.
    pub fn object_progress(&mut self, now: Time, way: Direction) {
        if let Inner::Rate(rate) = &mut self.kind {
            rate.object_progress(now, way);
        }
    }

    /// Sets how much the rate is needed.
    pub fn demand(&mut self, now: Time, demand: Demand) {
        inner!(mut self, e => e.demand(now, demand));
    }

    /// Sets the number of packets in the device's send queue, where the system reports it. [`Kind::Paper`] infers
    /// it otherwise; [`Kind::Rate`] ignores it.
    pub fn backlog(&mut self, packets: u64) {
        if let Inner::Paper(paper) = &mut self.kind {
            paper.backlog(packets);
        }
    }

    /// Discards rate and round-trip time: the path has changed.
    pub fn path_changed(&mut self, now: Time) {
        inner!(mut self, e => e.path_changed(now));
    }

    /// Runs every timer that is due. An early or repeated call has no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        inner!(mut self, e => e.handle_timeout(now));
    }

    /// The time of the next [`handle_timeout`](Self::handle_timeout); `None` for never.
    pub fn poll_timeout(&self) -> Option<Time> {
        inner!(self, e => e.poll_timeout())
    }

    /// The next probe to send now. Report each of its packets with [`sent`](Self::sent).
    pub fn poll_probe(&mut self, now: Time) -> Option<Probe> {
        inner!(mut self, e => e.poll_probe(now))
    }

    /// The forecast, if it differs by more than 1 % from the one returned last.
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

    /// The current forecast.
    pub fn forecast(&self) -> Forecast {
        inner!(self, e => e.forecast())
    }

    /// The latest outages that ended; none with [`Kind::Paper`], which detects none.
    pub fn past_outages(&self) -> PastOutages {
        match &self.kind {
            Inner::Rate(rate) => rate.past_outages(),
            Inner::Paper(_) => PastOutages::default(),
        }
    }

    /// Whether the next packet of objects may be sent. Ask before each such packet, and for no other.
    pub fn gate(&self, now: Time) -> Gate {
        inner!(self, e => e.gate(now))
    }

    /// Bytes that may be sent in one call while the [gate](Self::gate) is open: one packet on a slow or unknown
    /// link, else what the link carries in about half a millisecond, within the window.
    pub fn burst(&self, now: Time) -> u64 {
        match &self.kind {
            Inner::Paper(paper) => paper.packet(),
            Inner::Rate(rate) => rate.burst(now),
        }
    }

    /// Maximum bytes in flight, including retransmissions and probes; at least two packets.
    pub fn window(&self) -> u64 {
        inner!(self, e => e.window())
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        inner!(self, e => e.in_flight().bytes().saturating_add(e.in_flight().stale()))
    }

    /// The smoothed round-trip time.
    pub fn round_trip(&self) -> Option<Duration> {
        inner!(self, e => e.in_flight().smoothed())
    }

    /// The minimum round-trip time of the last 5 to 10 s.
    pub fn round_trip_min(&self) -> Option<Duration> {
        inner!(self, e => e.in_flight().round_trip_min())
    }

    /// Queueing delay at the bottleneck beyond that of the packet's own burst, as last measured; always zero for
    /// [`Kind::Paper`].
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

/// Whether two rates differ by more than 1 %.
fn is_apart(a: Option<Rate>, b: Option<Rate>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.bits().abs_diff(b.bits()) > a.bits() / 100,
        (a, b) => a != b,
    }
}
