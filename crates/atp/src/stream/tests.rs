//! Two ends and a hostile session between them: reorders objects, refuses and repeats them, and delivers some
//! twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use remora_base::{Rate, Rng};

use super::frame::Frame;
use super::*;
use crate::Priority;

/// More than an opener may send before the answer.
const WINDOW: u32 = WINDOW_MIN + (32 << 10);

/// One end of the session, and the data of its TCP connections.
struct Side {
    streams: Streams,
    /// In flight to the other end.
    in_flight: Vec<Object>,
    /// By connection: data left to send, and data received.
    to_send: BTreeMap<StreamId, Bytes>,
    got: BTreeMap<StreamId, Vec<u8>>,
    ended: BTreeMap<StreamId, End>,
    has_end: BTreeMap<StreamId, bool>,
}

impl Side {
    fn new(streams: Streams) -> Side {
        Side {
            streams,
            in_flight: Vec::new(),
            to_send: BTreeMap::new(),
            got: BTreeMap::new(),
            ended: BTreeMap::new(),
            has_end: BTreeMap::new(),
        }
    }

    fn opener(count: usize) -> Side {
        Side::new(Streams::opener(Config { streams: count, window: WINDOW }))
    }

    fn acceptor(count: usize) -> Side {
        Side::new(Streams::acceptor(Config { streams: count, window: WINDOW }))
    }

    /// Drains the core. Accepts requests, and queues `answer` for them.
    fn drain(&mut self, answer: &dyn Fn(StreamId) -> Bytes) {
        while let Some(event) = self.streams.poll_event() {
            match event {
                Event::Asked { id, .. } => {
                    self.to_send.insert(id, answer(id));
                    self.streams.accept(id);
                }
                Event::Ended(id, end) => assert_eq!(self.ended.insert(id, end), None, "{id:?} ended twice"),
                Event::Opened(_) | Event::Room(_) | Event::Readable(_) => {}
            }
        }
        while let Some(object) = self.streams.poll_object() {
            self.in_flight.push(object);
        }
        while let Some(id) = self.streams.poll_cancel() {
            self.in_flight.retain(|o| o.id != id);
        }
    }

    fn send_some(&mut self, rng: &mut Rng) {
        let Some((&id, rest)) = nth(&mut self.to_send, rng) else { return };
        let piece = rest.split_to(rest.len().min(rng.below(40_000) as usize));
        match self.streams.send(id, piece) {
            Some(left) => *rest = Bytes::from([&left[..], &rest[..]].concat()),
            None => rest.clear(),
        }
        if rest.is_empty() {
            self.streams.finish(id);
            self.to_send.remove(&id);
        }
    }

    fn take_some(&mut self, ids: &[StreamId], rng: &mut Rng) {
        let id = ids[rng.below(ids.len() as u64) as usize];
        match self.streams.take(id) {
            Some(Taken::Bytes(bytes)) => self.got.entry(id).or_default().extend_from_slice(&bytes),
            Some(Taken::End) => drop(self.has_end.insert(id, true)),
            Some(Taken::Nothing) | None => {}
        }
    }
}

fn nth<'a>(map: &'a mut BTreeMap<StreamId, Bytes>, rng: &mut Rng) -> Option<(&'a StreamId, &'a mut Bytes)> {
    let n = rng.below(map.len() as u64) as usize;
    map.iter_mut().nth(n)
}

/// Ends one object of `from` with a random fate.
fn carry(from: &mut Side, to: &mut Side, rng: &mut Rng, trouble: bool) {
    if from.in_flight.is_empty() {
        return;
    }
    let object = from.in_flight.swap_remove(rng.below(from.in_flight.len() as u64) as usize);
    let bad = if trouble { rng.below(10) } else { 9 };
    match bad {
        // Refused, or refused for the sender although it arrived.
        0 => from.streams.ended(object.id, Fate::Again),
        1 => {
            to.streams.handle_object(object.bytes).unwrap();
            from.streams.ended(object.id, Fate::Again);
        }
        _ => {
            to.streams.handle_object(object.bytes).unwrap();
            from.streams.ended(object.id, Fate::Delivered);
        }
    }
}

fn bytes_of(id: StreamId, len: usize, salt: u8) -> Bytes {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ id.0 as u8 ^ salt).collect::<Vec<_>>().into()
}

fn target() -> Target {
    "nas:80".parse().unwrap()
}

