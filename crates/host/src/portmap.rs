//! Registration with the local portmapper, rpcbind (RFC 1833, sections 2 and 3).
//!
//! Clients ask port 111 for the ports of NFS and MOUNT. If rpcbind runs there, a server registers with SET at its
//! start and unregisters with UNSET at its end.

mod alive;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use remora_wire::portmap::{self, PORT, PROGRAM};
use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::rpcbind::{self, Binding, Netid, Service};
use remora_wire::{Reader, Xdr};

use crate::reserved;

/// How long an attempt waits for its reply.
const PATIENCE: Duration = Duration::from_millis(700);
/// Attempts of a call.
const TRIES: usize = 3;
/// Larger than any datagram.
const ANSWER_MAX: usize = 1 << 16;
/// The owner in IPv6 registrations; rpcbind determines the caller itself.
const OWNER: &str = "";

/// The reason why a server could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Nothing answers on port 111.
    #[error("no rpcbind answers at {0}: start it, or serve without it (--portmap answers in its place)")]
    NotRunning(SocketAddr),
    /// Another server is registered and answers.
    #[error("rpcbind at {at} has another server on port {port} for program {prog} version {vers}: stop that one")]
    Taken {
        at: SocketAddr,
        prog: u32,
        vers: u32,
        /// The other server's port.
        port: u32,
    },
    /// The portmapper refused the registration.
    #[error("rpcbind at {0} refuses: it takes registrations from root only")]
    Refused(SocketAddr),
    /// The reply was not a portmapper's.
    #[error("what answers at {0} is no portmapper")]
    NotAPortmapper(SocketAddr),
    /// The call could not be sent or received.
    #[error("cannot ask rpcbind at {at}: {source}")]
    Io { at: SocketAddr, source: io::Error },
}

/// A server's registrations. A drop removes them; if rpcbind does not answer, it gives up after about two seconds and
/// the registrations stay.
#[derive(Debug)]
pub struct Registration {
    rpcbind: Rpcbind,
    services: Vec<Service>,
}

impl Registration {
    /// The address of rpcbind.
    pub const RPCBIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

    /// Registers `services` with the portmapper at `at`. Replaces registrations of the same programs and versions if
    /// no server answers there: they are left over from a server that could not unregister, or whose port this server
    /// has now. A server that answers keeps its registrations.
    pub fn new(at: SocketAddr, services: Vec<Service>) -> Result<Registration, RegisterError> {
        let rpcbind = Rpcbind::open(at)?;
        for service in &services {
            rpcbind.is_free_for(service, &services)?;
        }
        for service in once_each(&services) {
            rpcbind.unset(service)?;
        }
        // Made before the calls, so that a failure removes what was registered.
        let registration = Registration { rpcbind, services };
        for service in &registration.services {
            registration.set(service)?;
        }
        Ok(registration)
    }

    fn set(&self, service: &Service) -> Result<(), RegisterError> {
        if self.rpcbind.set(service)? {
            return Ok(());
        }
        let Service { prog, vers, .. } = *service;
        match self.rpcbind.port(service)? {
            0 => Err(RegisterError::Refused(self.rpcbind.at)),
            port => Err(RegisterError::Taken { at: self.rpcbind.at, prog, vers, port }),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        for service in once_each(&self.services) {
            // If rpcbind has ended, so have the registrations.
            let Ok(port) = self.rpcbind.port(service) else { return };
            // Another server's registration stays.
            if port == u32::from(service.at.port()) && self.rpcbind.unset(service).is_err() {
                return;
            }
        }
    }
}

/// One service for each UNSET: over IPv4 an UNSET removes those of all transports.
fn once_each(services: &[Service]) -> impl Iterator<Item = &Service> {
    let before = |i: usize| services.iter().take(i).filter(|other| other.netid.is_ipv4());
    services.iter().enumerate().filter_map(move |(i, service)| {
        let is_done = before(i).any(|other| (other.prog, other.vers) == (service.prog, service.vers));
        (!service.netid.is_ipv4() || !is_done).then_some(service)
    })
}

/// The registered port of the program for this version and transport; 0 for none.
fn port_in(list: &[Binding], service: &Service) -> u32 {
    let is_it = |b: &&Binding| {
        (b.prog, b.vers) == (service.prog, service.vers) && Netid::from_name(&b.netid) == Some(service.netid)
    };
    let at = list.iter().find(is_it).and_then(|b| rpcbind::from_universal(&b.addr));
    at.map_or(0, |at| at.port().into())
}

/// A portmapper over UDP. Calls for IPv4 use version 2, which every portmapper supports.
#[derive(Debug)]
struct Rpcbind {
    at: SocketAddr,
    socket: UdpSocket,
}

impl Rpcbind {
    fn open(at: SocketAddr) -> Result<Rpcbind, RegisterError> {
        let failed = |source| RegisterError::Io { at, source };
        let socket = reserved::datagrams(at).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        socket.connect(at).map_err(failed)?;
        Ok(Rpcbind { at, socket })
    }

