//! Rate limiter for handshakes, each of which costs the base four curve multiplications. Token buckets bound their
//! rate, in total and for each address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use remora_base::Time;

/// Handshakes a second from all addresses together.
const ALL_RATE: f64 = 50.0;
const ALL_BURST: f64 = 100.0;
/// Handshakes a second from one address (IPv6: one /64).
const ONE_RATE: f64 = 4.0;
const ONE_BURST: f64 = 10.0;
/// Most addresses remembered. Above it, addresses with full buckets are removed.
const ADDRESSES_MAX: usize = 4096;

/// Token buckets of all addresses.
#[derive(Debug)]
pub(super) struct HandshakeLimiter {
    all: Bucket,
    one: BTreeMap<IpAddr, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Time,
}

impl HandshakeLimiter {
    /// Starts with full buckets.
    pub(super) fn new(now: Time) -> HandshakeLimiter {
        HandshakeLimiter { all: Bucket { tokens: ALL_BURST, at: now }, one: BTreeMap::new() }
    }

    /// Whether a handshake from `from` may be processed. The address may be forged, so a total limit applies, too. The
    /// current address of a known mobile (`known`) is exempt from the total limit, so that a flood does not prevent
    /// rekeying.
    pub(super) fn admit(&mut self, now: Time, from: SocketAddr, known: bool) -> bool {
        let source = source(from.ip());
        // Cheap checks first: the cost of a flood must not grow with the table.
        if self.one.get(&source).is_some_and(|b| b.level(now, ONE_RATE, ONE_BURST) < 1.0) {
            return false;
        }
        if !known && !self.all.take(now, ALL_RATE, ALL_BURST) {
            return false;
        }
        if !self.one.contains_key(&source) && self.one.len() >= ADDRESSES_MAX {
            self.one.retain(|_, b| b.level(now, ONE_RATE, ONE_BURST) < ONE_BURST);
            if self.one.len() >= ADDRESSES_MAX {
                return known;
            }
        }
        self.one.entry(source).or_insert(Bucket { tokens: ONE_BURST, at: now }).take(now, ONE_RATE, ONE_BURST)
    }
}

impl Bucket {
    fn level(&self, now: Time, rate: f64, burst: f64) -> f64 {
        (self.tokens + now.since(self.at).as_secs_f64() * rate).min(burst)
    }

    fn take(&mut self, now: Time, rate: f64, burst: f64) -> bool {
        self.tokens = self.level(now, rate, burst);
        self.at = now;
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

/// The address by which a sender is limited. The owner of an IPv6 address has its whole /64.
fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn handshakes_of_one_address_are_limited() {
        let mut l = HandshakeLimiter::new(Time::ZERO);
        let flooder = at("192.0.2.1:1");
        let passed = (0..1000).filter(|_| l.admit(Time::ZERO, flooder, false)).count();
        assert_eq!(passed, ONE_BURST as usize);
        assert!(l.admit(Time::ZERO, at("192.0.2.2:1"), false), "others pass");
        assert!(l.admit(Time::from_secs(1), flooder, false));
    }

    #[test]
    fn flood_from_many_addresses_exempts_known_ones() {
        let mut l = HandshakeLimiter::new(Time::ZERO);
        let many = |i: u32| SocketAddr::new(IpAddr::V4((0x0a00_0000 + i).into()), 1);
        let passed = (0..100_000).filter(|i| l.admit(Time::ZERO, many(*i), false)).count();
        assert_eq!(passed, ALL_BURST as usize);
        assert!(l.one.len() <= ADDRESSES_MAX);
        assert!(l.admit(Time::ZERO, at("203.0.113.9:4"), true));
        assert!(l.admit(Time::ZERO + Duration::from_secs(60), many(100_001), false));
    }

    #[test]
    fn ipv6_network_is_limited_as_one_address() {
        assert_eq!(source("2001:db8::1".parse().unwrap()), source("2001:db8::2:3".parse().unwrap()));
        assert_eq!(source("::ffff:10.0.0.1".parse().unwrap()), source("10.0.0.1".parse().unwrap()));
    }
}