/// Runs until nothing moves; with `cut`, resets some connections midway.
fn run(seed: u64, lengths: &[(usize, usize)], cut: bool) -> (Vec<StreamId>, Side, Side) {
    let mut rng = Rng::stream(seed, "streams");
    let (mut one, mut other) = (Side::opener(lengths.len()), Side::acceptor(lengths.len()));
    let mut ids = Vec::new();
    for (there, _) in lengths {
        let id = one.streams.open(target(), Terms::default()).unwrap();
        one.to_send.insert(id, bytes_of(id, *there, 1));
        ids.push(id);
    }
    let answer = |id: StreamId| bytes_of(id, lengths[id.0 as usize].1, 2);
    for step in 0..400_000 {
        for side in [&mut one, &mut other] {
            side.drain(&answer);
            side.send_some(&mut rng);
            side.take_some(&ids, &mut rng);
            side.drain(&answer);
            assert!(side.streams.kept() <= u64::from(WINDOW) * ids.len() as u64);
        }
        if cut && rng.chance(0.01) {
            let id = ids[rng.below(ids.len() as u64) as usize];
            let side = if rng.chance(0.5) { &mut one } else { &mut other };
            if rng.chance(0.5) {
                side.streams.reset(id, Reset::Broken);
            } else {
                side.streams.broke(id, Reset::Broken);
            }
            side.drain(&answer);
        }
        let trouble = step < 2_000;
        carry(&mut one, &mut other, &mut rng, trouble);
        carry(&mut other, &mut one, &mut rng, trouble);
        // Refused objects are returned again.
        one.drain(&answer);
        other.drain(&answer);
        let is_quiet = [&one, &other].iter().all(|s| s.streams.is_empty() && s.in_flight.is_empty());
        if is_quiet && one.ended.len() == ids.len() {
            break;
        }
    }
    (ids, one, other)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_arrive_whole_and_in_order(
        seed: u64,
        lengths in prop::collection::vec((0..200_000usize, 0..200_000usize), 1..4),
    ) {
        let (ids, one, other) = run(seed, &lengths, false);
        for (id, (there, back)) in ids.iter().zip(&lengths) {
            prop_assert_eq!(&other.got.get(id).cloned().unwrap_or_default()[..], &bytes_of(*id, *there, 1)[..]);
            prop_assert_eq!(&one.got.get(id).cloned().unwrap_or_default()[..], &bytes_of(*id, *back, 2)[..]);
            prop_assert_eq!(one.ended.get(id), Some(&End::Done));
            prop_assert_eq!(other.ended.get(id), Some(&End::Done));
        }
    }

    #[test]
    fn what_is_cut_off_ends_once_at_both_ends_and_is_never_taken_for_whole(
        seed: u64,
        lengths in prop::collection::vec((0..200_000usize, 0..200_000usize), 1..4),
    ) {
        let (ids, one, other) = run(seed, &lengths, true);
        for (id, (there, _)) in ids.iter().zip(&lengths) {
            let sent = bytes_of(*id, *there, 1);
            let got = other.got.get(id).cloned().unwrap_or_default();
            prop_assert!(sent.starts_with(&got), "not what was sent");
            prop_assert!(!other.has_end.contains_key(id) || got.len() == sent.len(), "an end in the middle");
            prop_assert!(one.ended.contains_key(id));
        }
        prop_assert!(one.streams.is_empty() && other.streams.is_empty(), "connections are left");
        prop_assert!(one.in_flight.is_empty() && other.in_flight.is_empty(), "objects are left");
        // Ended connections leave nothing behind.
        let mut one = one;
        prop_assert!(one.streams.open(target(), Terms::default()).is_ok());
    }
}

/// All objects of `from`, in order.
fn objects(from: &mut Streams) -> Vec<Object> {
    std::iter::from_fn(|| from.poll_object()).collect()
}

/// Delivers all objects but the first.
fn all_but_the_question(one: &mut Streams, other: &mut Streams) -> Object {
    let mut sent = objects(one);
    let asked = sent.remove(0);
    for object in sent {
        other.handle_object(object.bytes).unwrap();
        one.ended(object.id, Fate::Delivered);
    }
    asked
}

fn pass(from: &mut Streams, to: &mut Streams) {
    for object in objects(from) {
        to.handle_object(object.bytes).unwrap();
        from.ended(object.id, Fate::Delivered);
    }
}

