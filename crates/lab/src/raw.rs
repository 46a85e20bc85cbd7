//! A client of plain sockets for tests and attacks: it sends any bytes, valid or not, and returns every reply and
//! failure.
//!
//! Well-behaved clients are in `remora_client`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::{Call, Fh, Reply};
use remora_wire::record::{RecordReader, mark};
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount, nfs3};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Longest record accepted, in bytes: the largest READ reply and its header.
const RECORD_MAX: usize = 4 << 20;
const DATAGRAM_MAX: usize = 1 << 16;

/// AUTH_SYS credential of this process.
pub fn own_credential() -> OpaqueAuth {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    OpaqueAuth::unix(&AuthUnix { uid, gid, ..AuthUnix::default() })
}

/// A procedure of an RPC program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Procedure {
    pub prog: u32,
    pub vers: u32,
    pub proc: u32,
}

/// A call of any RPC program with encoded arguments.
pub fn message(xid: u32, procedure: Procedure, cred: OpaqueAuth, args: &[u8]) -> Bytes {
    let Procedure { prog, vers, proc } = procedure;
    let mut out = Vec::with_capacity(128 + args.len());
    CallHeader { xid, prog, vers, proc, cred, verf: OpaqueAuth::none() }.encode(&mut out);
    out.extend_from_slice(args);
    out.into()
}

/// A NULL call of NFSv3.
pub fn nfs_null(xid: u32) -> Bytes {
    message(xid, Procedure { prog: nfs3::PROGRAM, vers: nfs3::VERSION, proc: 0 }, OpaqueAuth::none(), &[])
}

/// An NFSv3 call with this process's credential.
pub fn nfs(xid: u32, call: &Call) -> Bytes {
    nfs_as(xid, own_credential(), call)
}

/// An NFSv3 call with the credential `cred`.
pub fn nfs_as(xid: u32, cred: OpaqueAuth, call: &Call) -> Bytes {
    let mut args = Vec::new();
    call.encode(&mut args);
    message(xid, Procedure { prog: nfs3::PROGRAM, vers: nfs3::VERSION, proc: call.proc() as u32 }, cred, &args)
}

/// A MOUNT version 3 call with this process's credential.
pub fn mount(xid: u32, call: &mount::Call) -> Bytes {
    let mut args = Vec::new();
    call.encode(&mut args);
    message(xid, Procedure { prog: mount::PROGRAM, vers: mount::VERSION, proc: call.proc() }, own_credential(), &args)
}

/// The xid of a message; 0 if it is too short.
pub fn xid(message: &[u8]) -> u32 {
    message.first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

/// The outcome in a reply, and its undecoded results.
pub fn outcome(reply: &Bytes) -> io::Result<(Outcome, Reader)> {
    let mut r = Reader::new(reply.clone());
    let header = ReplyHeader::decode(&mut r).map_err(invalid)?;
    Ok((header.outcome, r))
}

/// Decodes the results of `call`. A refusal by RPC is an error.
pub fn results(call: &Call, reply: &Bytes) -> io::Result<Reply> {
    match outcome(reply)? {
        (Outcome::Success, mut r) => Reply::decode(call.proc(), &mut r).map_err(invalid),
        (refused, _) => Err(invalid(refused)),
    }
}

pub fn mounted(reply: &Bytes) -> io::Result<Fh> {
    let (_, mut r) = outcome(reply)?;
    let proc = mount::Call::Mnt(Bytes::new()).proc();
    match mount::Reply::decode(proc, &mut r).map_err(invalid)? {
        mount::Reply::Mnt(Ok(mounted)) => Ok(mounted.fh),
        other => Err(invalid(format!("{other:?}"))),
    }
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_string())
}

#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    reader: RecordReader,
    next_xid: u32,
}

impl Stream {
    /// Connects. `patience` limits the connect and every later read and write.
    pub fn connect(addr: SocketAddr, patience: Duration) -> io::Result<Stream> {
        Stream::over(TcpStream::connect_timeout(&addr, patience)?, patience)
    }

