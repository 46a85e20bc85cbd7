//! Checks whether a registered server still answers.

use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use remora_wire::record::{self, RecordReader};
use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::rpcbind::{Netid, Service};
use remora_wire::{Reader, Xdr};

/// How long a local server may take to answer.
const PATIENCE: Duration = Duration::from_millis(700);
/// Larger than any reply to NULL.
const ANSWER_MAX: usize = 1024;

/// Whether the program of `service`, which the portmapper `here` has at `port`, answers NULL on this machine.
pub(super) fn answers(here: SocketAddr, service: &Service, port: u32) -> bool {
    let Ok(port) = u16::try_from(port) else { return false };
    let ip = if service.netid.is_ipv4() { here.ip() } else { Ipv6Addr::LOCALHOST.into() };
    let (at, xid) = (SocketAddr::new(ip, port), getrandom::u32().unwrap_or(1));
    let answer = match service.netid {
        Netid::Udp | Netid::Udp6 => over_udp(at, &null(service, xid)),
        Netid::Tcp | Netid::Tcp6 => over_tcp(at, &null(service, xid)),
    };
    let header = answer.and_then(|mut r| ReplyHeader::decode(&mut r).map_err(|_| io::ErrorKind::InvalidData.into()));
    // Another program may have the port now.
    header.is_ok_and(|header| header.xid == xid && matches!(header.outcome, Outcome::Success))
}

fn null(service: &Service, xid: u32) -> Vec<u8> {
    let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
    let mut message = Vec::new();
    CallHeader { xid, prog: service.prog, vers: service.vers, proc: 0, cred, verf }.encode(&mut message);
    message
}

fn over_udp(at: SocketAddr, message: &[u8]) -> io::Result<Reader> {
    let socket = UdpSocket::bind(SocketAddr::new(at.ip(), 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(at)?;
    socket.send(message)?;
    let mut buffer = [0; ANSWER_MAX];
    let len = socket.recv(&mut buffer)?;
    Ok(Reader::new(buffer.get(..len).unwrap_or_default().to_vec().into()))
}

fn over_tcp(at: SocketAddr, message: &[u8]) -> io::Result<Reader> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&record::mark(message.len()))?;
    stream.write_all(message)?;
    let mut records = RecordReader::new(ANSWER_MAX);
    let mut buffer = [0; ANSWER_MAX];
    loop {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        if let Some(answer) = records.next_record().map_err(invalid)? {
            return Ok(Reader::new(answer));
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => records.push(buffer.get(..n).unwrap_or_default()),
        }
    }
}
