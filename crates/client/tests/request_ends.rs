//! Every request ends in exactly one event, on any path and with any holds.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, getattr, read, server, write};
use proptest::collection::vec;
use proptest::prelude::*;
use remora_base::{Core, Peer, Time};
use remora_client::{CallFailure, ClientConfig, Transport};

/// Fate of a message and its reply.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    /// Milliseconds until the reply,
    Answered(u32),
    /// and until a second one.
    Doubled(u32, u32),
}

/// Steps of a test.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Milliseconds that pass.
    Pass(u32),
    /// A GETATTR, a READ, or a WRITE of this many bytes.
    Ask(usize),
    /// A hold of at most this many milliseconds.
    Hold(u32),
    Resume,
    /// The connection breaks and is made again.
    Reconnect,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Lost),
        4 => (0u32..600).prop_map(Fate::Answered),
        1 => (0u32..300, 0u32..2000).prop_map(|(a, b)| Fate::Doubled(a, b)),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u32..400).prop_map(Act::Pass),
        6 => prop_oneof![Just(0), Just(1), 2usize..20_000].prop_map(Act::Ask),
        1 => (0u32..3000).prop_map(Act::Hold),
        1 => Just(Act::Resume),
        1 => Just(Act::Reconnect),
    ]
}

fn config(kind: usize) -> ClientConfig {
    let hasty = ClientConfig { give_up: Some(Duration::from_secs(2)), ..ClientConfig::new(Transport::Udp) };
    let kinds = [
        ClientConfig::stock(),
        ClientConfig::paper(),
        ClientConfig::new(Transport::Udp),
        hasty,
        ClientConfig::new(Transport::Tcp),
    ];
    kinds[kind].clone()
}

/// A client with replies in flight in any order.
struct Run {
    w: World,
    arriving: Vec<(Time, Sent)>,
    streams: u64,
}

impl Run {
    fn connect(&mut self) {
        self.streams += 1;
        self.w.client.connected(self.w.now, Peer::stream(server().addr, self.streams));
    }

    /// Lets `time` pass. Messages meet the next of `fates`, or a reply after 20 ms.
    fn pass(&mut self, time: Duration, fates: &mut impl Iterator<Item = Fate>) {
        let end = self.w.now + time;
        loop {
            for s in self.w.sent() {
                let (first, second) = match fates.next().unwrap_or(Fate::Answered(20)) {
                    Fate::Lost => (None, None),
                    Fate::Answered(after) => (Some(after), None),
                    Fate::Doubled(after, more) => (Some(after), Some(after + more)),
                };
                let replies = first.into_iter().chain(second).map(|ms| (s.at + MS * ms, s.clone()));
                self.arriving.extend(replies);
            }
            let arrival = self.arriving.iter().map(|(at, _)| *at).min();
            let Some(next) = arrival.into_iter().chain(self.w.client.poll_timeout()).min().filter(|t| *t <= end) else {
                break;
            };
            self.w.now = self.w.now.max(next);
            let now = self.w.now;
            for (_, sent) in self.arriving.extract_if(.., |(at, _)| *at <= now) {
                self.w.answer(&sent);
            }
            self.w.client.handle_timeout(now);
        }
        self.w.now = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_request_ends_once(kind in 0usize..5, acts in vec(act(), 1..60), fates in vec(fate(), 0..200)) {
        let config = config(kind);
        let (is_tcp, gives_up) = (config.transport == Transport::Tcp, config.give_up.is_some());
        let mut run = Run { w: World::new(config), arriving: Vec::new(), streams: 0 };
        if is_tcp {
            run.connect();
        }
        let window = run.w.client.room();
        // A stream delivers everything until it breaks.
        let mut fates = fates.into_iter().filter(|f| !is_tcp || matches!(f, Fate::Answered(_)));
        let mut asked = Vec::new();
        for act in acts {
            let now = run.w.now;
            match act {
                Act::Pass(ms) => run.pass(MS * ms, &mut fates),
                Act::Ask(0) => asked.push(run.w.submit(getattr())),
                Act::Ask(1) => asked.push(run.w.submit(read(asked.len() as u64))),
                Act::Ask(len) => asked.push(run.w.submit(write(0, len))),
                Act::Hold(ms) => run.w.client.hold(now, now + MS * ms),
                Act::Resume => run.w.client.resume(now),
                Act::Reconnect if is_tcp => {
                    run.w.client.disconnected(now);
                    run.arriving.clear();
                    run.connect();
                }
                Act::Reconnect => {}
            }
        }
        // Then all is well for the longest timeout.
        run.pass(Duration::from_secs(400), &mut std::iter::empty());
        run.w.sent();
        let mut ended: Vec<_> = run.w.done.iter().map(|(id, _)| *id).collect();
        ended.sort();
        prop_assert_eq!(ended, asked);
        let well = |r: &Result<_, CallFailure>| r.is_ok() || gives_up && matches!(r, Err(CallFailure::TimedOut));
        prop_assert!(run.w.done.iter().all(|(_, r)| well(r)));
        let client = &run.w.client;
        prop_assert!(client.is_idle() && client.poll_timeout().is_none());
        prop_assert_eq!(client.room(), client.window() as usize);
        prop_assert!(client.room() >= window.min(2), "the window is empty again");
    }
}
