//! Reconnecting: a second connection beside one that has gone silent, or in place of one that broke.
//!
//! After an outage the retransmission timer of TCP may have backed off to minutes at either end. A new connection has
//! not. So while the present one is doubted ([`Client::doubt_at`](remora_client::Client::doubt_at)), others are tried,
//! a few side by side because each SYN may be lost. The first on which the server answers a NULL wins. A server that is
//! slow at one request has answered a NULL on the present one before
//! ([`Client::ask_at`](remora_client::Client::ask_at)).

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

use crate::client::transport::connect::connect;

/// Time between attempts, at first and at most.
const APART: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// Attempts at the first pace: ten minutes.
const ATTEMPTS_AT_FIRST_PACE: u32 = 3000;
/// Largest number of concurrent attempts.
const SIDE_BY_SIDE: usize = 8;
/// Time limit of an attempt beside its round trips.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Round trips of an attempt: SYN and NULL, and as much for queues.
const TRIPS: u32 = 4;
/// Largest reply to a NULL in bytes; it usually has 24.
const REPLY_MAX: usize = 256;

/// A connection on which the server has just answered; `trip` is the smoothed RTT. Never fails; dropping it cancels the
/// attempts. One attempt at a time uses `port`, by which some servers recognise a client's duplicates.
pub(crate) async fn answering_connection(server: SocketAddr, trip: Duration, port: Option<u16>) -> TcpStream {
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

/// A connection without a NULL, within the time of one attempt.
pub(crate) async fn unasked_connection(server: SocketAddr, trip: Duration, port: Option<u16>) -> Option<TcpStream> {
    timeout(ATTEMPT + trip * TRIPS, connect(server, port)).await.ok()?.ok()
}

async fn attempt(server: SocketAddr, port: Option<u16>, n: u32) -> io::Result<TcpStream> {
    // Servers take connections that begin with the same xid for a restarted program, whose calls are no duplicates.
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
    use remora_client::{Answer, Client, ClientConfig, Request, Transport};
    use remora_wire::nfs3::{Call, Fh, Proc, Reply, Status};
    use remora_wire::rpc::Outcome;
    use tokio::net::TcpListener;
    use tokio::net::tcp::OwnedWriteHalf;
    use tokio::sync::Mutex;

    use super::*;
    use crate::Clock;
    use crate::client::ClientError;
    use crate::client::transport::driver::run_tcp;
    use crate::client::transport::shared_core::SharedCore;

    /// Work goes on within 0.5 s of the end of an outage of ten minutes.
    #[test]
    fn attempts_keep_their_pace_in_a_long_outage() {
        assert!(APART.0 * ATTEMPTS_AT_FIRST_PACE >= Duration::from_secs(600));
        assert!(APART.0 <= Duration::from_millis(250));
    }

    /// Behaviour of a test server.
    #[derive(Clone, Copy)]
    struct Served {
        /// The first connection on which it answers NULL.
        answering: u32,
        /// The first connection on which it answers GETATTR.
        serving: u32,
        /// Delay of those replies.
        late: Duration,
        /// It reads further calls meanwhile.
        has_threads: bool,
    }

    /// Connections and GETATTRs that a server has seen.
    #[derive(Clone, Default)]
    struct Seen {
        connections: Arc<AtomicU32>,
        asked: Arc<AtomicU32>,
    }

    impl Served {
        async fn run(self, listener: TcpListener, seen: Seen) {
            while let Ok((stream, _)) = listener.accept().await {
                let nth = seen.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(self.serve(stream, nth, seen.asked.clone()));
            }
        }

        async fn serve(self, stream: TcpStream, nth: u32, asked: Arc<AtomicU32>) {
            let mut records = RecordReader::new(1 << 20);
            let (mut read, write) = stream.into_split();
            let write = Arc::new(Mutex::new(write));
            while let Ok(1..) = read.read_buf(records.buffer()).await {
                while let Ok(Some(record)) = records.next_record() {
                    let Ok(call) = CallHeader::decode(&mut Reader::new(record)) else { return };
                    let is_null = call.proc == 0;
                    asked.fetch_add(u32::from(!is_null), Ordering::Relaxed);
                    if nth >= if is_null { self.answering } else { self.serving } {
                        let answering = tokio::spawn(self.answer(call.xid, is_null, write.clone()));
                        if !self.has_threads {
                            answering.await.unwrap();
                        }
                    }
                }
            }
        }

        async fn answer(self, xid: u32, is_null: bool, write: Arc<Mutex<OwnedWriteHalf>>) {
            let mut reply = Vec::new();
            ReplyHeader { xid, outcome: Outcome::Success }.encode(&mut reply);
            if !is_null {
                Reply::failed(Proc::GetAttr, Status::Stale).encode(&mut reply);
                sleep(self.late).await;
            }
            let mut write = write.lock().await;
            let _ = write.write_all(&mark(reply.len())).await;
            let _ = write.write_all(&reply).await;
        }
    }

    /// Time of a GETATTR at such a server, and what that has seen.
    async fn ask(served: Served) -> (Duration, Seen) {
        let (server, seen) = start(served).await;
        (get(server).await, seen)
    }

    async fn start(served: Served) -> (SocketAddr, Seen) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let seen = Seen::default();
        tokio::spawn(served.run(listener, seen.clone()));
        (server, seen)
    }

    /// Time of a GETATTR.
    async fn get(server: SocketAddr) -> Duration {
        let (took, answer) = get_for(server, None).await;
        assert!(matches!(answer, Ok(Answer::Nfs(Reply::GetAttr(Err(_))))));
        took
    }

    /// The same with a patience, and its result.
    async fn get_for(server: SocketAddr, give_up: Option<Duration>) -> (Duration, Result<Answer, ClientError>) {
        let clock = Clock::start();
        let config = ClientConfig { give_up, ..ClientConfig::new(Transport::Tcp) };
        let core = Client::new(config, Peer::datagram(server), 1, clock.now());
        let shared = SharedCore::new(core, clock, server.to_string(), false);
        let first = connect(server, None).await.unwrap();
        let driver = tokio::spawn(run_tcp(shared.clone(), Some(first), server));
        let call = Request::Nfs(Call::GetAttr(Fh(bytes::Bytes::from_static(b"file"))));
        let answer = shared.ask(call, "").await;
        driver.abort();
        (clock.now().since(remora_base::Time::ZERO), answer)
    }

    #[tokio::test]
    async fn broken_connection_reconnects_from_its_port() {
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
    async fn dead_connection_is_replaced() {
        let served = Served { answering: 1, serving: 1, late: Duration::ZERO, has_threads: false };
        let (took, seen) = ask(served).await;
        assert!(took >= Duration::from_secs(2), "no sooner than it is doubted: {took:?}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(seen.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn slow_server_gets_no_second_connection() {
        let late = Duration::from_secs(4);
        let (took, seen) = ask(Served { answering: u32::MAX, serving: 0, late, has_threads: false }).await;
        let asked = seen.asked.load(Ordering::Relaxed);
        assert!(took >= late && asked == 1, "asked {asked} times in {took:?}");
    }

    #[tokio::test]
    async fn server_slow_at_one_request_gets_no_second_connection() {
        let late = Duration::from_secs(4);
        let (took, seen) = ask(Served { answering: 0, serving: 0, late, has_threads: true }).await;
        let (asked, connections) = (seen.asked.load(Ordering::Relaxed), seen.connections.load(Ordering::Relaxed));
        assert!(took >= late && took < late * 2, "{took:?}");
        assert_eq!((asked, connections), (1, 1), "times asked, connections");
    }

    #[tokio::test]
    async fn server_answering_only_null_is_given_up() {
        let late = Duration::from_secs(600);
        let (server, _) = start(Served { answering: 0, serving: 0, late, has_threads: true }).await;
        let getting = get_for(server, Some(Duration::from_secs(2)));
        let (took, answer) = timeout(Duration::from_secs(10), getting).await.expect("an end");
        assert!(answer.is_err(), "{answer:?}");
        // The first reply to NULL renews the patience, for it may have ended an outage.
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    }
}
