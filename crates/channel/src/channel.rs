//! The channel: the stations' device queues, medium access, and delivery.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use crate::config::{Access, Config, ConfigError, ErrorModel, MOBILES_MAX};
use crate::csma::{Bus, Contention, frame_bytes};
use crate::error_process::ErrorProcess;
use crate::lane::{Delivery, Fate, FrameRecord, FrameTrace, Lane, PerSide, Side, SideStats};
use crate::medium::{Media, Transmission};
use crate::traffic::{Frames, Head, ReceiveBuffer, Traffic};

/// The emulated channel between a base station and one or more mobiles.
///
/// Call [`send`](Channel::send), [`send_packet`](Channel::send_packet) and
/// [`handle_timeout`](Channel::handle_timeout) with the current time; after each, drain
/// [`poll_delivery`](Channel::poll_delivery), then call again at
/// [`poll_timeout`](Channel::poll_timeout). A `now` before an earlier one counts as the earlier
/// one. The result depends on the configuration, the seed and the `send` calls alone, not on when
/// the channel is polled. Each mobile has its own error process and its own random streams, which
/// the traffic of others does not change.
///
/// * IP fragments a datagram into frames; a packet is one frame. A station's frames wait in its
///   FIFO device queue; a frame that finds the queue full is dropped. The other fragments of its
///   datagram are sent all the same, as IP does, and waste airtime. The base station has one queue
///   for all mobiles.
/// * A frame occupies the medium for its airtime and arrives one propagation delay and its jitter
///   later. It is lost if its mobile is in a bad period during any part of the airtime, or by
///   independent loss. Senders do not learn of it.
/// * In half duplex all stations share the medium and take turns frame by frame; with
///   [`Access::Collisions`] they contend as on an Ethernet. In full duplex the base station has its
///   own medium, and the mobiles share another.
/// * With `hold`, a frame that would overlap a bad period leaves the device queue and waits for a
///   good one. Until it is sent, nothing else goes to its mobile and, in half duplex, nothing comes
///   from it; frames of other mobiles overtake it.
///
/// Memory: the queues (at most `queue_frames` each, and one held frame per lane), the frames in
/// flight (rate times delay, and the receive buffers), the deliveries that the driver has not
/// taken, and the trace.
#[derive(Clone, Debug)]
pub struct Channel {
    config: Config,
    mobiles: Vec<Mobile>,
    /// Frames in each station's device queue: the base station's, then each mobile's.
    waiting: Vec<usize>,
    media: Media,
    /// Medium access where stations collide.
    bus: Option<Bus>,
    /// Datagrams fragmented so far.
    numbered: u64,
    /// The latest time passed in. Every frame due by then has started.
    now: Time,
    trace: FrameTrace,
}

/// The state of one mobile.
#[derive(Clone, Debug)]
struct Mobile {
    errors: ErrorProcess,
    traffic: PerSide<Traffic>,
    buffer: ReceiveBuffer,
}

/// The right to send a frame. The smallest is next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn {
    start: Time,
    /// The medium. Among media free at the same moment the base station's is first.
    medium: Side,
    /// How many stations of the round precede this one.
    stations_before: usize,
    /// The order in which datagrams were sent.
    number: u64,
    lane: Lane,
}

impl Channel {
    /// An idle channel with one mobile. Its error process is `ErrorProcess::new(&config, seed)`.
    pub fn new(config: Config, seed: u64) -> Result<Channel, ConfigError> {
        Channel::with_mobiles(config, seed, 1)
    }

    /// An idle channel with `mobiles` mobiles (1 to 64). The error process of mobile `i` is
    /// `ErrorProcess::new(&config, Channel::seed_of(seed, i))`.
    pub fn with_mobiles(config: Config, seed: u64, mobiles: usize) -> Result<Channel, ConfigError> {
        validate_mobiles(mobiles)?;
        let errors = vec![config.errors.clone(); mobiles];
        Channel::with_errors(config, seed, &errors)
    }

