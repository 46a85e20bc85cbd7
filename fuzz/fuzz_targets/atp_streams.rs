//! The two ends of ATP's byte streams; objects between them that arrive in any order, are refused, come
//! twice or too late; and objects that a peer makes up. Neither end panics, each keeps to its bounds; and
//! between honest ends what is read of a connection is what was written.
//!
//! The input is a row of commands `op what length bytes`.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_atp::Priority;
use remora_atp::stream::{
    Config, Event, Fate, Object, Refused, Reset, StreamId, Streams, Taken, Target, Terms, WINDOW_MIN,
};
use remora_base::Rate;

const WINDOW: u32 = WINDOW_MIN + (16 << 10);
const STREAMS: usize = 3;
/// Streams that are open or not quite over yet.
const STREAMS_MAX: usize = 2 * STREAMS;
/// The most objects of one stream under way: its pieces, what tells of room, and its beginning and ends.
const OBJECTS_MAX: usize = 256 + 16 + 3;
/// The kinds of object that a peer may make up, and DATA among them.
const KINDS: u8 = 6;
const DATA: u8 = 4;

/// How much of a connection one end has written and read.
#[derive(Default)]
struct Count {
    sent: u64,
    got: u64,
}

struct World {
    /// The one that opens and the one that accepts.
    ends: [Streams; 2],
    under: [Vec<Object>; 2],
    /// Has heard what no peer of ours says, and hangs up.
    dead: [bool; 2],
    ids: [Vec<StreamId>; 2],
    counts: [BTreeMap<StreamId, Count>; 2],
    /// Nobody made up an object.
    honest: bool,
}

/// What is at this place of every connection.
fn pattern(at: u64) -> u8 {
    (at as u8).wrapping_mul(31) ^ (at >> 8) as u8
}

impl World {
    fn new() -> World {
        let config = Config { streams: STREAMS, window: WINDOW };
        World {
            ends: [Streams::opener(config), Streams::acceptor(config)],
            under: Default::default(),
            dead: [false; 2],
            ids: Default::default(),
            counts: Default::default(),
            honest: true,
        }
    }

    fn command(&mut self, [op, what]: [u8; 2], bytes: &[u8]) {
        let n = usize::from(op & 1);
        match (op >> 1) % 14 {
            0 => self.open(n, what, bytes),
            // Several arrive.
            8 | 9 => (0..=op >> 5).for_each(|_| self.carry(n, what, u8::MAX)),
            10 => self.carry(n, what, op >> 5),
            11 => self.ends[n].forecast(Rate::from_bits(u64::from(what) << (op >> 4))),
            12 => self.forge(n, &[&[1 + what % KINDS, 0, 0, 0, what / KINDS], bytes]),
            13 => {
                // Data, piece by piece.
                let number = u64::from(op >> 5) + self.counts[n].len() as u64 % 2;
                self.forge(n, &[&[DATA, 0, 0, 0, what % 16], &number.to_be_bytes(), &[what >> 7], bytes]);
            }
            act => {
                if let Some(id) = self.ids[n].get(usize::from(what) % self.ids[n].len().max(1)).copied() {
                    self.act(n, id, act, bytes.len(), op >> 5);
                }
            }
        }
        self.drain(0);
        self.drain(1);
    }

    /// The program at end `n` does something with a connection.
    fn act(&mut self, n: usize, id: StreamId, act: u8, len: usize, more: u8) {
        match act {
            1 if n == 1 => self.ends[n].accept(id),
            2 if n == 1 => self.ends[n].refuse(id, [Refused::Closed, Refused::Full][len % 2]),
            1 | 2 => {}
            3 | 4 => self.send(n, id, len << more),
            5 => self.ends[n].finish(id),
            6 => self.ends[n].reset(id, Reset::Broken),
            _ => self.take(n, id),
        }
    }

    fn open(&mut self, n: usize, what: u8, bytes: &[u8]) {
        let terms = Terms {
            priority: Priority::new(what & 3).unwrap_or_default(),
            deadline: (what & 4 != 0).then(|| Duration::from_millis(u64::from(what) * 10)),
        };
        let target = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Target>().ok());
        let target = target.unwrap_or_else(|| "nas:80".parse().expect("a target"));
        assert_eq!(target.to_string().parse::<Target>(), Ok(target.clone()));
        self.ids[n].extend(self.ends[n].open(target, terms));
    }

    fn send(&mut self, n: usize, id: StreamId, len: usize) {
        let count = self.counts[n].entry(id).or_default();
        let bytes: Bytes = (count.sent..count.sent + len as u64).map(pattern).collect::<Vec<_>>().into();
        if let Some(left) = self.ends[n].send(id, bytes) {
            count.sent += (len - left.len()) as u64;
        }
    }

    fn take(&mut self, n: usize, id: StreamId) {
        let count = self.counts[n].entry(id).or_default();
        while let Some(Taken::Bytes(bytes)) = self.ends[n].take(id) {
            assert!(!bytes.is_empty(), "nothing is told otherwise");
            let sent = (count.got..).map(pattern);
            assert!(!self.honest || bytes.iter().copied().eq(sent.take(bytes.len())), "other bytes than were sent");
            count.got += bytes.len() as u64;
        }
    }

    /// A peer makes up an object, for end `n`.
    fn forge(&mut self, n: usize, parts: &[&[u8]]) {
        self.honest = false;
        self.object(n, parts.concat().into());
    }

    fn object(&mut self, n: usize, object: Bytes) {
        if self.dead[n] {
            return;
        }
        if let Err(e) = self.ends[n].handle_object(object) {
            assert!(!self.honest, "{e}");
            self.dead[n] = true;
        }
        self.drain(n);
    }

    /// Delivers or drops one of the objects from end `n`, and reports its fate, truly or not, to that end.
    fn carry(&mut self, n: usize, what: u8, fate: u8) {
        if self.under[n].is_empty() {
            return;
        }
        let at = usize::from(what) % self.under[n].len();
        let Object { id, bytes, .. } = self.under[n].remove(at);
        let (arrives, fate) = match fate {
            0 => (false, Fate::Again),
            1 => (true, Fate::Again),
            2 => (false, Fate::Missed),
            3 => (true, Fate::Missed),
            _ => (true, Fate::Delivered),
        };
        if arrives {
            self.object(1 - n, bytes);
        }
        self.ends[n].ended(id, fate);
    }

    fn drain(&mut self, n: usize) {
        let (end, under) = (&mut self.ends[n], &mut self.under[n]);
        while let Some(event) = end.poll_event() {
            if let Event::Asked { id, .. } = event {
                self.ids[n].push(id);
            }
        }
        under.extend(std::iter::from_fn(|| end.poll_object()));
        while let Some(id) = end.poll_cancel() {
            under.retain(|object| object.id != id);
        }
        assert!(end.len() <= STREAMS_MAX);
        assert!(end.kept() <= STREAMS_MAX as u64 * u64::from(WINDOW), "{}", end.kept());
        assert!(under.len() <= STREAMS_MAX * (OBJECTS_MAX + 1), "{}", under.len());
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    for (head, bytes) in remora_fuzz::commands(data) {
        world.command(head, bytes);
    }
});
