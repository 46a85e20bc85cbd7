//! A medium: who may use it when, and how long what is sent takes: at a constant rate, or at the
//! opportunities of a recorded link.

use std::sync::Arc;
use std::time::Duration;

use remora_base::{Rate, Time};

use crate::burst::nanos;
use crate::config::{Config, Duplex};
use crate::lane::{PerSide, Side};
use crate::opportunities::{OPPORTUNITY_BYTES, Opportunities};
use crate::weather::Period;

/// The media of a channel.
#[derive(Clone, Debug)]
pub(crate) enum Media {
    /// One for all stations.
    Shared(Medium),
    /// One for the base station, one that the mobiles share.
    Apart(PerSide<Medium>),
}

impl Media {
    /// Idle media for stations numbered from 0, the base station's number, to `last_station`.
    pub(crate) fn new(config: &Config, last_station: usize) -> Media {
        let medium = |side| Medium { free_at: Time::ZERO, last: last_station, pace: Pace::new(config, side) };
        let recorded = config.trace.base.is_some() || config.trace.mobile.is_some();
        match config.duplex {
            Duplex::Half if !recorded => Media::Shared(medium(Side::Base)),
            Duplex::Half | Duplex::Full => {
                Media::Apart(PerSide { base: medium(Side::Base), mobile: medium(Side::Mobile) })
            }
        }
    }

    /// Whether both directions share one.
    pub(crate) fn shared(&self) -> bool {
        matches!(self, Media::Shared(_))
    }

    /// The one that `from` sends on.
    pub(crate) fn of(&self, from: Side) -> &Medium {
        match self {
            Media::Shared(medium) => medium,
            Media::Apart(media) => media.of(from),
        }
    }

    /// The one that `from` sends on.
    pub(crate) fn of_mut(&mut self, from: Side) -> &mut Medium {
        match self {
            Media::Shared(medium) => medium,
            Media::Apart(media) => media.of_mut(from),
        }
    }
}

/// What carries one frame at a time.
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    /// When the frame on it ends.
    pub(crate) free_at: Time,
    /// The station that used it last: those that follow it in the round go first.
    pub(crate) last: usize,
    pub(crate) pace: Pace,
}

impl Medium {
    /// Carries a frame of `station`.
    pub(crate) fn carry(&mut self, station: usize, sent: &Sent) {
        self.pace.use_up(sent);
        self.free_at = sent.end;
        self.last = station;
    }
}

/// How long what is sent takes.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    /// Always the same.
    Rate(Rate),
    /// Bytes cross at recorded opportunities only.
    Trace {
        /// When they are.
        opportunities: Arc<Opportunities>,
        /// What has been used of them.
        used: Mark,
    },
}

/// How far the opportunities are used up: all those before `index`, and some bytes of it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mark {
    index: u128,
    bytes: u64,
}

/// What sending something comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When the first bit leaves.
    pub(crate) start: Time,
    /// When the last bit leaves.
    pub(crate) end: Time,
    /// The time whose weather it meets: up to `end`, and with it if it is an opportunity, which
    /// has no length.
    pub(crate) airtime: Period,
    mark: Mark,
}

impl Pace {
    /// The pace of what `from` sends.
    pub(crate) fn new(config: &Config, from: Side) -> Pace {
        match config.trace.of(from) {
            None => Pace::Rate(config.rate),
            Some(opportunities) => Pace::Trace { opportunities: Arc::clone(opportunities), used: Mark::default() },
        }
    }

    /// What it comes to if `count` frames of `bytes` bytes (both at least 1) are sent back to
    /// back from `ready` on.
    pub(crate) fn send(&self, ready: Time, bytes: u64, count: u64) -> Sent {
        match self {
            Pace::Rate(rate) => {
                let each = nanos(rate.airtime(bytes));
                let end = ready + Duration::from_nanos(each.saturating_mul(count));
                Sent { start: ready, end, airtime: Period { start: ready, end }, mark: Mark::default() }
            }
            Pace::Trace { opportunities, used } => {
                let first = used.from(opportunities, ready);
                let last = first.after(bytes.saturating_mul(count));
                let (start, end) = (opportunities.at(first.index), opportunities.at(last.index));
                let airtime = Period { start, end: end + Duration::from_nanos(1) };
                Sent { start, end, airtime, mark: last }
            }
        }
    }

    /// How many frames of `bytes` bytes sent back to back from `ready` on are over by `until`.
    pub(crate) fn frames_until(&self, ready: Time, bytes: u64, until: Time) -> u64 {
        match self {
            Pace::Rate(rate) => nanos(until.since(ready)) / nanos(rate.airtime(bytes)).max(1),
            Pace::Trace { opportunities, used } => {
                let first = used.from(opportunities, ready);
                let whole = opportunities.first_from(until).saturating_sub(first.index);
                let room = whole.saturating_mul(u128::from(OPPORTUNITY_BYTES)).saturating_sub(u128::from(first.bytes));
                u64::try_from(room / u128::from(bytes.max(1))).unwrap_or(u64::MAX)
            }
        }
    }

    /// Uses up what was sent.
    pub(crate) fn use_up(&mut self, sent: &Sent) {
        if let Pace::Trace { used, .. } = self {
            *used = sent.mark;
        }
    }
}

impl Mark {
    /// Where bytes that are ready at `ready` go on from here; what was unused before is lost.
    fn from(self, opportunities: &Opportunities, ready: Time) -> Mark {
        let index = opportunities.first_from(ready);
        if index > self.index {
            Mark { index, bytes: 0 }
        } else if self.bytes < OPPORTUNITY_BYTES {
            self
        } else {
            Mark { index: self.index + 1, bytes: 0 }
        }
    }

    /// Where the last of `bytes` more bytes (at least 1) goes.
    fn after(self, bytes: u64) -> Mark {
        let total = u128::from(self.bytes) + u128::from(bytes.max(1));
        let each = u128::from(OPPORTUNITY_BYTES);
        let whole = (total - 1) / each;
        Mark { index: self.index.saturating_add(whole), bytes: (total - whole * each) as u64 }
    }
}
