//! Sockets of the generator, record marking (RFC 5531, section 11) read in place, and faults.
//!
//! [`RecordReader`](remora_wire::record::RecordReader) returns messages that may be kept, which costs more than
//! these.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use remora_client::Transport;
use remora_host::reserved;
use remora_wire::nfs3::{PROGRAM, Proc, Status, VERSION};
use remora_wire::record::mark;
use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{MMsgHdr, RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmmsg, sendmsg, sockopt};

use super::outbox::Outbox;
use super::plan::Image;

/// Why a run failed. The first wrong answer ends a benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    #[error("the server closed the connection with calls outstanding")]
    Closed,
    #[error("the server did not answer for {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("the server answered {proc:?} with {status:?}")]
    Status { proc: Proc, status: Status },
    #[error("{proc:?}: {outcome}")]
    Rpc { proc: Proc, outcome: Outcome },
    #[error("a wrong reply to {proc:?}: {what}")]
    Wrong { proc: Proc, what: &'static str },
    /// A message that answers none of our calls.
    #[error("the server sent {0}")]
    Foreign(&'static str),
    #[error("interrupted")]
    Interrupted,
}

/// Most bytes of one system call.
const ROOM: usize = 1 << 20;
/// Largest record: a READ of 1 MiB with its header.
const RECORD_MAX: usize = 2 << 20;
const MARK: usize = 4;
const LAST: u32 = 0x8000_0000;

/// Received bytes of a stream that are not parsed yet.
pub(super) struct Records {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    parts: Vec<u8>,
}

impl Default for Records {
    fn default() -> Records {
        Records { buffer: vec![0; RECORD_MAX + MARK + ROOM], from: 0, to: 0, parts: Vec::new() }
    }
}

impl Records {
    /// Free space to receive into; never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.buffer.len() - self.to < ROOM {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        self.buffer.get_mut(self.to..).unwrap_or_default()
    }

    /// Adds `n` received bytes.
    pub(super) fn filled(&mut self, n: usize) {
        self.to = (self.to + n).min(self.buffer.len());
    }

    /// Passes every complete record to `take`.
    pub(super) fn each(&mut self, take: &mut dyn FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        loop {
            let rest = self.buffer.get(self.from..self.to).unwrap_or_default();
            let Some((word, rest)) = rest.split_first_chunk::<MARK>() else { return Ok(()) };
            let word = u32::from_be_bytes(*word);
            let (len, last) = ((word & !LAST) as usize, word & LAST != 0);
            if self.parts.len() + len > RECORD_MAX || (len == 0 && !last) {
                return Err(Fault::Foreign("a record of an impossible length"));
            }
            let Some(fragment) = rest.get(..len) else { return Ok(()) };
            self.from += MARK + len;
            if last && self.parts.is_empty() {
                take(fragment)?;
                continue;
            }
            self.parts.extend_from_slice(fragment);
            if last {
                take(&self.parts)?;
                self.parts.clear();
            }
        }
    }
}

/// Longest wait for a socket between two clock readings.
pub(super) const TURN: Duration = Duration::from_millis(50);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit of the TCP call before datagrams.
const PROOF_MAX: Duration = Duration::from_secs(1);
/// Buffers in one system call; Linux allows 1024.
const SLICES_MAX: usize = 256;
const DATAGRAMS_MAX: usize = 64;
const DATAGRAM_MAX: usize = 65_536;
/// Buffer size of a datagram socket, if the system allows it.
const DATAGRAM_BUFFER: usize = 4 << 20;

pub(super) enum Socket {
    /// With received bytes that are not parsed yet.
    Stream(TcpStream, Box<Records>),
    /// With buffers for the datagrams of one system call.
    Datagram(UdpSocket, Vec<u8>),
}

impl Socket {
    /// A connection for this many outstanding calls.
    pub(super) fn connect(transport: Transport, server: SocketAddr, depth: usize) -> Result<Socket, Fault> {
        let socket = match transport {
            Transport::Tcp => stream(server),
            Transport::Udp => datagram(server, depth.clamp(1, DATAGRAMS_MAX)),
            Transport::Atp => Err(std::io::ErrorKind::Unsupported.into()),
        };
        socket.map_err(Fault::Connect)
    }

    pub(super) fn is_datagram(&self) -> bool {
        matches!(self, Socket::Datagram(..))
    }

    /// Sends as much as the socket accepts. Returns whether that shows progress of the server: a stream accepts more
    /// when the server has read, a datagram socket always does.
    pub(super) fn flush(&self, out: &mut Outbox, image: &Image) -> Result<bool, Fault> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut is_taken = false;
        while !out.is_empty() {
            let sent = match self {
                Socket::Stream(socket, _) => {
                    let slices = out.stream(image, SLICES_MAX);
                    sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags)
                }
                Socket::Datagram(socket, _) => send_datagrams(socket, out, image, flags),
            };
            match (sent, self) {
                (Ok(n), Socket::Stream(..)) => {
                    out.sent_bytes(n);
                    is_taken |= n > 0;
                }
                (Ok(n), Socket::Datagram(..)) => out.sent_datagrams(n),
                (Err(e), _) if is_passing(e) => break,
                (Err(e), _) => return Err(Fault::Broken(e.into())),
            }
        }
        Ok(is_taken)
    }

    /// Waits up to [`TURN`] for messages, or with `sending` until more can be sent, and passes each to `take`. Returns
    /// whether anything arrived, even a part of a message.
    pub(super) fn receive(
        &mut self,
        sending: bool,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        if sending {
            self.wait_for_either()?;
        }
        match self {
            Socket::Stream(socket, records) => {
                // The socket's own timeout is a turn.
                let flags = if sending { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
                match recv(&*socket, records.room(), flags) {
                    Ok((0, _)) => return Err(Fault::Closed),
                    Ok((n, _)) => records.filled(n),
                    Err(e) if is_passing(e) => return Ok(false),
                    Err(e) => return Err(Fault::Broken(e.into())),
                }
                records.each(take).map(|()| true)
            }
            Socket::Datagram(socket, buffer) => receive_datagrams(socket, buffer, sending, take),
        }
    }

    fn wait_for_either(&self) -> Result<(), Fault> {
        let flags = PollFlags::IN | PollFlags::OUT;
        let turn = Timespec { tv_sec: 0, tv_nsec: i64::from(TURN.subsec_nanos()) };
        let ready = match self {
            Socket::Stream(socket, _) => poll(&mut [PollFd::new(socket, flags)], Some(&turn)),
            Socket::Datagram(socket, _) => poll(&mut [PollFd::new(socket, flags)], Some(&turn)),
        };
        match ready {
            Err(e) if !is_passing(e) => Err(Fault::Broken(e.into())),
            _ => Ok(()),
        }
    }
}

