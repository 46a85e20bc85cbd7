//! A portmapper (RFC 1833: version 2 in section 3, versions 3 and 4 in section 2) that knows only this server.
//!
//! SET, UNSET and CALLIT are refused. So is DUMP by datagram, except on this machine: its reply is several times as
//! long as the call, whose source address may be forged. MOUNT's lists follow the same rule.

use bytes::Bytes;
use remora_base::{Path, Peer};
use remora_wire::portmap::{self, Mapping};
use remora_wire::rpcbind::{self, Binding, Netid, Service, from_universal, universal};

/// The owner of the programs, as rpcbind names root.
const OWNER: &str = "superuser";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    V2(portmap::Call),
    /// Of versions 3 and 4.
    Later(rpcbind::Call),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    V2(portmap::Reply),
    Later(rpcbind::Reply),
}

impl Reply {
    /// Encodes the results.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::V2(reply) => reply.encode(out),
            Reply::Later(reply) => reply.encode(out),
        }
    }
}

/// The registered services.
#[derive(Debug)]
pub(crate) struct Portmap(Vec<Service>);

impl Portmap {
    pub(crate) fn new(list: Vec<Service>) -> Portmap {
        Portmap(list)
    }

    /// The reply to `call`. `None`: the caller may not make it.
    pub(crate) fn answer(&self, from: Peer, call: Call) -> Option<Reply> {
        match call {
            Call::V2(portmap::Call::Dump) | Call::Later(rpcbind::Call::Dump) if may_be_forged(from) => None,
            Call::V2(call) => Some(Reply::V2(self.answer_v2(call))),
            Call::Later(call) => Some(Reply::Later(self.answer_later(transport(from), call))),
        }
    }

    fn answer_v2(&self, call: portmap::Call) -> portmap::Reply {
        use portmap::{Call, Reply};
        match call {
            Call::Null => Reply::Void,
            Call::Set(_) | Call::Unset(_) => Reply::Done(false),
            Call::GetPort(wanted) => Reply::Port(self.port(wanted)),
            Call::Dump => Reply::Dump(self.0.iter().filter_map(Service::mapping).collect()),
        }
    }

    fn answer_later(&self, by: Netid, call: rpcbind::Call) -> rpcbind::Reply {
        use rpcbind::{Call, Reply};
        match call {
            Call::Set(_) | Call::Unset(_) => Reply::Done(false),
            Call::GetAddr(wanted) => Reply::Addr(self.addr(by, &wanted, false)),
            Call::GetVersAddr(wanted) => Reply::Addr(self.addr(by, &wanted, true)),
            Call::Dump => Reply::Dump(self.0.iter().map(|service| service.binding(OWNER)).collect()),
        }
    }

    /// The port, or 0 if there is no such program.
    fn port(&self, wanted: Mapping) -> u32 {
        let is_over = |service: &Service| service.mapping().is_some_and(|m| m.prot == wanted.prot);
        self.find(wanted.prog, wanted.vers, is_over).map_or(0, |service| service.at.port().into())
    }

    /// The universal address for the transport of the call, `by`, whatever the call's netid (RFC 1833, section
    /// 2.2.1). Empty if there is no such program, or, with `exact`, no such version.
    fn addr(&self, by: Netid, wanted: &Binding, exact: bool) -> Bytes {
        let found = self.find(wanted.prog, wanted.vers, |service| service.netid == by);
        let found = found.filter(|service| !exact || service.vers == wanted.vers);
        found.map_or_else(Bytes::new, |service| seen(service, &wanted.addr))
    }

    /// Finds a service. An unknown version finds another one, as with rpcbind: the program itself reports its
    /// versions, and rpcinfo(8) relies on that.
    fn find(&self, prog: u32, vers: u32, is_over: impl Fn(&Service) -> bool) -> Option<&Service> {
        let of_program = || self.0.iter().filter(|service| service.prog == prog && is_over(service));
        of_program().find(|service| service.vers == vers).or_else(|| of_program().next_back())
    }
}

/// The transport of `from`.
fn transport(from: Peer) -> Netid {
    match (from.path, from.addr.ip().to_canonical().is_ipv4()) {
        (Path::Datagram, true) => Netid::Udp,
        (Path::Datagram, false) => Netid::Udp6,
        (Path::Stream(_), true) => Netid::Tcp,
        (Path::Stream(_), false) => Netid::Tcp6,
    }
}

/// The address at which the client reaches the service. A wildcard address is replaced by the one at which the client
/// `asked`.
fn seen(service: &Service, asked: &[u8]) -> Bytes {
    let mut at = service.at;
    let asked = from_universal(asked).map(|asked| asked.ip());
    if let Some(ip) = asked.filter(|ip| at.ip().is_unspecified() && ip.is_ipv4() == at.is_ipv4()) {
        at.set_ip(ip);
    }
    universal(at)
}

