//! The channel itself: the stations' device queues, the media they take turns on, and what
//! arrives.

use bytes::Bytes;
use remora_base::{Rng, Time};

use crate::bus::{Bus, Settled};
use crate::config::{Access, Config, ConfigError, ErrorModel, MOBILES_MAX};
use crate::csma::frame_bytes;
use crate::fragment::Frames;
use crate::lane::{Delivery, Head, Lane, PerSide, Side, Traffic};
use crate::medium::{Media, Sent};
use crate::receiver::Buffer;
use crate::stats::{Fate, FrameRecord, SideStats, Trace};
use crate::weather::Weather;

/// The emulated channel between a base station and one or more mobiles.
///
/// Call [`send`](Channel::send), [`send_packet`](Channel::send_packet) and
/// [`handle_timeout`](Channel::handle_timeout) with the time it is; after any of them, take
/// [`poll_delivery`](Channel::poll_delivery) until it is empty, then come back at
/// [`poll_timeout`](Channel::poll_timeout). A `now` before an earlier one counts as that earlier
/// one. What happens depends on the configuration, the seed and the `send` calls alone, not on
/// how often or how late the channel is polled. Each mobile has weather and bad luck of its own,
/// which what others send does not change.
///
/// * A datagram is cut into frames as IP does; a packet is a frame. A station's frames wait in
///   its device queue, first in, first out; one that finds the queue full is dropped. The other
///   frames of its datagram are sent all the same, as IP does: they waste airtime, for one lost
///   frame loses the datagram. The base station has one queue for all mobiles.
/// * A frame takes its airtime on the medium and arrives one propagation delay later, and its jitter. It is
///   lost if any part of its airtime is bad at its mobile, or by its own bad luck. Senders do
///   not know.
/// * In half duplex all stations share the medium; those that wait for it take turns frame by
///   frame, or with [`Access::Collisions`] fight for it as on an Ethernet. In full duplex the base
///   station has a medium of its own, and the mobiles share another.
/// * With `hold`, a frame that would meet bad weather leaves the device queue and waits aside for
///   good weather. Till it is sent nothing else goes to, or in half duplex comes from, its mobile;
///   other mobiles' frames pass it.
///
/// Memory: the queues (bounded by `queue_frames`, and a held frame for each lane), the frames in
/// flight (bounded by rate times delay, and the receive buffers), what the driver has not yet
/// taken, and the trace.
#[derive(Clone, Debug)]
pub struct Channel {
    config: Config,
    mobiles: Vec<Mobile>,
    /// Frames in each station's device queue: the base station's, then each mobile's.
    waiting: Vec<usize>,
    media: Media,
    /// Who sends next, where stations collide.
    bus: Option<Bus>,
    /// Datagrams that have been made into frames.
    numbered: u64,
    /// The latest time told. Every frame due to start by then has started.
    now: Time,
    trace: Trace,
}

/// What belongs to one mobile.
#[derive(Clone, Debug)]
struct Mobile {
    weather: Weather,
    traffic: PerSide<Traffic>,
    buffer: Buffer,
}

/// The right to send a frame. The least one is the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn {
    start: Time,
    /// Separate media that are free at the same moment: the base station's first.
    medium: Side,
    /// How many stations of the round come before.
    stations_before: usize,
    /// A station's datagrams go in the order they were sent.
    number: u64,
    lane: Lane,
}

impl Channel {
    /// An idle channel with one mobile. Its weather is `Weather::new(&config, seed)`.
    pub fn new(config: Config, seed: u64) -> Result<Channel, ConfigError> {
        Channel::with_mobiles(config, seed, 1)
    }

    /// An idle channel with so many mobiles (1 to 64). The weather of mobile `i` is
    /// `Weather::new(&config, Channel::seed_of(seed, i))`.
    pub fn with_mobiles(config: Config, seed: u64, mobiles: usize) -> Result<Channel, ConfigError> {
        validate_mobiles(mobiles)?;
        let errors = vec![config.errors.clone(); mobiles];
        Channel::with_errors(config, seed, &errors)
    }

