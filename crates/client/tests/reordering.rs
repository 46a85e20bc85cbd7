//! Reordering of replies: in a queue that the minimum RTT does not show (a token bucket), and at a server that works
//! longer on a block than on what arrives with it. Nothing is lost, so hardly anything may be retransmitted.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, commit, write};
use remora_base::{Rng, Time};
use remora_client::{ClientConfig, Transport, WindowSize};

/// Requests answered at once before the bucket is empty; then one a millisecond.
const BUCKET: u32 = 16;

#[test]
fn reordering_stops_spurious_retransmissions() {
    for seed in 1..6 {
        let mut rng = Rng::stream(seed, "overtaken");
        let mut w = World::new(ClientConfig { window: WindowSize::Fixed(32), ..ClientConfig::new(Transport::Udp) });
        w.submit_reads(4000);
        let (mut queue, mut tokens) = (Vec::new(), BUCKET);
        while w.done.len() < 4000 {
            queue.extend(w.pass(MS));
            tokens = (tokens + 1).min(BUCKET);
            while tokens > 0 && !queue.is_empty() {
                // One of the threads is done first.
                let first = rng.below(queue.len().min(3) as u64) as usize;
                let call = queue.remove(first);
                w.answer(&call);
                tokens -= 1;
            }
            assert!(w.now.as_nanos() < 130_000_000_000, "{:?}", w.client.stats());
        }
        let stats = w.client.stats();
        assert!(stats.retransmissions < 400, "seed {seed}: {stats:?}");
        assert_eq!(w.client.loss().unwrap_or(0.0), 0.0, "seed {seed}");
    }
}

/// Messages in order at 1 Mbit/s without loss. A COMMIT arrives right behind a block and is answered first; the reply
/// to the block then waits for the medium.
#[test]
fn block_passed_by_a_small_request_is_not_lost() {
    const LATER: Duration = Duration::from_millis(13);
    let airtime = |len: usize| Duration::from_micros(len as u64 * 8);
    let mut w = World::new(ClientConfig::new(Transport::Udp));
    let (mut free, mut arriving) = (w.now, Vec::<(Time, Sent)>::new());
    let mut submitted = 0;
    while w.done.len() < 500 {
        while submitted - w.done.len() < 8 && submitted < 500 {
            w.submit(if submitted % 5 == 4 { commit() } else { write(submitted as u64 * 8192, 8192) });
            submitted += 1;
        }
        for sent in w.pass(MS) {
            let began = free.max(sent.at);
            free = began + airtime(sent.payload.len());
            let small = sent.payload.len() < 200;
            let before = arriving.last_mut().filter(|(at, before)| *at == began && before.payload.len() > 200);
            if let Some((at, _)) = before.filter(|_| small) {
                *at = free + LATER;
            }
            arriving.push((free, sent));
        }
        let now = w.now;
        let (due, rest) = arriving.into_iter().partition::<Vec<_>, _>(|(at, _)| *at <= now);
        arriving = rest;
        due.iter().for_each(|(_, call)| w.answer(call));
        assert!(w.now.as_nanos() < 200_000_000_000, "{:?}", w.client.stats());
    }
    assert_eq!(w.client.stats().retransmissions, 0, "{:?}", w.client.stats());
}
