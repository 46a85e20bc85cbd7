//! Links that stall: some lose what is sent meanwhile, some hold it. The client learns which, and wastes nothing on
//! either.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{MS, Sent, World, read};
use proptest::prelude::*;
use remora_base::{Core, Time};
use remora_client::{BlockSize, ClientConfig, ClientStats, Transport};
use remora_wire::nfs3::Proc;

/// Airtime of a READ with its reply, and of a NULL.
const READ: Duration = Duration::from_millis(36);
const NULL: Duration = Duration::from_millis(2);
const DELAY: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

/// A stall, and whether it loses what is sent meanwhile.
#[derive(Clone, Copy, Debug)]
struct Stall {
    at: Time,
    length: Duration,
    loses: bool,
}

/// A path that carries messages and replies in order.
#[derive(Debug, Default)]
struct Path {
    stalls: Vec<Stall>,
    free: Time,
    /// Replies in flight.
    arriving: VecDeque<(Time, Sent)>,
}

impl Path {
    /// `n` stalls of `length`, a second apart, from `from` on.
    fn stalling(from: Time, n: u32, length: Duration, loses: impl Fn(u32) -> bool) -> Path {
        let at = |i: u32| from + SECOND + (SECOND + length) * i;
        Path { stalls: (0..n).map(|i| Stall { at: at(i), length, loses: loses(i) }).collect(), ..Path::default() }
    }

    fn send(&mut self, sent: Sent) {
        let work = if sent.proc == Proc::Null { NULL } else { READ };
        let begin = self.free.max(sent.at);
        let mut end = begin + work;
        for stall in &self.stalls {
            let over = stall.at + stall.length;
            if begin < over && end > stall.at {
                if stall.loses {
                    self.free = end;
                    return;
                }
                end = over + work;
            }
        }
        self.free = end;
        self.arriving.push_back((end + DELAY, sent));
    }
}

/// Sends what is due and lets time pass until something happens. Returns the messages sent.
fn step(w: &mut World, path: &mut Path) -> Vec<Sent> {
    let out = w.sent();
    out.iter().cloned().for_each(|sent| path.send(sent));
    let next = path.arriving.front().map(|(at, _)| *at).into_iter().chain(w.client.poll_timeout()).min();
    w.now = w.now.max(next.unwrap_or(w.now));
    while path.arriving.front().is_some_and(|(at, _)| *at <= w.now) {
        let arrived = path.arriving.pop_front();
        arrived.iter().for_each(|(_, sent)| w.answer(sent));
    }
    w.client.handle_timeout(w.now);
    out
}

/// Reads `n` blocks over `path`. Returns the time, the counters, and the time of every probe.
fn copy(mut path: Path, n: u64) -> (Duration, ClientStats, Vec<Time>) {
    let block = BlockSize::Fixed(4096);
    let mut w = World::new(ClientConfig { block, ..ClientConfig::new(Transport::Udp) });
    let (began, mut submitted, mut probes) = (w.now, 0, Vec::new());
    while w.done.len() < n as usize {
        while submitted < n && w.client.room() > 0 {
            w.submit(read(submitted * 4096));
            submitted += 1;
        }
        let sent = step(&mut w, &mut path);
        probes.extend(sent.iter().filter(|s| s.proc == Proc::Null).map(|s| s.at));
        assert!(w.now < began + SECOND * 600, "no end");
    }
    (w.now.since(began), w.client.stats(), probes)
}

fn start() -> Time {
    World::new(ClientConfig::new(Transport::Udp)).now
}

#[test]
fn holding_link_gets_few_probes_and_no_retransmissions() {
    for length in [60, 160, 300, 1000] {
        let path = Path::stalling(start(), 10, MS * length, |_| false);
        let stalls = path.stalls.clone();
        let (took, stats, probes) = copy(path, 280);
        assert_eq!((stats.retransmissions, stats.spurious), (0, 0), "{length} ms");
        for stall in &stalls[1..] {
            let over = stall.at + stall.length + MS * 200;
            let asked = probes.iter().filter(|t| (stall.at..over).contains(t)).count();
            assert!(asked <= if length < 500 { 2 } else { 4 }, "{asked} probes in a stall of {length} ms");
        }
        // The hop repeats what a stall interrupted.
        let least = READ * (280 + 10) + MS * length * 10;
        assert!(took < least + MS * 50, "{length} ms: {took:?} of {least:?}");
    }
}

#[test]
fn losing_link_is_probed_at_once() {
    for length in [60, 160, 300, 1000] {
        let (took, stats, _) = copy(Path::stalling(start(), 10, MS * length, |_| true), 280);
        assert!(stats.spurious == 0 && stats.retransmissions > 0);
        // Each stall takes what was on the air, and the time until its end is noticed.
        let least = READ * 280 + MS * length * 10;
        let each = took.saturating_sub(least) / 10;
        assert!(each < READ * 2 + MS * 20, "{each:?} lost with each stall of {length} ms");
    }
}

#[test]
fn link_that_begins_to_lose_is_probed_at_once() {
    let length = MS * 300;
    let pace = |loses: fn(u32) -> bool| {
        let path = Path::stalling(start(), 6, length, loses);
        let last = path.stalls[5];
        let (_, _, probes) = copy(path, 200);
        probes.iter().filter(|t| (last.at..last.at + length).contains(t)).count()
    };
    assert!(pace(|_| false) <= 2);
    assert!(pace(|i| i >= 4) >= 12, "one stall that lost is enough");
    assert!(pace(|i| i >= 4).abs_diff(pace(|_| true)) <= 2);
    assert!(pace(|i| i < 5) >= 12, "one that did not shows only when it is over");
}

#[test]
fn stall_changes_neither_block_nor_window() {
    let at_rest = |stalls| {
        let mut path = Path::stalling(start(), stalls, SECOND, |_| false);
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        for n in 0..80 {
            w.submit(read(n * 4096));
        }
        while w.done.len() < 80 {
            step(&mut w, &mut path);
        }
        (w.client.window(), w.client.smoothed_rtt().expect("measured"), w.client.read_block(1 << 20))
    };
    let (stalled, calm) = (at_rest(2), at_rest(0));
    assert!(stalled.0 == calm.0 && stalled.1.abs_diff(calm.1) < MS, "{stalled:?}, without {calm:?}");
    assert!(stalled.2 >= calm.2, "more time went by without a loss: {} and {}", stalled.2, calm.2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the stalls do, all requests are answered soon after the last.
    #[test]
    fn every_mix_of_stalls_and_losses_ends(stalls in proptest::collection::vec((0u32..1500, 1u32..1200, any::<bool>()), 0..12)) {
        let mut at = start();
        let mut path = Path::default();
        for (after, length, loses) in stalls {
            let stall = Stall { at: at + MS * after, length: MS * length, loses };
            at = stall.at + stall.length;
            path.stalls.push(stall);
        }
        let bad: Duration = path.stalls.iter().map(|s| s.length).sum();
        let n = path.stalls.len() as u32;
        let (took, stats, _) = copy(path, 100);
        prop_assert_eq!(stats.requests, 100);
        let least = READ * 100 + bad;
        prop_assert!(took < least + (READ * 3 + MS * 180) * (n + 1), "{:?} of {:?} with {} stalls", took, least, n);
    }
}
