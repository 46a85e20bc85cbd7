//! Admission of connections: which ones a full endpoint accepts and evicts.
//!
//! Any host that answers at its address can start handshakes without end and hold connections through outages, like
//! an honest client. So when connections are scarce, hosts with several lose them first, and no host has more than
//! its share. All addresses of an IPv6 /64 count as one host. When hosts without a listed key hold all
//! connections, these hosts share them equally.
//!
//! With a list of guests, the keys share the connections. A key is known only after the handshake, so a few more
//! handshakes than connections may be in progress.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::{Time, host_of};

use crate::session::config::Config;
use crate::session::crypto::{Guests, PublicKey};
use crate::session::event::{Ending, PeerId};
use crate::session::peer::{Peer, PeerPhase};

/// Time for an idle peer to answer a probe, including short outages.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Number of connections from which one host has at most [`HOST_SHARE`] of them.
const HOST_LIMIT_FROM: usize = 128;
/// Divisor: 64 of 256, for the clients behind one address translator.
const HOST_SHARE: usize = 4;
/// With more half-open connections of one host, the oldest is evicted at any age,
const HALF_OPEN_PER_HOST: usize = 4;
/// and with at least two of them, after this time.
const HALF_OPEN_GRACE: Duration = Duration::from_secs(1);
/// Handshakes allowed beyond the maximum number of connections, with a list of guests.
const EXTRA_HANDSHAKES: usize = 8;

/// Whether a connection gets a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SlotGrant {
    /// A slot is free.
    Free,
    /// It gets the slot of this connection, which is evicted.
    Evict(PeerId, Ending),
    /// All slots stay in use.
    Refused,
}

impl From<Option<(PeerId, Ending)>> for SlotGrant {
    fn from(evicted: Option<(PeerId, Ending)>) -> SlotGrant {
        evicted.map_or(SlotGrant::Refused, |(id, why)| SlotGrant::Evict(id, why))
    }
}

/// The connections of an endpoint, with its limits on them.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    pub(crate) config: &'a Config,
    pub(crate) peers: &'a BTreeMap<PeerId, Peer>,
}