/// Whether the source address may be forged: that of a datagram from another machine. A reply much longer than the
/// call would flood the owner of the address.
pub(crate) fn may_be_forged(from: Peer) -> bool {
    from.path == Path::Datagram && !from.addr.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::portmap::{IPPROTO_TCP, IPPROTO_UDP};

    fn tcp(vers: u32, netid: Netid, at: &str) -> Service {
        Service { prog: 100_003, vers, netid, at: at.parse().unwrap() }
    }

    #[test]
    fn portmapper_answers_and_accepts_no_changes() {
        use portmap::{Call::*, Reply};
        let nfs = Mapping { prog: 100_003, vers: 3, prot: IPPROTO_TCP, port: 2049 };
        let nfs2 = Mapping { vers: 2, port: 2050, ..nfs };
        let portmap = Portmap::new(vec![
            tcp(2, Netid::Tcp, "0.0.0.0:2050"),
            tcp(3, Netid::Tcp, "0.0.0.0:2049"),
            tcp(3, Netid::Tcp6, "[::]:2051"),
        ]);
        let [far, near, mapped] = ["192.0.2.1:1", "127.0.0.1:1", "[::ffff:127.0.0.1]:1"].map(|a| a.parse().unwrap());
        let (udp, tcp) = (Peer::datagram(far), Peer::stream(far, 1));
        let all = Some(Reply::Dump(vec![nfs2, nfs]));
        for (from, call, want) in [
            (udp, Null, Some(Reply::Void)),
            (udp, GetPort(Mapping { port: 0, ..nfs }), Some(Reply::Port(2049))),
            (udp, GetPort(Mapping { vers: 2, ..nfs }), Some(Reply::Port(2050))),
            (udp, GetPort(Mapping { vers: 4, ..nfs }), Some(Reply::Port(2049))),
            (udp, GetPort(Mapping { prot: IPPROTO_UDP, ..nfs }), Some(Reply::Port(0))),
            (udp, GetPort(Mapping { prog: 1, ..nfs }), Some(Reply::Port(0))),
            (Peer::datagram(near), Set(Mapping { prog: 1, ..nfs }), Some(Reply::Done(false))),
            (Peer::datagram(near), Unset(nfs), Some(Reply::Done(false))),
            (udp, Dump, None),
            (tcp, Dump, all.clone()),
            (Peer::datagram(near), Dump, all.clone()),
            (Peer::datagram(mapped), Dump, all),
        ] {
            assert_eq!(portmap.answer(from, Call::V2(call)), want.map(super::Reply::V2), "{from:?} {call:?}");
        }
    }

    #[test]
    fn address_matches_requested_transport_and_version() {
        use rpcbind::Call::*;
        let services = [
            tcp(3, Netid::Tcp, "0.0.0.0:2049"),
            tcp(2, Netid::Tcp6, "[::]:2050"),
            tcp(3, Netid::Tcp6, "[::]:2049"),
            tcp(3, Netid::Udp6, "[2001:db8::1]:2049"),
        ];
        let portmap = Portmap::new(services.to_vec());
        let wanted = |vers, asked: &'static str| Binding {
            prog: 100_003,
            vers,
            // Ignored.
            netid: Bytes::from_static(b"ticots"),
            addr: Bytes::from_static(asked.as_bytes()),
            owner: Bytes::new(),
        };
        let [far, far4, mapped] =
            ["[2001:db8::9]:1", "192.0.2.9:1", "[::ffff:192.0.2.9]:1"].map(|a| a.parse().unwrap());
        let (udp6, tcp6) = (Peer::datagram(far), Peer::stream(far, 1));
        for (from, call, want) in [
            // With an address in the call the service is at that address, otherwise at any.
            (tcp6, GetAddr(wanted(3, "2001:db8::2.0.111")), "2001:db8::2.8.1"),
            (Peer::stream(far4, 1), GetAddr(wanted(3, "192.0.2.2.0.111")), "192.0.2.2.8.1"),
            (Peer::stream(mapped, 1), GetAddr(wanted(3, "192.0.2.2.0.111")), "192.0.2.2.8.1"),
            (tcp6, GetAddr(wanted(3, "")), "::.8.1"),
            (tcp6, GetAddr(wanted(3, "192.0.2.2.0.111")), "::.8.1"),
            // A service on one address is there only.
            (udp6, GetAddr(wanted(3, "2001:db8::2.0.111")), "2001:db8::1.8.1"),
            (tcp6, GetAddr(wanted(2, "")), "::.8.2"),
            (tcp6, GetAddr(wanted(4, "")), "::.8.1"),
            (tcp6, GetVersAddr(wanted(2, "")), "::.8.2"),
            (tcp6, GetVersAddr(wanted(4, "")), ""),
            (Peer::datagram(far4), GetAddr(wanted(3, "")), ""),
            (tcp6, GetAddr(Binding { prog: 1, ..wanted(3, "") }), ""),
        ] {
            let want = Reply::Later(rpcbind::Reply::Addr(Bytes::from_static(want.as_bytes())));
            assert_eq!(portmap.answer(from, Call::Later(call.clone())), Some(want), "{from:?} {call:?}");
        }
        let mine = wanted(3, "::.8.1");
        for call in [Set(mine.clone()), Unset(mine)] {
            let refused = Some(Reply::Later(rpcbind::Reply::Done(false)));
            assert_eq!(portmap.answer(udp6, Call::Later(call)), refused);
        }
        assert_eq!(portmap.answer(udp6, Call::Later(Dump)), None);
        let all = services.iter().map(|s| s.binding("superuser")).collect();
        let all = Some(Reply::Later(rpcbind::Reply::Dump(all)));
        assert_eq!(portmap.answer(tcp6, Call::Later(Dump)), all);
    }
}