fn events(of: &mut Streams) -> Vec<Event> {
    std::iter::from_fn(|| of.poll_event()).collect()
}

fn pair() -> (Streams, Streams) {
    let config = Config { streams: 2, window: WINDOW };
    (Streams::opener(config), Streams::acceptor(config))
}

#[test]
fn what_is_asked_for_carries_its_terms_and_is_answered() {
    let (mut one, mut other) = pair();
    let terms = Terms { priority: Priority::HIGH, deadline: Some(std::time::Duration::from_secs(3)) };
    let id = one.open(target(), terms).unwrap();
    let asked = objects(&mut one);
    assert_eq!((asked[0].options.priority, asked[0].options.deadline), (terms.priority, terms.deadline));
    other.handle_object(asked[0].bytes.clone()).unwrap();
    assert_eq!(events(&mut other), [Event::Asked { id, target: target(), terms }]);
    other.refuse(id, Refused::NotAllowed);
    other.accept(id);
    let answer = objects(&mut other);
    assert!(answer[0].options.priority > terms.priority, "an answer goes before bytes");
    assert_eq!((answer.len(), answer[0].options.deadline), (1, None), "an answer is always to arrive");
    one.handle_object(answer[0].bytes.clone()).unwrap();
    assert_eq!(events(&mut one), [Event::Ended(id, End::Refused(Refused::NotAllowed))]);
    assert_eq!((one.stats().refused, other.stats().refused), (1, 1));
}

#[test]
fn bytes_that_come_before_the_question_wait_for_the_answer() {
    let (mut one, mut other) = pair();
    let id = one.open(target(), Terms::default()).unwrap();
    assert_eq!(one.send(id, Bytes::from_static(b"out_of_order")), Some(Bytes::new()));
    let mut sent = objects(&mut one);
    sent.reverse();
    for object in sent {
        other.handle_object(object.bytes).unwrap();
    }
    assert_eq!(events(&mut other).len(), 1);
    other.accept(id);
    assert_eq!(events(&mut other), [Event::Readable(id)]);
    assert_eq!(other.take(id), Some(Taken::Bytes(Bytes::from_static(b"out_of_order"))));
}

#[test]
fn who_wants_more_connections_than_there_may_be_is_told() {
    let (mut one, mut other) = (Streams::opener(Config { streams: 3, window: WINDOW }), pair().1);
    for _ in 0..3 {
        one.open(target(), Terms::default()).unwrap();
    }
    assert_eq!(one.open(target(), Terms::default()), Err(OpenError::TooMany));
    pass(&mut one, &mut other);
    pass(&mut other, &mut one);
    let full = Event::Ended(StreamId(2), End::Reset(Reset::Full));
    assert_eq!(events(&mut one), [full]);
    assert_eq!((one.len(), other.len()), (2, 2));
}

#[test]
fn what_is_over_for_the_opener_makes_room_for_the_next() {
    let config = Config { streams: 1, window: WINDOW };
    let (mut one, mut other) = (Streams::opener(config), Streams::acceptor(config));
    let id = one.open(target(), Terms::default()).unwrap();
    one.finish(id);
    pass(&mut one, &mut other);
    other.accept(id);
    assert_eq!(other.take(id), Some(Taken::End));
    other.finish(id);
    // All arrive, but the acceptor does not learn it.
    for object in objects(&mut other) {
        one.handle_object(object.bytes).unwrap();
    }
    assert_eq!(one.take(id), Some(Taken::End));
    assert!(one.is_empty() && other.len() == 1);
    let next = one.open(target(), Terms::default()).unwrap();
    pass(&mut one, &mut other);
    assert!(events(&mut other).iter().any(|e| matches!(e, Event::Asked { id, .. } if *id == next)));
}

#[test]
fn a_reader_that_takes_nothing_stops_the_writer() {
    let (mut one, mut other) = pair();
    let id = one.open(target(), Terms::default()).unwrap();
    pass(&mut one, &mut other);
    other.accept(id);
    pass(&mut other, &mut one);
    let mut sent = 0;
    for _ in 0..1000 {
        let room = one.room(id).unwrap();
        sent += room;
        one.send(id, vec![1; room].into());
        pass(&mut one, &mut other);
    }
    assert_eq!((sent, other.kept()), (WINDOW as usize, WINDOW.into()));
    events(&mut one);
    while other.take(id) != Some(Taken::Nothing) {}
    pass(&mut other, &mut one);
    assert_eq!(events(&mut one), [Event::Room(id)]);
    assert!(one.room(id) > Some(0));
}