    /// An idle channel with one mobile for each of `errors` (1 to 64), which replaces
    /// `config.errors` for that mobile.
    pub fn with_errors(config: Config, seed: u64, errors: &[ErrorModel]) -> Result<Channel, ConfigError> {
        validate_mobiles(errors.len())?;
        let mobile = |(index, errors): (usize, &ErrorModel)| {
            Mobile::new(&Config { errors: errors.clone(), ..config.clone() }, Channel::seed_of(seed, index))
        };
        let mobiles: Vec<Mobile> = errors.iter().enumerate().map(mobile).collect::<Result<_, _>>()?;
        let waiting = vec![0; mobiles.len() + 1];
        let media = Media::new(&config, mobiles.len());
        let trace = FrameTrace::new(config.trace_frames);
        let bus =
            (config.access == Access::Collisions).then(|| Bus::new(config.rate, config.delay, waiting.len(), seed));
        Ok(Channel { config, mobiles, waiting, media, bus, numbered: 0, now: Time::ZERO, trace })
    }

    /// The seed of mobile `mobile` under the channel's `seed`; for mobile 0, `seed` itself.
    pub fn seed_of(seed: u64, mobile: usize) -> u64 {
        match mobile {
            0 => seed,
            other => Rng::stream(seed, &format!("channel mobile {other}")).next_u64(),
        }
    }

    pub fn mobiles(&self) -> usize {
        self.mobiles.len()
    }

    /// Takes a UDP payload. One longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX) is counted and
    /// dropped.
    ///
    /// # Panics
    /// If the mobile does not exist, as do all methods that take a lane.
    pub fn send(&mut self, now: Time, lane: impl Into<Lane>, datagram: Bytes) {
        let frames = Frames::of_datagram(datagram.len(), self.config.mtu);
        self.offer(now, lane.into(), datagram, frames);
    }

    /// Takes an IP packet as one frame. An empty packet or one longer than the MTU is counted and
    /// dropped.
    pub fn send_packet(&mut self, now: Time, lane: impl Into<Lane>, packet: Bytes) {
        let frames = Frames::of_packet(packet.len(), self.config.mtu);
        self.offer(now, lane.into(), packet, frames);
    }

    fn offer(&mut self, now: Time, lane: Lane, payload: Bytes, frames: Option<Frames>) {
        self.advance(now);
        let accepted = frames.map_or(0, |f| self.room(lane).min(f.count()));
        let traffic = self.mobiles[lane.mobile].traffic.of_mut(lane.from);
        traffic.stats.datagrams_offered += 1;
        let Some(frames) = frames else {
            traffic.stats.datagrams_refused += 1;
            return;
        };
        for index in 0..frames.count() {
            let bytes = frames.frame_bytes(index);
            traffic.stats.frames_offered += 1;
            traffic.stats.bytes_offered += bytes as u64;
            if index >= accepted {
                let (start, packet) = (self.now, frames.packet(&payload));
                let record = record(lane, start, start, bytes, packet, Fate::QueueFull);
                traffic.stats.count(&record);
                self.trace.push(record);
            }
        }
        traffic.push(self.numbered, payload, frames, accepted);
        self.numbered += 1;
        self.waiting[station(lane)] += accepted;
        if let Some(bus) = self.bus.as_mut().filter(|_| accepted > 0) {
            bus.request(station(lane), self.now);
        }
        self.advance(self.now);
    }

    /// Frames that the device queue of `lane` has room for.
    fn room(&self, lane: Lane) -> usize {
        if self.bus.is_some() {
            // The first one is in the station's transmitter, which tries to send it.
            return (self.config.queue_frames + 1).saturating_sub(self.waiting[station(lane)]);
        }
        // An idle medium takes the first frame at once, so it never occupies the queue.
        let held = self.mobiles[lane.mobile].traffic.of(lane.from).held_until.is_some() || self.is_blocked(lane);
        let idle = self.media.of(lane.from).free_at <= self.now && !held;
        self.config.queue_frames.saturating_sub(self.waiting[station(lane)]) + usize::from(idle)
    }

    /// Advances the time to `now`. Extra calls are harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// The next complete datagram or packet that arrived by `now`, in order of arrival.
    pub fn poll_delivery(&mut self, now: Time) -> Option<Delivery> {
        self.advance(now);
        let arrival = |lane: Lane| self.traffic(lane).next_arrival().map(|at| (at, lane.from, lane.mobile));
        let (_, from, mobile) = self.lanes().filter_map(arrival).min().filter(|(at, ..)| *at <= self.now)?;
        let (at, datagram) = self.mobiles[mobile].traffic.of_mut(from).deliver()?;
        Some(Delivery { to: from.other(), mobile, datagram, at })
    }

