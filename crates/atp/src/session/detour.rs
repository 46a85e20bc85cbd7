//! A way around a dead end of noq 1.4: after a client's address changed, the server has to see the
//! new one answer a PATH_CHALLENGE (RFC 9000, section 8.2) before it sends anything else there.
//! noq tries for three probe timeouts and then never again, for as long as the client's packets
//! keep coming from that address: it neither asks once more nor goes back to the old path. A
//! blackout right after a move, which is when they happen, would so silence the server for ever.
//!
//! A packet from yet another address makes it ask again. So while a new address has not been
//! proven for a while, one of the client's packets is passed on as if it came from the port next
//! to the true one: noq goes there, and comes back with the next packet, asking anew. Nothing is
//! sent to the decoy. Whose packet it is the connection id tells, and not the address: another
//! connection may come from the same one, and its handshake would be answered at the decoy.

use std::net::SocketAddr;
use std::time::Duration;

use remora_base::Time;

/// How long an address may take to be proven before it is asked again. Longer than noq tries
/// itself, unless the round trip is beyond 300 ms, when asking again early does no harm.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server's peer whose address is not proven since it changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detour {
    doubt: Option<Doubt>,
    decoy: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    addr: SocketAddr,
    /// When it was last asked.
    asked: Time,
    /// How many frames had been sent before the move that go to a proven address only.
    proofs: u64,
}

impl Detour {
    /// The peer's packets come from `addr` now; so many frames that go to a proven address only
    /// were sent before.
    pub(super) fn moved(&mut self, now: Time, addr: SocketAddr, proofs: u64) {
        self.doubt = Some(Doubt { addr, asked: now, proofs });
        self.decoy = None;
    }

    /// So many frames have been sent that go to a proven address only, and whatever a peer asks for
    /// needs one: so if one more was sent, the address is proven. Says so once.
    pub(super) fn sent(&mut self, proofs: u64) -> Option<SocketAddr> {
        self.doubt.take_if(|doubt| proofs > doubt.proofs).map(|doubt| doubt.addr)
    }

    /// Whether an address is in doubt.
    pub(super) fn is_unproven(&self) -> bool {
        self.doubt.is_some()
    }

    /// Whether the peer's next packet from `from` is to be passed on as if it came from elsewhere.
    pub(super) fn is_due(&self, now: Time, from: SocketAddr) -> bool {
        self.doubt.is_some_and(|doubt| doubt.addr == from && doubt.asked + PATIENCE <= now)
    }

    /// Where to say that such a packet came from.
    pub(super) fn begin(&mut self, now: Time, from: SocketAddr) -> SocketAddr {
        if let Some(doubt) = &mut self.doubt {
            doubt.asked = now;
        }
        let port = from.port();
        *self.decoy.insert(SocketAddr::new(from.ip(), port.checked_add(1).unwrap_or(port - 1)))
    }

    /// A packet of the peer's came from `from`, which so is not only made up.
    pub(super) fn came(&mut self, from: SocketAddr) {
        self.decoy.take_if(|decoy| *decoy == from);
    }

    /// Whether `addr` was only made up.
    pub(super) fn is_decoy(&self, addr: SocketAddr) -> bool {
        self.decoy == Some(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_doubt_is_asked_again_once_a_second_until_it_answers() {
        let (home, away): (SocketAddr, SocketAddr) = ("10.0.0.1:7".parse().unwrap(), "10.0.0.2:9".parse().unwrap());
        let mut detour = Detour::default();
        let is_due = |detour: &Detour, ms, from| detour.is_due(Time::from_millis(ms), from);
        assert!(!is_due(&detour, 9_000, home));
        detour.moved(Time::from_secs(10), away, 5);
        assert!(!is_due(&detour, 10_999, away) && is_due(&detour, 11_000, away) && !is_due(&detour, 11_000, home));
        let decoy = detour.begin(Time::from_secs(11), away);
        assert!(decoy != away && decoy.ip() == away.ip() && detour.is_decoy(decoy) && !detour.is_decoy(away));
        detour.came(away);
        assert!(detour.is_decoy(decoy) && !is_due(&detour, 11_010, away) && is_due(&detour, 12_500, away));
        assert_eq!(detour.begin(Time::from_millis(12_500), away), decoy);
        detour.came(decoy);
        assert!(!detour.is_decoy(decoy), "it exists");
        assert_eq!(detour.sent(5), None);
        assert!(detour.is_unproven());
        assert_eq!((detour.sent(6), detour.sent(7)), (Some(away), None));
        assert!(!is_due(&detour, 60_000, away));
    }
}
