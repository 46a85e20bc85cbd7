//! The medium: when it is free, and how long a transmission takes, at a constant rate or at the
//! delivery opportunities of a recorded link.

use std::sync::Arc;
use std::time::Duration;

use remora_base::{Rate, Time};

use crate::config::{Config, Duplex};
use crate::error_process::{Period, nanos};
use crate::lane::{PerSide, Side};
use crate::opportunities::{OPPORTUNITY_BYTES, Opportunities};

/// The media of a channel.
#[derive(Clone, Debug)]
pub(crate) enum Media {
    /// One medium for all stations.
    Shared(Medium),
    /// One medium for the base station, one that the mobiles share.
    Apart(PerSide<Medium>),
}

impl Media {
    /// Idle media for the stations 0 (the base station) to `last_station`.
    pub(crate) fn new(config: &Config, last_station: usize) -> Media {
        let medium = |side| Medium { free_at: Time::ZERO, last: last_station, rate: LinkRate::new(config, side) };
        let recorded = config.trace.base.is_some() || config.trace.mobile.is_some();
        match config.duplex {
            Duplex::Half if !recorded => Media::Shared(medium(Side::Base)),
            Duplex::Half | Duplex::Full => {
                Media::Apart(PerSide { base: medium(Side::Base), mobile: medium(Side::Mobile) })
            }
        }
    }

    /// Whether both directions share one medium.
    pub(crate) fn shared(&self) -> bool {
        matches!(self, Media::Shared(_))
    }

    /// The medium on which `from` sends.
    pub(crate) fn of(&self, from: Side) -> &Medium {
        match self {
            Media::Shared(medium) => medium,
            Media::Apart(media) => media.of(from),
        }
    }

    /// The medium on which `from` sends.
    pub(crate) fn of_mut(&mut self, from: Side) -> &mut Medium {
        match self {
            Media::Shared(medium) => medium,
            Media::Apart(media) => media.of_mut(from),
        }
    }
}

/// A medium that carries one frame at a time.
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    /// When the frame on it ends.
    pub(crate) free_at: Time,
    /// The station that sent last: its successors in the round go first.
    pub(crate) last: usize,
    pub(crate) rate: LinkRate,
}

impl Medium {
    /// Occupies the medium with a frame of `station`.
    pub(crate) fn carry(&mut self, station: usize, sent: &Transmission) {
        self.rate.use_up(sent);
        self.free_at = sent.end;
        self.last = station;
    }
}

/// The rate of transmissions.
#[derive(Clone, Debug)]
pub(crate) enum LinkRate {
    Rate(Rate),
    /// Bytes leave at recorded opportunities only.
    Trace {
        opportunities: Arc<Opportunities>,
        /// The opportunities consumed so far.
        used: TraceCursor,
    },
}

/// A position in a trace: all opportunities before `index`, and `bytes` bytes of it, are consumed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TraceCursor {
    index: u128,
    bytes: u64,
}

/// The times of a transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmission {
    /// When the first bit leaves.
    pub(crate) start: Time,
    /// When the last bit leaves.
    pub(crate) end: Time,
    /// The interval tested against bad periods: until `end`, inclusive for an opportunity, which
    /// has no length.
    pub(crate) airtime: Period,
    cursor: TraceCursor,
}

impl LinkRate {
    /// The rate at which `from` sends.
    pub(crate) fn new(config: &Config, from: Side) -> LinkRate {
        match config.trace.of(from) {
            None => LinkRate::Rate(config.rate),
            Some(opportunities) => {
                LinkRate::Trace { opportunities: Arc::clone(opportunities), used: TraceCursor::default() }
            }
        }
    }

    /// The transmission of `count` frames of `bytes` bytes (both at least 1) back to back from
    /// `ready` on.
    pub(crate) fn send(&self, ready: Time, bytes: u64, count: u64) -> Transmission {
        match self {
            LinkRate::Rate(rate) => {
                let each = nanos(rate.airtime(bytes));
                let end = ready + Duration::from_nanos(each.saturating_mul(count));
                Transmission {
                    start: ready,
                    end,
                    airtime: Period { start: ready, end },
                    cursor: TraceCursor::default(),
                }
            }
            LinkRate::Trace { opportunities, used } => {
                let first = used.from(opportunities, ready);
                let last = first.after(bytes.saturating_mul(count));
                let (start, end) = (opportunities.at(first.index), opportunities.at(last.index));
                let airtime = Period { start, end: end + Duration::from_nanos(1) };
                Transmission { start, end, airtime, cursor: last }
            }
        }
    }

    /// How many frames of `bytes` bytes, sent back to back from `ready` on, end by `until`.
    pub(crate) fn frames_until(&self, ready: Time, bytes: u64, until: Time) -> u64 {
        match self {
            LinkRate::Rate(rate) => nanos(until.since(ready)) / nanos(rate.airtime(bytes)).max(1),
            LinkRate::Trace { opportunities, used } => {
                let first = used.from(opportunities, ready);
                let whole = opportunities.first_from(until).saturating_sub(first.index);
                let room = whole.saturating_mul(u128::from(OPPORTUNITY_BYTES)).saturating_sub(u128::from(first.bytes));
                u64::try_from(room / u128::from(bytes.max(1))).unwrap_or(u64::MAX)
            }
        }
    }

    /// Consumes the opportunities of a transmission.
    pub(crate) fn use_up(&mut self, sent: &Transmission) {
        if let LinkRate::Trace { used, .. } = self {
            *used = sent.cursor;
        }
    }
}

impl TraceCursor {
    /// The position of bytes that are ready at `ready`. Opportunities passed unused are lost.
    fn from(self, opportunities: &Opportunities, ready: Time) -> TraceCursor {
        let index = opportunities.first_from(ready);
        if index > self.index {
            TraceCursor { index, bytes: 0 }
        } else if self.bytes < OPPORTUNITY_BYTES {
            self
        } else {
            TraceCursor { index: self.index + 1, bytes: 0 }
        }
    }

    /// The position of the last of `bytes` more bytes (at least 1).
    fn after(self, bytes: u64) -> TraceCursor {
        let total = u128::from(self.bytes) + u128::from(bytes.max(1));
        let each = u128::from(OPPORTUNITY_BYTES);
        let whole = (total - 1) / each;
        TraceCursor { index: self.index.saturating_add(whole), bytes: (total - whole * each) as u64 }
    }
}
