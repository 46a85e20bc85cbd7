//! Multiplexing: all connections of a session, at one end.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use remora_base::Rate;

use super::frame::Frame;
use super::interface::{
    Config, End, Event, Fate, Object, ObjectId, OpenError, Refused, Reset, STREAMS_MAX, Stats, StreamId, Terms,
    Violation, WINDOW_MIN,
};
use super::parts::{ReceivePart, SendPart, Taken, UsedNumbers};
use super::target::Target;
use crate::{Options, Priority};

/// With a deadline, at most this share of the link's capacity within it is in flight,
const PACE_SHARE: u64 = 4;
/// but at least this many bytes.
const PACE_MIN: u64 = 8 << 10;
/// Maximum credit frames of a connection in flight: four windows' worth.
const CREDITS_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamPhase {
    /// Acceptor: a frame arrived before the request.
    Unannounced,
    /// Requested, not answered.
    Asked,
    Open,
}

#[derive(Debug)]
struct Stream {
    phase: StreamPhase,
    terms: Terms,
    send_part: SendPart,
    receive_part: ReceivePart,
    /// Maximum bytes in flight.
    in_flight_max: u64,
    /// Credit frames in flight.
    credits: usize,
    /// The caller waits for [`Event::Room`].
    blocked: bool,
    /// A reset after the end of one direction, which takes effect when all earlier bytes are delivered.
    broke: Option<DeferredReset>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeferredReset {
    Here(Reset),
    There(Reset),
}

/// A frame in flight or about to be sent.
#[derive(Debug)]
struct OutgoingFrame {
    stream: StreamId,
    bytes: Bytes,
    options: Options,
    what: FramePurpose,
}

/// What the fate of a frame affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FramePurpose {
    Data(u64),
    /// The last frame of a closed connection.
    Last,
    Credit,
    Other,
}

#[derive(Debug)]
enum Role {
    Opener { next: Option<u32> },
    Acceptor { numbers: UsedNumbers },
}

/// One end of the connections of a session.
#[derive(Debug)]
pub struct Streams {
    config: Config,
    role: Role,
    streams: BTreeMap<StreamId, Stream>,
    in_flight: BTreeMap<ObjectId, OutgoingFrame>,
    /// Objects of `in_flight` to send.
    outbox: VecDeque<ObjectId>,
    cancels: VecDeque<ObjectId>,
    events: VecDeque<Event>,
    next_object: u64,
    /// Closed connections whose last frame is not delivered.
    closing: usize,
    /// Last frames that wait for others to be delivered.
    deferred: VecDeque<(StreamId, Frame, Terms)>,
    rate: Option<Rate>,
    stats: Stats,
}

impl Streams {
    /// Creates the end that opens connections.
    pub fn opener(config: Config) -> Streams {
        Streams::new(config, Role::Opener { next: Some(0) })
    }

    /// Creates the end that accepts connections.
    pub fn acceptor(config: Config) -> Streams {
        Streams::new(config, Role::Acceptor { numbers: UsedNumbers::default() })
    }

    fn new(config: Config, role: Role) -> Streams {
        let config = Config { streams: config.streams.clamp(1, STREAMS_MAX), window: config.window.max(WINDOW_MIN) };
        Streams {
            config,
            role,
            streams: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            outbox: VecDeque::new(),
            cancels: VecDeque::new(),
            events: VecDeque::new(),
            next_object: 0,
            closing: 0,
            deferred: VecDeque::new(),
            rate: None,
            stats: Stats::default(),
        }
    }

    /// Requests a connection. Bytes may be sent at once. An acceptor cannot open.
    pub fn open(&mut self, target: Target, terms: Terms) -> Result<StreamId, OpenError> {
        let Role::Opener { next } = &mut self.role else { return Err(OpenError::NoNumbers) };
        if self.streams.len() + self.closing >= self.config.streams {
            return Err(OpenError::TooMany);
        }
        let id = next.map(StreamId).ok_or(OpenError::NoNumbers)?;
        *next = id.0.checked_add(1);
        self.stats.asked += 1;
        self.add(id, StreamPhase::Asked, terms);
        let window = self.config.window;
        self.push(id, Frame::Open { target, terms, window }, FramePurpose::Other, terms);
        Ok(id)
    }