impl Slots<'_> {
    /// The slot of a new connection from `from`.
    pub(crate) fn grant_to_host(self, now: Time, from: SocketAddr) -> SlotGrant {
        let host = host_of(from);
        if self.is_at_share(host) {
            let half_open = self.half_open(now).remove(&host).and_then(|own| own.evictable(now));
            let silent = || self.longest_silent(now, |p| p.host() == host);
            return half_open.map(|id| (id, Ending::Closed)).or_else(silent).into();
        }
        if self.peers.len() < self.config.peers {
            return SlotGrant::Free;
        }
        match self.idle(now) {
            None if self.has_extra_handshake() => SlotGrant::Free,
            idle => idle.or_else(|| self.of_largest_host(host)).into(),
        }
    }

    /// The least recently heard connection of the host with the most, if that host has at least two more than `host`.
    /// Only where anyone is admitted: otherwise keys share the slots.
    fn of_largest_host(self, host: IpAddr) -> Option<(PeerId, Ending)> {
        if !matches!(self.config.guests, Guests::Anyone) {
            return None;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.incoming_peers().for_each(|p| *counts.entry(p.host()).or_default() += 1);
        let own = counts.get(&host).copied().unwrap_or_default();
        let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > own + 1)?;
        let of_host = self.incoming_peers().filter(|p| p.host() == most);
        of_host.min_by_key(|p| p.received_at()).map(|p| (p.id, Ending::Full))
    }

    /// Whether one more handshake may start although all slots are in use.
    fn has_extra_handshake(self) -> bool {
        matches!(self.config.guests, Guests::Only(_)) && self.peers.len() < self.config.peers + EXTRA_HANDSHAKES
    }

    /// The slot of `id`, which has authenticated with the listed `key`. When all are in use, that of the first match:
    /// 1. the longest silent connection of `key`;
    /// 2. the least recently heard connection of the key with the most, if that key has at least two more than
    ///    `key`;
    /// 3. the longest silent connection of a key that has more than `key`.
    pub(crate) fn grant_to_key(self, now: Time, id: PeerId, key: PublicKey) -> SlotGrant {
        if !matches!(self.config.guests, Guests::Only(_)) {
            return SlotGrant::Free;
        }
        let others = || self.incoming_peers().filter(|p| p.phase == PeerPhase::Up && p.id != id);
        let mut counts: BTreeMap<PublicKey, usize> = BTreeMap::new();
        others().filter_map(|p| p.key).for_each(|key| *counts.entry(key).or_default() += 1);
        if counts.values().sum::<usize>() < self.config.peers {
            return SlotGrant::Free;
        }
        let count = |p: &Peer| p.key.and_then(|key| counts.get(&key)).copied().unwrap_or_default();
        let own = counts.get(&key).copied().unwrap_or_default();
        let most = counts.values().max().copied().filter(|most| *most > own + 1);
        let is_silent = |p: &Peer| p.is_silent_for(now, ANSWER_MAX);
        let longest = |matches: &dyn Fn(&Peer) -> bool| others().filter(|p| matches(p)).min_by_key(|p| p.received_at());
        let found = longest(&|p| p.key == Some(key) && is_silent(p))
            .or_else(|| longest(&|p| Some(count(p)) == most))
            .or_else(|| longest(&|p| count(p) > own && is_silent(p)));
        found.map(|p| (p.id, if is_silent(p) { Ending::Silent } else { Ending::Full })).into()
    }

    /// Whether a connection from `from` needs the slot of another.
    pub(crate) fn is_full_for(self, from: SocketAddr) -> bool {
        self.peers.len() >= self.config.peers || self.is_at_share(host_of(from))
    }

    fn is_at_share(self, host: IpAddr) -> bool {
        self.config.peers >= HOST_LIMIT_FROM && self.slots_of(host) >= self.config.peers / HOST_SHARE
    }

    /// Slots that count for a host: those without a listed key.
    fn slots_of(self, host: IpAddr) -> usize {
        let is_listed = |p: &Peer| p.key.is_some() && !matches!(self.config.guests, Guests::Anyone);
        self.incoming_peers().filter(|p| p.host() == host && !is_listed(p)).count()
    }

    fn incoming_peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(|p| p.conn.side().is_server())
    }

    /// A half-open connection (of the host with most of them, else the oldest past its timeout), or the peer that was
    /// silent for longest despite a probe.
    fn idle(self, now: Time) -> Option<(PeerId, Ending)> {
        let hosts = self.half_open(now);
        let most = hosts.values().max_by_key(|h| (h.count, Reverse(h.since))).and_then(|h| h.evictable(now));
        let overdue = || self.incoming_peers().filter(|p| p.is_overdue(now)).min_by_key(|p| p.handshake.since());
        let half_open = most.or_else(|| overdue().map(|p| p.id)).map(|id| (id, Ending::Closed));
        half_open.or_else(|| self.longest_silent(now, |_| true))
    }

    /// The matching peer that was silent for longest despite a probe.
    fn longest_silent(self, now: Time, matches: impl Fn(&Peer) -> bool) -> Option<(PeerId, Ending)> {
        let unheard = self.config.idle + ANSWER_MAX;
        let silent = self.peers.values().filter(|p| matches(p) && p.is_silent_for(now, unheard));
        silent.min_by_key(|p| p.received_at()).map(|p| (p.id, Ending::Silent))
    }

    /// Half-open connections by host.
    fn half_open(self, now: Time) -> BTreeMap<IpAddr, HalfOpen> {
        let mut hosts = BTreeMap::new();
        for p in self.incoming_peers().filter(|p| p.phase == PeerPhase::Connecting) {
            let since = p.handshake.since();
            let host = hosts.entry(p.host()).or_insert(HalfOpen { oldest: p.id, since: now, count: 0 });
            host.count += 1;
            if since < host.since {
                (host.oldest, host.since) = (p.id, since);
            }
        }
        hosts
    }
}

/// Half-open connections of a host.
#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    oldest: PeerId,
    since: Time,
    count: usize,
}

impl HalfOpen {
    /// The connection that may be evicted before its timeout. The only one of a host may not.
    fn evictable(&self, now: Time) -> Option<PeerId> {
        let is_old = self.count > 1 && self.since + HALF_OPEN_GRACE <= now;
        (self.count > HALF_OPEN_PER_HOST || is_old).then_some(self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_with_several_half_open_connections_loses_one_early() {
        let at = Time::from_millis;
        let host = |count| HalfOpen { oldest: PeerId(7), since: at(0), count };
        let gives = |count, ms| host(count).evictable(at(ms)).is_some();
        assert!(
            !gives(1, 29_999)
                && !gives(2, 999)
                && gives(2, 1000)
                && !gives(HALF_OPEN_PER_HOST, 999)
                && gives(HALF_OPEN_PER_HOST + 1, 0)
        );
    }
}
