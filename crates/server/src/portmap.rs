//! A portmapper (RFC 1833, section 3) that knows one server: ours.
//!
//! It tells where that is and lets nobody else in: SET and UNSET are refused to everybody.
//! CALLIT, by which a portmapper sends what it is asked to on behalf of others, is not there.
//! Nor is DUMP by datagram, but to this machine: its answer is several times as long as the
//! question, and whose address stands on a datagram anybody can choose. MOUNT's lists are told by
//! the same rule.

use remora_base::{Path, Peer};
use remora_wire::portmap::{Call, Mapping, Reply};

/// The programs and their ports.
#[derive(Debug)]
pub(crate) struct Portmap(Vec<Mapping>);

impl Portmap {
    /// A portmapper that knows of these.
    pub(crate) fn new(list: Vec<Mapping>) -> Portmap {
        Portmap(list)
    }

    /// The answer to `call`; `None` if the caller may not ask that.
    pub(crate) fn answer(&self, from: Peer, call: Call) -> Option<Reply> {
        Some(match call {
            Call::Null => Reply::Void,
            Call::Set(_) | Call::Unset(_) => Reply::Done(false),
            Call::GetPort(wanted) => Reply::Port(self.port(wanted)),
            Call::Dump if may_be_forged(from) => return None,
            Call::Dump => Reply::Dump(self.0.clone()),
        })
    }

    /// Zero says that there is no such program. Of a version that is not there another's port is told, as
    /// rpcbind does: the program itself says which versions it has, and rpcinfo(8) asks it that way.
    fn port(&self, wanted: Mapping) -> u32 {
        let of_program = || self.0.iter().filter(|m| (m.prog, m.prot) == (wanted.prog, wanted.prot));
        of_program().find(|m| m.vers == wanted.vers).or_else(|| of_program().next_back()).map_or(0, |m| m.port)
    }
}

/// Whether anybody could have put that address on a message: on a datagram from elsewhere. What is
/// much longer than its question would flood whose address it is.
pub(crate) fn may_be_forged(from: Peer) -> bool {
    from.path == Path::Datagram && !from.addr.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::portmap::{IPPROTO_TCP, IPPROTO_UDP};

    #[test]
    fn it_tells_what_it_knows_and_takes_nothing_in() {
        let nfs = Mapping { prog: 100_003, vers: 3, prot: IPPROTO_TCP, port: 2049 };
        let nfs2 = Mapping { vers: 2, port: 2050, ..nfs };
        let portmap = Portmap::new(vec![nfs2, nfs]);
        let [far, near, mapped] = ["192.0.2.1:1", "127.0.0.1:1", "[::ffff:127.0.0.1]:1"].map(|a| a.parse().unwrap());
        let (udp, tcp) = (Peer::datagram(far), Peer::stream(far, 1));
        let all = Some(Reply::Dump(vec![nfs2, nfs]));
        for (from, call, want) in [
            (udp, Call::Null, Some(Reply::Void)),
            (udp, Call::GetPort(Mapping { port: 0, ..nfs }), Some(Reply::Port(2049))),
            (udp, Call::GetPort(Mapping { vers: 2, ..nfs }), Some(Reply::Port(2050))),
            (udp, Call::GetPort(Mapping { vers: 4, ..nfs }), Some(Reply::Port(2049))),
            (udp, Call::GetPort(Mapping { prot: IPPROTO_UDP, ..nfs }), Some(Reply::Port(0))),
            (udp, Call::GetPort(Mapping { prog: 1, ..nfs }), Some(Reply::Port(0))),
            (Peer::datagram(near), Call::Set(Mapping { prog: 1, ..nfs }), Some(Reply::Done(false))),
            (Peer::datagram(near), Call::Unset(nfs), Some(Reply::Done(false))),
            (udp, Call::Dump, None),
            (tcp, Call::Dump, all.clone()),
            (Peer::datagram(near), Call::Dump, all.clone()),
            (Peer::datagram(mapped), Call::Dump, all),
        ] {
            assert_eq!(portmap.answer(from, call), want, "{from:?} {call:?}");
        }
    }
}
