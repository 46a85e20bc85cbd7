//! Answers that overtake one another in a queue that the shortest round trip says nothing of, as
//! behind a token bucket. Nothing is lost there, so hardly anything is to be sent again.

mod common;

use common::{MS, World};
use remora_base::Rng;
use remora_client::{Config, Transport, WindowSize};

/// Requests that the server answers at once before the bucket is empty; then it is one a millisecond.
const BUCKET: u32 = 16;

#[test]
fn what_is_overtaken_is_not_taken_for_lost_again_and_again() {
    for seed in 1..6 {
        let mut rng = Rng::stream(seed, "overtaken");
        let mut w = World::new(Config { window: WindowSize::Fixed(32), ..Config::new(Transport::Udp) });
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