fn stream(server: SocketAddr) -> io::Result<Socket> {
    let socket = reserved::stream(server, CONNECT_MAX)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TURN))?;
    Ok(Socket::Stream(socket, Box::default()))
}

/// Calls NULL over TCP: `remora serve` limits UDP replies to addresses that it has not seen over TCP.
fn prove_address(server: SocketAddr) -> io::Result<()> {
    let none = OpaqueAuth::none();
    let mut call = Vec::new();
    CallHeader { xid: 1, prog: PROGRAM, vers: VERSION, proc: Proc::Null as u32, cred: none.clone(), verf: none }
        .encode(&mut call);
    let mut socket = reserved::stream(server, PROOF_MAX)?;
    socket.set_read_timeout(Some(PROOF_MAX))?;
    socket.write_all(&[&mark(call.len())[..], &call].concat())?;
    socket.read_exact(&mut [0; 4])
}

fn datagram(server: SocketAddr, batch: usize) -> io::Result<Socket> {
    // Best effort: some servers have no TCP.
    let _ = prove_address(server);
    let socket = reserved::datagrams(server)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(TURN))?;
    // The system may refuse; lost datagrams are counted.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, DATAGRAM_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, DATAGRAM_BUFFER));
    let _ = sockopt::set_socket_send_buffer_size(&socket, DATAGRAM_BUFFER);
    Ok(Socket::Datagram(socket, vec![0; batch * DATAGRAM_MAX]))
}

fn send_datagrams(socket: &UdpSocket, out: &Outbox, image: &Image, flags: SendFlags) -> rustix::io::Result<usize> {
    let messages = out.datagrams(image, DATAGRAMS_MAX);
    let mut controls: Vec<_> = messages.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut headers: Vec<MMsgHdr<'_>> =
        messages.iter().zip(&mut controls).map(|(slices, control)| MMsgHdr::new(slices, control)).collect();
    sendmmsg(socket, &mut headers, flags)
}

/// Waits for the first datagram if allowed, and takes all that are queued. Returns whether there were any.
fn receive_datagrams(
    socket: &UdpSocket,
    buffer: &mut [u8],
    is_ready: bool,
    take: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let flags = if is_ready { MsgFlags::MSG_DONTWAIT } else { MsgFlags::MSG_WAITFORONE };
    let mut lens = [0; DATAGRAMS_MAX];
    let mut came = 0;
    {
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(buffer.len() / DATAGRAM_MAX, None);
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffer.chunks_exact_mut(DATAGRAM_MAX).map(|c| [IoSliceMut::new(c)]).collect();
        match recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None) {
            Ok(messages) => {
                for (len, message) in lens.iter_mut().zip(messages) {
                    *len = message.bytes;
                    came += 1;
                }
            }
            Err(e) if is_passing(rustix::io::Errno::from_raw_os_error(e as i32)) => return Ok(false),
            Err(e) => return Err(Fault::Broken(e.into())),
        }
    }
    for (datagram, len) in buffer.chunks_exact(DATAGRAM_MAX).zip(&lens).take(came) {
        take(datagram.get(..*len).unwrap_or_default())?;
    }
    Ok(came > 0)
}

/// Errors that may pass: the caller's patience decides.
fn is_passing(e: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(e, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use remora_wire::record::mark;

    use super::*;

    fn cut(stream: &[u8], step: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let mut records = Records::default();
        let mut found = Vec::new();
        for piece in stream.chunks(step) {
            records.room()[..piece.len()].copy_from_slice(piece);
            records.filled(piece.len());
            records.each(&mut |r| {
                found.push(r.to_vec());
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn records_survive_any_split() {
        let part = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
        let last = |text: &[u8]| [&mark(text.len()), text].concat();
        let stream = [last(b"one"), part(b"tw"), part(b"o"), last(b"!"), last(b""), last(b"three")].concat();
        for step in 1..=stream.len() {
            assert_eq!(cut(&stream, step).unwrap(), [&b"one"[..], b"two!", b"", b"three"], "{step}");
        }
    }

    #[test]
    fn record_above_the_limit_is_refused() {
        let big = vec![7; RECORD_MAX];
        let stream = [&mark(big.len())[..], &big, &mark(1), b"x"].concat();
        for step in [ROOM, 1000] {
            assert_eq!(cut(&stream, step).unwrap(), [big.clone(), b"x".to_vec()]);
        }
        assert!(cut(&mark(RECORD_MAX + 1), 4).is_err());
        assert!(cut(&[0; 4], 4).is_err(), "an empty fragment");
    }
}
