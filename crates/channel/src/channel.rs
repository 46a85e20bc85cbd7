//! The channel itself: device queues, the medium, and what arrives.
//!
//! Each side's datagrams leave in order. Frames of one datagram are neighbours in its side's
//! queue and a full queue drops a datagram's *tail*, so a queue entry is a datagram and two
//! counters: nothing is allocated for a frame, and reassembly is a flag.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use crate::config::{Config, ConfigError, Duplex};
use crate::fragment::Fragments;
use crate::stats::{Fate, FrameRecord, SideStats, Trace};
use crate::weather::Weather;

/// An end of the channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The base station, with the wired network behind it.
    Base,
    /// The mobile host.
    Mobile,
}

impl Side {
    /// Both sides.
    pub const ALL: [Side; 2] = [Side::Base, Side::Mobile];

    /// The far side.
    pub const fn other(self) -> Side {
        match self {
            Side::Base => Side::Mobile,
            Side::Mobile => Side::Base,
        }
    }
}

/// A whole datagram that came through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The side it arrived at.
    pub to: Side,
    /// Its payload, as it was sent.
    pub datagram: Bytes,
    /// When it arrived in the channel's own time; how much later it was asked for is the
    /// driver's lateness.
    pub at: Time,
}

/// The emulated channel between two sides.
///
/// Call [`send`](Channel::send) and [`handle_timeout`](Channel::handle_timeout) with the time
/// it is; after either, take [`poll_delivery`](Channel::poll_delivery) until it is empty, then
/// come back at [`poll_timeout`](Channel::poll_timeout). A `now` before an earlier one counts
/// as that earlier one. What happens depends on the configuration, the seed and the `send`
/// calls alone, not on how often or how late the channel is polled.
///
/// * A datagram is cut into frames as IP does. A side's frames wait in its device queue, first
///   in, first out; one that finds the queue full is dropped. The other frames of its datagram
///   are sent all the same, as IP does: they waste airtime, for one lost frame loses the datagram.
/// * A frame takes its airtime on the medium and arrives one propagation delay later. It is
///   lost if any part of its airtime is bad, or by its own bad luck. Senders do not know.
/// * In half duplex both sides share the medium; when both wait for it they take turns frame
///   by frame, which is what carrier sense gives on average.
///
/// Memory: the queues (bounded by `queue_frames`), the frames in flight (bounded by rate times
/// delay), what the driver has not yet taken, and the trace.
#[derive(Clone, Debug)]
pub struct Channel {
    config: Config,
    weather: Weather,
    lanes: [Lane; 2],
    /// Who used the medium last: at a tie the other one goes first.
    last: Side,
    /// The latest time told. Every frame due to start by then has started.
    now: Time,
    trace: Trace,
}

/// One direction.
#[derive(Clone, Debug)]
struct Lane {
    queue: VecDeque<Outgoing>,
    /// Frames in `queue`.
    waiting: usize,
    /// When the medium this direction uses is free. In half duplex both lanes say the same.
    free_at: Time,
    losses: Rng,
    /// Whole datagrams on their way with their arrival times, which never decrease.
    in_flight: VecDeque<(Time, Bytes)>,
    stats: SideStats,
}

/// A datagram with frames left to send.
#[derive(Clone, Debug)]
struct Outgoing {
    datagram: Bytes,
    frames: Fragments,
    /// The next frame to send.
    next: usize,
    /// Frames from here on were dropped by the full queue.
    accepted: usize,
    lost: bool,
}

impl Channel {
    /// An idle channel. Its weather is `Weather::new(&config, seed)`.
    pub fn new(config: Config, seed: u64) -> Result<Channel, ConfigError> {
        let weather = Weather::new(&config, seed)?;
        let lanes =
            ["channel loss from base", "channel loss from mobile"].map(|name| Lane::new(Rng::stream(seed, name)));
        let trace = Trace::new(config.trace_frames);
        Ok(Channel { config, weather, lanes, last: Side::Mobile, now: Time::ZERO, trace })
    }

    /// Takes a UDP payload from side `from`. One longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX)
    /// is counted and dropped.
    pub fn send(&mut self, now: Time, from: Side, datagram: Bytes) {
        self.advance(now);
        let lane = &mut self.lanes[from as usize];
        lane.stats.datagrams_offered += 1;
        let Some(frames) = Fragments::of(datagram.len(), self.config.mtu) else {
            lane.stats.datagrams_too_long += 1;
            return;
        };
        // An idle medium takes the first frame at once, so it never occupies the queue.
        let idle = lane.free_at <= self.now;
        let room = self.config.queue_frames.saturating_sub(lane.waiting) + usize::from(idle);
        let accepted = room.min(frames.count());
        for index in 0..frames.count() {
            let bytes = frames.frame_bytes(index);
            lane.stats.frames_offered += 1;
            lane.stats.bytes_offered += bytes as u64;
            if index >= accepted {
                let record = FrameRecord { start: self.now, end: self.now, from, bytes, fate: Fate::QueueFull };
                lane.stats.count(&record);
                self.trace.push(record);
            }
        }
        if accepted > 0 {
            lane.waiting += accepted;
            let lost = accepted < frames.count();
            lane.queue.push_back(Outgoing { datagram, frames, next: 0, accepted, lost });
        }
        self.advance(self.now);
    }

