//! The session's swarm, as long as one likes: `session_swarm [SEEDS] [FIRST]`. Stops at the first
//! seed that fails, which it names.

#[path = "../tests/session_world/mod.rs"]
mod session_world;

use session_world::swarm;

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let seeds = args.next().unwrap_or(2_000);
    let first = args.next().unwrap_or(0);
    let (mut delivered, mut not, mut packets) = (0, 0, 0);
    for seed in first..first + seeds {
        let tally = swarm::run(seed);
        delivered += tally.delivered;
        not += tally.not_delivered;
        packets += tally.packets;
    }
    println!("{seeds} seeds: {delivered} objects delivered, {not} ended otherwise, {packets} packets");
}