    /// An idle channel with a mobile for each of `errors` (1 to 64), which takes the place of
    /// `config.errors` for that mobile.
    pub fn with_errors(config: Config, seed: u64, errors: &[ErrorModel]) -> Result<Channel, ConfigError> {
        validate_mobiles(errors.len())?;
        let mobile = |(index, errors): (usize, &ErrorModel)| {
            Mobile::new(&Config { errors: errors.clone(), ..config.clone() }, Channel::seed_of(seed, index))
        };
        let mobiles: Vec<Mobile> = errors.iter().enumerate().map(mobile).collect::<Result<_, _>>()?;
        let waiting = vec![0; mobiles.len() + 1];
        let media = Media::new(&config, mobiles.len());
        let trace = Trace::new(config.trace_frames);
        let bus =
            (config.access == Access::Collisions).then(|| Bus::new(config.rate, config.delay, waiting.len(), seed));
        Ok(Channel { config, mobiles, waiting, media, bus, numbered: 0, now: Time::ZERO, trace })
    }

    /// The seed of mobile `mobile` in the world of `seed`; for mobile 0, `seed` itself.
    pub fn seed_of(seed: u64, mobile: usize) -> u64 {
        match mobile {
            0 => seed,
            other => Rng::stream(seed, &format!("channel mobile {other}")).next_u64(),
        }
    }

    /// How many mobiles there are.
    pub fn mobiles(&self) -> usize {
        self.mobiles.len()
    }

    /// Takes a UDP payload. One longer than [`DATAGRAM_MAX`](crate::DATAGRAM_MAX) is counted and
    /// dropped.
    ///
    /// # Panics
    /// If there is no such mobile; so do all that take a lane.
    pub fn send(&mut self, now: Time, lane: impl Into<Lane>, datagram: Bytes) {
        let frames = Frames::of_datagram(datagram.len(), self.config.mtu);
        self.offer(now, lane.into(), datagram, frames);
    }

