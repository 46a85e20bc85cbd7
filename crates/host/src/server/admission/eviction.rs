//! Eviction: which connection gives way when no more fit.
//!
//! A peer that may use no export only takes the place of its like, and gives way to any client. Otherwise the connection
//! goes that has been idle longest, or one of the host that holds most connections, if that is more than the newcomer's
//! host would: a host with busy connections must not keep all others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A connection that occupies a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupant {
    pub(crate) holder: Holder,
    /// How long nothing has arrived. `None` while a client's call is in progress.
    pub(crate) idle: Option<Duration>,
}

/// An occupant, and the connection to end.
pub(crate) struct Candidate<C> {
    pub(crate) occupant: Occupant,
    pub(crate) connection: C,
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) host: IpAddr,
    /// Whether it may use no export.
    pub(crate) is_stranger: bool,
}

/// Chooses the connection that gives way to one from `newcomer`. A connection that has been idle for `evict_min` gives way
/// to any client.
pub(crate) fn choose<C>(mut candidates: Vec<Candidate<C>>, newcomer: Holder, evict_min: Duration) -> Option<C> {
    candidates.retain(|c| c.occupant.holder.is_stranger || !newcomer.is_stranger);
    let mut hosts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for candidate in &candidates {
        *hosts.entry(candidate.occupant.holder.host).or_default() += 1;
    }
    let own = hosts.get(&newcomer.host).copied().unwrap_or(0);
    let most = hosts.into_iter().max_by_key(|(_, count)| *count);
    // The newcomer's host has no more than that one afterwards: two hosts do not evict each other in turns.
    let crowd = most.filter(|(_, count)| *count > own + 1).map(|(host, _)| host);
    let is_stranger = |o: &Occupant| o.holder.is_stranger && !newcomer.is_stranger;
    let gives_way =
        |o: &Occupant| o.idle.is_some_and(|idle| idle >= evict_min || crowd == Some(o.holder.host) || is_stranger(o));
    let found = candidates.into_iter().filter(|c| gives_way(&c.occupant));
    let rank = |o: &Occupant| (is_stranger(o), o.idle >= Some(evict_min), o.idle);
    found.max_by_key(|c| rank(&c.occupant)).map(|c| c.connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVICT_MIN: Duration = Duration::from_secs(10);

    /// From here on hosts may use no export.
    const STRANGER: u8 = 100;

    /// Which of these connections, each a host and seconds of idleness (negative for a busy one), gives way to `host`.
    fn chosen(held: &[(u8, i64)], host: u8) -> Option<usize> {
        let holder = |host: u8| Holder { host: IpAddr::from([10, 0, 0, host]), is_stranger: host >= STRANGER };
        let candidates = held.iter().enumerate().map(|(connection, (host, secs))| {
            let idle = u64::try_from(*secs).ok().map(Duration::from_secs);
            Candidate { occupant: Occupant { holder: holder(*host), idle }, connection }
        });
        choose(candidates.collect(), holder(host), EVICT_MIN)
    }

    #[test]
    fn idle_connection_or_one_of_the_largest_host_gives_way() {
        for (held, newcomer, place, why) in [
            (&[(1, 3), (2, 11), (1, 12), (1, 0)][..], 3, Some(2), "the longest idle"),
            (&[(1, 3), (2, 11), (1, 4), (1, 0)], 1, Some(1), "to any client"),
            (&[(1, 3), (1, 4), (2, 9)], 3, Some(1), "the longest idle of the host with most"),
            (&[(1, 3), (1, -1), (2, 9)], 3, Some(0), "no busy one"),
            (&[(1, -1), (1, -1), (2, 9)], 3, None, "not even if all are busy"),
            (&[(1, 3), (1, 4), (2, 9)], 1, None, "the newcomer's host has most"),
            (&[(1, 3), (1, 4), (2, 9)], 2, None, "the newcomer's host would have as many"),
            (&[(1, 3), (1, 4), (1, 5), (2, 9)], 2, Some(2), "the newcomer's host has fewer"),
            (&[(1, 3), (2, 9)], 3, None, "each has one"),
            (&[(1, 30), (100, 0), (101, 1)], 3, Some(2), "the longest idle stranger"),
            (&[(1, 30), (1, 3), (1, 3)], 100, None, "no client gives way to a stranger"),
            (&[(1, 30), (100, 0), (101, 11)], 102, Some(2), "a stranger does"),
            (&[(1, 3), (1, 3), (1, 3), (100, 0), (100, 1)], 102, Some(4), "one of the stranger with most"),
        ] {
            assert_eq!(chosen(held, newcomer), place, "{why}");
        }
    }
}
