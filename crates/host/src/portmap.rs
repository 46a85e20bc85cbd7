//! Registration with the portmapper of this machine, rpcbind (RFC 1833, section 3).
//!
//! Clients that do not know the ports of NFS and MOUNT ask for them on port 111. Where
//! rpcbind runs there, a server tells it where it is, with SET, and takes that back, with
//! UNSET, when it ends.

mod alive;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use remora_wire::portmap::{Call, Mapping, PORT, PROGRAM, Reply, VERSION};
use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};

use crate::reserved;

/// How long one question waits for its answer.
const PATIENCE: Duration = Duration::from_millis(700);
/// How often it is asked.
const TRIES: usize = 3;
/// Longer than any answer to what is asked here.
const ANSWER_MAX: usize = 1024;

/// Why a server could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Nobody answers on port 111.
    #[error("no rpcbind answers at {0}: start it, or serve without it (--portmap answers in its place)")]
    NotRunning(SocketAddr),
    /// Somebody else is registered.
    #[error("rpcbind at {at} has another server on port {port} for program {prog} version {vers}: stop that one")]
    Taken {
        /// The portmapper.
        at: SocketAddr,
        /// The program.
        prog: u32,
        /// Its version.
        vers: u32,
        /// The other one's port.
        port: u32,
    },
    /// It said no.
    #[error("rpcbind at {0} refuses: it takes registrations from root only")]
    Refused(SocketAddr),
    /// It answered something else.
    #[error("what answers at {0} is no portmapper")]
    NotAPortmapper(SocketAddr),
    /// No way to ask.
    #[error("cannot ask rpcbind at {at}: {source}")]
    Io {
        /// The portmapper.
        at: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A server's entries in the portmapper. Dropping it takes them back. If rpcbind does not answer,
/// that is given up after about two seconds and the entries stay.
#[derive(Debug)]
pub struct Registration {
    rpcbind: Rpcbind,
    mappings: Vec<Mapping>,
}

impl Registration {
    /// Where rpcbind is on every machine.
    pub const RPCBIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

    /// Registers `mappings` with the portmapper at `at`. What it had for these programs and
    /// versions is replaced if nobody answers there: it is left over from a server that could not take it
    /// back, or from one whose port ours is now. Another one that does answer keeps its entries.
    pub fn new(at: SocketAddr, mappings: Vec<Mapping>) -> Result<Registration, RegisterError> {
        let rpcbind = Rpcbind::open(at)?;
        for m in &mappings {
            rpcbind.is_free_for(*m, &mappings)?;
        }
        for m in versions(&mappings) {
            rpcbind.done(Call::Unset(m))?;
        }
        // Made before all is done, so that a failure takes back what was.
        let registration = Registration { rpcbind, mappings };
        for m in &registration.mappings {
            registration.set(*m)?;
        }
        Ok(registration)
    }

    fn set(&self, m: Mapping) -> Result<(), RegisterError> {
        if self.rpcbind.done(Call::Set(m))? {
            return Ok(());
        }
        let Mapping { prog, vers, .. } = m;
        match self.rpcbind.port(m)? {
            0 => Err(RegisterError::Refused(self.rpcbind.at)),
            port => Err(RegisterError::Taken { at: self.rpcbind.at, prog, vers, port }),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        for m in versions(&self.mappings) {
            // If rpcbind is gone, so are our entries.
            let Ok(port) = self.rpcbind.port(m) else { return };
            // Somebody may have registered in our place; that is not ours to take back.
            if port == m.port && self.rpcbind.done(Call::Unset(m)).is_err() {
                return;
            }
        }
    }
}

/// One mapping for each program and version: UNSET takes all protocols' at once.
fn versions(mappings: &[Mapping]) -> Vec<Mapping> {
    let mut out: Vec<Mapping> = Vec::new();
    for m in mappings {
        if !out.iter().any(|o| (o.prog, o.vers) == (m.prog, m.vers)) {
            out.push(*m);
        }
    }
    out
}

/// A portmapper, over UDP.
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

    /// Fails if another server than the one that is `ours` answers where `m` would be.
    fn is_free_for(&self, m: Mapping, ours: &[Mapping]) -> Result<(), RegisterError> {
        let port = self.port(m)?;
        let is_ours = port == 0 || ours.iter().any(|o| o.port == port);
        if is_ours || !alive::answers(self.at, &Mapping { port, ..m }) {
            return Ok(());
        }
        Err(RegisterError::Taken { at: self.at, prog: m.prog, vers: m.vers, port })
    }

    fn done(&self, call: Call) -> Result<bool, RegisterError> {
        match self.ask(call)? {
            Reply::Done(done) => Ok(done),
            _ => Err(RegisterError::NotAPortmapper(self.at)),
        }
    }

    fn port(&self, m: Mapping) -> Result<u32, RegisterError> {
        match self.ask(Call::GetPort(m))? {
            Reply::Port(port) => Ok(port),
            _ => Err(RegisterError::NotAPortmapper(self.at)),
        }
    }

    fn ask(&self, call: Call) -> Result<Reply, RegisterError> {
        let xid = getrandom::u32().unwrap_or(1);
        let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
        let mut message = Vec::new();
        CallHeader { xid, prog: PROGRAM, vers: VERSION, proc: call.proc(), cred, verf }.encode(&mut message);
        call.encode(&mut message);
        for _ in 0..TRIES {
            let answer = self.socket.send(&message).and_then(|_| self.receive(xid));
            match answer {
                Ok(mut r) => {
                    let reply = Reply::decode(call.proc(), &mut r);
                    return reply.map_err(|_| RegisterError::NotAPortmapper(self.at));
                }
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

    /// The results in the reply to `xid`; replies to earlier questions are passed over.
    fn receive(&self, xid: u32) -> io::Result<Reader> {
        let mut buffer = [0; ANSWER_MAX];
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
    use super::*;
    use remora_wire::record;
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::sync::mpsc;

    fn nfs(vers: u32, prot: u32, port: u32) -> Mapping {
        Mapping { prog: 100_003, vers, prot, port }
    }

    /// A portmapper on a thread, until it has answered `calls` calls; then it sends what is
    /// left registered.
    fn portmapper(calls: usize, stale: Vec<Mapping>) -> (SocketAddr, mpsc::Receiver<Vec<Mapping>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at, (tx, rx)) = (socket.local_addr().unwrap(), mpsc::channel());
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
    fn what_is_left_over_is_replaced_and_what_is_ours_taken_back() {
        let ours = vec![nfs(2, 17, 7), nfs(2, 6, 7), nfs(3, 6, 7)];
        let other = Mapping { prog: 100_024, ..nfs(1, 17, 5) };
        // GETPORT, UNSET and SET of ours, GETPORT and UNSET at the end.
        let (at, left) = portmapper(3 + 2 + 3 + 4, vec![nfs(2, 17, 1), nfs(3, 6, 1), other]);
        drop(Registration::new(at, ours).unwrap());
        assert_eq!(left.recv().unwrap(), [other]);
    }

    #[test]
    fn what_somebody_else_registered_in_our_place_stays() {
        let (at, left) = portmapper(1 + 2 + 2 + 1, vec![]);
        let registration = Registration::new(at, vec![nfs(3, 17, 7)]).unwrap();
        let other = Rpcbind::open(at).unwrap();
        other.done(Call::Unset(nfs(3, 17, 0))).unwrap();
        other.done(Call::Set(nfs(3, 17, 8))).unwrap();
        drop(registration);
        assert_eq!(left.recv().unwrap(), [nfs(3, 17, 8)]);
    }

    /// A server that answers one NULL call over UDP or TCP; its port.
    fn server(prot: u32) -> u32 {
        let answer = |call: &[u8]| {
            let xid = CallHeader::decode(&mut Reader::new(call.to_vec().into())).unwrap().xid;
            let mut out = Vec::new();
            ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut out);
            out
        };
        let mut buffer = [0; 200];
        if prot == 17 {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = socket.local_addr().unwrap().port();
            std::thread::spawn(move || {
                let (len, from) = socket.recv_from(&mut buffer).unwrap();
                socket.send_to(&answer(&buffer[..len]), from).unwrap();
            });
            return port.into();
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
        port.into()
    }

    #[test]
    fn another_server_that_answers_keeps_its_entries() {
        for prot in [6, 17] {
            let other = nfs(3, prot, server(prot));
            let (at, left) = portmapper(1, vec![other]);
            let error = Registration::new(at, vec![nfs(3, prot, 7)]).unwrap_err();
            assert!(matches!(error, RegisterError::Taken { port, .. } if port == other.port), "{error}");
            assert_eq!(left.recv().unwrap(), [other]);
        }
    }

    #[test]
    fn where_nobody_answers_it_says_so_at_once() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Registration::new(free, vec![nfs(3, 17, 7)]).unwrap_err();
        assert!(matches!(error, RegisterError::NotRunning(at) if at == free), "{error}");
    }
}