    /// Accepts a requested connection.
    pub fn accept(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == StreamPhase::Asked) else { return };
        stream.phase = StreamPhase::Open;
        let (terms, window) = (stream.terms, self.config.window);
        stream.receive_part.widen(window);
        self.push(id, Frame::Opened { window }, FramePurpose::Other, first(terms));
        self.wake_reader(id);
    }

    /// Refuses a requested connection.
    pub fn refuse(&mut self, id: StreamId, why: Refused) {
        let Some(stream) = self.streams.get(&id).filter(|s| s.phase == StreamPhase::Asked) else { return };
        let terms = stream.terms;
        self.end(id, End::Refused(why));
        self.push_final(id, Frame::Refused(why), first(terms));
    }

    /// Bytes that [`send`](Streams::send) accepts now; `None` if the connection ended. After 0 an [`Event::Room`]
    /// follows.
    pub fn room(&mut self, id: StreamId) -> Option<usize> {
        let rate = self.rate;
        let stream = self.streams.get_mut(&id)?;
        let room = stream.room(rate);
        stream.blocked = room == 0;
        Some(room)
    }

    /// Sends bytes; returns those beyond [`room`](Streams::room).
    pub fn send(&mut self, id: StreamId, mut bytes: Bytes) -> Option<Bytes> {
        let room = self.room(id)?;
        let now = bytes.split_to(bytes.len().min(room));
        if !now.is_empty() {
            self.send_data(id, now, false);
        }
        Some(bytes)
    }

    /// Ends the sending direction.
    pub fn finish(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|s| !s.send_part.is_finished()) {
            self.send_data(id, Bytes::new(), true);
        }
    }

    /// Resets the connection and cancels undelivered objects.
    pub fn reset(&mut self, id: StreamId, why: Reset) {
        let Some(stream) = self.streams.get(&id) else { return };
        let terms = stream.terms;
        self.end(id, End::Reset(why));
        self.push_final(id, Frame::Reset(why), first(terms));
    }

    /// Handles a failure of the local TCP connection. If its end was sent, earlier bytes are delivered before the
    /// reset: a fully closed socket answers later data with a reset, which takes nothing back.
    pub fn broke(&mut self, id: StreamId, why: Reset) {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.send_part.is_finished() => {
                stream.broke = Some(DeferredReset::Here(why));
                self.end_if_done(id);
            }
            _ => self.reset(id, why),
        }
    }

    /// Takes received bytes, which grants credit; `None` if the connection ended. After [`Taken::Nothing`] an
    /// [`Event::Readable`] follows.
    pub fn take(&mut self, id: StreamId) -> Option<Taken> {
        let stream = self.streams.get_mut(&id)?;
        let taken = stream.receive_part.take();
        match &taken {
            Taken::Bytes(bytes) => self.stats.received += bytes.len() as u64,
            Taken::End => self.end_if_done(id),
            Taken::Nothing => {}
        }
        self.send_credit(id);
        Some(taken)
    }

    /// Grants credit to the peer, if it has grown enough.
    fn send_credit(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.credits < CREDITS_MAX) else { return };
        if let Some(limit) = stream.receive_part.poll_credit() {
            stream.credits += 1;
            let terms = first(stream.terms);
            self.push(id, Frame::Credit { limit }, FramePurpose::Credit, terms);
        }
    }

    /// Sets the expected bandwidth; `None` if unknown. Connections with deadlines limit their bytes in flight by
    /// it.
    pub fn forecast(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.wake_writer(id));
    }

    /// Handles an object of the peer.
    pub fn handle_object(&mut self, object: Bytes) -> Result<(), Violation> {
        let (id, frame) = Frame::decode(object).map_err(|_| Violation::Nonsense)?;
        if !self.is_expected(id, &frame)? {
            return Ok(());
        }
        match frame {
            Frame::Open { target, terms, window } => self.asked(id, target, terms, window),
            Frame::Opened { window } => {
                let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == StreamPhase::Asked) else {
                    return Ok(());
                };
                stream.phase = StreamPhase::Open;
                stream.send_part.credit(window.into());
                self.events.push_back(Event::Opened(id));
                self.wake_writer(id);
                self.end_if_done(id);
            }
            Frame::Refused(why) => self.end(id, End::Refused(why)),
            Frame::Reset(why) => match self.streams.get_mut(&id) {
                // All bytes are here and can be taken, unless the request is missing.
                Some(stream) if stream.receive_part.is_complete() && stream.phase != StreamPhase::Unannounced => {
                    stream.broke = Some(DeferredReset::There(why));
                    self.end_if_done(id);
                }
                _ => self.end(id, End::Reset(why)),
            },
            Frame::Credit { limit } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
                stream.send_part.credit(limit);
                self.wake_writer(id);
            }
            Frame::Data { number, last, bytes } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
                if stream.receive_part.accept(number, last, bytes)? {
                    self.wake_reader(id);
                }
            }
        }
        Ok(())
    }

    /// Whether the frame belongs to a known connection. Creates the connection with its first frame.
    fn is_expected(&mut self, id: StreamId, frame: &Frame) -> Result<bool, Violation> {
        let Role::Acceptor { numbers } = &mut self.role else {
            // Frames of ended connections are ignored.
            return if matches!(frame, Frame::Open { .. }) { Err(Violation::Role) } else { Ok(true) };
        };
        if matches!(frame, Frame::Opened { .. } | Frame::Refused(_)) {
            return Err(Violation::Role);
        }
        if !numbers.is_new(id.0, STREAMS_MAX)? {
            return Ok(true);
        }
        // An opener has at most [`STREAMS_MAX`] connections and waits for the end of one before the next;
        // deliveries may not be known here yet.
        if self.deferred.len() >= 2 * STREAMS_MAX {
            return Err(Violation::Deaf);
        }
        self.stats.asked += 1;
        if self.has_room() {
            self.add(id, StreamPhase::Unannounced, Terms::default());
            return Ok(true);
        }
        self.stats.refused += 1;
        if !matches!(frame, Frame::Reset(_)) {
            self.push_final(id, Frame::Reset(Reset::Full), Terms::default());
        }
        Ok(false)
    }

    /// Whether an acceptor has room for a connection. Those that only wait for the delivery of their last bytes do
    /// not count, up to as many again: the opener has forgotten them.
    fn has_room(&self) -> bool {
        let max = self.config.streams;
        let open = self.streams.values().filter(|s| !(s.send_part.is_finished() && s.receive_part.is_done())).count();
        open < max && self.streams.len() < 2 * max
    }

    fn asked(&mut self, id: StreamId, target: Target, terms: Terms, window: u32) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == StreamPhase::Unannounced) else { return };
        (stream.phase, stream.terms) = (StreamPhase::Asked, terms);
        stream.send_part.credit(window.into());
        self.events.push_back(Event::Asked { id, target, terms });
    }

    /// Reports the fate of an object. With [`Fate::Again`] it is sent again, otherwise forgotten.
    pub fn ended(&mut self, object: ObjectId, fate: Fate) {
        let Some(in_flight) = self.in_flight.get(&object) else { return };
        let (id, what) = (in_flight.stream, in_flight.what);
        match fate {
            Fate::Again => return self.outbox.push_back(object),
            Fate::Delivered => {
                if let (FramePurpose::Data(number), Some(stream)) = (what, self.streams.get_mut(&id)) {
                    stream.send_part.delivered(number);
                }
            }
            Fate::Missed => {}
        }
        self.in_flight.remove(&object);
        if let (FramePurpose::Credit, Some(stream)) = (what, self.streams.get_mut(&id)) {
            stream.credits = stream.credits.saturating_sub(1);
            self.send_credit(id);
        }
        match (what, fate) {
            (FramePurpose::Last, _) => {
                self.closing = self.closing.saturating_sub(1);
                if let Some((id, frame, terms)) = self.deferred.pop_front() {
                    self.push_final(id, frame, terms);
                }
            }
            (_, Fate::Missed) => self.reset(id, Reset::Deadline),
            _ => {
                self.wake_writer(id);
                self.end_if_done(id);
            }
        }
    }

    /// The next object to send.
    pub fn poll_object(&mut self) -> Option<Object> {
        loop {
            let id = self.outbox.pop_front()?;
            if let Some(OutgoingFrame { bytes, options, .. }) = self.in_flight.get(&id) {
                return Some(Object { id, bytes: bytes.clone(), options: *options });
            }
        }
    }

    /// The next object that need not be sent any more.
    pub fn poll_cancel(&mut self) -> Option<ObjectId> {
        self.cancels.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Counters of this end.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes received and not taken, over all connections.
    pub fn kept(&self) -> u64 {
        self.streams.values().map(|s| s.receive_part.kept()).sum()
    }

    fn add(&mut self, id: StreamId, phase: StreamPhase, terms: Terms) {
        // An acceptor learns the opener's window from the request, and grants only the minimum before it accepts.
        let (limit, window) = match self.role {
            Role::Opener { .. } => (WINDOW_MIN, self.config.window),
            Role::Acceptor { .. } => (0, WINDOW_MIN),
        };
        let (send_part, receive_part) = (SendPart::new(limit.into()), ReceivePart::new(window));
        let in_flight_max = self.config.window.into();
        let stream =
            Stream { phase, terms, send_part, receive_part, in_flight_max, credits: 0, blocked: false, broke: None };
        self.streams.insert(id, stream);
    }

    fn send_data(&mut self, id: StreamId, bytes: Bytes, last: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.stats.sent += bytes.len() as u64;
        let (number, terms) = (stream.send_part.send(bytes.len(), last), stream.terms);
        self.push(id, Frame::Data { number, last, bytes }, FramePurpose::Data(number), terms);
    }

    fn push(&mut self, stream: StreamId, frame: Frame, what: FramePurpose, terms: Terms) {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        let options = Options { priority: terms.priority, deadline: terms.deadline, ..Options::default() };
        self.closing += usize::from(what == FramePurpose::Last);
        self.in_flight.insert(id, OutgoingFrame { stream, bytes: frame.encode(stream), options, what });
        self.outbox.push_back(id);
    }

    /// Sends the last frame of a closed connection. Each takes the memory of an object until it is delivered, which
    /// the peer controls, so few are in flight.
    fn push_final(&mut self, stream: StreamId, frame: Frame, terms: Terms) {
        if self.closing < 2 * self.config.streams {
            self.push(stream, frame, FramePurpose::Last, terms);
        } else {
            self.deferred.push_back((stream, frame, terms));
        }
    }

    fn wake_writer(&mut self, id: StreamId) {
        let rate = self.rate;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.blocked && stream.room(rate) > 0 {
            stream.blocked = false;
            self.events.push_back(Event::Room(id));
        }
    }

    fn wake_reader(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        // A connection that is not accepted is not read yet.
        let is_read = matches!(self.role, Role::Opener { .. }) || stream.phase == StreamPhase::Open;
        if is_read && stream.receive_part.has_something() {
            self.events.push_back(Event::Readable(id));
        }
    }

    fn end_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        match (stream.send_part.is_done(), stream.receive_part.is_done(), stream.broke) {
            (true, true, _) => self.end(id, End::Done),
            // The acceptor may not know the request yet.
            (true, _, Some(DeferredReset::Here(why))) if stream.phase == StreamPhase::Open => self.reset(id, why),
            (_, true, Some(DeferredReset::There(why))) => self.end(id, End::Reset(why)),
            _ => {}
        }
    }

    /// Removes a connection and cancels its objects.
    fn end(&mut self, id: StreamId, end: End) {
        let Some(stream) = self.streams.remove(&id) else { return };
        match end {
            End::Done => self.stats.done += 1,
            End::Refused(_) => self.stats.refused += 1,
            End::Reset(_) => self.stats.reset += 1,
        }
        if end != End::Done {
            let first = self.cancels.len();
            let of_it = self.in_flight.iter().filter(|(_, u)| u.stream == id && u.what != FramePurpose::Last);
            self.cancels.extend(of_it.map(|(object, _)| *object));
            for object in self.cancels.iter().skip(first) {
                self.in_flight.remove(object);
            }
        }
        if stream.phase != StreamPhase::Unannounced {
            self.events.push_back(Event::Ended(id, end));
        }
    }
}

impl Stream {
    fn room(&self, rate: Option<Rate>) -> usize {
        let pace = match (self.terms.deadline, rate) {
            (Some(deadline), Some(rate)) => {
                let carried = u128::from(rate.bits() / 8) * deadline.as_millis() / 1000;
                u64::try_from(carried).unwrap_or(u64::MAX) / PACE_SHARE
            }
            (Some(_), None) => PACE_MIN,
            (None, _) => u64::MAX,
        };
        self.send_part.room(pace.max(PACE_MIN).min(self.in_flight_max))
    }
}

/// Control frames precede data, because they are short, and have no deadline.
fn first(terms: Terms) -> Terms {
    Terms { priority: Priority::new(terms.priority.level() + 1).unwrap_or(Priority::MAX), deadline: None }
}
