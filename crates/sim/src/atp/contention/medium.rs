//! What the hosts share: a link with one device queue in each direction, or a wireless cell.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rate, Time};
use remora_channel::{Channel, Config, ErrorModel, Lane, Side};

use super::super::experiment::{BULK_RATE, ExperimentError, QUEUE, ROUND_TRIP};
use super::super::pipe::{Link, Pipe, WhenDown};
use super::super::trace::Trace;
use super::super::world::End;

/// Mean length of the bad periods of a fading cell; the good ones last a second on average.
const FADE: Duration = Duration::from_millis(100);

/// The place of the contention. Everywhere a byte takes the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// One full-duplex link: the hosts' packets share its queue of 50 packets.
    Bottleneck,
    /// A half-duplex cell. Each host has a queue of its own; stations take turns frame by frame.
    Cell,
    /// The same, with good and bad periods for each host (NFS/W 95, section 3.2).
    FadingCell,
}

impl Place {
    pub const fn name(self) -> &'static str {
        match self {
            Place::Bottleneck => "bottleneck",
            Place::Cell => "cell",
            Place::FadingCell => "fading cell",
        }
    }
}

/// A UDP payload that arrived.
pub(super) struct Arrival {
    pub(super) host: usize,
    pub(super) end: End,
    pub(super) payload: Bytes,
}

/// The shared medium.
pub(super) enum Medium {
    Link { forth: Pipe, back: Pipe },
    Cell(Box<Channel>),
}

impl Medium {
    pub(super) fn new(place: Place, hosts: usize, seed: u64) -> Result<Medium, ExperimentError> {
        let delay = ROUND_TRIP / 2;
        let errors = match place {
            Place::Bottleneck => {
                let trace = Arc::new(Trace::constant(BULK_RATE));
                let pipe = Pipe::new(Link { trace, delay, queue_max: QUEUE, when_down: WhenDown::Holds });
                return Ok(Medium::Link { forth: pipe.clone(), back: pipe });
            }
            Place::Cell => ErrorModel::None,
            Place::FadingCell => ErrorModel::bursts(FADE),
        };
        let rate = Rate::from_bits((BULK_RATE * 8.0) as u64).unwrap_or(Rate::mbit(4));
        let config = Config { rate, delay, queue_frames: QUEUE, errors, ..Config::default() };
        Ok(Medium::Cell(Box::new(Channel::with_mobiles(config, seed, hosts)?)))
    }

    /// Takes a UDP payload that `end` of a host's connection sends.
    pub(super) fn send(&mut self, now: Time, host: usize, end: End, payload: Bytes) {
        match (self, end) {
            (Medium::Link { forth, .. }, End::Sender) => forth.send(now, host, payload),
            (Medium::Link { back, .. }, End::Receiver) => back.send(now, host, payload),
            (Medium::Cell(channel), end) => channel.send(now, Lane { mobile: host, from: side(end) }, payload),
        }
    }

    /// When the next event is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Medium::Link { forth, back } => forth.next_arrival().into_iter().chain(back.next_arrival()).min(),
            Medium::Cell(channel) => channel.poll_timeout(),
        }
    }

    /// The next payload that arrived by `now`.
    pub(super) fn receive(&mut self, now: Time) -> Option<Arrival> {
        match self {
            Medium::Link { forth, back } => {
                let at = |end| move |(host, payload)| Arrival { host, end, payload };
                forth.receive(now).map(at(End::Receiver)).or_else(|| back.receive(now).map(at(End::Sender)))
            }
            Medium::Cell(channel) => {
                channel.handle_timeout(now);
                let delivery = channel.poll_delivery(now)?;
                let end = if delivery.to == Side::Mobile { End::Sender } else { End::Receiver };
                Some(Arrival { host: delivery.mobile, end, payload: delivery.datagram })
            }
        }
    }
}

/// The senders are mobiles, the receivers behind the base station.
const fn side(end: End) -> Side {
    match end {
        End::Sender => Side::Mobile,
        End::Receiver => Side::Base,
    }
}
