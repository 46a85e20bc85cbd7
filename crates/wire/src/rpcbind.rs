//! RPCBIND, versions 3 and 4: the addresses of RPC programs, over IPv4 and IPv6 (RFC 1833, section
//! 2).
//!
//! It is the portmapper's program with names for transports and text for addresses; its version 2
//! is [`portmap`](crate::portmap).

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::portmap::{IPPROTO_TCP, IPPROTO_UDP, Mapping};
use crate::xdr::{get_list, put_list};
use crate::{Error, Reader, Xdr};

/// Lowest version supported here.
pub const VERSION_3: u32 = 3;
/// Highest version, which can also look up an exact program version.
pub const VERSION_4: u32 = 4;

pub const PROC_SET: u32 = 1;
pub const PROC_UNSET: u32 = 2;
pub const PROC_GETADDR: u32 = 3;
pub const PROC_DUMP: u32 = 4;
/// RPCBPROC_GETVERSADDR, of version 4.
pub const PROC_GETVERSADDR: u32 = 9;

/// Network identifier of a transport (RFC 5665, section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Netid {
    /// UDP over IPv4.
    Udp,
    /// TCP over IPv4.
    Tcp,
    /// UDP over IPv6.
    Udp6,
    /// TCP over IPv6.
    Tcp6,
}

impl Netid {
    const ALL: [Netid; 4] = [Netid::Udp, Netid::Tcp, Netid::Udp6, Netid::Tcp6];

    /// Name of the transport.
    pub fn name(self) -> &'static str {
        match self {
            Netid::Udp => "udp",
            Netid::Tcp => "tcp",
            Netid::Udp6 => "udp6",
            Netid::Tcp6 => "tcp6",
        }
    }

    /// Transport of this name.
    pub fn from_name(name: &[u8]) -> Option<Netid> {
        Netid::ALL.into_iter().find(|id| id.name().as_bytes() == name)
    }

    /// IP protocol number.
    pub fn protocol(self) -> u32 {
        match self {
            Netid::Udp | Netid::Udp6 => IPPROTO_UDP,
            Netid::Tcp | Netid::Tcp6 => IPPROTO_TCP,
        }
    }

    /// Whether it is over IPv4.
    pub fn is_ipv4(self) -> bool {
        matches!(self, Netid::Udp | Netid::Tcp)
    }
}

/// A registration: a program version and its address over a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    pub prog: u32,
    pub vers: u32,
    pub netid: Netid,
    /// Address, of the transport's family; unspecified for all local addresses.
    pub at: SocketAddr,
}

impl Service {
    /// The registration in version 2, which supports IPv4 only.
    pub fn mapping(&self) -> Option<Mapping> {
        let Service { prog, vers, netid, at } = *self;
        netid.is_ipv4().then(|| Mapping { prog, vers, prot: netid.protocol(), port: at.port().into() })
    }

    /// The registration on the wire, with its owner.
    pub fn binding(&self, owner: &'static str) -> Binding {
        let owner = Bytes::from_static(owner.as_bytes());
        Binding {
            prog: self.prog,
            vers: self.vers,
            netid: Bytes::from_static(self.netid.name().as_bytes()),
            addr: universal(self.at),
            owner,
        }
    }
}

xdr_struct! {
    /// A registration on the wire. In a query the address is the one at which the portmapper was
    /// reached.
    pub struct Binding {
        pub prog: u32,
        pub vers: u32,
        /// Name of the transport: of a [`Netid`], or an unknown one.
        pub netid: Bytes,
        /// Universal address: see [`universal`].
        pub addr: Bytes,
        /// Owner of the registration.
        pub owner: Bytes,
    }
}

/// Universal address: the address as text, followed by the two bytes of the port (RFC 5665, section
/// 5.2.3). `127.0.0.1.8.1` is port 2049.
pub fn universal(at: SocketAddr) -> Bytes {
    let [high, low] = at.port().to_be_bytes();
    format!("{}.{high}.{low}", at.ip()).into()
}

