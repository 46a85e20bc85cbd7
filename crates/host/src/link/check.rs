//! Rejects settings that cannot work. Otherwise the link would start and carry nothing, or only half of the traffic.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use remora_base::key_text::KEY_LEN;

use super::error::LinkError;
use super::routing_table::around;
use super::settings::{LinkRole, LinkSettings, MobileSettings};
use super::tunnel::LinkPublicKey;

/// Both ends forget each other after 11 min of silence, and keepalives can be lost.
const KEEPALIVE_MAX: Duration = Duration::from_secs(60);

/// Addresses that neither an end nor a host behind a tunnel can have.
const UNUSABLE: [(&str, &str); 10] = [
    ("0.0.0.0/32", "unspecified"),
    ("::/128", "unspecified"),
    ("127.0.0.0/8", "loopback"),
    ("::1/128", "loopback"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("169.254.0.0/16", "link-local"),
    ("fe80::/10", "link-local"),
    ("::ffff:0:0/96", "IPv4-mapped"),
];

/// Checks the settings; the error names the fault and the remedy.
pub(super) fn settings(settings: &LinkSettings) -> Result<(), LinkError> {
    let own = &settings.addresses;
    let result = own_addresses(own).and_then(|()| match &settings.role {
        LinkRole::Base { listen, mobiles } => {
            listens(*listen)?;
            mobiles.iter().enumerate().try_for_each(|(i, m)| {
                let earlier = mobiles.get(..i).unwrap_or_default();
                mobile(m, earlier, own, &settings.identity.public)
            })
        }
        LinkRole::Mobile { base, key, routes, keepalive, .. } => {
            calls(*base)?;
            other_key("--base-key", key, &settings.identity.public)?;
            routes.iter().try_for_each(|r| {
                route("--route", *r, own)?;
                let nothing_left = around(*r, base.ip().to_canonical()).is_empty();
                refuse(nothing_left, || {
                    format!("--route {r} is the base's own address, which no tunnel to it can carry")
                })
            })?;
            refuse(*keepalive > KEEPALIVE_MAX, || {
                format!(
                    "--keepalive: {keepalive:?} is too long, as the ends forget each other: at most {KEEPALIVE_MAX:?}"
                )
            })
        }
    });
    result.map_err(LinkError::Settings)
}

fn refuse(is_wrong: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_wrong { Err(why()) } else { Ok(()) }
}

fn own_addresses(own: &[IpNet]) -> Result<(), String> {
    own.iter().enumerate().try_for_each(|(i, net)| {
        refuse(net.prefix_len() == 0, || {
            format!("--address {net}: the tunnel's network cannot be everything; say its length, as in 10.78.0.1/24")
        })?;
        usable("--address", net.addr())?;
        of_an_end("--address", net.addr(), *net)?;
        let again = own.iter().take(i).any(|other| other.addr() == net.addr());
        refuse(again, || format!("--address {}: it is given twice; leave one out", net.addr()))
    })
}

fn mobile(m: &MobileSettings, earlier: &[MobileSettings], own: &[IpNet], base: &LinkPublicKey) -> Result<(), String> {
    let what = format!("mobile {}", m.name);
    refuse(earlier.iter().any(|other| other.name == m.name), || {
        format!("two mobiles are called {}: give each a name of its own", m.name)
    })?;
    other_key(&what, &m.key, base)?;
    usable(&what, m.address)?;
    own.iter().try_for_each(|net| of_an_end(&what, m.address, *net))?;
    m.routes.iter().try_for_each(|r| route(&what, *r, own))
}

fn other_key(what: &str, key: &LinkPublicKey, own: &LinkPublicKey) -> Result<(), String> {
    refuse(key == own, || {
        format!("{what}: {key} is this end's own key; give the other's, as remora link keys prints it there")
    })?;
    refuse(key.0 == [0; KEY_LEN], || format!("{what}: {key} is nobody's key; remora link keys prints it there"))
}

fn listens(at: SocketAddr) -> Result<(), String> {
    let nobodys = is_for_many(at.ip());
    refuse(nobodys, || format!("--listen {at}: mobiles call one base; give an address of its own, or 0.0.0.0"))
}

fn calls(base: SocketAddr) -> Result<(), String> {
    let nobodys = base.ip().to_canonical().is_unspecified() || is_for_many(base.ip());
    refuse(nobodys, || format!("--base {base}: a base is at one address; give that of its machine"))?;
    refuse(base.port() == 0, || format!("--base {base}: nobody listens on port 0; the base prints its own (51900)"))
}

fn is_for_many(addr: IpAddr) -> bool {
    let addr = addr.to_canonical();
    addr.is_multicast() || matches!(addr, IpAddr::V4(v4) if v4.is_broadcast())
}

fn route(what: &str, net: IpNet, own: &[IpNet]) -> Result<(), String> {
    refuse_unusable(what, net, &net)?;
    let is_own = net.prefix_len() == net.max_prefix_len() && own.iter().any(|o| o.addr() == net.addr());
    refuse(is_own, || format!("{what}: {net} is this end's own address; name networks behind the other end"))
}

fn usable(what: &str, addr: IpAddr) -> Result<(), String> {
    refuse_unusable(what, addr.into(), &addr)
}

fn refuse_unusable(what: &str, net: IpNet, shown: &dyn std::fmt::Display) -> Result<(), String> {
    let holds = |all: &str| all.parse::<IpNet>().is_ok_and(|all| all.contains(&net));
    match UNUSABLE.iter().find(|(all, _)| holds(all)) {
        Some((_, kind)) => {
            Err(format!("{what}: {shown} is {kind}, which no tunnel carries; give one as 10.78.0.1 or fd78::1"))
        }
        None => Ok(()),
    }
}

/// Checks that `addr` is a host address of `net`. In a network of more than two addresses the first is the network's,
/// and IPv4's last is for broadcast.
fn of_an_end(what: &str, addr: IpAddr, net: IpNet) -> Result<(), String> {
    if net.max_prefix_len() - net.prefix_len() < 2 {
        return Ok(());
    }
    let why = match net {
        _ if addr == net.network() => "a network's address",
        IpNet::V4(v4) if addr == v4.broadcast() => "its network's broadcast address",
        _ => return Ok(()),
    };
    Err(format!("{what}: {addr} is {why}: one of an end is needed, as in 10.78.0.1/24"))
}

#[cfg(test)]
mod tests {
    use super::super::settings::LinkTuning;
    use super::super::tunnel::LinkIdentity;
    use super::*;

    /// A change of valid settings, and the words expected in the error; none if the settings stay valid.
    type Case<'a> = (&'a dyn Fn(&mut LinkSettings), &'a [&'a str]);

    fn of(role: LinkRole, address: &str) -> LinkSettings {
        LinkSettings {
            identity: LinkIdentity::generate().unwrap(),
            role,
            device: "rlink0".into(),
            addresses: vec![address.parse().unwrap()],
            outer_mtu: 1500,
            forward: false,
            tuning: LinkTuning::default(),
        }
    }

    fn a_mobile(name: &str, address: &str) -> MobileSettings {
        let key = LinkIdentity::generate().unwrap().public;
        MobileSettings { name: name.into(), key, secret: None, address: address.parse().unwrap(), routes: Vec::new() }
    }

    fn base() -> LinkSettings {
        let mobiles = vec![a_mobile("robot", "10.78.0.2"), a_mobile("cart", "10.78.0.3")];
        of(LinkRole::Base { listen: "0.0.0.0:51900".parse().unwrap(), mobiles }, "10.78.0.1/24")
    }

    fn mobile() -> LinkSettings {
        let role = LinkRole::Mobile {
            base: "192.0.2.1:51900".parse().unwrap(),
            key: LinkIdentity::generate().unwrap().public,
            secret: None,
            routes: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            keepalive: Duration::from_secs(5),
        };
        of(role, "10.78.0.2/24")
    }

    fn check(right: fn() -> LinkSettings, cases: &[Case<'_>]) {
        for (i, (change, words)) in cases.iter().enumerate() {
            let mut changed = right();
            change(&mut changed);
            match settings(&changed) {
                Ok(()) => assert!(words.is_empty(), "case {i} is taken: {words:?}"),
                Err(LinkError::Settings(why)) => {
                    assert!(!words.is_empty() && words.iter().all(|w| why.contains(w)), "case {i}: {why}");
                }
                Err(other) => panic!("case {i}: {other}"),
            }
        }
    }

    #[test]
    fn unusable_addresses_are_refused() {
        for (address, words) in [
            ("10.78.0.1/24", &[][..]),
            ("10.78.0.0/31", &[]),
            ("10.78.0.255/32", &[]),
            ("fd78::1/64", &[]),
            ("10.78.0.1/0", &["--address 10.78.0.1/0", "length"]),
            ("fd78::1/0", &["--address fd78::1/0", "length"]),
            ("0.0.0.0/32", &["--address: 0.0.0.0 is unspecified"]),
            ("::/64", &["--address: :: is unspecified"]),
            ("127.0.0.2/24", &["loopback"]),
            ("::1/64", &["loopback"]),
            ("239.1.2.3/24", &["multicast"]),
            ("ff02::7/64", &["multicast"]),
            ("255.255.255.255/32", &["broadcast"]),
            ("169.254.1.1/16", &["link-local"]),
            ("fe80::7/64", &["link-local"]),
            ("::ffff:10.78.0.1/120", &["IPv4-mapped"]),
            ("10.78.0.0/24", &["--address: 10.78.0.0", "a network's address"]),
            ("10.78.0.255/24", &["--address: 10.78.0.255", "broadcast"]),
            ("fd78::/64", &["a network's address"]),
        ] {
            for end in [base, mobile] {
                let set = |s: &mut LinkSettings| {
                    s.addresses = vec![address.parse().unwrap()];
                    if let LinkRole::Base { mobiles, .. } = &mut s.role {
                        mobiles.clear();
                    }
                };
                check(end, &[(&set, words)]);
            }
        }
        let twice = |s: &mut LinkSettings| s.addresses.push("10.78.0.2/16".parse().unwrap());
        check(mobile, &[(&twice, &["--address 10.78.0.2", "twice"])]);
    }

    #[test]
    fn impossible_mobile_settings_are_refused() {
        let with = |change: fn(&mut SocketAddr, &mut MobileSettings, &LinkPublicKey)| {
            move |s: &mut LinkSettings| {
                let own = s.identity.public;
                if let LinkRole::Base { listen, mobiles } = &mut s.role {
                    change(listen, &mut mobiles[1], &own);
                }
            }
        };
        check(
            base,
            &[
                (&with(|_, _, _| {}), &[]),
                (&with(|l, _, _| *l = "[::]:0".parse().unwrap()), &[]),
                (&with(|l, _, _| *l = "224.0.0.1:51900".parse().unwrap()), &["--listen 224.0.0.1:51900"]),
                (&with(|_, m, _| m.name = "robot".into()), &["two mobiles are called robot"]),
                (&with(|_, m, own| m.key = *own), &["mobile cart", "own key"]),
                (&with(|_, m, _| m.key = LinkPublicKey([0; KEY_LEN])), &["mobile cart", "nobody's key"]),
                (&with(|_, m, _| m.address = "127.0.0.1".parse().unwrap()), &["mobile cart", "loopback"]),
                (&with(|_, m, _| m.address = "10.78.0.0".parse().unwrap()), &["mobile cart", "a network's"]),
                (&with(|_, m, _| m.address = "10.78.0.255".parse().unwrap()), &["mobile cart", "broadcast"]),
                (&with(|_, m, _| m.address = "10.79.0.255".parse().unwrap()), &[]),
                (&with(|_, m, _| m.routes = vec!["192.168.7.0/24".parse().unwrap()]), &[]),
                (&with(|_, m, _| m.routes = vec!["0.0.0.0/0".parse().unwrap()]), &[]),
                (&with(|_, m, _| m.routes = vec!["239.0.0.0/8".parse().unwrap()]), &["mobile cart", "multicast"]),
                (&with(|_, m, _| m.routes = vec!["fe80::/64".parse().unwrap()]), &["mobile cart", "link-local"]),
                (&with(|_, m, _| m.routes = vec!["10.78.0.1/32".parse().unwrap()]), &["mobile cart", "own address"]),
            ],
        );
    }

    #[test]
    fn impossible_base_settings_are_refused() {
        fn role(s: &mut LinkSettings) -> (&mut SocketAddr, &mut LinkPublicKey, &mut Vec<IpNet>, &mut Duration) {
            match &mut s.role {
                LinkRole::Mobile { base, key, routes, keepalive, .. } => (base, key, routes, keepalive),
                LinkRole::Base { .. } => unreachable!(),
            }
        }
        let at = |text: &'static str| move |s: &mut LinkSettings| *role(s).0 = text.parse().unwrap();
        let route = |text: &'static str| move |s: &mut LinkSettings| *role(s).2 = vec![text.parse().unwrap()];
        let every = |secs| move |s: &mut LinkSettings| *role(s).3 = Duration::from_secs(secs);
        check(
            mobile,
            &[
                (&at("127.0.0.1:51900"), &[]),
                (&at("[fe80::1%2]:51900"), &[]),
                (&at("0.0.0.0:51900"), &["--base 0.0.0.0:51900"]),
                (&at("[::]:51900"), &["--base [::]:51900"]),
                (&at("[::ffff:0.0.0.0]:51900"), &["--base"]),
                (&at("239.0.0.1:51900"), &["--base 239.0.0.1"]),
                (&at("255.255.255.255:51900"), &["--base 255.255.255.255"]),
                (&at("192.0.2.1:0"), &["--base 192.0.2.1:0", "port 0"]),
                (&|s| *role(s).1 = s.identity.public, &["--base-key", "own key"]),
                (&|s| *role(s).1 = LinkPublicKey([0; KEY_LEN]), &["--base-key", "nobody's key"]),
                (&route("192.0.2.1/32"), &["--route 192.0.2.1/32", "base's own address"]),
                (&route("192.0.2.0/31"), &[]),
                (&route("127.0.0.0/8"), &["--route: 127.0.0.0/8 is loopback"]),
                (&route("255.255.255.255/32"), &["--route", "broadcast"]),
                (&route("10.78.0.2/32"), &["--route", "this end's own address"]),
                (&every(60), &[]),
                (&every(61), &["--keepalive", "61s", "60s"]),
            ],
        );
    }
}
