//! Attacks on shared memory: announced requests that never arrive, and replies that nobody reads.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_wire::nfs3::{Call, Fh, ReadArgs};
use remora_wire::record::mark;

use super::ground::{AttackResult, Ground, MIB, NETWORK};
use crate::raw::{self, Datagrams, Stream};

const PAUSE: Duration = Duration::from_millis(10);
const DRIP_EVERY: Duration = Duration::from_millis(100);
/// Receive buffer of a connection that does not read, in bytes.
const WINDOW: usize = 2048;
const ADDRESSES: u8 = 40;

fn local(third: u8, n: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, third, n).into()
}

fn network(n: u8) -> IpAddr {
    Ipv6Addr::from_bits(NETWORK.to_bits() | (0x1000 + u128::from(n))).into()
}

/// Connections that are reopened when the server closes them.
struct Crowd {
    sources: Vec<IpAddr>,
    to: SocketAddr,
    held: Vec<Option<Stream>>,
    made: u64,
}

impl Crowd {
    fn new(sources: impl IntoIterator<Item = IpAddr>, each: usize, to: SocketAddr) -> Crowd {
        let sources: Vec<IpAddr> = sources.into_iter().flat_map(|ip| std::iter::repeat_n(ip, each)).collect();
        Crowd { held: sources.iter().map(|_| None).collect(), sources, to, made: 0 }
    }

    /// Reopens missing connections, then calls `act` on each; a failure closes the connection.
    fn turn(
        &mut self,
        mut begin: impl FnMut(&Stream) -> io::Result<()>,
        mut act: impl FnMut(&Stream) -> io::Result<()>,
    ) {
        for (slot, source) in self.held.iter_mut().zip(&self.sources) {
            if slot.is_none() {
                let fresh = Stream::connect_narrow(*source, self.to, WINDOW).ok();
                *slot = fresh.filter(|stream| stream.socket().set_nonblocking(true).is_ok() && begin(stream).is_ok());
                self.made += u64::from(slot.is_some());
            }
            if slot.as_ref().is_some_and(|stream| is_closed(stream) || act(stream).is_err()) {
                *slot = None;
            }
        }
    }
}

fn is_closed(stream: &Stream) -> bool {
    match stream.socket().peek(&mut [0]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Writes as much as the socket accepts at once.
fn write_some(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    match stream.socket().write(bytes) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(e) => Err(e),
    }
}

/// Peers without access announce records of 1 MiB and send no data.
pub(super) fn half_records(ground: &Ground) -> AttackResult {
    let mut crowd = Crowd::new((2..=6).map(|n| local(0, n)), 16, ground.addr);
    while !ground.is_over() {
        crowd.turn(|stream| write_some(stream, &mark(MIB as usize)), |_| Ok(()));
        std::thread::sleep(PAUSE);
    }
    ground.look()?;
    Ok(format!("{} connections with a record mark each", crowd.made))
}

/// Clients announce records of 1 MiB and send them byte by byte.
pub(super) fn dripped_records(ground: &Ground) -> AttackResult {
    let mut crowd = Crowd::new((2..=ADDRESSES).map(|n| local(1, n)), 4, ground.addr);
    let start = [&mark(MIB as usize)[..], &[0; 20 << 10]].concat();
    let mut next = Instant::now();
    while !ground.is_over() {
        let drips = Instant::now() >= next;
        if drips {
            next += DRIP_EVERY;
        }
        let drip = |stream: &Stream| if drips { write_some(stream, &[0]) } else { Ok(()) };
        crowd.turn(|stream| write_some(stream, &start), drip);
        std::thread::sleep(PAUSE);
    }
    ground.look()?;
    Ok(format!("{} connections that send a byte at a time", crowd.made))
}

/// Peers without access request READs of 1 MiB and read no reply.
pub(super) fn unread_refusals(ground: &Ground) -> AttackResult {
    let fh = Fh(Bytes::from_static(&[3; 36]));
    unread(ground, Crowd::new((2..18).map(|n| local(0, n)), 8, ground.addr), &fh)
}

/// Clients at many local addresses request READs of 1 MiB and read nothing.
pub(super) fn unread_replies(ground: &Ground) -> AttackResult {
    ground.fill()?;
    unread(ground, Crowd::new((2..=ADDRESSES).map(|n| local(1, n)), 4, ground.addr), &ground.file)
}

/// The same from many addresses of one IPv6 network.
pub(super) fn unread_replies_network(ground: &Ground) -> AttackResult {
    ground.fill()?;
    let to = SocketAddr::new(NETWORK.into(), ground.addr.port());
    unread(ground, Crowd::new((0..ADDRESSES).map(network), 4, to), &ground.file)
}

fn read_of(fh: &Fh) -> Bytes {
    raw::nfs(1, &Call::Read(ReadArgs { fh: fh.clone(), offset: 0, count: MIB as u32 }))
}

fn unread(ground: &Ground, mut crowd: Crowd, fh: &Fh) -> AttackResult {
    let message = read_of(fh);
    let calls = [&mark(message.len())[..], &message].concat().repeat(100);
    let mut turns = 0u32;
    while !ground.is_over() {
        crowd.turn(|_| Ok(()), |stream| write_some(stream, &calls));
        turns += 1;
        if turns % 64 == 1 {
            ground.look()?;
        }
        std::thread::sleep(PAUSE);
    }
    ground.look()?;
    if crowd.made == 0 {
        return Err("no connection was accepted".into());
    }
    Ok(format!("{} connections that read nothing", crowd.made))
}

/// Largest datagram READs from many local addresses. Replies are not read.
pub(super) fn unread_datagrams(ground: &Ground) -> AttackResult {
    ground.fill()?;
    let sources = (2..=ADDRESSES).map(|n| local(1, n));
    let sockets = sources.map(|ip| Datagrams::connect_from(ip, ground.addr, PAUSE)).collect::<io::Result<Vec<_>>>()?;
    let message = read_of(&ground.file);
    let mut sent = 0u64;
    while !ground.is_over() {
        sent += sockets.iter().filter(|socket| socket.send(&message).is_ok()).count() as u64;
        std::thread::sleep(PAUSE);
    }
    Ok(format!("{sent} datagrams from {} addresses", sockets.len()))
}
