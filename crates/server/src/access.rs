//! Who may use an export, and on what terms: the rules of exports(5), without their text.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use remora_vfs::Cred;

use crate::Network;
use crate::auth::Caller;

/// The user and group number of nobody in particular, by custom.
pub const ANONYMOUS: u32 = 65534;

/// Ports below this one take a privilege to send from (IPPORT_RESERVED).
pub const RESERVED_PORTS: u16 = 1024;

/// Which callers lose their identity on an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// User and group 0 become anonymous.
    #[default]
    Root,
    /// Everybody becomes anonymous.
    All,
    /// Nobody does.
    None,
}

/// What a client may do on an export, and as whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Refuse every change. Default no.
    pub read_only: bool,
    /// Which callers become anonymous. Default root.
    pub squash: Squash,
    /// User number of the anonymous. Default [`ANONYMOUS`].
    pub anon_uid: u32,
    /// Group number of the anonymous. Default [`ANONYMOUS`].
    pub anon_gid: u32,
    /// Take requests from ports below [`RESERVED_PORTS`] only. Default no.
    pub secure: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { read_only: false, squash: Squash::default(), anon_uid: ANONYMOUS, anon_gid: ANONYMOUS, secure: false }
    }
}

impl Terms {
    /// As whom `caller` acts.
    pub(crate) fn cred(&self, caller: &Caller) -> Cred {
        let anonymous = || Cred { uid: self.anon_uid, gid: self.anon_gid, gids: Vec::new() };
        let (Some(c), Squash::Root | Squash::None) = (caller, self.squash) else { return anonymous() };
        let squashes_root = self.squash == Squash::Root;
        if squashes_root && c.uid == 0 {
            return anonymous();
        }
        // The largest number is nobody's (the kernel keeps it for "no change").
        let uid = if c.uid == u32::MAX { self.anon_uid } else { c.uid };
        let group = |gid: u32| if gid == u32::MAX || squashes_root && gid == 0 { self.anon_gid } else { gid };
        Cred { uid, gid: group(c.gid), gids: c.gids.iter().copied().map(group).collect() }
    }
}

/// Some clients, from the most particular to the most general: where several fit a client, the
/// least in this order counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Clients {
    /// The one at this address.
    Host(IpAddr),
    /// Those in this range of addresses.
    Network(Network),
    /// All.
    Everybody,
}

impl Clients {
    /// Whether the client at `ip` is one of them.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match self {
            Clients::Host(host) => host.to_canonical() == ip.to_canonical(),
            Clients::Network(network) => network.contains(ip),
            Clients::Everybody => true,
        }
    }

    /// How general they are: a client's first rule of the least class counts.
    fn class(&self) -> u8 {
        match self {
            Clients::Host(_) => 0,
            Clients::Network(_) => 1,
            Clients::Everybody => 2,
        }
    }
}

impl FromStr for Clients {
    type Err = String;

    /// `*`, an address, or a network as [`Network`] has it.
    fn from_str(s: &str) -> Result<Clients, String> {
        match s.parse::<IpAddr>() {
            _ if s == "*" => Ok(Clients::Everybody),
            Ok(ip) => Ok(Clients::Host(ip.to_canonical())),
            Err(_) => s.parse().map(Clients::Network),
        }
    }
}

impl From<Network> for Clients {
    fn from(network: Network) -> Clients {
        Clients::Network(network)
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clients::Host(ip) => fmt::Display::fmt(ip, f),
            Clients::Network(network) => fmt::Display::fmt(network, f),
            Clients::Everybody => f.write_str("*"),
        }
    }
}

/// Some clients and their terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Whom it is for.
    pub clients: Clients,
    /// Their terms.
    pub terms: Terms,
}

/// The rules of an export, with at least one. Of those that fit a client one decides, as
/// exports(5) has it: an address comes before a network, a network before everybody, and among
/// networks the one that was given first, however large it is. Who fits none may not use the
/// export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access(Vec<Rule>);

/// Why rules make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// There are none.
    #[error("it has no clients, so nobody could use it")]
    Nobody,
    /// The same clients have two.
    #[error("'{0}' is among its clients twice")]
    Twice(Clients),
}

impl Access {
    /// Access by these rules.
    pub fn new(mut rules: Vec<Rule>) -> Result<Access, AccessError> {
        if rules.is_empty() {
            return Err(AccessError::Nobody);
        }
        let mut all: Vec<Clients> = rules.iter().map(|r| r.clients).collect();
        all.sort_unstable();
        if let Some((twice, _)) = all.iter().zip(all.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(AccessError::Twice(*twice));
        }
        // Stable: within a class the order stays.
        rules.sort_by_key(|r| r.clients.class());
        Ok(Access(rules))
    }

    /// All of `clients`, on the same terms.
    pub fn of(clients: impl IntoIterator<Item = Clients>, terms: Terms) -> Result<Access, AccessError> {
        Access::new(clients.into_iter().map(|clients| Rule { clients, terms }).collect())
    }

    /// Everybody, on these terms.
    pub fn everybody(terms: Terms) -> Access {
        Access(vec![Rule { clients: Clients::Everybody, terms }])
    }

