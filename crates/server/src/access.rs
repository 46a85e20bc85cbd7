//! The access rules of exports(5): who may use an export, and with which identity.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use remora_vfs::Cred;

use crate::Network;
use crate::auth::Caller;

/// The anonymous user and group (nobody, nogroup).
pub const ANONYMOUS: u32 = 65534;

/// Ports below this one are reserved for privileged processes (IPPORT_RESERVED).
pub const RESERVED_PORTS: u16 = 1024;

/// Which callers become anonymous.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// User and group 0.
    #[default]
    Root,
    All,
    None,
}

/// The terms on which a client uses an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Refuse every change. Default false.
    pub read_only: bool,
    /// Which callers become anonymous. Default [`Squash::Root`].
    pub squash: Squash,
    /// User ID of anonymous callers. Default [`ANONYMOUS`].
    pub anon_uid: u32,
    /// Group ID of anonymous callers. Default [`ANONYMOUS`].
    pub anon_gid: u32,
    /// Refuse requests from ports of [`RESERVED_PORTS`] and above. Default false.
    pub secure: bool,
    /// Show POSIX ACLs and let owners set them. Default true.
    pub acl: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            read_only: false,
            squash: Squash::default(),
            anon_uid: ANONYMOUS,
            anon_gid: ANONYMOUS,
            secure: false,
            acl: true,
        }
    }
}

impl Terms {
    /// The credential that `caller` acts with.
    pub(crate) fn cred(&self, caller: &Caller) -> Cred {
        let anonymous = || Cred { uid: self.anon_uid, gid: self.anon_gid, gids: Vec::new() };
        let (Some(c), Squash::Root | Squash::None) = (caller, self.squash) else { return anonymous() };
        let squashes_root = self.squash == Squash::Root;
        if squashes_root && c.uid == 0 {
            return anonymous();
        }
        // The largest ID is reserved: in the kernel it means "no change".
        let uid = if c.uid == u32::MAX { self.anon_uid } else { c.uid };
        let group = |gid: u32| if gid == u32::MAX || squashes_root && gid == 0 { self.anon_gid } else { gid };
        Cred { uid, gid: group(c.gid), gids: c.gids.iter().copied().map(group).collect() }
    }
}

/// A set of clients. Ordered from the most specific to the most general.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Clients {
    Host(IpAddr),
    Network(Network),
    Everybody,
}

impl Clients {
    pub fn contains(&self, ip: IpAddr) -> bool {
        match self {
            Clients::Host(host) => host.to_canonical() == ip.to_canonical(),
            Clients::Network(network) => network.contains(ip),
            Clients::Everybody => true,
        }
    }

    /// The rank of this kind of set: the first rule of the lowest rank that matches decides.
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

    /// Parses `*`, an address or a [`Network`].
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

/// A set of clients and their terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    pub clients: Clients,
    pub terms: Terms,
}

/// The rules of an export, at least one. As in exports(5), a rule for an address precedes one for a network, and that
/// one for everybody. Among networks the first in the list decides, whatever its size. A client that no rule matches
/// may not use the export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access(Vec<Rule>);

/// An error in a list of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// The list is empty.
    #[error("it has no clients, so nobody could use it")]
    Nobody,
    /// Two rules have the same clients.
    #[error("'{0}' is among its clients twice")]
    Twice(Clients),
}

impl Access {
    pub fn new(mut rules: Vec<Rule>) -> Result<Access, AccessError> {
        if rules.is_empty() {
            return Err(AccessError::Nobody);
        }
        let mut all: Vec<Clients> = rules.iter().map(|r| r.clients).collect();
        all.sort_unstable();
        if let Some((twice, _)) = all.iter().zip(all.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(AccessError::Twice(*twice));
        }
        // A stable sort: the order within a rank stays.
        rules.sort_by_key(|r| r.clients.class());
        Ok(Access(rules))
    }

    /// Gives all `clients` the same terms.
    pub fn of(clients: impl IntoIterator<Item = Clients>, terms: Terms) -> Result<Access, AccessError> {
        Access::new(clients.into_iter().map(|clients| Rule { clients, terms }).collect())
    }

    /// Gives everybody these terms.
    pub fn everybody(terms: Terms) -> Access {
        Access(vec![Rule { clients: Clients::Everybody, terms }])
    }

    /// The rules in the order in which they are matched.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// The terms for requests from `from`. `None`: no access.
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
    fn deciding_rule_is_that_of_exports_5() {
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
    fn anonymous_user_depends_on_squashing() {
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
    fn secure_rule_does_not_fall_through() {
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
    fn invalid_rules_are_refused() {
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
    fn squashing_removes_exactly_its_identities() {
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