#[test]
fn what_breaks_behind_its_end_takes_nothing_back() {
    for finishes in [true, false] {
        let (mut one, mut other) = pair();
        let id = one.open(target(), Terms::default()).unwrap();
        pass(&mut one, &mut other);
        other.accept(id);
        pass(&mut other, &mut one);
        one.send(id, Bytes::from_static(b"all of it"));
        if finishes {
            one.finish(id);
        }
        events(&mut one);
        let sent = objects(&mut one);
        one.broke(id, Reset::Broken);
        let ended = Event::Ended(id, End::Reset(Reset::Broken));
        assert_eq!(events(&mut one).contains(&ended), !finishes);
        assert_eq!(one.poll_cancel().is_none(), finishes);
        for object in sent {
            other.handle_object(object.bytes).unwrap();
            one.ended(object.id, Fate::Delivered);
        }
        pass(&mut one, &mut other);
        assert!(one.is_empty());
        assert_eq!(events(&mut other).contains(&ended), !finishes);
        if finishes {
            assert_eq!(other.take(id), Some(Taken::Bytes(Bytes::from_static(b"all of it"))));
            assert!(events(&mut other).is_empty());
            assert_eq!(other.take(id), Some(Taken::End));
            assert_eq!(events(&mut other), [ended]);
        }
        assert!(other.is_empty());
    }
}

/// The bytes may arrive before the request.
#[test]
fn reset_behind_the_end_still_delivers_the_request() {
    let (mut one, mut other) = pair();
    let id = one.open(target(), Terms::default()).unwrap();
    one.send(id, Bytes::from_static(b"all of it"));
    one.finish(id);
    let asked = all_but_the_question(&mut one, &mut other);
    one.broke(id, Reset::Broken);
    assert_eq!((one.poll_cancel(), one.len()), (None, 1));
    other.handle_object(asked.bytes).unwrap();
    one.ended(asked.id, Fate::Delivered);
    other.accept(id);
    pass(&mut other, &mut one);
    assert!(one.is_empty());
    pass(&mut one, &mut other);
    assert_eq!(other.take(id), Some(Taken::Bytes(Bytes::from_static(b"all of it"))));
    assert_eq!((other.take(id), other.is_empty()), (Some(Taken::End), true));
}

#[test]
fn a_deadline_that_is_missed_cuts_the_connection_off() {
    let (mut one, mut other) = pair();
    let terms = Terms { deadline: Some(std::time::Duration::from_secs(1)), ..Terms::default() };
    let id = one.open(target(), terms).unwrap();
    pass(&mut one, &mut other);
    one.send(id, Bytes::from_static(b"late"));
    one.send(id, Bytes::from_static(b"later"));
    let sent = objects(&mut one);
    one.ended(sent[0].id, Fate::Missed);
    assert_eq!(events(&mut one), [Event::Ended(id, End::Reset(Reset::Deadline))]);
    assert_eq!(one.poll_cancel(), Some(sent[1].id));
    one.ended(sent[1].id, Fate::Delivered);
    pass(&mut one, &mut other);
    assert!(events(&mut other).contains(&Event::Ended(id, End::Reset(Reset::Deadline))));
}

#[test]
fn lost_request_ends_the_connection_at_both_ends() {
    let (mut one, mut other) = pair();
    let terms = Terms { deadline: Some(std::time::Duration::from_secs(1)), ..Terms::default() };
    let id = one.open(target(), terms).unwrap();
    one.send(id, Bytes::from_static(b"x"));
    one.finish(id);
    let asked = all_but_the_question(&mut one, &mut other);
    one.ended(asked.id, Fate::Missed);
    pass(&mut one, &mut other);
    assert!(one.is_empty());
    assert_eq!((other.len(), other.stats().reset), (0, 1));
    assert!(events(&mut other).is_empty(), "nobody was told of it");
}

#[test]
fn deadline_limits_bytes_in_flight_to_what_arrives_in_time() {
    let (mut one, mut other) = pair();
    let terms = Terms { deadline: Some(std::time::Duration::from_secs(1)), ..Terms::default() };
    let id = one.open(target(), terms).unwrap();
    pass(&mut one, &mut other);
    let fill = |one: &mut Streams| {
        let mut sent = 0;
        while let Some(room @ 1..) = one.room(id) {
            one.send(id, vec![0; room].into());
            sent += room;
        }
        sent
    };
    assert_eq!(fill(&mut one), 8 << 10);
    one.forecast(Rate::from_bits(8 * 40_000));
    assert_eq!(fill(&mut one), 10_000 - (8 << 10));
}