    /// Takes an IP packet, which is one frame. One that is empty or longer than the MTU is
    /// counted and dropped.
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
            bus.wants(station(lane), self.now);
        }
        self.advance(self.now);
    }

    /// Frames that the device queue of `lane` takes now.
    fn room(&self, lane: Lane) -> usize {
        if self.bus.is_some() {
            // The first one is with the station's transmitter, which tries to send it.
            return (self.config.queue_frames + 1).saturating_sub(self.waiting[station(lane)]);
        }
        // An idle medium takes the first frame at once, so it never occupies the queue.
        let held = self.mobiles[lane.mobile].traffic.of(lane.from).held_until.is_some() || self.is_blocked(lane);
        let idle = self.media.of(lane.from).free_at <= self.now && !held;
        self.config.queue_frames.saturating_sub(self.waiting[station(lane)]) + usize::from(idle)
    }

    /// Lets the time be `now`. Calling it early, late or twice is harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// The next whole datagram or packet that has arrived by `now`, in order of arrival.
    pub fn poll_delivery(&mut self, now: Time) -> Option<Delivery> {
        self.advance(now);
        let arrival = |lane: Lane| self.traffic(lane).next_arrival().map(|at| (at, lane.from, lane.mobile));
        let (_, from, mobile) = self.lanes().filter_map(arrival).min().filter(|(at, ..)| *at <= self.now)?;
        let (at, datagram) = self.mobiles[mobile].traffic.of_mut(from).deliver()?;
        Some(Delivery { to: from.other(), mobile, datagram, at })
    }

    /// When something is next due: a frame to start, or a datagram to hand over. `None` when
    /// the channel is empty.
    pub fn poll_timeout(&self) -> Option<Time> {
        let start = match &self.bus {
            Some(bus) => bus.settles(),
            None => self.next_turn().map(|turn| turn.start),
        };
        let arrivals = self.lanes().filter_map(|lane| self.traffic(lane).next_arrival());
        arrivals.chain(start).min()
    }

    /// The counters of what was sent on `lane`.
    pub fn stats(&self, lane: impl Into<Lane>) -> &SideStats {
        &self.traffic(lane.into()).stats
    }

    /// Frames waiting in the device queue that `lane` is sent from: the base station has one for
    /// all mobiles, each mobile its own.
    pub fn queued_frames(&self, lane: impl Into<Lane>) -> usize {
        self.waiting[station(lane.into())]
    }

    /// Collisions until now; 0 where stations take turns.
    pub fn collisions(&self) -> u64 {
        self.bus.as_ref().map_or(0, |bus| bus.collisions)
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

    fn lanes(&self) -> impl Iterator<Item = Lane> + use<> {
        let mobiles = self.mobiles.len();
        Side::ALL.into_iter().flat_map(move |from| (0..mobiles).map(move |mobile| Lane { mobile, from }))
    }

    fn traffic(&self, lane: Lane) -> &Traffic {
        self.mobiles[lane.mobile].traffic.of(lane.from)
    }

    /// Starts, in order, every frame that is due by `now`.
    fn advance(&mut self, now: Time) {
        while let Some(settled) =
            self.bus.as_mut().filter(|b| b.settles().is_some_and(|at| at <= now)).and_then(Bus::settle)
        {
            self.contended(settled);
        }
        while let Some(turn) = self.next_turn().filter(|turn| turn.start <= now) {
            self.take_turn(turn);
        }
        self.now = self.now.max(now);
    }

    /// Whose turn it is to send the next frame, and when.
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
        // A frame that found the medium idle starts when it came, which is `self.now`.
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
        let Mobile { weather, traffic, .. } = &mut self.mobiles[lane.mobile];
        let traffic = traffic.of_mut(lane.from);
        let Some(head) = traffic.head() else { return };
        let pace = &self.media.of(lane.from).pace;
        let sent_from = |at| pace.send(at, head.bytes as u64, 1);

        // A frame that leaves the device queue frees its place, sent or held.
        let waiting = &mut self.waiting[station(lane)];
        *waiting = waiting.saturating_sub(usize::from(traffic.held_until.is_none()));
        // A frame too long for any good period is sent and lost rather than held for ever.
        let fit = if self.config.hold { weather.first_fit_of(start, |at| sent_from(at).airtime) } else { None };
        traffic.held_until = fit.filter(|fit| *fit > start);
        if traffic.held_until.is_none() {
            let sent = sent_from(start);
            self.transmit(lane, head, sent);
        }
    }

    /// After a contention on a medium with collisions.
    fn contended(&mut self, settled: Settled) {
        match settled {
            Settled::Sends(by, start) => {
                let Some((lane, head)) = self.first_of(by) else { return };
                self.waiting[by] = self.waiting[by].saturating_sub(1);
                let sent = self.media.of(lane.from).pace.send(start, frame_bytes(head.bytes as u64), 1);
                self.transmit(lane, head, sent);
                let has_more = self.waiting[by] > 0;
                self.bus.iter_mut().for_each(|bus| bus.sent(by, sent.end, has_more));
            }
            Settled::Collided(given_up) => {
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

    /// Gives the medium to the first frame of a lane, and the frame its fate.
    fn transmit(&mut self, lane: Lane, head: Head, sent: Sent) {
        let Mobile { weather, traffic, buffer } = &mut self.mobiles[lane.mobile];
        let traffic = traffic.of_mut(lane.from);
        // Drawn for every frame, so that the weather does not shift the draws.
        let unlucky = traffic.draw_loss(self.config.loss);
        let arrival = sent.end + self.config.delay + traffic.draw_jitter(self.config.jitter);
        let (fate, arrival) = match weather.bad_overlaps(sent.airtime.start, sent.airtime.end) {
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
            weather: Weather::new(config, seed)?,
            traffic: PerSide {
                base: traffic("channel loss from base", "channel jitter from base"),
                mobile: traffic("channel loss from mobile", "channel jitter from mobile"),
            },
            buffer: Buffer::new(config.receiver),
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