    /// Fails if a server other than `ours` answers at the registered port of `service`.
    fn is_free_for(&self, service: &Service, ours: &[Service]) -> Result<(), RegisterError> {
        let port = self.port(service)?;
        let is_ours = port == 0 || ours.iter().any(|other| u32::from(other.at.port()) == port);
        if is_ours || !alive::answers(self.at, service, port) {
            return Ok(());
        }
        Err(RegisterError::Taken { at: self.at, prog: service.prog, vers: service.vers, port })
    }

    /// Registers a service. Returns whether the portmapper accepted it.
    fn set(&self, service: &Service) -> Result<bool, RegisterError> {
        match service.mapping() {
            Some(mapping) => self.done(portmap::Call::Set(mapping)),
            None => self.done_v4(rpcbind::Call::Set(service.binding(OWNER))),
        }
    }

    /// Removes a registration; over IPv4 those of all transports. Returns whether there was one.
    fn unset(&self, service: &Service) -> Result<bool, RegisterError> {
        match service.mapping() {
            Some(mapping) => self.done(portmap::Call::Unset(mapping)),
            None => self.done_v4(rpcbind::Call::Unset(service.binding(OWNER))),
        }
    }

    fn done(&self, call: portmap::Call) -> Result<bool, RegisterError> {
        match self.ask_v2(call)? {
            portmap::Reply::Done(done) => Ok(done),
            _ => Err(RegisterError::NotAPortmapper(self.at)),
        }
    }

    fn done_v4(&self, call: rpcbind::Call) -> Result<bool, RegisterError> {
        match self.ask_v4(&call)? {
            rpcbind::Reply::Done(done) => Ok(done),
            _ => Err(RegisterError::NotAPortmapper(self.at)),
        }
    }

    /// The registered port, or 0.
    fn port(&self, service: &Service) -> Result<u32, RegisterError> {
        let reply = match service.mapping() {
            Some(mapping) => match self.ask_v2(portmap::Call::GetPort(mapping))? {
                portmap::Reply::Port(port) => Some(port),
                _ => None,
            },
            // GETADDR answers for the transport of the call, which is IPv4's.
            None => match self.ask_v4(&rpcbind::Call::Dump)? {
                rpcbind::Reply::Dump(list) => Some(port_in(&list, service)),
                _ => None,
            },
        };
        reply.ok_or(RegisterError::NotAPortmapper(self.at))
    }

    fn ask_v2(&self, call: portmap::Call) -> Result<portmap::Reply, RegisterError> {
        let mut r = self.ask(portmap::VERSION, call.proc(), |out| call.encode(out))?;
        portmap::Reply::decode(call.proc(), &mut r).map_err(|_| RegisterError::NotAPortmapper(self.at))
    }

    fn ask_v4(&self, call: &rpcbind::Call) -> Result<rpcbind::Reply, RegisterError> {
        let mut r = self.ask(rpcbind::VERSION_4, call.proc(), |out| call.encode(out))?;
        rpcbind::Reply::decode(call.proc(), &mut r).map_err(|_| RegisterError::NotAPortmapper(self.at))
    }

    /// Makes a call with these arguments. Returns its results.
    fn ask(&self, vers: u32, proc: u32, args: impl Fn(&mut Vec<u8>)) -> Result<Reader, RegisterError> {
        let xid = getrandom::u32().unwrap_or(1);
        let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
        let mut message = Vec::new();
        CallHeader { xid, prog: PROGRAM, vers, proc, cred, verf }.encode(&mut message);
        args(&mut message);
        for _ in 0..TRIES {
            match self.socket.send(&message).and_then(|_| self.receive(xid)) {
                Ok(results) => return Ok(results),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    io::ErrorKind::ConnectionRefused => return Err(RegisterError::NotRunning(self.at)),
                    io::ErrorKind::InvalidData => return Err(RegisterError::NotAPortmapper(self.at)),
                    _ => return Err(RegisterError::Io { at: self.at, source: e }),
                },
            }
        }
        Err(RegisterError::NotRunning(self.at))
    }

