//! A connection beside one that has gone silent, or in place of one that broke.
//!
//! After an outage the kernel's retransmission timer may have backed off to minutes, at either
//! end. A new connection knows nothing of that. So while the present one is doubted
//! ([`Client::doubt_at`](remora_client::Client::doubt_at)) others are tried, a few side by side
//! because each SYN may be lost, and the first on which the server answers a NULL call wins. A
//! server that is merely slow answers on none of them, and is left in peace.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use remora_wire::record::{RecordReader, mark};
use remora_wire::rpc::{CallHeader, OpaqueAuth, ReplyHeader};
use remora_wire::{Reader, Xdr, nfs3};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::driver::connect;

/// The time from one attempt to the next, at first and at most.
const APART: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// How many attempts are made at the first pace: for a minute.
const ATTEMPTS_AT_FIRST_PACE: u32 = 300;
/// The most attempts side by side.
const SIDE_BY_SIDE: usize = 8;
/// How long an attempt may take, beside its round trips.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Round trips of an attempt: SYN and NULL, and as much again for queues.
const TRIPS: u32 = 4;
/// A NULL call's reply is 24 bytes.
const REPLY_MAX: usize = 256;

/// A connection on which the server has just answered. `trip` is the usual round trip, as far
/// as known. Never fails; dropping it ends its attempts. One attempt at a time is from `port`, if that can
/// be had: by it some servers know a client's requests again.
pub(super) async fn answering_connection(server: SocketAddr, trip: Duration, port: Option<u16>) -> TcpStream {
    let lasts = ATTEMPT + trip * TRIPS;
    let mut apart = APART.0.max(lasts / SIDE_BY_SIDE as u32);
    let mut attempts = JoinSet::new();
    for n in 0u32.. {
        if n > ATTEMPTS_AT_FIRST_PACE {
            apart = apart.mul_f64(1.25).min(APART.1.max(apart));
        }
        if attempts.len() < SIDE_BY_SIDE {
            attempts.spawn(async move { timeout(lasts, attempt(server, port, n)).await });
        }
        let next = sleep(apart);
        tokio::pin!(next);
        loop {
            tokio::select! {
                Some(done) = attempts.join_next() => if let Ok(Ok(Ok(stream))) = done {
                    return stream;
                },
                () = &mut next => break,
            }
        }
    }
    std::future::pending().await
}

async fn attempt(server: SocketAddr, port: Option<u16>, n: u32) -> io::Result<TcpStream> {
    // Servers take connections that begin with the same xid for those of a program that starts over, whose calls are
    // none that come again.
    let xid = getrandom::u32().unwrap_or(n);
    let mut stream = connect(server, port).await?;
    let none = OpaqueAuth::none();
    let (prog, vers) = (nfs3::PROGRAM, nfs3::VERSION);
    let mut call = Vec::with_capacity(40);
    CallHeader { xid, prog, vers, proc: 0, cred: none.clone(), verf: none }.encode(&mut call);
    let mut message = mark(call.len()).to_vec();
    message.extend(call);
    stream.write_all(&message).await?;
    let mut records = RecordReader::new(REPLY_MAX);
    loop {
        if stream.read_buf(records.buffer()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(record) = records.next_record().map_err(io::Error::other)? {
            if ReplyHeader::decode(&mut Reader::new(record)).is_ok_and(|h| h.xid == xid) {
                return Ok(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use remora_base::Peer;
    use remora_client::{Answer, Client, Config, Request, Transport};
    use remora_wire::nfs3::{Call, Fh, Proc, Reply, Status};
    use remora_wire::rpc::Outcome;
    use tokio::net::TcpListener;

    use super::*;
    use crate::Clock;
    use crate::client::driver::run_tcp;
    use crate::client::session::Shared;

    /// A server that answers NULL calls on connections from the `answering`th on, GETATTR on
    /// those from the `serving`th on, there after `late`. Counts the GETATTRs that came.
    async fn serve(listener: TcpListener, answering: u32, serving: u32, late: Duration, asked: Arc<AtomicU32>) {
        for nth in 0u32.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut records = RecordReader::new(1 << 20);
                while let Ok(1..) = stream.read_buf(records.buffer()).await {
                    while let Ok(Some(record)) = records.next_record() {
                        let Ok(call) = CallHeader::decode(&mut Reader::new(record)) else { return };
                        let mut reply = Vec::new();
                        ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
                        if call.proc == Proc::GetAttr as u32 {
                            asked.fetch_add(1, Ordering::Relaxed);
                            Reply::failed(Proc::GetAttr, Status::Stale).encode(&mut reply);
                            sleep(late).await;
                        }
                        if nth >= if call.proc == 0 { answering } else { serving } {
                            let _ = stream.write_all(&mark(reply.len())).await;
                            let _ = stream.write_all(&reply).await;
                        }
                    }
                }
            });
        }
    }

    /// How long a GETATTR takes at such a server, and how often it is asked.
    async fn ask(answering: u32, serving: u32, late: Duration) -> (Duration, u32) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        tokio::spawn(serve(listener, answering, serving, late, asked.clone()));
        (get(server).await, asked.load(Ordering::Relaxed))
    }

    /// How long a GETATTR takes.
    async fn get(server: SocketAddr) -> Duration {
        let clock = Clock::start();
        let core = Client::new(Config::new(Transport::Tcp), Peer::datagram(server), 1, clock.now());
        let shared = Shared::new(core, clock, server.to_string(), false);
        let first = connect(server, None).await.unwrap();
        let driver = tokio::spawn(run_tcp(shared.clone(), first, server));
        let call = Request::Nfs(Call::GetAttr(Fh(bytes::Bytes::from_static(b"file"))));
        let answer = shared.ask(call, "").await.unwrap();
        driver.abort();
        assert!(matches!(answer, Answer::Nfs(Reply::GetAttr(Err(_)))));
        clock.now().since(remora_base::Time::ZERO)
    }

    #[tokio::test]
    async fn a_connection_that_broke_is_made_again_from_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let driver = tokio::spawn(async move { get(server).await });
        let (mut first, from) = listener.accept().await.unwrap();
        // It has asked and is not answered.
        first.read_exact(&mut [0; 64]).await.unwrap();
        drop(first);
        let (second, again) = listener.accept().await.unwrap();
        assert_eq!(again, from);
        drop((second, listener));
        driver.abort();
    }

    #[tokio::test]
    async fn no_two_connections_begin_with_the_same_xid() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let mut xids = Vec::new();
        for _ in 0..2 {
            let asking = tokio::spawn(attempt(server, None, 0));
            let mut message = [0; 8];
            listener.accept().await.unwrap().0.read_exact(&mut message).await.unwrap();
            xids.push(message[4..].to_vec());
            asking.abort();
        }
        assert_ne!(xids[0], xids[1]);
    }

    #[tokio::test]
    async fn a_dead_connection_is_left_for_one_that_lives() {
        let (took, asked) = ask(1, 1, Duration::ZERO).await;
        assert!(took >= Duration::from_secs(2), "no sooner than it is doubted: {took:?}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(asked, 2);
    }

    #[tokio::test]
    async fn a_server_that_is_merely_slow_is_left_in_peace() {
        let (took, asked) = ask(u32::MAX, 0, Duration::from_secs(4)).await;
        assert!(took >= Duration::from_secs(4) && asked == 1, "asked {asked} times in {took:?}");
    }
}
