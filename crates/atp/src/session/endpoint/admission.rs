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

use noq_proto::EndpointEvent;
use remora_base::{Time, host_of};

use super::state::Endpoint;
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

impl Endpoint {
    /// Reserves a slot for a connection from `from`; returns whether there is one.
    pub(crate) fn reserve_slot(&mut self, now: Time, from: SocketAddr) -> bool {
        let host = host_of(from);
        if self.is_at_share(host) {
            let half_open = self.half_open(now).remove(&host).and_then(|own| own.evictable(now));
            let silent = || self.longest_silent(now, |p| p.host() == host);
            let found = half_open.map(|id| (id, Ending::Closed)).or_else(silent);
            return found.is_some_and(|(id, why)| self.evict(now, id, why));
        }
        self.peers.len() < self.config.peers
            || self.evict_idle(now)
            || self.has_extra_handshake()
            || self.evict_from_largest_host(now, host)
    }

    /// Evicts the least recently heard connection of the host with the most, if that host has at least two more
    /// than `host`; returns whether it did. Only where anyone is admitted: otherwise keys share the slots.
    fn evict_from_largest_host(&mut self, now: Time, host: IpAddr) -> bool {
        if !matches!(self.config.guests, Guests::Anyone) {
            return false;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.incoming_peers().for_each(|p| *counts.entry(p.host()).or_default() += 1);
        let own = counts.get(&host).copied().unwrap_or_default();
        let most = counts.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > own + 1);
        let evicted = most.and_then(|(most, _)| {
            let of_host = self.incoming_peers().filter(|p| p.host() == most);
            of_host.min_by_key(|p| p.received_at()).map(|p| p.id)
        });
        evicted.is_some_and(|id| self.evict(now, id, Ending::Full))
    }

    /// Whether one more handshake may start although all slots are in use.
    fn has_extra_handshake(&self) -> bool {
        matches!(self.config.guests, Guests::Only(_)) && self.peers.len() < self.config.peers + EXTRA_HANDSHAKES
    }

    /// Reserves a slot for `id`, which has authenticated with the listed `key`; returns whether there is one. When
    /// all are in use, evicts the first match:
    /// 1. the longest silent connection of `key`;
    /// 2. the least recently heard connection of the key with the most, if that key has at least two more than
    ///    `key`;
    /// 3. the longest silent connection of a key that has more than `key`.
    pub(crate) fn reserve_slot_for_key(&mut self, now: Time, id: PeerId, key: PublicKey) -> bool {
        if !matches!(self.config.guests, Guests::Only(_)) {
            return true;
        }
        let others = || self.incoming_peers().filter(|p| p.phase == PeerPhase::Up && p.id != id);
        let mut counts: BTreeMap<PublicKey, usize> = BTreeMap::new();
        others().filter_map(|p| p.key).for_each(|key| *counts.entry(key).or_default() += 1);
        if counts.values().sum::<usize>() < self.config.peers {
            return true;
        }
        let count = |p: &Peer| p.key.and_then(|key| counts.get(&key)).copied().unwrap_or_default();
        let own = counts.get(&key).copied().unwrap_or_default();
        let most = counts.values().max().copied().filter(|most| *most > own + 1);
        let is_silent = |p: &Peer| p.is_silent_for(now, ANSWER_MAX);
        let longest = |matches: &dyn Fn(&Peer) -> bool| others().filter(|p| matches(p)).min_by_key(|p| p.received_at());
        let found = longest(&|p| p.key == Some(key) && is_silent(p))
            .or_else(|| longest(&|p| Some(count(p)) == most))
            .or_else(|| longest(&|p| count(p) > own && is_silent(p)));
        let Some((id, is_silent)) = found.map(|p| (p.id, is_silent(p))) else { return false };
        self.evict(now, id, if is_silent { Ending::Silent } else { Ending::Full })
    }

    /// Whether a connection from `from` needs the slot of another.
    pub(crate) fn is_full_for(&self, from: SocketAddr) -> bool {
        self.peers.len() >= self.config.peers || self.is_at_share(host_of(from))
    }

    fn is_at_share(&self, host: IpAddr) -> bool {
        self.config.peers >= HOST_LIMIT_FROM && self.slots_of(host) >= self.config.peers / HOST_SHARE
    }

    /// Slots that count for a host: those without a listed key.
    fn slots_of(&self, host: IpAddr) -> usize {
        let is_listed = |p: &Peer| p.key.is_some() && !matches!(self.config.guests, Guests::Anyone);
        self.incoming_peers().filter(|p| p.host() == host && !is_listed(p)).count()
    }

    fn incoming_peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(|p| p.conn.side().is_server())
    }

    /// Evicts a half-open connection (of the host with most of them, else the oldest past its timeout), or the peer
    /// that was silent for longest despite a probe; returns whether it did.
    fn evict_idle(&mut self, now: Time) -> bool {
        let hosts = self.half_open(now);
        let most = hosts.values().max_by_key(|h| (h.count, Reverse(h.since))).and_then(|h| h.evictable(now));
        let overdue = || self.incoming_peers().filter(|p| p.is_overdue(now)).min_by_key(|p| p.handshake.since());
        let half_open = most.or_else(|| overdue().map(|p| p.id)).map(|id| (id, Ending::Closed));
        let found = half_open.or_else(|| self.longest_silent(now, |_| true));
        found.is_some_and(|(id, why)| self.evict(now, id, why))
    }

    /// The matching peer that was silent for longest despite a probe.
    fn longest_silent(&self, now: Time, matches: impl Fn(&Peer) -> bool) -> Option<(PeerId, Ending)> {
        let unheard = self.config.idle + ANSWER_MAX;
        let silent = self.peers.values().filter(|p| matches(p) && p.is_silent_for(now, unheard));
        silent.min_by_key(|p| p.received_at()).map(|p| (p.id, Ending::Silent))
    }

    /// Half-open connections by host.
    fn half_open(&self, now: Time) -> BTreeMap<IpAddr, HalfOpen> {
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

    fn evict(&mut self, now: Time, id: PeerId, why: Ending) -> bool {
        self.counters.turned_away += 1;
        self.end(now, id, why);
        let mut buf = Vec::new();
        if let Some(p) = self.peers.get_mut(&id)
            && let Some(transmit) = p.poll_packet(now, self.epoch, &mut buf)
        {
            self.reply(transmit, buf); // CONNECTION_CLOSE, sent once
        }
        self.drop_connection(id);
        true
    }

    /// Forgets a closed connection at once, without waiting for late packets.
    pub(crate) fn drop_connection(&mut self, id: PeerId) {
        if let Some(p) = self.peers.get(&id) {
            self.quic.handle_event(p.handle, EndpointEvent::drained());
            self.remove(id);
        }
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
