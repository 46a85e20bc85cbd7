//! A client's TCP connection to the NFS server: made when there is something to ask, and again
//! whenever it breaks and something is unanswered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use remora_atp::stream::Target;
use remora_wire::portmap::{self, Mapping};
use remora_wire::record::{RecordReader, mark};
use remora_wire::rpc::{CallHeader, OpaqueAuth, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr, mount};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::nfs::{NfsServer, RECORD_MAX, Relay};
use crate::carrier::KEEP_ALIVE;
use crate::reserved;
use crate::tcp::{harden, unacknowledged_for};

/// Bytes written ahead of the connection; the rest waits with the relay.
const AHEAD: usize = 256 << 10;
/// How long to wait before a connection that broke is made again, at first and at most, when one
/// breaks after the other.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long a connection may take to be made, and the portmapper to answer.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const PORTMAP_MAX: Duration = Duration::from_secs(3);
/// How often it is looked whether the server's machine acknowledges what it was sent, and how often in a row it may
/// not. Of one that is back the system would ask again after up to two minutes.
const LOOK: Duration = Duration::from_secs(1);
const SILENT_MAX: u32 = 5;

/// One of the programs that NFS consists of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Way {
    Nfs,
    Mount,
}

/// Carries calls for as long as the relay lives; it ends this task.
pub(super) async fn run(relay: Arc<Relay>, way: Way, server: NfsServer, mut calls: mpsc::UnboundedReceiver<Bytes>) {
    let mut pause = RECONNECT.0;
    let mut port = None;
    loop {
        // What was asked is among the unanswered, until it is answered.
        if relay.is_answered(way) && calls.recv().await.is_none() {
            return;
        }
        if let Ok(line) = connect(way, &server, &mut port).await {
            relay.counts.connections.fetch_add(1, Ordering::Relaxed);
            let _counted = Counted(&relay);
            if serve(&relay, way, line, &mut calls).await {
                pause = RECONNECT.0;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

/// A connection that stands.
struct Counted<'r>(&'r Relay);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, and whether nobody said that the program is to be had there.
struct Line {
    tcp: TcpStream,
    is_guess: bool,
}

/// Serves a connection until it breaks, or is of no use: all that is unanswered, then what comes. Whether it answered
/// anything.
async fn serve(relay: &Arc<Relay>, way: Way, mut line: Line, calls: &mut mpsc::UnboundedReceiver<Bytes>) -> bool {
    let (mut read, mut write) = line.tcp.split();
    let mut records = RecordReader::new(RECORD_MAX);
    let mut out = BytesMut::new();
    let mut answered = false;
    let (mut look, mut silent) = (interval(LOOK), 0);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    relay.all_again(way, calls).into_iter().for_each(|call| put(&mut out, &call));
    loop {
        tokio::select! {
            n = read.read_buf(records.buffer()) => {
                if !matches!(n, Ok(1..)) {
                    return answered;
                }
                let mut is_elsewhere = false;
                loop {
                    let record = match records.next_record() {
                        Ok(Some(record)) => record,
                        Ok(None) => break,
                        Err(_) => return answered,
                    };
                    answered = true;
                    is_elsewhere |= line.is_guess && is_unavailable(&record);
                    // While the client takes nothing, the server waits.
                    let bytes = u32::try_from(record.len()).unwrap_or(u32::MAX);
                    let Ok(permit) = relay.room.clone().acquire_many_owned(bytes).await else { return answered };
                    relay.answer(record, permit);
                }
                if is_elsewhere {
                    return answered;
                }
            }
            n = write.write(&out), if !out.is_empty() => match n {
                Ok(n) => out.advance(n),
                Err(_) => return answered,
            },
            call = calls.recv(), if out.len() < AHEAD => match call {
                Some(call) => put(&mut out, &call),
                None => return answered,
            },
            _ = look.tick() => {
                let is_silent = unacknowledged_for(read.as_ref()) >= Some(LOOK);
                silent = if is_silent { silent + 1 } else { 0 };
                if silent == SILENT_MAX {
                    // So its port is free at once, for the next connection. Fails if it has broken just now.
                    let _ = sockopt::set_socket_linger(read.as_ref(), Some(Duration::ZERO));
                    return answered;
                }
            }
        }
    }
}

/// Whether the server does not know the program.
fn is_unavailable(reply: &Bytes) -> bool {
    let header = ReplyHeader::decode(&mut Reader::new(reply.clone()));
    header.is_ok_and(|header| header.outcome == Outcome::ProgUnavail)
}

fn put(out: &mut BytesMut, call: &Bytes) {
    out.extend_from_slice(&mark(call.len()));
    out.extend_from_slice(call);
}

/// Connects, from `port` if there was one before: some servers know clients by it.
async fn connect(way: Way, server: &NfsServer, port: &mut Option<u16>) -> io::Result<Line> {
    let host = server.nfs.host();
    let known = match (way, server.mount_port) {
        (Way::Nfs, _) => Some(server.nfs.port()),
        (Way::Mount, Some(port)) => Some(port),
        (Way::Mount, None) => ask_portmapper(host).await,
    };
    let (at, is_guess) = (known.unwrap_or(server.nfs.port()), known.is_none());
    let mut failure = io::ErrorKind::NotFound.into();
    for addr in tokio::net::lookup_host((host, at)).await? {
        match in_time(CONNECT_MAX, reserved::connect(addr, *port)).await {
            Ok(tcp) => {
                harden(&tcp, &KEEP_ALIVE)?;
                *port = Some(tcp.local_addr()?.port());
                return Ok(Line { tcp, is_guess });
            }
            Err(e) => failure = e,
        }
    }
    Err(failure)
}

async fn in_time<T>(max: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(max, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Where MOUNT is, if there is a portmapper that knows (RFC 1833, section 3).
async fn ask_portmapper(host: &str) -> Option<u16> {
    let portmapper = Target::new(host, portmap::PORT).ok()?;
    let asked = async {
        let mut tcp = TcpStream::connect((portmapper.host(), portmapper.port())).await?;
        let question = Mapping { prog: mount::PROGRAM, vers: mount::VERSION, prot: portmap::IPPROTO_TCP, port: 0 };
        let call = portmap::Call::GetPort(question);
        let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
        let header =
            CallHeader { xid: 1, prog: portmap::PROGRAM, vers: portmap::VERSION, proc: call.proc(), cred, verf };
        let mut message = Vec::new();
        header.encode(&mut message);
        call.encode(&mut message);
        tcp.write_all(&[&mark(message.len())[..], &message].concat()).await?;
        let mut records = RecordReader::new(1024);
        loop {
            if tcp.read_buf(records.buffer()).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(reply) = records.next_record().map_err(io::Error::other)? {
                return Ok(reply);
            }
        }
    };
    let reply = in_time(PORTMAP_MAX, asked).await.ok()?;
    port_in(reply)
}

/// The port in a portmapper's reply, if there is one.
fn port_in(reply: Bytes) -> Option<u16> {
    let mut r = Reader::new(reply);
    match ReplyHeader::decode(&mut r) {
        Ok(ReplyHeader { outcome: Outcome::Success, .. }) => {}
        _ => return None,
    }
    match portmap::Reply::decode(portmap::PROC_GETPORT, &mut r).ok()? {
        portmap::Reply::Port(port) => u16::try_from(port).ok().filter(|port| *port > 0),
        _ => None,
    }
}