    /// Connects from a local address. The system's timeout applies to the connect.
    pub fn connect_from(source: IpAddr, addr: SocketAddr, patience: Duration) -> io::Result<Stream> {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
        rustix::net::connect(&socket, &addr)?;
        Stream::over(socket.into(), patience)
    }

    /// As [`Stream::connect_from`], with a receive buffer of `window` bytes or the system's minimum. An IPv6 `source`
    /// may be any address that is routed to this machine.
    pub fn connect_narrow(source: IpAddr, addr: SocketAddr, window: usize) -> io::Result<Stream> {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, window)?;
        if addr.is_ipv6() {
            rustix::net::sockopt::set_ipv6_freebind(&socket, true)?;
        }
        rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
        rustix::net::connect(&socket, &addr)?;
        Stream::over(socket.into(), Duration::from_secs(10))
    }

    fn over(socket: TcpStream, patience: Duration) -> io::Result<Stream> {
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        socket.set_nodelay(true)?;
        Ok(Stream { socket, reader: RecordReader::new(RECORD_MAX), next_xid: 1 })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.send_raw(&[&mark(message.len()), message].concat())
    }

    /// Sends bytes without a record mark.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// The next record; `None` if the server closed the connection.
    pub fn receive(&mut self) -> io::Result<Option<Bytes>> {
        let mut buf = [0; 64 << 10];
        loop {
            if let Some(record) = self.reader.next_record().map_err(invalid)? {
                return Ok(Some(record));
            }
            match self.socket.read(&mut buf) {
                Ok(0) => return Ok(None),
                Ok(n) => self.reader.push(buf.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_end(&e) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends a message and returns the reply with its xid. Other replies are dropped.
    pub fn exchange(&mut self, message: &[u8]) -> io::Result<Bytes> {
        self.send(message)?;
        loop {
            match self.receive()? {
                Some(reply) if xid(&reply) == xid(message) => return Ok(reply),
                Some(_) => {}
                None => return Err(ErrorKind::ConnectionReset.into()),
            }
        }
    }

    pub fn call(&mut self, call: &Call) -> io::Result<Reply> {
        self.call_as(own_credential(), call)
    }

    /// Calls with the credential `cred` and the next xid.
    pub fn call_as(&mut self, cred: OpaqueAuth, call: &Call) -> io::Result<Reply> {
        let message = nfs_as(self.fresh_xid(), cred, call);
        results(call, &self.exchange(&message)?)
    }

    pub fn mount(&mut self, path: &str) -> io::Result<Fh> {
        let message = mount(self.fresh_xid(), &mount::Call::Mnt(path.to_owned().into()));
        mounted(&self.exchange(&message)?)
    }

    fn fresh_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }
}

/// Whether the peer closed the connection.
pub fn is_end(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe)
}

#[derive(Debug)]
pub struct Datagrams(UdpSocket);

impl Datagrams {
    /// Binds a port of a local address. `patience` limits every receive.
    pub fn connect_from(source: IpAddr, addr: SocketAddr, patience: Duration) -> io::Result<Datagrams> {
        let socket = UdpSocket::bind(SocketAddr::new(source, 0))?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(patience))?;
        Ok(Datagrams(socket))
    }

    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        self.0.send(message).map(drop)
    }

    pub fn receive(&self) -> io::Result<Bytes> {
        let mut buf = vec![0; DATAGRAM_MAX];
        let n = self.0.recv(&mut buf)?;
        buf.truncate(n);
        Ok(buf.into())
    }

    /// Sends a message up to `times` times and returns the reply with its xid.
    pub fn exchange(&self, message: &[u8], times: u32) -> io::Result<Bytes> {
        let mut last = Err(ErrorKind::TimedOut.into());
        for _ in 0..times {
            self.send(message)?;
            last = self.receive();
            if last.as_ref().is_ok_and(|reply| xid(reply) == xid(message)) {
                break;
            }
        }
        last
    }
}
