//! All connections of a session, at one end of it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use remora_base::Rate;

use super::frame::{Frame, Terms};
use super::half::{Inbound, Numbers, Outbound, Taken};
use super::words::{End, Event, Fate, Object, ObjectId, OpenError, Stats};
use super::{Config, Refused, Reset, STREAMS_MAX, StreamId, Target, Violation, WINDOW_MIN};
use crate::{Options, Priority};

/// With a deadline, what the link carries in this part of it is under way at most.
const PACE_SHARE: u64 = 4;
/// But so much always may be, in bytes.
const PACE_MIN: u64 = 8 << 10;
/// Frames about one connection's room that are under way at most: four windows' worth.
const CREDITS_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// An acceptor has heard of it, but not yet what it is.
    Early,
    /// Asked for; the answer is not here.
    Asked,
    /// It stands.
    Open,
}

#[derive(Debug)]
struct Stream {
    phase: Phase,
    terms: Terms,
    out: Outbound,
    inn: Inbound,
    /// Bytes under way at most, whatever the peer takes.
    under_max: u64,
    /// Frames under way that say how much room there is.
    credits: usize,
    /// Somebody waits for room.
    wants_room: bool,
    /// It broke behind its end, at either end: it is over once all that came before has arrived there.
    broke: Option<Broke>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broke {
    Here(Reset),
    There(Reset),
}

/// A frame that was given out or is about to be.
#[derive(Debug)]
struct Under {
    stream: StreamId,
    bytes: Bytes,
    options: Options,
    what: What,
}

/// What hangs on the fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Data(u64),
    /// The last word about a connection, which is over.
    Last,
    Credit,
    Other,
}

#[derive(Debug)]
enum Role {
    Opener { next: Option<u32> },
    Acceptor { numbers: Numbers },
}

