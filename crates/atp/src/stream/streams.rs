//! All connections of a session, at one end of it.

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

/// With a deadline, what the link carries in this part of it is in_flight way at most.
const PACE_SHARE: u64 = 4;
/// But so much always may be, in bytes.
const PACE_MIN: u64 = 8 << 10;
/// Frames about one connection's room that are in_flight way at most: four windows' worth.
const CREDITS_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamPhase {
    /// An acceptor has heard of it, but not yet what it is.
    Unannounced,
    /// Asked for; the answer is not here.
    Asked,
    /// It stands.
    Open,
}

#[derive(Debug)]
struct Stream {
    phase: StreamPhase,
    terms: Terms,
    send_part: SendPart,
    receive_part: ReceivePart,
    /// Bytes in_flight way at most, whatever the peer takes.
    in_flight_max: u64,
    /// Frames in_flight way that say how much room there is.
    credits: usize,
    /// Somebody waits for room.
    blocked: bool,
    /// It broke behind its end, at either end: it is over once all that came before has arrived there.
    broke: Option<DeferredReset>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeferredReset {
    Here(Reset),
    There(Reset),
}

/// A frame that was given send_part or is about to be.
#[derive(Debug)]
struct OutgoingFrame {
    stream: StreamId,
    bytes: Bytes,
    options: Options,
    what: FramePurpose,
}

/// FramePurpose hangs on the fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FramePurpose {
    Data(u64),
    /// The last word about a connection, which is over.
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
    /// Of `in_flight`, what is to be given send_part.
    outbox: VecDeque<ObjectId>,
    cancels: VecDeque<ObjectId>,
    events: VecDeque<Event>,
    next_object: u64,
    /// Connections that are over but for the last word about them, which has not arrived.
    closing: usize,
    /// Last words that wait until others have arrived.
    deferred: VecDeque<(StreamId, Frame, Terms)>,
    /// FramePurpose the link carries.
    rate: Option<Rate>,
    stats: Stats,
}

impl Streams {
    /// The end that asks for connections.
    pub fn opener(config: Config) -> Streams {
        Streams::new(config, Role::Opener { next: Some(0) })
    }

    /// The end that is asked.
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

    /// Asks for a connection. Bytes may be sent at once; an acceptor opens none.
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

