//! Portmapper version 2: the ports of RPC programs (RFC 1833, section 3).

use crate::xdr::{get_list, put_list};
use crate::{Error, Reader, Xdr};

/// RPC program number.
pub const PROGRAM: u32 = 100_000;
/// RPC program version.
pub const VERSION: u32 = 2;
/// Port of the portmapper.
pub const PORT: u16 = 111;
pub const PROC_GETPORT: u32 = 3;

/// IP protocol number of TCP.
pub const IPPROTO_TCP: u32 = 6;
/// IP protocol number of UDP.
pub const IPPROTO_UDP: u32 = 17;

xdr_struct! {
    /// A program on a port; in a query the port is 0. The reply is the port as a `u32`, 0 for none.
    pub struct Mapping {
        pub prog: u32,
        pub vers: u32,
        /// [`IPPROTO_TCP`] or [`IPPROTO_UDP`].
        pub prot: u32,
        pub port: u32,
    }
}

impl Copy for Mapping {}

/// A call. It lacks CALLIT, by which a portmapper would send arbitrary calls on behalf of any caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Does nothing; tests whether the portmapper answers.
    Null,
    Set(Mapping),
    /// Unregisters this version of a program, over all protocols and ports.
    Unset(Mapping),
    /// Looks up the port.
    GetPort(Mapping),
    /// Lists all registrations.
    Dump,
}

impl Call {
    pub fn proc(&self) -> u32 {
        match self {
            Call::Null => 0,
            Call::Set(_) => 1,
            Call::Unset(_) => 2,
            Call::GetPort(_) => PROC_GETPORT,
            Call::Dump => 4,
        }
    }

    /// Appends the arguments.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Call::Null | Call::Dump => {}
            Call::Set(m) | Call::Unset(m) | Call::GetPort(m) => m.encode(out),
        }
    }

    /// Decodes the arguments of procedure `proc`; `None` if the procedure does not exist.
    pub fn decode(proc: u32, r: &mut Reader) -> Option<Result<Call, Error>> {
        let mut mapping = |call: fn(Mapping) -> Call| Mapping::decode(r).map(call);
        Some(match proc {
            0 => Ok(Call::Null),
            1 => mapping(Call::Set),
            2 => mapping(Call::Unset),
            PROC_GETPORT => mapping(Call::GetPort),
            4 => Ok(Call::Dump),
            _ => return None,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Reply to [`Call::Null`].
    Void,
    /// Reply to [`Call::Set`] and [`Call::Unset`]: whether it succeeded.
    Done(bool),
    /// Reply to [`Call::GetPort`]: the port, 0 for none.
    Port(u32),
    /// Reply to [`Call::Dump`].
    Dump(Vec<Mapping>),
}

impl Reply {
    /// Appends the results.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Void => {}
            Reply::Done(done) => done.encode(out),
            Reply::Port(port) => port.encode(out),
            Reply::Dump(list) => put_list(out, list, Mapping::encode),
        }
    }

    /// Decodes the results of procedure `proc`.
    pub fn decode(proc: u32, r: &mut Reader) -> Result<Reply, Error> {
        Ok(match proc {
            0 => Reply::Void,
            1 | 2 => Reply::Done(bool::decode(r)?),
            PROC_GETPORT => Reply::Port(u32::decode(r)?),
            4 => Reply::Dump(get_list(r, Mapping::decode)?),
            value => return Err(Error::BadDiscriminant { what: "portmapper procedure", value }),
        })
    }
}