    /// When the next event is due: a frame starts, or a datagram arrives. `None` when the channel
    /// is empty.
    pub fn poll_timeout(&self) -> Option<Time> {
        let start = match &self.bus {
            Some(bus) => bus.contention_end(),
            None => self.next_turn().map(|turn| turn.start),
        };
        let arrivals = self.lanes().filter_map(|lane| self.traffic(lane).next_arrival());
        arrivals.chain(start).min()
    }

    /// The counters of the traffic sent on `lane`.
    pub fn stats(&self, lane: impl Into<Lane>) -> &SideStats {
        &self.traffic(lane.into()).stats
    }

    /// Frames in the device queue that serves `lane`: the base station has one for all mobiles,
    /// each mobile its own.
    pub fn queued_frames(&self, lane: impl Into<Lane>) -> usize {
        self.waiting[station(lane.into())]
    }

    /// Collisions so far; 0 where stations take turns.
    pub fn collisions(&self) -> u64 {
        self.bus.as_ref().map_or(0, |bus| bus.collisions)
    }

    /// Time in use, of all media together: frames; on a medium with collisions also gaps, collisions
    /// and back-off.
    pub fn in_use(&self) -> Duration {
        match &self.bus {
            Some(bus) => Duration::from_nanos(bus.used),
            None => self.lanes().map(|lane| self.traffic(lane).stats.airtime).sum(),
        }
    }

    /// The oldest frame record not yet taken, in the order in which the frames' fates were decided.
    /// The channel keeps the last `trace_frames` records.
    pub fn poll_trace(&mut self) -> Option<FrameRecord> {
        self.trace.pop()
    }

    /// Records overwritten before they were taken.
    pub fn trace_overwritten(&self) -> u64 {
        self.trace.overwritten()
    }

    fn lanes(&self) -> impl Iterator<Item = Lane> + use<> {
        let mobiles = self.mobiles.len();
        Side::ALL.into_iter().flat_map(move |from| (0..mobiles).map(move |mobile| Lane { mobile, from }))
    }

    fn traffic(&self, lane: Lane) -> &Traffic {
        self.mobiles[lane.mobile].traffic.of(lane.from)
    }

    /// Starts, in order, every frame due by `now`.
    fn advance(&mut self, now: Time) {
        while let Some(contention) =
            self.bus.as_mut().filter(|b| b.contention_end().is_some_and(|at| at <= now)).and_then(Bus::resolve)
        {
            self.apply(contention);
        }
        while let Some(turn) = self.next_turn().filter(|turn| turn.start <= now) {
            self.take_turn(turn);
        }
        self.now = self.now.max(now);
    }

    /// The next frame's sender and start.
    fn next_turn(&self) -> Option<Turn> {
        if self.bus.is_some() {
            return None;
        }
        self.lanes().filter_map(|lane| self.turn(lane)).min()
    }

    fn turn(&self, lane: Lane) -> Option<Turn> {
        let traffic = self.traffic(lane);
        let number = traffic.head_number()?;
        if self.is_blocked(lane) {
            return None;
        }
        let medium = self.media.of(lane.from);
        // A frame that found the medium idle starts on arrival, which is `self.now`.
        let start = medium.free_at.max(self.now).max(traffic.held_until.unwrap_or(Time::ZERO));
        let stations = self.waiting.len();
        let stations_before = (station(lane) + stations - medium.last - 1) % stations;
        let medium = if self.media.shared() { Side::Base } else { lane.from };
        Some(Turn { start, medium, stations_before, number, lane })
    }

    /// Whether a frame held in the other direction keeps `lane` from the medium they share.
    fn is_blocked(&self, lane: Lane) -> bool {
        let opposite = self.mobiles[lane.mobile].traffic.of(lane.from.other());
        self.media.shared() && opposite.held_until.is_some()
    }

    /// Sends the first frame of a lane, or holds it.
    fn take_turn(&mut self, Turn { start, lane, .. }: Turn) {
        let Mobile { errors, traffic, .. } = &mut self.mobiles[lane.mobile];
        let traffic = traffic.of_mut(lane.from);
        let Some(head) = traffic.head() else { return };
        let rate = &self.media.of(lane.from).rate;
        let sent_from = |at| rate.send(at, head.bytes as u64, 1);

        // A frame that leaves the device queue, sent or held, frees its slot.
        let waiting = &mut self.waiting[station(lane)];
        *waiting = waiting.saturating_sub(usize::from(traffic.held_until.is_none()));
        // A frame too long for any good period is sent and lost rather than held forever.
        let fit = if self.config.hold { errors.first_fit_of(start, |at| sent_from(at).airtime) } else { None };
        traffic.held_until = fit.filter(|fit| *fit > start);
        if traffic.held_until.is_none() {
            let sent = sent_from(start);
            self.transmit(lane, head, sent);
        }
    }