/// A peer that opens connections and accepts no answers costs little, and finally its session. A peer that exceeds
/// the maximum but listens gets each answer.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    let open = |n: u32| Frame::Open { target: target(), terms: Terms::default(), window: WINDOW }.encode(StreamId(n));
    for refuses in [true, false] {
        let mut other = pair().1;
        let (mut in_flight, mut asked, mut violation) = (0, 0, None);
        while violation.is_none() && asked < 100_000 {
            violation = other.handle_object(open(asked)).err();
            asked += 1;
            for event in events(&mut other) {
                if let (true, Event::Asked { id, .. }) = (refuses, event) {
                    other.refuse(id, Refused::NotAllowed);
                }
            }
            in_flight += objects(&mut other).len();
        }
        assert_eq!((in_flight, violation), (4, Some(Violation::Deaf)), "twice as many as there are connections");
        assert!(asked as usize >= 2 * STREAMS_MAX, "an honest peer may have that many");
    }
    let mut one = Streams::opener(Config { streams: STREAMS_MAX, window: WINDOW });
    let mut other = pair().1;
    let ids: Vec<_> = (0..STREAMS_MAX).map(|_| one.open(target(), Terms::default()).unwrap()).collect();
    pass(&mut one, &mut other);
    for _ in 0..STREAMS_MAX {
        pass(&mut other, &mut one);
    }
    let told = events(&mut one).iter().filter(|e| matches!(e, Event::Ended(_, End::Reset(Reset::Full)))).count();
    assert_eq!((told, one.len()), (ids.len() - 2, 2));
}

/// Credit frames to a peer that does not receive them are bounded.
#[test]
fn credit_that_does_not_arrive_is_bounded() {
    let (mut one, mut other) = pair();
    let id = one.open(target(), Terms::default()).unwrap();
    pass(&mut one, &mut other);
    other.accept(id);
    let mut in_flight = objects(&mut other);
    for number in 0..1000 {
        let bytes = vec![1; 16 << 10].into();
        other.handle_object(Frame::Data { number, last: false, bytes }.encode(id)).ok();
        while other.take(id) != Some(Taken::Nothing) {}
        in_flight.extend(objects(&mut other));
    }
    assert_eq!(in_flight.len(), 1 + 16);
    // After their delivery the connection continues.
    in_flight.into_iter().for_each(|o| {
        one.handle_object(o.bytes).unwrap();
        other.ended(o.id, Fate::Delivered);
    });
    assert_eq!(objects(&mut other).len(), 1);
}

#[test]
fn frames_from_the_wrong_end_and_nonsense_are_violations() {
    let (mut one, mut other) = pair();
    let id = one.open(target(), Terms::default()).unwrap();
    let open = objects(&mut one)[0].bytes.clone();
    assert_eq!(one.handle_object(open.clone()), Err(Violation::Role));
    other.handle_object(open).unwrap();
    other.accept(id);
    let opened = objects(&mut other)[0].bytes.clone();
    assert_eq!(other.handle_object(opened), Err(Violation::Role));
    for junk in [&b""[..], b"GET / HTTP/1.1", &[0; 100]] {
        assert_eq!(other.handle_object(Bytes::copy_from_slice(junk)), Err(Violation::Nonsense));
    }
}

proptest! {
    #[test]
    fn no_object_makes_an_end_panic(objects in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..50)) {
        let (mut one, mut other) = pair();
        one.open(target(), Terms::default()).unwrap();
        for object in objects {
            // Small kinds and numbers, so that some frames are valid.
            let mut object = object;
            object.first_mut().into_iter().for_each(|kind| *kind %= 8);
            object.iter_mut().skip(1).take(3).for_each(|b| *b = 0);
            let _ = one.handle_object(object.clone().into());
            let _ = other.handle_object(object.into());
            events(&mut one);
            for event in events(&mut other) {
                if let Event::Asked { id, .. } = event {
                    other.accept(id);
                    other.take(id);
                }
            }
        }
        prop_assert!(other.kept() <= 2 * u64::from(WINDOW));
    }
}