/// Parses a universal address.
pub fn from_universal(text: &[u8]) -> Option<SocketAddr> {
    let mut parts = std::str::from_utf8(text).ok()?.rsplitn(3, '.');
    let mut byte = || parts.next()?.parse::<u8>().ok();
    let (low, high) = (byte()?, byte()?);
    let ip: IpAddr = parts.next()?.parse().ok()?;
    Some(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
}

/// A call. It lacks the procedures by which the portmapper would call others (CALLIT, BCAST,
/// INDIRECT), and those that NFS clients do not use: time, address conversion, statistics. NULL has
/// no arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Set(Binding),
    /// Unregisters this version of a program, over one transport or all.
    Unset(Binding),
    /// Looks up a program, in this version or another.
    GetAddr(Binding),
    /// Looks up this exact version. Not in version 3.
    GetVersAddr(Binding),
    /// Lists all registrations.
    Dump,
}

impl Call {
    pub fn proc(&self) -> u32 {
        match self {
            Call::Set(_) => PROC_SET,
            Call::Unset(_) => PROC_UNSET,
            Call::GetAddr(_) => PROC_GETADDR,
            Call::GetVersAddr(_) => PROC_GETVERSADDR,
            Call::Dump => PROC_DUMP,
        }
    }

    /// Appends the arguments.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Call::Set(b) | Call::Unset(b) | Call::GetAddr(b) | Call::GetVersAddr(b) => b.encode(out),
            Call::Dump => {}
        }
    }

    /// Decodes the arguments of procedure `proc` of version `vers`; `None` if the procedure does
    /// not exist.
    pub fn decode(vers: u32, proc: u32, r: &mut Reader) -> Option<Result<Call, Error>> {
        let mut binding = |call: fn(Binding) -> Call| Binding::decode(r).map(call);
        Some(match proc {
            PROC_SET => binding(Call::Set),
            PROC_UNSET => binding(Call::Unset),
            PROC_GETADDR => binding(Call::GetAddr),
            PROC_DUMP => Ok(Call::Dump),
            PROC_GETVERSADDR if vers != VERSION_3 => binding(Call::GetVersAddr),
            _ => return None,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Reply to [`Call::Set`] and [`Call::Unset`]: whether it succeeded.
    Done(bool),
    /// Reply to [`Call::GetAddr`] and [`Call::GetVersAddr`]: the universal address, empty for none.
    Addr(Bytes),
    /// Reply to [`Call::Dump`].
    Dump(Vec<Binding>),
}

impl Reply {
    /// Appends the results.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Done(done) => done.encode(out),
            Reply::Addr(addr) => addr.encode(out),
            Reply::Dump(list) => put_list(out, list, Binding::encode),
        }
    }

    /// Decodes the results of procedure `proc`.
    pub fn decode(proc: u32, r: &mut Reader) -> Result<Reply, Error> {
        Ok(match proc {
            PROC_SET | PROC_UNSET => Reply::Done(bool::decode(r)?),
            PROC_GETADDR | PROC_GETVERSADDR => Reply::Addr(Bytes::decode(r)?),
            PROC_DUMP => Reply::Dump(get_list(r, Binding::decode)?),
            value => return Err(Error::BadDiscriminant { what: "procedure of rpcbind", value }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_address_ends_with_its_port() {
        for (at, text) in [
            ("127.0.0.1:2049", "127.0.0.1.8.1"),
            ("0.0.0.0:111", "0.0.0.0.0.111"),
            ("[::]:65535", "::.255.255"),
            ("[2001:db8::1]:2049", "2001:db8::1.8.1"),
            ("[::ffff:192.0.2.1]:0", "::ffff:192.0.2.1.0.0"),
        ] {
            let at = at.parse().unwrap();
            assert_eq!(universal(at), text);
            assert_eq!(from_universal(text.as_bytes()), Some(at));
        }
        for text in ["", "8.1", "127.0.0.1.8", "127.0.0.1.8.256", "127.0.0.1.8.1.", "host.8.1", "[::1].8.1", "é"] {
            assert_eq!(from_universal(text.as_bytes()), None, "{text}");
        }
        assert_eq!(from_universal(b"127.0.0.1.\xff.1"), None);
    }
}