    /// The results in the reply to `xid`. Skips replies to earlier calls.
    fn receive(&self, xid: u32) -> io::Result<Reader> {
        let mut buffer = vec![0; ANSWER_MAX];
        loop {
            let len = self.socket.recv(&mut buffer)?;
            let mut r = Reader::new(buffer.get(..len).unwrap_or_default().to_vec().into());
            match ReplyHeader::decode(&mut r) {
                Ok(header) if header.xid != xid => {}
                Ok(ReplyHeader { outcome: Outcome::Success, .. }) => return Ok(r),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use remora_wire::portmap::{Call, Mapping, Reply};

    use super::*;
    use remora_wire::record;
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::sync::mpsc;

    fn nfs(vers: u32, netid: Netid, port: u16) -> Service {
        Service { prog: 100_003, vers, netid, at: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port) }
    }

    /// A portmapper on a thread. After `calls` calls it sends the remaining registrations.
    fn portmapper(calls: usize, stale: &[Service]) -> (SocketAddr, mpsc::Receiver<Vec<Mapping>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at, (tx, rx)) = (socket.local_addr().unwrap(), mpsc::channel());
        let stale: Vec<Mapping> = stale.iter().filter_map(Service::mapping).collect();
        std::thread::spawn(move || {
            let mut list: BTreeMap<_, _> = stale.into_iter().map(|m| ((m.prog, m.vers, m.prot), m)).collect();
            for _ in 0..calls {
                let mut buffer = [0; 200];
                let (len, from) = socket.recv_from(&mut buffer).unwrap();
                let mut r = Reader::new(buffer[..len].to_vec().into());
                let header = CallHeader::decode(&mut r).unwrap();
                let reply = match Call::decode(header.proc, &mut r).unwrap().unwrap() {
                    Call::Set(m) => {
                        let free = !list.contains_key(&(m.prog, m.vers, m.prot));
                        list.entry((m.prog, m.vers, m.prot)).or_insert(m);
                        Reply::Done(free)
                    }
                    Call::Unset(m) => {
                        let before = list.len();
                        list.retain(|_, o| (o.prog, o.vers) != (m.prog, m.vers));
                        Reply::Done(list.len() < before)
                    }
                    Call::GetPort(m) => Reply::Port(list.get(&(m.prog, m.vers, m.prot)).map_or(0, |m| m.port)),
                    Call::Null | Call::Dump => Reply::Void,
                };
                let mut out = Vec::new();
                ReplyHeader { xid: header.xid, outcome: Outcome::Success }.encode(&mut out);
                reply.encode(&mut out);
                socket.send_to(&out, from).unwrap();
            }
            tx.send(list.into_values().collect()).unwrap();
        });
        (at, rx)
    }

    #[test]
    fn stale_entries_are_replaced_and_own_removed() {
        let ours = vec![nfs(2, Netid::Udp, 7), nfs(2, Netid::Tcp, 7), nfs(3, Netid::Tcp, 7)];
        let other = Service { prog: 100_024, ..nfs(1, Netid::Udp, 5) };
        // GETPORT, UNSET and SET, then GETPORT and UNSET at the end.
        let (at, left) = portmapper(3 + 2 + 3 + 4, &[nfs(2, Netid::Udp, 1), nfs(3, Netid::Tcp, 1), other]);
        drop(Registration::new(at, ours).unwrap());
        assert_eq!(left.recv().unwrap(), [other.mapping().unwrap()]);
    }

    #[test]
    fn entry_of_other_server_in_same_place_is_kept() {
        let (at, left) = portmapper(1 + 2 + 2 + 1, &[]);
        let (ours, theirs) = (nfs(3, Netid::Udp, 7), nfs(3, Netid::Udp, 8));
        let registration = Registration::new(at, vec![ours]).unwrap();
        let other = Rpcbind::open(at).unwrap();
        other.unset(&ours).unwrap();
        other.set(&theirs).unwrap();
        drop(registration);
        assert_eq!(left.recv().unwrap(), [theirs.mapping().unwrap()]);
    }

    /// Starts a server that answers one NULL call over UDP or TCP. Returns its port.
    fn server(netid: Netid) -> u16 {
        let answer = |call: &[u8]| {
            let xid = CallHeader::decode(&mut Reader::new(call.to_vec().into())).unwrap().xid;
            let mut out = Vec::new();
            ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
            out
        };
        let mut buffer = [0; 200];
        if netid == Netid::Udp {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = socket.local_addr().unwrap().port();
            std::thread::spawn(move || {
                let (len, from) = socket.recv_from(&mut buffer).unwrap();
                socket.send_to(&answer(&buffer[..len]), from).unwrap();
            });
            return port;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut mark = [0; 4];
            stream.read_exact(&mut mark).unwrap();
            let len = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
            stream.read_exact(&mut buffer[..len]).unwrap();
            let out = answer(&buffer[..len]);
            stream.write_all(&[&record::mark(out.len())[..], &out].concat()).unwrap();
        });
        port
    }

    #[test]
    fn entries_of_answering_server_are_kept() {
        for netid in [Netid::Tcp, Netid::Udp] {
            let other = nfs(3, netid, server(netid));
            let (at, left) = portmapper(1, &[other]);
            let error = Registration::new(at, vec![nfs(3, netid, 7)]).unwrap_err();
            assert!(
                matches!(error, RegisterError::Taken { port, .. } if port == u32::from(other.at.port())),
                "{error}"
            );
            assert_eq!(left.recv().unwrap(), [other.mapping().unwrap()]);
        }
    }

    #[test]
    fn missing_portmapper_is_reported_at_once() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Registration::new(free, vec![nfs(3, Netid::Udp, 7)]).unwrap_err();
        assert!(matches!(error, RegisterError::NotRunning(at) if at == free), "{error}");
    }
}
