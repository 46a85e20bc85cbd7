//! A TCP connection and its stream: bytes, ends and resets both ways.

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

use super::{Carrier, Door};
use crate::tcp::{CLOSE, KeepAlive, harden, is_end_acknowledged, state};

/// A connection on which nothing has come for so long is asked whether its other end still is there,
/// every so often, and so many times. The answer is the kernel's over there; the mobile link has no
/// part in it.
pub(crate) const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(60), between: Duration::from_secs(20), count: 3 };

/// How long a program may take to read what ended before it was reset, how often it is looked whether it has, and how
/// much of what it says meanwhile is thrown away then: it may read only when it has said it.
const READ_MAX: Duration = Duration::from_secs(5 * 60);
const LOOK: Duration = Duration::from_millis(50);
const DISCARD: usize = 64 << 10;

/// A TCP connection that is closed with a reset, unless it came to its end in good order: nobody is
/// to take what came for the whole. That is set from the beginning, for this process may be killed.
pub(crate) struct Tcp {
    stream: TcpStream,
}

impl Tcp {
    /// Takes over a connection: bytes leave at once, and an end that has gone without a word is
    /// noticed.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Tcp> {
        harden(&stream, &KEEP_ALIVE)?;
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(Tcp { stream })
    }

    /// Waits until the connection is reset, or its other end has gone without a word; for ever if it had sent its end.
    pub(crate) async fn broken(&self) {
        if broken(&self.stream).await.kind() == io::ErrorKind::BrokenPipe {
            std::future::pending().await
        }
    }

    /// It was reset behind the end that the program was sent, or in the middle. A reset takes back what the system
    /// could not hand over yet: that may be all of an answer.
    async fn reset(self) {
        let mut buffer = vec![0; DISCARD];
        let read = async {
            while !is_end_acknowledged(&self.stream) {
                let _ = self.stream.try_read(&mut buffer);
                sleep(LOOK).await;
            }
        };
        // With the connection goes whatever a program does not read at all.
        let _ = timeout(READ_MAX, read).await;
    }

    /// It came to its end in good order.
    fn close(self) {
        // Fails if the connection has gone, and then there is nothing to close.
        let _ = sockopt::set_socket_linger(&self.stream, None);
    }
}

/// Waits until the connection is reset, or its other end has gone without a word; the end of what it sends is neither.
async fn broken(stream: &TcpStream) -> io::Error {
    let failed = stream.ready(Interest::ERROR).await.err();
    // Whoever sent just then may have been told already.
    let told = failed.or_else(|| stream.take_error().unwrap_or_else(Some));
    told.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
}

/// Moves bytes both ways until the connection is over; says how it ended. `accepted`: whether the
/// stream was asked for by the other end, and stands from now on.
pub(crate) async fn pump(carrier: &Arc<Carrier>, door: &Door, mut tcp: Tcp, accepted: bool) -> End {
    if accepted {
        carrier.accept(door);
    }
    let (read, write) = tcp.stream.split();
    let both = async {
        let done = Done::default();
        tokio::try_join!(send_on(carrier, door, read, &done), write_on(carrier, door, write, &done))
    };
    let end = tokio::select! {
        biased;
        end = door.ended() => end,
        moved = both => {
            if moved.is_err() {
                carrier.broke(door);
            }
            // After both ends the last bytes may still be on their way to the other side.
            door.ended().await
        }
    };
    match end {
        End::Done => tcp.close(),
        End::Refused(_) | End::Reset(_) => reset(carrier, tcp),
    }
    end
}

/// Resets a connection, at once unless its program has something to read first and not too many wait for that.
fn reset(carrier: &Carrier, tcp: Tcp) {
    if !is_end_acknowledged(&tcp.stream)
        && let Ok(place) = carrier.lingering.clone().try_acquire_owned()
    {
        tokio::spawn(async move {
            tcp.reset().await;
            drop(place);
        });
    }
}

/// What a direction has done, for the other one to know.
#[derive(Default)]
struct Done {
    /// The end from the other side was written.
    written: Notify,
    /// All that came was sent on, and its end.
    read: Notify,
    /// A reset behind that end was told of. The system does so once.
    gone: AtomicBool,
}

impl Done {
    /// Whether this tells of a reset behind the end that came.
    fn is_behind_its_end(&self, e: &io::Error) -> bool {
        self.gone.fetch_or(e.kind() == io::ErrorKind::BrokenPipe, Relaxed);
        self.gone.load(Relaxed)
    }
}

/// From TCP to the other end, and then waits for a reset until the other direction has ended, too.
async fn send_on(carrier: &Arc<Carrier>, door: &Door, mut from: ReadHalf<'_>, done: &Done) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        let room = room(carrier, door, from.as_ref(), done).await?;
        buffer.reserve(room);
        if (&mut from).take(room as u64).read_buf(&mut buffer).await? == 0 {
            break;
        }
        let mut rest = carrier.send(door, buffer.split().freeze());
        // Room does not shrink but for a forecast that fell meanwhile.
        while let Some(left) = rest.take().filter(|left| !left.is_empty()) {
            self::room(carrier, door, from.as_ref(), done).await?;
            rest = carrier.send(door, left);
        }
    }
    carrier.finish(door);
    done.read.notify_one();
    let tcp = from.as_ref();
    // Who has closed altogether is forgotten by its kernel after a minute. Then a question, or our end, is answered
    // with a reset that means nothing, and what was sent may still be on its way.
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

/// Waits for room to send; for ever if the stream is over: whoever waits for its end is told. A connection that is
/// reset meanwhile need not be read to its end; but if its end had come before, all that came is sent on.
async fn room(carrier: &Arc<Carrier>, door: &Door, from: &TcpStream, done: &Done) -> io::Result<usize> {
    loop {
        match carrier.room(door) {
            Some(0) if done.gone.load(Relaxed) => door.room.notified().await,
            Some(0) => tokio::select! {
                biased;
                () = door.room.notified() => {}
                e = broken(from) => if !done.is_behind_its_end(&e) {
                    return Err(e);
                },
            },
            Some(room) => return Ok(room),
            None => std::future::pending().await,
        }
    }
}

/// From the other end to TCP.
async fn write_on(carrier: &Arc<Carrier>, door: &Door, mut to: WriteHalf<'_>, done: &Done) -> io::Result<()> {
    loop {
        match carrier.take(door) {
            Some(Taken::Bytes(bytes)) => {
                let written = to.write_all(&bytes).await;
                // Who has closed altogether answers a late word with a reset. What it sent before goes on first.
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
            Some(Taken::Nothing) => door.readable.notified().await,
            // The stream is over: whoever waits for its end is told.
            None => std::future::pending().await,
        }
    }
}
