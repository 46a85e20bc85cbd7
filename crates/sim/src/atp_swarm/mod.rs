//! A swarm for ATP: real session endpoints on the emulated channel, in worlds drawn from seeds.
//!
//! A server and one or two clients exchange objects despite losses, bursts of them, reordering,
//! duplicates, outages, address changes, restarts and closed connections, with limits that may be
//! tiny, and programs change or cancel requests. Then all faults end, programs resume suspended
//! requests, and every request must get its final status within [`LIVENESS`].
//!
//! Invariants:
//!
//! * an object is delivered at most once, at its receiver, byte for byte;
//! * a request has exactly one final status; before a request gets `Delivered`, the receiver has
//!   delivered the object, within its deadline;
//! * a request with another status sends no more packets, so the receiver can deliver its object only
//!   from packets sent before that status;
//! * requests without a deadline are not given up for lack of bandwidth; requests end `Lost` only
//!   with their connection, and connections end only for a known reason;
//! * an endpoint obeys its limits of peers, requests and received bytes.
//!
//! Read `scenario`, `net`, `ledger`, then `world`.

mod ledger;
mod net;
mod scenario;
mod world;

pub use scenario::{Faults, Scenario};
pub use world::{LIVENESS, Outcome};

/// Runs the world of `seed`; logs its events to `say`, line by line.
pub fn run(seed: u64, say: &mut dyn FnMut(String)) -> Outcome {
    world::run(&Scenario::draw(seed), seed, say)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that found errors: unannounced credit (120, 467), streams that wait for one another
    /// (1002), an estimate that fell to 0 (329, 1832), a handshake without probes (233, 1474),
    /// bytes in flight counted forever (22), a window below the bytes in flight (409, 799, 1042,
    /// 1893), a reset after a migration (1069), refusals after the acknowledgement (316, 619), an
    /// unwanted answer that blocked its stream (1657).
    const CASES: [u64; 16] = [22, 120, 233, 316, 329, 409, 467, 619, 799, 1002, 1042, 1069, 1474, 1657, 1832, 1893];

    #[test]
    fn swarm_of_few_seeds_has_no_violations() {
        let outcomes: Vec<(u64, Outcome)> = (0..12).chain(CASES).map(|seed| (seed, run(seed, &mut |_| {}))).collect();
        let failed: Vec<_> = outcomes.iter().filter(|(_, o)| !o.violations.is_empty()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        let delivered: u64 = outcomes.iter().map(|(_, o)| o.delivered).sum();
        assert!(delivered > 40, "a swarm that does nothing proves nothing: {delivered}");
    }

    #[test]
    fn same_seed_gives_the_same_packets() {
        assert_eq!(run(5, &mut |_| {}), run(5, &mut |_| {}));
    }
}
