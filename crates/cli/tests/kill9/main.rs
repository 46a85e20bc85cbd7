//! `remora serve` is killed at 200 random moments under load, and started again.
//!
//! Four connections keep sixteen calls under way, each of an actor that knows from the replies
//! what must be in its directory. After each kill the disk itself is looked at, before the next
//! server starts: what was acknowledged as stable is there to the last byte, what was under way
//! was done or not done, and nothing else is there. The next server is asked the unanswered
//! calls again, with the same transaction ids; old handles must be good, those of what was removed or
//! replaced, lately or long ago, good for nothing, and an exclusive CREATE of before is known by its
//! verifier. Beside that `remora cp` uploads a file, again and again.
//!
//! Killing a process leaves the kernel's cache alone. So this shows that nothing acknowledged
//! is lost with the *process*; that it is not lost with the *machine* is what `stable_order`
//! and the simulator are for.

mod actor;
mod blocks;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod gone;
mod names;
mod worker;

use std::time::Duration;

use actor::{Actor, Tally};
use common::Place;
use copies::Copies;
use remora_base::Rng;
use worker::Worker;

const KILLS: u32 = 200;
const WORKERS: u32 = 4;
const ACTORS: u32 = 4;
/// How long a server lives, in milliseconds.
const LIFE_MS: (u64, u64) = (5, 300);
/// Other moments with REMORA_KILL9_SEED=N.
const SEED: u64 = 9;

#[test]
fn acknowledged_data_survives_200_kills_of_the_server() {
    let seed = std::env::var("REMORA_KILL9_SEED").map_or(SEED, |s| s.parse().expect("REMORA_KILL9_SEED is a number"));
    let mut rng = Rng::stream(seed, "kills");
    let p = Place::new();
    let mut server = p.serve(&[]);
    let (addr, port) = (server.addr, server.port());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|n| Worker::new(n, ACTORS, seed, &p.srv(""), addr)).collect();
    let mut copies = Copies::new(&p, addr);
    let mut under_way = 0;
    for kill in 0..KILLS {
        let life = Duration::from_millis(LIFE_MS.0 + rng.below(LIFE_MS.1 - LIFE_MS.0));
        copies.go_on();
        std::thread::scope(|scope| {
            let running: Vec<_> = workers.iter_mut().map(|w| scope.spawn(|| w.run(addr))).collect();
            std::thread::sleep(life);
            server.kill();
            for worker in running {
                worker.join().unwrap().unwrap_or_else(|why| panic!("kill {kill}, seed {seed}: {why}"));
            }
        });
        for actor in workers.iter().flat_map(Worker::actors) {
            actor.check().unwrap_or_else(|why| panic!("after kill {kill}, seed {seed}: {why}"));
            under_way += u32::from(actor.is_waiting());
        }
        server = p.serve_at(port, &[]);
    }
    copies.finish();
    let sum = workers.iter().flat_map(Worker::actors).map(Actor::tally).fold(Tally::default(), |sum, t| Tally {
        acknowledged: sum.acknowledged + t.acknowledged,
        again: sum.again + t.again,
        done_before: sum.done_before + t.done_before,
        half_made: sum.half_made + t.half_made,
        rewrites: sum.rewrites + t.rewrites,
    });
    println!("{KILLS} kills, {under_way} calls under way, {} copies; {sum:?}", copies.done());
    assert_eq!(sum.half_made, 0, "a file made once has its verifier before its name: {sum:?}");
    // The moments were such that there was something to lose.
    assert!(under_way > KILLS * WORKERS * ACTORS / 2 && sum.acknowledged > 1000, "{under_way} {sum:?}");
    assert!(sum.again > u64::from(KILLS) && sum.done_before > 0 && sum.rewrites > 0 && copies.done() > 0, "{sum:?}");
}