    /// Applies the result of a contention on a medium with collisions.
    fn apply(&mut self, contention: Contention) {
        match contention {
            Contention::Sends(by, start) => {
                let Some((lane, head)) = self.first_of(by) else { return };
                self.waiting[by] = self.waiting[by].saturating_sub(1);
                let sent = self.media.of(lane.from).rate.send(start, frame_bytes(head.bytes as u64), 1);
                self.transmit(lane, head, sent);
                let has_more = self.waiting[by] > 0;
                self.bus.iter_mut().for_each(|bus| bus.sent(by, sent.start, sent.end, has_more));
            }
            Contention::Collided(given_up) => {
                for (by, at) in given_up {
                    let Some((lane, head)) = self.first_of(by) else { continue };
                    self.waiting[by] = self.waiting[by].saturating_sub(1);
                    let record = record(lane, at, at, head.bytes, head.packet, Fate::Collided);
                    self.mobiles[lane.mobile].traffic.of_mut(lane.from).finish_head(&record, at);
                    self.trace.push(record);
                    let has_more = self.waiting[by] > 0;
                    self.bus.iter_mut().for_each(|bus| bus.gave_up(by, has_more));
                }
            }
        }
    }

    /// The first frame in a station's device queue, and its lane.
    fn first_of(&self, by: usize) -> Option<(Lane, Head)> {
        let lanes = self.lanes().filter(|lane| station(*lane) == by);
        let lane = lanes
            .filter(|l| self.traffic(*l).head_number().is_some())
            .min_by_key(|l| self.traffic(*l).head_number())?;
        Some((lane, self.traffic(lane).head()?))
    }

    /// Puts the first frame of a lane on the medium and decides its fate.
    fn transmit(&mut self, lane: Lane, head: Head, sent: Transmission) {
        let Mobile { errors, traffic, buffer } = &mut self.mobiles[lane.mobile];
        let traffic = traffic.of_mut(lane.from);
        // Drawn for every frame, so that bad periods do not shift the random stream.
        let unlucky = traffic.draw_loss(self.config.loss);
        let arrival = sent.end + self.config.delay + traffic.draw_jitter(self.config.jitter);
        let (fate, arrival) = match errors.bad_overlaps(sent.airtime.start, sent.airtime.end) {
            true => (Fate::BadPeriod, arrival),
            false if unlucky => (Fate::RandomLoss, arrival),
            false if lane.from == Side::Mobile => (Fate::Delivered, arrival),
            false => buffer.offer(arrival).map_or((Fate::ReceiverFull, arrival), |taken| (Fate::Delivered, taken)),
        };
        let record = record(lane, sent.start, sent.end, head.bytes, head.packet, fate);
        traffic.finish_head(&record, arrival);
        self.media.of_mut(lane.from).carry(station(lane), &sent);
        self.trace.push(record);
    }
}

impl Mobile {
    fn new(config: &Config, seed: u64) -> Result<Mobile, ConfigError> {
        let stream = |name| Rng::stream(seed, name);
        let traffic = |loss, jitter| Traffic::new(stream(loss), stream(jitter));
        Ok(Mobile {
            errors: ErrorProcess::new(config, seed)?,
            traffic: PerSide {
                base: traffic("channel loss from base", "channel jitter from base"),
                mobile: traffic("channel loss from mobile", "channel jitter from mobile"),
            },
            buffer: ReceiveBuffer::new(config.receiver),
        })
    }
}

fn validate_mobiles(mobiles: usize) -> Result<(), ConfigError> {
    if (1..=MOBILES_MAX).contains(&mobiles) { Ok(()) } else { Err(ConfigError::Mobiles(mobiles)) }
}

/// The number of the station that sends on `lane`: 0 for the base station.
fn station(lane: Lane) -> usize {
    match lane.from {
        Side::Base => 0,
        Side::Mobile => lane.mobile + 1,
    }
}

fn record(lane: Lane, start: Time, end: Time, bytes: usize, packet: Bytes, fate: Fate) -> FrameRecord {
    FrameRecord { start, end, from: lane.from, mobile: lane.mobile, bytes, fate, packet }
}
