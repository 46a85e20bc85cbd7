//! Transfers with servers that are slow, far away, reluctant or gone.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_client::{ClientConfig, Transport};
use remora_wire::nfs3::{Attr, Call, FileType, NfsTime, Proc, ReadOk, SpecData, Status, Wcc, WriteOk};
use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
use remora_wire::{Reader, Xdr};
use tokio::net::UdpSocket;

use bytes::Bytes;
use remora_client::Piece;
use remora_wire::nfs3::{self, Fh, Reply};
use tokio::time::Instant;

use super::download::{TransferLimits, download};
use super::upload::{UploadProgress, send};
use crate::Clock;
use crate::client::options::Options;
use crate::client::session::Session;
use crate::client::transport::connection::Connection;

const SIZE: u64 = 200_000;
const TRIP: Duration = Duration::from_millis(230);

fn attr(size: u64, secs: u32) -> Attr {
    let time = NfsTime { secs, nanos: 3 };
    let (kind, rdev) = (FileType::Regular, SpecData { major: 0, minor: 0 });
    let (mode, nlink, uid, gid, used, fsid, fileid) = (0o600, 1, 0, 0, 0, 1, 2);
    let (atime, mtime, ctime) = (time, time, time);
    Attr { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
}

fn reply(xid: u32, body: &Reply) -> Vec<u8> {
    let mut reply = Vec::new();
    ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut reply);
    body.encode(&mut reply);
    reply
}

/// The reply of a server; with `syncs` it writes everything to the disk at once.
fn answer(message: Bytes, syncs: bool) -> Option<(Proc, Vec<u8>)> {
    let mut r = Reader::new(message);
    let call = CallHeader::decode(&mut r).ok()?;
    let proc = Proc::from_number(call.proc)?;
    let body = match Call::decode(proc, &mut r).ok()? {
        Call::Write(w) => {
            let wcc = Wcc { before: None, after: Some(attr(w.offset + u64::from(w.count), 1)) };
            let committed = if syncs { nfs3::Stable::FileSync } else { w.stable };
            Reply::Write(Ok(WriteOk { wcc, count: w.count, committed, verf: [1; 8] }))
        }
        Call::Read(r) => {
            let data = vec![7; r.count as usize].into();
            Reply::Read(Ok(ReadOk { attr: None, count: r.count, eof: false, data }))
        }
        Call::Commit(_) => Reply::Commit(Ok(nfs3::CommitOk { wcc: Wcc::NONE, verf: [1; 8] })),
        Call::GetAttr(_) => Reply::GetAttr(Ok(attr(0, 1))),
        _ => Reply::Null,
    };
    Some((proc, reply(call.xid, &body)))
}

/// A server at an RTT of `trip`.
async fn serve(trip: Duration, syncs: bool) -> SocketAddr {
    serve_for(Duration::MAX, trip, syncs).await
}

/// The same, silent after `lives`.
async fn serve_for(lives: Duration, trip: Duration, syncs: bool) -> SocketAddr {
    let began = Instant::now();
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            let Some((_, reply)) = answer(Bytes::copy_from_slice(&buffer[..n]), syncs) else { continue };
            if began.elapsed() > lives {
                continue;
            }
            let socket = socket.clone();
            tokio::spawn(async move {
                tokio::time::sleep(trip).await;
                let _ = socket.send_to(&reply, from).await;
            });
        }
    });
    at
}

/// A server that puts off every third READ and WRITE.
async fn serve_reluctantly() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut buffer, mut asked) = (vec![0; 65_536], 0);
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            let Some((proc, mut answer)) = answer(Bytes::copy_from_slice(&buffer[..n]), false) else { continue };
            asked += u32::from(matches!(proc, Proc::Read | Proc::Write));
            if matches!(proc, Proc::Read | Proc::Write) && asked % 3 == 0 {
                let xid = u32::from_be_bytes(answer[..4].try_into().unwrap());
                answer = reply(xid, &Reply::failed(proc, Status::Jukebox));
            }
            let _ = socket.send_to(&answer, from).await;
        }
    });
    at
}

/// Counts the notifications it receives.
#[derive(Default)]
struct Owner {
    answered: u64,
    /// Bytes acknowledged when pieces became stable, and the number of pieces.
    stable_after: Vec<(u64, usize)>,
    stable: u64,
    stops_at: Option<Instant>,
}

