//! Copies bytes, ends and resets between a TCP connection and its stream.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use remora_atp::stream::{End, Taken};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::streams::{Carrier, StreamHandle};
use crate::tcp::{CLOSE, KeepAlive, harden, is_end_acknowledged, state};

/// TCP keep-alive of local connections: detects a vanished program. The kernel of its machine answers,
/// independently of the mobile link.
pub(crate) const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(60), between: Duration::from_secs(20), count: 3 };

/// Time for a program to read data that precedes a reset, the interval of the check, and the bytes of its own that
/// are discarded meanwhile: it may read only after it has written.
const READ_MAX: Duration = Duration::from_secs(5 * 60);
const LOOK: Duration = Duration::from_millis(50);
const DISCARD: usize = 64 << 10;

/// A TCP connection that closes with a reset (SO_LINGER 0) unless it ended regularly, so that truncated data never
/// looks complete. Set from the start, because this process may be killed.
pub(crate) struct Tcp {
    stream: TcpStream,
}

impl Tcp {
    /// Takes a connection; sets TCP_NODELAY and keep-alive.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Tcp> {
        harden(&stream, &KEEP_ALIVE)?;
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(Tcp { stream })
    }

    /// Waits until the connection is reset or its peer vanished; forever once the peer has sent its end.
    pub(crate) async fn broken(&self) {
        if broken(&self.stream).await.kind() == io::ErrorKind::BrokenPipe {
            std::future::pending().await
        }
    }

    /// Closes after a reset. A reset discards data that the kernel has not delivered, which may be the whole
    /// answer.
    async fn reset(self) {
        let mut buffer = vec![0; DISCARD];
        let read = async {
            while !is_end_acknowledged(&self.stream) {
                let _ = self.stream.try_read(&mut buffer);
                sleep(LOOK).await;
            }
        };
        // Data that the program never reads is lost with the connection.
        let _ = timeout(READ_MAX, read).await;
    }

    /// Closes after a regular end.
    fn close(self) {
        // Fails only on a closed connection.
        let _ = sockopt::set_socket_linger(&self.stream, None);
    }
}

/// Waits until the connection is reset or its peer vanished, but not for its end.
async fn broken(stream: &TcpStream) -> io::Error {
    let failed = stream.ready(Interest::ERROR).await.err();
    // A concurrent send may have taken the error.
    let told = failed.or_else(|| stream.take_error().unwrap_or_else(Some));
    told.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
}

/// Copies bytes both ways until the connection ends; returns how. `accepted`: the stream was requested by the other
/// end, and is accepted now.
pub(crate) async fn pump(carrier: &Arc<Carrier>, stream: &StreamHandle, mut tcp: Tcp, accepted: bool) -> End {
    if accepted {
        carrier.accept(stream);
    }
    let (read, write) = tcp.stream.split();
    let both = async {
        let done = Done::default();
        tokio::try_join!(send_on(carrier, stream, read, &done), write_on(carrier, stream, write, &done))
    };
    let end = tokio::select! {
        biased;
        end = stream.ended() => end,
        moved = both => {
            if moved.is_err() {
                carrier.broke(stream);
            }
            // After both ends the last bytes may still be in flight.
            stream.ended().await
        }
    };
    match end {
        End::Done => tcp.close(),
        End::Refused(_) | End::Reset(_) => reset(carrier, tcp),
    }
    end
}

/// Resets a connection; delayed if its program has data to read, up to [`CLOSING_MAX`](super::streams) connections.
fn reset(carrier: &Carrier, tcp: Tcp) {
    if !is_end_acknowledged(&tcp.stream)
        && let Ok(place) = carrier.closing.clone().try_acquire_owned()
    {
        tokio::spawn(async move {
            tcp.reset().await;
            drop(place);
        });
    }
}

/// Progress of a direction, for the other one.
#[derive(Default)]
struct Done {
    /// The end from the other side was written.
    written: Notify,
    /// All bytes were sent on, and the end.
    read: Notify,
    /// A reset behind that end was reported, which the system does once.
    gone: AtomicBool,
}

impl Done {
    /// Whether the error is a reset behind the received end.
    fn is_behind_its_end(&self, e: &io::Error) -> bool {
        self.gone.fetch_or(e.kind() == io::ErrorKind::BrokenPipe, Relaxed);
        self.gone.load(Relaxed)
    }
}

/// Copies from TCP to the stream, then waits for a reset until the other direction has ended.
async fn send_on(carrier: &Arc<Carrier>, stream: &StreamHandle, mut from: ReadHalf<'_>, done: &Done) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        let room = room(carrier, stream, from.as_ref(), done).await?;
        buffer.reserve(room);
        if (&mut from).take(room as u64).read_buf(&mut buffer).await? == 0 {
            break;
        }
        let mut rest = carrier.send(stream, buffer.split().freeze());
        // Room shrinks only if the forecast fell.
        while let Some(left) = rest.take().filter(|left| !left.is_empty()) {
            self::room(carrier, stream, from.as_ref(), done).await?;
            rest = carrier.send(stream, left);
        }
    }
    carrier.finish(stream);
    done.read.notify_one();
    let tcp = from.as_ref();
    // The kernel forgets a closed connection after a minute. Then it answers keep-alives and our end with a
    // meaningless reset, while data may still be in flight.
    if state(tcp) == Some(CLOSE) {
        return Ok(());
    }
    sockopt::set_socket_keepalive(tcp, false)?;
    tokio::select! {
        biased;
        () = done.written.notified() => Ok(()),
        e = broken(tcp) => Err(e),
    }
}

/// Waits for room to send; forever once the stream ended. A reset ends the wait, unless the end was received before
/// it: then all received data is sent on.
async fn room(carrier: &Arc<Carrier>, stream: &StreamHandle, from: &TcpStream, done: &Done) -> io::Result<usize> {
    loop {
        match carrier.room(stream) {
            Some(0) if done.gone.load(Relaxed) => stream.room.notified().await,
            Some(0) => tokio::select! {
                biased;
                () = stream.room.notified() => {}
                e = broken(from) => if !done.is_behind_its_end(&e) {
                    return Err(e);
                },
            },
            Some(room) => return Ok(room),
            None => std::future::pending().await,
        }
    }
}

/// Copies from the stream to TCP.
async fn write_on(carrier: &Arc<Carrier>, stream: &StreamHandle, mut to: WriteHalf<'_>, done: &Done) -> io::Result<()> {
    loop {
        match carrier.take(stream) {
            Some(Taken::Bytes(bytes)) => {
                let written = to.write_all(&bytes).await;
                // A fully closed peer answers late data with a reset. Data it sent before goes on first.
                if written.as_ref().is_err_and(|e| done.is_behind_its_end(e)) {
                    done.read.notified().await;
                }
                written?;
            }
            Some(Taken::End) => {
                to.shutdown().await?;
                done.written.notify_one();
                return Ok(());
            }
            Some(Taken::Nothing) => stream.readable.notified().await,
            // The stream ended; its waiter handles that.
            None => std::future::pending().await,
        }
    }
}