    /// The connection that was asked for stands.
    pub fn accept(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == StreamPhase::Asked) else { return };
        stream.phase = StreamPhase::Open;
        let (terms, window) = (stream.terms, self.config.window);
        stream.receive_part.widen(window);
        self.push(id, Frame::Opened { window }, FramePurpose::Other, first(terms));
        self.wake_reader(id);
    }

    /// The connection that was asked for cannot be had.
    pub fn refuse(&mut self, id: StreamId, why: Refused) {
        let Some(stream) = self.streams.get(&id).filter(|s| s.phase == StreamPhase::Asked) else { return };
        let terms = stream.terms;
        self.end(id, End::Refused(why));
        self.push_final(id, Frame::Refused(why), first(terms));
    }

    /// How many bytes may be given to [`send`](Streams::send) now; `None` if the connection is over.
    /// After 0 there will be an [`Event::Room`].
    pub fn room(&mut self, id: StreamId) -> Option<usize> {
        let rate = self.rate;
        let stream = self.streams.get_mut(&id)?;
        let room = stream.room(rate);
        stream.blocked = room == 0;
        Some(room)
    }

    /// Sends bytes, at most as many as there was room for: the rest is given back.
    pub fn send(&mut self, id: StreamId, mut bytes: Bytes) -> Option<Bytes> {
        let room = self.room(id)?;
        let now = bytes.split_to(bytes.len().min(room));
        if !now.is_empty() {
            self.send_data(id, now, false);
        }
        Some(bytes)
    }

    /// Sends the end: no bytes follow.
    pub fn finish(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|s| !s.send_part.is_finished()) {
            self.send_data(id, Bytes::new(), true);
        }
    }

    /// Cuts the connection off: the peer is told, and what has not arrived is cancelled.
    pub fn reset(&mut self, id: StreamId, why: Reset) {
        let Some(stream) = self.streams.get(&id) else { return };
        let terms = stream.terms;
        self.end(id, End::Reset(why));
        self.push_final(id, Frame::Reset(why), first(terms));
    }

    /// The connection broke here. It is cut off; but if it had sent its end, then what was sent before arrives first:
    /// whoever has closed altogether answers what comes later with a reset, and takes nothing back by that.
    pub fn broke(&mut self, id: StreamId, why: Reset) {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.send_part.is_finished() => {
                stream.broke = Some(DeferredReset::Here(why));
                self.end_if_done(id);
            }
            _ => self.reset(id, why),
        }
    }

    /// FramePurpose has come of the connection; `None` if it is over. Bytes that were taken make room for more.
    /// After [`Taken::Nothing`] there will be an [`Event::Readable`].
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

    /// Tells the peer of room, if that is worth a frame.
    fn send_credit(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.credits < CREDITS_MAX) else { return };
        if let Some(limit) = stream.receive_part.poll_credit() {
            stream.credits += 1;
            let terms = first(stream.terms);
            self.push(id, Frame::Credit { limit }, FramePurpose::Credit, terms);
        }
    }

    /// FramePurpose the link is expected to carry; `None` while that is not known. Connections with
    /// deadlines send no further ahead than they can be in time.
    pub fn forecast(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.wake_writer(id));
    }

    /// Takes in an object of the peer's.
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
                // All of it is here, and somebody is about to take it: unless it was not asked for, nor will be.
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

    /// Whether the frame is about a connection that is there; makes it if the frame is the first
    /// of it.
    fn is_expected(&mut self, id: StreamId, frame: &Frame) -> Result<bool, Violation> {
        let Role::Acceptor { numbers } = &mut self.role else {
            // FramePurpose is over is not heard of any more.
            return if matches!(frame, Frame::Open { .. }) { Err(Violation::Role) } else { Ok(true) };
        };
        if matches!(frame, Frame::Opened { .. } | Frame::Refused(_)) {
            return Err(Violation::Role);
        }
        if !numbers.is_new(id.0, STREAMS_MAX)? {
            return Ok(true);
        }
        // An opener has no more connections at once, and hears of the end of one before it asks for
        // another; what it has heard may not be known here.
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

    /// Whether an acceptor takes one more connection. Those of which only the arrival of the last
    /// bytes is not known yet are over for the opener already: they do not count, up to as many
    /// again.
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

    /// The fate of an object; it is not heard of again, unless it is given send_part once more.
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

    /// The next object to be sent.
    pub fn poll_object(&mut self) -> Option<Object> {
        loop {
            let id = self.outbox.pop_front()?;
            if let Some(OutgoingFrame { bytes, options, .. }) = self.in_flight.get(&id) {
                return Some(Object { id, bytes: bytes.clone(), options: *options });
            }
        }
    }

    /// The next object that was given send_part and need not be sent any more; its fate does not matter.
    pub fn poll_cancel(&mut self) -> Option<ObjectId> {
        self.cancels.pop_front()
    }

    /// The next thing to tell the layer above.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Connections that are not over.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// FramePurpose this end has done.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes that came and were not taken, of all connections.
    pub fn kept(&self) -> u64 {
        self.streams.values().map(|s| s.receive_part.kept()).sum()
    }

    fn add(&mut self, id: StreamId, phase: StreamPhase, terms: Terms) {
        // An acceptor learns the opener's window when it is asked, and sends nothing before; what it
        // has not accepted gets no more room than an opener may use unasked.
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

    /// The last word about a connection that is over. Each takes an object, and so the memory of one, until it
    /// has arrived, which is the peer's to allow: so few are in_flight way at once.
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
        // Who has not accepted a connection does not read it yet.
        let is_read = matches!(self.role, Role::Opener { .. }) || stream.phase == StreamPhase::Open;
        if is_read && stream.receive_part.has_something() {
            self.events.push_back(Event::Readable(id));
        }
    }

    fn end_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        match (stream.send_part.is_done(), stream.receive_part.is_done(), stream.broke) {
            (true, true, _) => self.end(id, End::Done),
            // An acceptor that has not answered may not have been asked yet.
            (true, _, Some(DeferredReset::Here(why))) if stream.phase == StreamPhase::Open => self.reset(id, why),
            (_, true, Some(DeferredReset::There(why))) => self.end(id, End::Reset(why)),
            _ => {}
        }
    }

    /// Forgets a connection, and what is still to be said about it.
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

/// FramePurpose is said about a connection, other than its bytes, goes before them, for it is short, and has
/// no deadline: the peer is to know.
fn first(terms: Terms) -> Terms {
    Terms { priority: Priority::new(terms.priority.level() + 1).unwrap_or(Priority::MAX), deadline: None }
}