/// One end of the connections of a session.
#[derive(Debug)]
pub struct Streams {
    config: Config,
    role: Role,
    streams: BTreeMap<StreamId, Stream>,
    under: BTreeMap<ObjectId, Under>,
    /// Of `under`, what is to be given out.
    outbox: VecDeque<ObjectId>,
    cancels: VecDeque<ObjectId>,
    events: VecDeque<Event>,
    next_object: u64,
    /// Connections that are over but for the last word about them, which has not arrived.
    parting: usize,
    /// Last words that wait until others have arrived.
    unsaid: VecDeque<(StreamId, Frame, Terms)>,
    /// What the link carries.
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
        Streams::new(config, Role::Acceptor { numbers: Numbers::default() })
    }

    fn new(config: Config, role: Role) -> Streams {
        let config = Config { streams: config.streams.clamp(1, STREAMS_MAX), window: config.window.max(WINDOW_MIN) };
        Streams {
            config,
            role,
            streams: BTreeMap::new(),
            under: BTreeMap::new(),
            outbox: VecDeque::new(),
            cancels: VecDeque::new(),
            events: VecDeque::new(),
            next_object: 0,
            parting: 0,
            unsaid: VecDeque::new(),
            rate: None,
            stats: Stats::default(),
        }
    }

    /// Asks for a connection. Bytes may be sent at once; an acceptor opens none.
    pub fn open(&mut self, target: Target, terms: Terms) -> Result<StreamId, OpenError> {
        let Role::Opener { next } = &mut self.role else { return Err(OpenError::NoNumbers) };
        if self.streams.len() + self.parting >= self.config.streams {
            return Err(OpenError::TooMany);
        }
        let id = next.map(StreamId).ok_or(OpenError::NoNumbers)?;
        *next = id.0.checked_add(1);
        self.stats.asked += 1;
        self.add(id, Phase::Asked, terms);
        let window = self.config.window;
        self.push(id, Frame::Open { target, terms, window }, What::Other, terms);
        Ok(id)
    }

    /// The connection that was asked for stands.
    pub fn accept(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == Phase::Asked) else { return };
        stream.phase = Phase::Open;
        let (terms, window) = (stream.terms, self.config.window);
        stream.inn.widen(window);
        self.push(id, Frame::Opened { window }, What::Other, first(terms));
        self.wake_reader(id);
    }

    /// The connection that was asked for cannot be had.
    pub fn refuse(&mut self, id: StreamId, why: Refused) {
        let Some(stream) = self.streams.get(&id).filter(|s| s.phase == Phase::Asked) else { return };
        let terms = stream.terms;
        self.end(id, End::Refused(why));
        self.push_last(id, Frame::Refused(why), first(terms));
    }

    /// How many bytes may be given to [`send`](Streams::send) now; `None` if the connection is over.
    /// After 0 there will be an [`Event::Room`].
    pub fn room(&mut self, id: StreamId) -> Option<usize> {
        let rate = self.rate;
        let stream = self.streams.get_mut(&id)?;
        let room = stream.room(rate);
        stream.wants_room = room == 0;
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
        if self.streams.get(&id).is_some_and(|s| !s.out.is_finished()) {
            self.send_data(id, Bytes::new(), true);
        }
    }

    /// Cuts the connection off: the peer is told, and what has not arrived is cancelled.
    pub fn reset(&mut self, id: StreamId, why: Reset) {
        let Some(stream) = self.streams.get(&id) else { return };
        let terms = stream.terms;
        self.end(id, End::Reset(why));
        self.push_last(id, Frame::Reset(why), first(terms));
    }

    /// The connection broke here. It is cut off; but if it had sent its end, then what was sent before arrives first:
    /// whoever has closed altogether answers what comes later with a reset, and takes nothing back by that.
    pub fn broke(&mut self, id: StreamId, why: Reset) {
        match self.streams.get_mut(&id) {
            Some(stream) if stream.out.is_finished() => {
                stream.broke = Some(Broke::Here(why));
                self.end_if_done(id);
            }
            _ => self.reset(id, why),
        }
    }

    /// What has come of the connection; `None` if it is over. Bytes that were taken make room for more.
    /// After [`Taken::Nothing`] there will be an [`Event::Readable`].
    pub fn take(&mut self, id: StreamId) -> Option<Taken> {
        let stream = self.streams.get_mut(&id)?;
        let taken = stream.inn.take();
        match &taken {
            Taken::Bytes(bytes) => self.stats.received += bytes.len() as u64,
            Taken::End => self.end_if_done(id),
            Taken::Nothing => {}
        }
        self.tell_credit(id);
        Some(taken)
    }

    /// Tells the peer of room, if that is worth a frame.
    fn tell_credit(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.credits < CREDITS_MAX) else { return };
        if let Some(limit) = stream.inn.poll_credit() {
            stream.credits += 1;
            let terms = first(stream.terms);
            self.push(id, Frame::Credit { limit }, What::Credit, terms);
        }
    }

    /// What the link is expected to carry; `None` while that is not known. Connections with
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
                let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == Phase::Asked) else { return Ok(()) };
                stream.phase = Phase::Open;
                stream.out.credit(window.into());
                self.events.push_back(Event::Opened(id));
                self.wake_writer(id);
                self.end_if_done(id);
            }
            Frame::Refused(why) => self.end(id, End::Refused(why)),
            Frame::Reset(why) => match self.streams.get_mut(&id) {
                // All of it is here, and somebody is about to take it: unless it was not asked for, nor will be.
                Some(stream) if stream.inn.is_complete() && stream.phase != Phase::Early => {
                    stream.broke = Some(Broke::There(why));
                    self.end_if_done(id);
                }
                _ => self.end(id, End::Reset(why)),
            },
            Frame::Credit { limit } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
                stream.out.credit(limit);
                self.wake_writer(id);
            }
            Frame::Data { number, last, bytes } => {
                let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
                if stream.inn.accept(number, last, bytes)? {
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
            // What is over is not heard of any more.
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
        if self.unsaid.len() >= 2 * STREAMS_MAX {
            return Err(Violation::Deaf);
        }
        self.stats.asked += 1;
        if self.has_room() {
            self.add(id, Phase::Early, Terms::default());
            return Ok(true);
        }
        self.stats.refused += 1;
        if !matches!(frame, Frame::Reset(_)) {
            self.push_last(id, Frame::Reset(Reset::Full), Terms::default());
        }
        Ok(false)
    }

    /// Whether an acceptor takes one more connection. Those of which only the arrival of the last
    /// bytes is not known yet are over for the opener already: they do not count, up to as many
    /// again.
    fn has_room(&self) -> bool {
        let max = self.config.streams;
        let open = self.streams.values().filter(|s| !(s.out.is_finished() && s.inn.is_done())).count();
        open < max && self.streams.len() < 2 * max
    }

    fn asked(&mut self, id: StreamId, target: Target, terms: Terms, window: u32) {
        let Some(stream) = self.streams.get_mut(&id).filter(|s| s.phase == Phase::Early) else { return };
        (stream.phase, stream.terms) = (Phase::Asked, terms);
        stream.out.credit(window.into());
        self.events.push_back(Event::Asked { id, target, terms });
    }

    /// The fate of an object; it is not heard of again, unless it is given out once more.
    pub fn ended(&mut self, object: ObjectId, fate: Fate) {
        let Some(under) = self.under.get(&object) else { return };
        let (id, what) = (under.stream, under.what);
        match fate {
            Fate::Again => return self.outbox.push_back(object),
            Fate::Delivered => {
                if let (What::Data(number), Some(stream)) = (what, self.streams.get_mut(&id)) {
                    stream.out.delivered(number);
                }
            }
            Fate::Missed => {}
        }
        self.under.remove(&object);
        if let (What::Credit, Some(stream)) = (what, self.streams.get_mut(&id)) {
            stream.credits = stream.credits.saturating_sub(1);
            self.tell_credit(id);
        }
        match (what, fate) {
            (What::Last, _) => {
                self.parting = self.parting.saturating_sub(1);
                if let Some((id, frame, terms)) = self.unsaid.pop_front() {
                    self.push_last(id, frame, terms);
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
            if let Some(Under { bytes, options, .. }) = self.under.get(&id) {
                return Some(Object { id, bytes: bytes.clone(), options: *options });
            }
        }
    }

    /// The next object that was given out and need not be sent any more; its fate does not matter.
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

    /// What this end has done.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes that came and were not taken, of all connections.
    pub fn kept(&self) -> u64 {
        self.streams.values().map(|s| s.inn.kept()).sum()
    }

    fn add(&mut self, id: StreamId, phase: Phase, terms: Terms) {
        // An acceptor learns the opener's window when it is asked, and sends nothing before; what it
        // has not accepted gets no more room than an opener may use unasked.
        let (out, inn) = match self.role {
            Role::Opener { .. } => (WINDOW_MIN, self.config.window),
            Role::Acceptor { .. } => (0, WINDOW_MIN),
        };
        let (out, inn) = (Outbound::new(out.into()), Inbound::new(inn));
        let under_max = self.config.window.into();
        let stream = Stream { phase, terms, out, inn, under_max, credits: 0, wants_room: false, broke: None };
        self.streams.insert(id, stream);
    }

    fn send_data(&mut self, id: StreamId, bytes: Bytes, last: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.stats.sent += bytes.len() as u64;
        let (number, terms) = (stream.out.send(bytes.len(), last), stream.terms);
        self.push(id, Frame::Data { number, last, bytes }, What::Data(number), terms);
    }

    fn push(&mut self, stream: StreamId, frame: Frame, what: What, terms: Terms) {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        let options = Options { priority: terms.priority, deadline: terms.deadline, ..Options::default() };
        self.parting += usize::from(what == What::Last);
        self.under.insert(id, Under { stream, bytes: frame.encode(stream), options, what });
        self.outbox.push_back(id);
    }

    /// The last word about a connection that is over. Each takes an object, and so the memory of one, until it
    /// has arrived, which is the peer's to allow: so few are under way at once.
    fn push_last(&mut self, stream: StreamId, frame: Frame, terms: Terms) {
        if self.parting < 2 * self.config.streams {
            self.push(stream, frame, What::Last, terms);
        } else {
            self.unsaid.push_back((stream, frame, terms));
        }
    }

    fn wake_writer(&mut self, id: StreamId) {
        let rate = self.rate;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.wants_room && stream.room(rate) > 0 {
            stream.wants_room = false;
            self.events.push_back(Event::Room(id));
        }
    }

    fn wake_reader(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        // Who has not accepted a connection does not read it yet.
        let is_read = matches!(self.role, Role::Opener { .. }) || stream.phase == Phase::Open;
        if is_read && stream.inn.has_something() {
            self.events.push_back(Event::Readable(id));
        }
    }

    fn end_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        match (stream.out.is_done(), stream.inn.is_done(), stream.broke) {
            (true, true, _) => self.end(id, End::Done),
            // An acceptor that has not answered may not have been asked yet.
            (true, _, Some(Broke::Here(why))) if stream.phase == Phase::Open => self.reset(id, why),
            (_, true, Some(Broke::There(why))) => self.end(id, End::Reset(why)),
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
            let of_it = self.under.iter().filter(|(_, u)| u.stream == id && u.what != What::Last);
            self.cancels.extend(of_it.map(|(object, _)| *object));
            for object in self.cancels.iter().skip(first) {
                self.under.remove(object);
            }
        }
        if stream.phase != Phase::Early {
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
        self.out.room(pace.max(PACE_MIN).min(self.under_max))
    }
}

/// What is said about a connection, other than its bytes, goes before them, for it is short, and has
/// no deadline: the peer is to know.
fn first(terms: Terms) -> Terms {
    Terms { priority: Priority::new(terms.priority.level() + 1).unwrap_or(Priority::MAX), deadline: None }
}
