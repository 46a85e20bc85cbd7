//! Who makes room among the TCP connections when all places are taken.
//!
//! A peer that may use no export takes places of its like only, and gives its own up to any client. Beyond that, first
//! the connection that has been idle for long. Then one of the host that holds the most, if that is more than the
//! newcomer's will: one host that keeps its connections busy must not keep all others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A connection.
pub(crate) struct Held<C> {
    pub(crate) peer: Holder,
    /// How long nothing has come in; `None` while something of a client's is under way.
    pub(crate) quiet: Option<Duration>,
    pub(crate) connection: C,
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) host: IpAddr,
    /// Whether it may use no export.
    pub(crate) is_stranger: bool,
}

/// Whose place one more from `newcomer` takes. What has been idle for `evict_min` gives way to any client.
pub(crate) fn candidate<C>(mut held: Vec<Held<C>>, newcomer: Holder, evict_min: Duration) -> Option<C> {
    held.retain(|one| one.peer.is_stranger || !newcomer.is_stranger);
    let mut hosts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for one in &held {
        *hosts.entry(one.peer.host).or_default() += 1;
    }
    let own = hosts.get(&newcomer.host).copied().unwrap_or(0);
    let most = hosts.into_iter().max_by_key(|(_, count)| *count);
    // Afterwards the newcomer's has no more than it: they do not take turns in taking one from the other.
    let crowd = most.filter(|(_, count)| *count > own + 1).map(|(host, _)| host);
    let is_stranger = |one: &Held<C>| one.peer.is_stranger && !newcomer.is_stranger;
    let is_free = |one: &Held<C>, quiet| quiet >= evict_min || crowd == Some(one.peer.host) || is_stranger(one);
    let found = held.into_iter().filter(|one| one.quiet.is_some_and(|quiet| is_free(one, quiet)));
    found.max_by_key(|one| (is_stranger(one), one.quiet >= Some(evict_min), one.quiet)).map(|one| one.connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// From here on hosts may use no export.
    const STRANGER: u8 = 100;

    /// Connections by host and seconds of quiet; negative for one at work. Which of them one more from `host` gets.
    fn chosen(held: &[(u8, i64)], host: u8) -> Option<usize> {
        let peer = |host: u8| Holder { host: IpAddr::from([10, 0, 0, host]), is_stranger: host >= STRANGER };
        let held = held.iter().enumerate().map(|(connection, (host, secs))| {
            let quiet = u64::try_from(*secs).ok().map(Duration::from_secs);
            Held { peer: peer(*host), quiet, connection }
        });
        candidate(held.collect(), peer(host), LONG)
    }

    #[test]
    fn who_holds_the_most_makes_room_unless_one_is_idle() {
        for (held, newcomer, place, why) in [
            (&[(1, 3), (2, 11), (1, 12), (1, 0)][..], 3, Some(2), "the one idle longest"),
            (&[(1, 3), (2, 11), (1, 4), (1, 0)], 1, Some(1), "whoever comes"),
            (&[(1, 3), (1, 4), (2, 9)], 3, Some(1), "the quietest of the host with most"),
            (&[(1, 3), (1, -1), (2, 9)], 3, Some(0), "not what is at work"),
            (&[(1, -1), (1, -1), (2, 9)], 3, None, "not even the one there is"),
            (&[(1, 3), (1, 4), (2, 9)], 1, None, "the newcomer's host is that with most"),
            (&[(1, 3), (1, 4), (2, 9)], 2, None, "it would have as many as that with most has now"),
            (&[(1, 3), (1, 4), (1, 5), (2, 9)], 2, Some(2), "it has fewer"),
            (&[(1, 3), (2, 9)], 3, None, "each has one"),
            (&[(1, 30), (100, 0), (101, 1)], 3, Some(2), "the quietest stranger"),
            (&[(1, 30), (1, 3), (1, 3)], 100, None, "strangers take no client's place"),
            (&[(1, 30), (100, 0), (101, 11)], 102, Some(2), "but one another's"),
            (&[(1, 3), (1, 3), (1, 3), (100, 0), (100, 1)], 102, Some(4), "of the stranger with most"),
        ] {
            assert_eq!(chosen(held, newcomer), place, "{why}");
        }
    }
}