    /// Lets the time be `now`. Calling it early, late or twice is harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// The next whole datagram that has arrived by `now`, in order of arrival.
    pub fn poll_delivery(&mut self, now: Time) -> Option<Delivery> {
        self.advance(now);
        let arrival = |side: Side| self.lanes[side as usize].in_flight.front().map(|(at, _)| (*at, side));
        let (_, from) = Side::ALL.into_iter().filter_map(arrival).min().filter(|(at, _)| *at <= self.now)?;
        let lane = &mut self.lanes[from as usize];
        let (at, datagram) = lane.in_flight.pop_front()?;
        lane.stats.datagrams_delivered += 1;
        Some(Delivery { to: from.other(), datagram, at })
    }

    /// When something is next due: a frame to start, or a datagram to hand over. `None` when
    /// the channel is empty.
    pub fn poll_timeout(&self) -> Option<Time> {
        let start = self.next_start().map(|(start, _)| start);
        let arrivals = self.lanes.iter().filter_map(|l| l.in_flight.front().map(|(at, _)| *at));
        arrivals.chain(start).min()
    }

    /// The counters of what `from` has sent.
    pub fn stats(&self, from: Side) -> &SideStats {
        &self.lanes[from as usize].stats
    }

    /// Frames waiting in the device queue of `from`.
    pub fn queued_frames(&self, from: Side) -> usize {
        self.lanes[from as usize].waiting
    }

    /// The oldest frame record not yet taken, in the order the frames met their fate. Kept for
    /// the last `trace_frames` frames.
    pub fn poll_trace(&mut self) -> Option<FrameRecord> {
        self.trace.pop()
    }

    /// How many records gave way before they were taken.
    pub fn trace_overwritten(&self) -> u64 {
        self.trace.overwritten()
    }

    /// Starts, in order, every frame that is due by `now`.
    fn advance(&mut self, now: Time) {
        while let Some((start, from)) = self.next_start().filter(|(start, _)| *start <= now) {
            self.transmit(from, start);
        }
        self.now = self.now.max(now);
    }

    /// The frame to start next: the earliest; at a tie, the side that did not go last.
    fn next_start(&self) -> Option<(Time, Side)> {
        let waiting = Side::ALL.into_iter().filter(|s| self.lanes[*s as usize].waiting > 0);
        // A frame that found the medium idle starts when it came, which is `self.now`.
        waiting.map(|s| (self.lanes[s as usize].free_at.max(self.now), s)).min_by_key(|(at, s)| (*at, *s == self.last))
    }

    /// Gives the medium to the first frame of `from`, from `ready` on.
    fn transmit(&mut self, from: Side, ready: Time) {
        let lane = &mut self.lanes[from as usize];
        let Some(bytes) = lane.head_bytes() else {
            lane.waiting = 0;
            return;
        };
        let airtime = self.config.rate.airtime(bytes as u64);
        // A frame too long for any good period is sent and lost rather than held for ever.
        let fit = if self.config.hold { self.weather.first_fit(ready, airtime) } else { None };
        let start = fit.unwrap_or(ready);
        let end = start + airtime;
        // Drawn for every frame, so that the weather does not shift the draws.
        let unlucky = lane.losses.chance(self.config.loss);
        let fate = match self.weather.bad_overlaps(start, end) {
            true => Fate::BadPeriod,
            false if unlucky => Fate::RandomLoss,
            false => Fate::Delivered,
        };
        let record = FrameRecord { start, end, from, bytes, fate };
        lane.finish_head(&record, self.config.delay);
        match self.config.duplex {
            Duplex::Half => self.lanes.iter_mut().for_each(|l| l.free_at = end),
            Duplex::Full => lane.free_at = end,
        }
        self.last = from;
        self.trace.push(record);
    }
}

impl Lane {
    fn new(losses: Rng) -> Lane {
        Lane {
            queue: VecDeque::new(),
            waiting: 0,
            free_at: Time::ZERO,
            losses,
            in_flight: VecDeque::new(),
            stats: SideStats::default(),
        }
    }

    /// Bytes of the first frame waiting.
    fn head_bytes(&self) -> Option<usize> {
        self.queue.front().map(|head| head.frames.frame_bytes(head.next))
    }

    /// Takes the first frame off the queue with its fate; the last one of a datagram decides
    /// whether the datagram is on its way.
    fn finish_head(&mut self, frame: &FrameRecord, delay: Duration) {
        self.stats.count(frame);
        self.waiting = self.waiting.saturating_sub(1);
        let Some(head) = self.queue.front_mut() else { return };
        head.next += 1;
        head.lost |= frame.fate != Fate::Delivered;
        if head.next < head.accepted {
            return;
        }
        if let Some(done) = self.queue.pop_front().filter(|d| !d.lost) {
            self.in_flight.push_back((frame.end + delay, done.datagram));
        }
    }
}
