//! Quotas: the number of places that one sender may hold.
//!
//! With `--from`, a sender is a key of the list. With `--from-anyone` a sender whose key is not listed (a stranger) can
//! generate any number of keys, so the places of all keys of one host count together as well.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use remora_atp::session::PublicKey;
use remora_base::host_of;
use remora_host::atp::Remote;

/// Whose file, and its name: two senders may use the same one.
pub(crate) type Owner = (PublicKey, String);

/// A sender, as places are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder {
    /// The sender's key.
    pub(crate) key: PublicKey,
    /// The sender's host; `None` if its key is on the list of guests.
    pub(crate) host: Option<IpAddr>,
}

/// The connection that a sender's messages come in.
pub(crate) trait Session: Debug + Send + Sync {
    /// Whether it has ended: nothing more comes in it, and no answer gets there.
    fn has_ended(&self) -> bool;
}

impl Session for Remote {
    fn has_ended(&self) -> bool {
        self.ended().is_some()
    }
}

/// How many places there are, and how many of them one key and one host may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) of_key: usize,
    pub(crate) of_host: usize,
    pub(crate) all: usize,
}

/// Whose places are all taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    Key,
    Host,
    All,
}

/// The places that are held, by key and by host.
#[derive(Debug, Default)]
pub(crate) struct Census {
    keys: BTreeMap<PublicKey, usize>,
    hosts: BTreeMap<IpAddr, usize>,
    all: usize,
}

impl Holder {
    /// A stranger at this address. Any user of a machine has all of its loopback addresses.
    pub(crate) fn stranger(key: PublicKey, from: SocketAddr) -> Holder {
        let host = match host_of(from) {
            IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            host => host,
        };
        Holder { key, host: Some(host) }
    }
}

impl Shortage {
    /// Whether a place of `held` would do for `newcomer`.
    pub(crate) fn is_met_by(self, held: Holder, newcomer: Holder) -> bool {
        match self {
            Shortage::Key => held.key == newcomer.key,
            Shortage::Host => held.host == newcomer.host,
            Shortage::All => true,
        }
    }
}

impl Census {
    pub(crate) fn of(held: impl IntoIterator<Item = Holder>) -> Census {
        let mut census = Census::default();
        held.into_iter().for_each(|holder| census.add(holder));
        census
    }

    pub(crate) fn add(&mut self, holder: Holder) {
        *self.keys.entry(holder.key).or_default() += 1;
        holder.host.into_iter().for_each(|host| *self.hosts.entry(host).or_default() += 1);
        self.all += 1;
    }

    /// What keeps `newcomer` from one more place, if anything does.
    pub(crate) fn shortage(&self, limits: Limits, newcomer: Holder) -> Option<Shortage> {
        let (of_host, of_key) = self.load(newcomer);
        match newcomer.host {
            _ if of_key >= limits.of_key => Some(Shortage::Key),
            Some(_) if of_host >= limits.of_host => Some(Shortage::Host),
            _ if self.all >= limits.all => Some(Shortage::All),
            _ => None,
        }
    }

    /// The places that `holder`'s host has, and its key.
    pub(crate) fn load(&self, holder: Holder) -> (usize, usize) {
        let of_key = self.keys.get(&holder.key).copied().unwrap_or(0);
        let of_host = holder.host.map_or(of_key, |host| self.hosts.get(&host).copied().unwrap_or(0));
        (of_host, of_key)
    }

    /// Whether `held` would still have at least as many places as `newcomer` after it gave one up.
    pub(crate) fn outweighs(&self, held: Holder, newcomer: Holder) -> bool {
        let (held_load, new_load) = (self.load(held), self.load(newcomer));
        if held.host.is_some() && held.host == newcomer.host {
            return held_load.1 > new_load.1 + 1;
        }
        held_load.0 > new_load.0 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { of_key: 2, of_host: 3, all: 5 };

    fn guest(key: u8) -> Holder {
        Holder { key: PublicKey::from_bytes([key; 32]), host: None }
    }

    fn stranger(key: u8, from: &str) -> Holder {
        Holder::stranger(PublicKey::from_bytes([key; 32]), from.parse().unwrap())
    }

    #[test]
    fn a_key_and_a_host_have_their_shares() {
        let census = Census::of([guest(1), guest(1)]);
        assert_eq!(census.shortage(LIMITS, guest(1)), Some(Shortage::Key));
        assert_eq!(census.shortage(LIMITS, guest(2)), None);
        let [a, b, other] = [stranger(1, "127.0.0.1:1"), stranger(2, "127.9.9.9:2"), stranger(2, "10.0.0.1:1")];
        let census = Census::of([a, a, b]);
        assert_eq!(census.shortage(LIMITS, b), Some(Shortage::Host));
        assert_eq!(census.shortage(LIMITS, other), None);
        let census = Census::of([guest(1), guest(1), guest(2), guest(2), guest(3)]);
        assert_eq!(census.shortage(LIMITS, guest(4)), Some(Shortage::All));
    }

    #[test]
    fn an_ipv6_network_is_one_host() {
        let [a, b] = [stranger(1, "[2001:db8::1]:1"), stranger(2, "[2001:db8::2]:2")];
        assert_eq!(a.host, b.host);
    }

    #[test]
    fn largest_holder_is_evicted() {
        let [a, b, other] = [stranger(1, "10.0.0.1:1"), stranger(2, "10.0.0.1:2"), stranger(3, "10.0.0.2:1")];
        let census = Census::of([a, a, a, b]);
        assert!(census.outweighs(a, b) && !census.outweighs(b, a));
        assert!(census.outweighs(b, other), "its host holds four");
        assert!(!census.outweighs(a, a));
        let census = Census::of([guest(1), guest(2), guest(2)]);
        assert!(!census.outweighs(guest(2), guest(1)), "it would only be the other way round");
        assert!(census.outweighs(guest(2), guest(3)));
    }
}