impl UploadProgress for Owner {
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes> {
        Ok(vec![7; (piece.end - piece.start) as usize].into())
    }

    fn sent(&mut self, bytes: u64) {
        self.answered += bytes;
    }

    fn stable(&mut self, pieces: Vec<Piece>) -> std::io::Result<()> {
        self.stable_after.push((self.answered, pieces.len()));
        self.stable += pieces.iter().map(|p| p.end - p.start).sum::<u64>();
        Ok(())
    }

    async fn stopped(&self) {
        match self.stops_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => pending().await,
        }
    }
}

async fn session(at: SocketAddr, config: ClientConfig) -> Session {
    let options = Options { config, seed: 1, clock: Clock::start() };
    let connection = Connection::open(Transport::Udp, at, options.config.clone(), &options).await.unwrap();
    Session::new(connection, None, Fh(Bytes::from_static(b"file")))
}

/// No COMMIT reports them.
#[tokio::test]
async fn stable_writes_are_reported_during_the_upload() {
    let config = ClientConfig { window: remora_client::WindowSize::Fixed(2), ..ClientConfig::new(Transport::Udp) };
    let session = session(serve(Duration::from_millis(100), true).await, config).await;
    let limits = TransferLimits { read_max: 8192, write_max: 8192 };
    let mut owner = Owner::default();
    send(&session, session.root().clone(), Some(0..SIZE), limits, &mut owner).await.unwrap();
    let told = &owner.stable_after;
    assert!(told[0].0 < SIZE && told.last().unwrap().0 == SIZE && told.len() < 10, "{told:?}");
}

/// Some 75 pieces. If each delayed all, a copy would take eight seconds and more.
#[tokio::test]
async fn deferred_piece_does_not_delay_others() {
    let session = session(serve_reluctantly().await, ClientConfig::new(Transport::Udp)).await;
    let (fh, limits, size) = (session.root().clone(), TransferLimits { read_max: 8192, write_max: 8192 }, 6 * SIZE);
    let began = Instant::now();
    let mut owner = Owner::default();
    send(&session, fh.clone(), Some(0..size), limits, &mut owner).await.unwrap().unwrap();
    assert_eq!((owner.answered, owner.stable), (size, size));
    let wrote = began.elapsed();
    let mut arrived = 0;
    let count = |_, data: Bytes| {
        arrived += data.len() as u64;
        Ok(())
    };
    download(&session, fh, 0..size, limits, count).await.unwrap();
    assert_eq!(arrived, size);
    let read = began.elapsed() - wrote;
    assert!(wrote < Duration::from_secs(4) && read < Duration::from_secs(4), "{wrote:?} and {read:?}");
}

const WINDOW: u32 = 4;

/// Uploads until `stops`; returns the time of stopping.
async fn stopped_after(stops: Duration, at: SocketAddr) -> (Owner, Duration) {
    let config = ClientConfig { window: remora_client::WindowSize::Fixed(WINDOW), ..ClientConfig::new(Transport::Udp) };
    let session = session(at, config).await;
    let limits = TransferLimits { read_max: 8192, write_max: 8192 };
    let stops_at = Instant::now() + stops;
    let mut owner = Owner { stops_at: Some(stops_at), ..Owner::default() };
    let sent = send(&session, session.root().clone(), Some(0..100 * SIZE), limits, &mut owner).await.unwrap();
    assert_eq!(sent, None);
    (owner, stops_at.elapsed())
}

/// Before the first periodic COMMIT.
#[tokio::test]
async fn stopped_upload_commits_what_arrived() {
    let (owner, took) = stopped_after(Duration::from_millis(400), serve(TRIP / 2, false).await).await;
    assert!(owner.stable > 0 && owner.answered - owner.stable <= u64::from(WINDOW) * 8192, "{}", owner.stable);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn stop_is_immediate_while_the_server_is_silent() {
    let server = serve_for(Duration::from_millis(200), TRIP / 10, false).await;
    let (owner, took) = stopped_after(Duration::from_secs(1), server).await;
    assert!(owner.answered > 0 && took < Duration::from_millis(200), "{took:?}");
}