    /// The rules, in the order in which they are looked at.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// The terms for requests from `from`; `None` if it may not use the export.
    pub fn terms(&self, from: SocketAddr) -> Option<&Terms> {
        let terms = self.0.iter().find(|r| r.clients.contains(from.ip())).map(|r| &r.terms)?;
        (!terms.secure || from.port() < RESERVED_PORTS).then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(clients: &str, anon_uid: u32) -> Rule {
        Rule { clients: clients.parse().unwrap(), terms: Terms { anon_uid, ..Terms::default() } }
    }

    #[test]
    fn the_rule_that_decides_is_the_one_of_exports_5() {
        let rules = [("*", 0), ("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.3", 3), ("fd00::/8", 4)];
        let access = Access::new(rules.map(|(c, n)| rule(c, n)).to_vec()).unwrap();
        for (ip, want) in [
            ("10.1.2.3", 3),
            ("::ffff:10.1.2.3", 3),
            ("10.1.2.4", 1), // the network given first, not the narrowest
            ("10.9.9.9", 1),
            ("fd12::1", 4),
            ("192.0.2.1", 0),
        ] {
            let terms = access.terms(SocketAddr::new(ip.parse().unwrap(), 5000));
            assert_eq!(terms.map(|t| t.anon_uid), Some(want), "{ip}");
        }
        let private = Access::new(vec![rule("10.1.2.3", 1)]).unwrap();
        assert_eq!(private.terms("10.1.2.4:5000".parse().unwrap()), None);
    }

    #[test]
    fn who_is_anonymous() {
        let caller = |uid, gid, gids: &[u32]| Some(Cred { uid, gid, gids: gids.to_vec() });
        let none = Cred { uid: 7, gid: 8, gids: vec![] };
        for (squash, caller, want) in [
            (Squash::Root, caller(0, 0, &[0]), none.clone()),
            (Squash::Root, caller(1, 0, &[0, 2]), Cred { uid: 1, gid: 8, gids: vec![8, 2] }),
            (Squash::None, caller(0, 0, &[0]), Cred { uid: 0, gid: 0, gids: vec![0] }),
            (Squash::All, caller(1, 1, &[1]), none.clone()),
            (Squash::None, None, none.clone()),
            (Squash::None, caller(u32::MAX, 1, &[u32::MAX]), Cred { uid: 7, gid: 1, gids: vec![8] }),
            (Squash::Root, caller(1, u32::MAX, &[]), Cred { uid: 1, gid: 8, gids: vec![] }),
        ] {
            let terms = Terms { squash, anon_uid: 7, anon_gid: 8, ..Terms::default() };
            assert_eq!(terms.cred(&caller), want, "{squash:?} {caller:?}");
        }
    }

    #[test]
    fn a_secure_rule_does_not_leave_its_client_to_the_next_one() {
        let secure = |clients: &str| {
            let terms = Terms { secure: true, ..Terms::default() };
            Rule { clients: clients.parse().unwrap(), terms }
        };
        let access = Access::new(vec![secure("10.0.0.0/8"), rule("*", 1)]).unwrap();
        for (from, allowed) in
            [("10.0.0.1:1023", true), ("10.0.0.1:1024", false), ("10.0.0.1:0", true), ("11.0.0.1:1024", true)]
        {
            assert_eq!(access.terms(from.parse().unwrap()).is_some(), allowed, "{from}");
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        assert_eq!(Access::new(vec![]), Err(AccessError::Nobody));
        let twice = |a, b| Access::new(vec![rule(a, 0), rule("*", 0), rule(b, 1)]).map_err(|e| e.to_string()).err();
        let message = |c: &str| Some(format!("'{c}' is among its clients twice"));
        assert_eq!(twice("10.0.0.1", "::ffff:10.0.0.1"), message("10.0.0.1"));
        assert_eq!(twice("10.1.0.0/8", "10.0.0.0/255.0.0.0"), message("10.0.0.0/8"));
        assert_eq!(twice("192.0.2.1", "*"), message("*"));
        assert_eq!(twice("10.0.0.0/8", "10.0.0.0/16"), None);
    }

    #[test]
    fn clients_are_read_as_they_are_shown() {
        for text in ["*", "10.0.0.1", "10.0.0.0/8", "10.0.0.1/32", "fd00::1", "fd00::/8"] {
            assert_eq!(text.parse::<Clients>().unwrap().to_string(), text);
        }
        for bad in ["", "**", "nas", "@trusted"] {
            assert!(bad.parse::<Clients>().is_err(), "{bad}");
        }
    }

    #[test]
    fn squashing_takes_away_what_it_should_and_no_more() {
        let cred = |uid, gid, gids: &[u32]| Cred { uid, gid, gids: gids.to_vec() };
        let (root, user, nobody) = (cred(0, 0, &[0, 4]), cred(7, 0, &[4, 0]), cred(1, 2, &[]));
        for (squash, caller, want) in [
            (Squash::Root, Some(root.clone()), nobody.clone()),
            (Squash::Root, Some(user.clone()), cred(7, 2, &[4, 2])),
            (Squash::All, Some(user.clone()), nobody.clone()),
            (Squash::None, Some(root.clone()), root.clone()),
            (Squash::None, Some(user.clone()), user.clone()),
            (Squash::None, None, nobody.clone()),
            (Squash::Root, None, nobody.clone()),
        ] {
            let terms = Terms { squash, anon_uid: 1, anon_gid: 2, ..Terms::default() };
            assert_eq!(terms.cred(&caller), want, "{squash:?} {caller:?}");
        }
    }
}
