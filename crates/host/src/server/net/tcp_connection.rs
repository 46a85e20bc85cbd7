//! A TCP connection: records in (RFC 5531, section 11), replies out in any order.
//!
//! While nothing is under way a connection holds no buffer: it receives into one that its
//! thread lends, and keeps only what is left of a record that has not come to its end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use remora_base::{Peer, Time, host_of};
use remora_server::Programs;
use remora_wire::record::RecordReader;
use rustix::io::ioctl_fionread;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;

use super::context::NetContext;
use super::reply_queue::{Flow, ReplyQueue};
use crate::clock::timeout;
use crate::server::admission::eviction::{Holder, Occupant};
use crate::server::admission::permits::{Receiving, Share};
use crate::server::admission::request_size;
use crate::server::shards::dispatcher::AdmittedRequest;
use crate::server::shards::reply_path::{Reply, ReplyPath};

/// What a thread lends for receiving, in bytes; requests up to this size need no room of
/// their own. Of a larger one as much must have arrived before the connection takes room for it.
const SCRATCH: usize = 16 << 10;
/// The system's buffers for a peer that may use no export, in bytes: its requests that wait, and refusals that it does
/// not read.
const STRANGER_BUFFER: usize = 16 << 10;
/// The largest record where NFS is not answered: more than any call of MOUNT or the portmapper has.
const SMALL_RECORD_MAX: usize = 4 << 10;
/// How long a large request may take to arrive while others need the room that it takes: this, and a second more for
/// so many bytes of it that have arrived.
const PARTIAL_MAX_CROWDED: Duration = Duration::from_secs(2);
const BYTES_PER_SECOND_CROWDED: usize = 8 << 10;
/// How often a connection that holds such room looks whether others need it.
const LOOK: Duration = Duration::from_secs(1);
/// Most records that are handed to the core together, and the bytes with which they are enough.
const TOGETHER_MAX: usize = 32;
const TOGETHER_BYTES: usize = 256 << 10;
/// Bytes of a record's mark.
const MARK: usize = 4;
/// A record's bytes beside the data of a WRITE: headers, credentials, handle.
pub(crate) const RECORD_OVERHEAD: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

/// What others see of a connection.
#[derive(Debug)]
pub(crate) struct TcpConnection {
    id: u64,
    peer: Peer,
    programs: Programs,
    share: Share,
    replies: ReplyQueue,
    stop: Notify,
    evicted: AtomicBool,
    /// When something last came in, in nanoseconds of the context's clock.
    heard: AtomicU64,
}

/// How a connection came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The client sends no more; it may still want its replies.
    Closed,
    /// The connection broke.
    Broken,
    BadRecord,
    Partial,
    Stalled,
    Idle,
    /// We want it to end.
    Stopped,
}

impl ReplyPath for TcpConnection {
    fn id(&self) -> u64 {
        self.id
    }

    fn peer(&self) -> Peer {
        self.peer
    }

    fn share(&self) -> &Share {
        &self.share
    }

    fn expect(&self) {
        self.replies.expect();
    }

    fn send(&self, replies: Vec<Reply>) {
        self.replies.send_expected(replies);
    }

    fn seems_delivered(&self) -> bool {
        self.replies.seems_delivered()
    }

    fn is_broken(&self) -> bool {
        self.replies.is_broken()
    }

    fn stop(&self) {
        self.stop.notify_one();
    }

    fn evict(&self) {
        self.evicted.store(true, Relaxed);
        self.stop();
    }

    fn occupant(&self, now: Time, owed: &BTreeSet<Peer>) -> Option<Occupant> {
        if self.evicted.load(Relaxed) {
            return None;
        }
        let is_stranger = self.share.is_stranger();
        // A stranger's calls are refused: it loses nothing when its connection ends.
        let is_idle = is_stranger || (self.share.room.is_free() && !owed.contains(&self.peer));
        let idle = is_idle.then(|| now.since(Time::from_nanos(self.heard.load(Relaxed))));
        Some(Occupant { holder: Holder { host: host_of(self.peer.addr), is_stranger }, idle })
    }
}

impl TcpConnection {
    /// Writes on whenever the socket takes bytes again; ends when it does not for too long.
    async fn write_on(&self, context: &NetContext) -> End {
        loop {
            self.replies.halted().await;
            self.replies.look();
            loop {
                let max = context.stall_max(&self.share);
                let pause = (max / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
                let writable = timeout(pause, self.replies.writable()).await;
                if writable.is_err() {
                    self.replies.look();
                }
                let flow = match writable {
                    Ok(Ok(())) => self.replies.resume(),
                    Ok(Err(_)) => return End::Broken,
                    Err(_) if self.replies.stalled_for() >= max => return End::Stalled,
                    Err(_) => Flow::Blocked,
                };
                match flow {
                    Flow::Blocked => {}
                    Flow::Closed => return End::Broken,
                    Flow::Open | Flow::Writing => break,
                }
            }
        }
    }

    /// Reads until there is nothing more to read; then waits until all is answered.
    async fn read_on(&self, context: &NetContext, socket: OwnedReadHalf) -> End {
        let mut inbound = Inbound::new(context, socket);
        let end = tokio::select! {
            end = inbound.run(self, context) => end,
            () = self.stop.notified() => if self.evicted.load(Relaxed) { End::Idle } else { End::Stopped },
        };
        match end {
            End::Closed | End::Idle => self.all_answered(context).await,
            // Who is cut off at the end of it asks again, as whenever a server goes.
            End::Stopped => _ = timeout(context.limits.shutdown_max, self.take_leave(context)).await,
            End::Broken | End::BadRecord | End::Partial | End::Stalled => {}
        }
        end
    }

    /// Waits until all is answered, and the socket has the answers.
    async fn all_answered(&self, context: &NetContext) {
        context.all_answered(self.peer, &self.share, || self.replies.is_empty()).await;
    }

    /// Whether nothing is under way, and no reply is on its way here from another connection's call.
    fn is_at_rest(&self, context: &NetContext) -> bool {
        self.share.room.is_free() && !context.dispatcher.owes(self.peer)
    }

    /// Waits until all is answered and the answers are there. Requests that come meanwhile are thrown away, not left in the
    /// socket: answers would be thrown away with them, and after a restart their calls be executed again.
    async fn take_leave(&self, context: &NetContext) {
        let mut arrive = pin!(async {
            self.all_answered(context).await;
            self.replies.arrive().await;
        });
        tokio::select! {
            () = &mut arrive => {}
            () = self.replies.discard_input() => arrive.await,
        }
    }
}

/// Enters a connection that was accepted from `addr`, for these programs.
pub(crate) fn open(
    context: &NetContext,
    stream: TcpStream,
    addr: SocketAddr,
    programs: Programs,
) -> (Arc<TcpConnection>, OwnedReadHalf) {
    let (read, write) = stream.into_split();
    let connection = context.connect(addr, |id, share| TcpConnection {
        id,
        peer: Peer::stream(addr, id),
        programs,
        share,
        replies: ReplyQueue::new(write, context.dispatcher.clock),
        stop: Notify::new(),
        evicted: AtomicBool::new(false),
        heard: AtomicU64::new(context.dispatcher.clock.now().as_nanos()),
    });
    if connection.share.is_stranger() {
        // If one fails the system holds more of what is not read.
        let _ = sockopt::set_socket_send_buffer_size(read.as_ref(), STRANGER_BUFFER);
        let _ = sockopt::set_socket_recv_buffer_size(read.as_ref(), STRANGER_BUFFER);
    }
    (connection, read)
}

/// Serves a connection until it ends.
pub(crate) async fn run(context: Arc<NetContext>, connection: Arc<TcpConnection>, read: OwnedReadHalf) {
    let end = tokio::select! {
        end = connection.write_on(&context) => end,
        end = connection.read_on(&context, read) => end,
    };
    let counters = &context.counters;
    match end {
        End::Closed | End::Broken => counters.closed_by_client.count(),
        End::BadRecord => counters.closed_bad_record.count(),
        End::Partial => counters.closed_partial.count(),
        End::Stalled => counters.closed_stalled.count(),
        End::Idle => counters.closed_idle.count(),
        End::Stopped => {}
    }
    // In both cases all requests have been answered by now.
    let arrived = matches!(end, End::Closed | End::Idle) && connection.replies.is_delivered();
    context.disconnect(connection.id, connection.peer, arrived);
    connection.replies.close(end == End::Stalled);
}

/// The incoming half.
struct Inbound {
    socket: OwnedReadHalf,
    reader: RecordReader,
    /// Room for a record larger than [`SCRATCH`], while it is not complete.
    room: Option<Receiving>,
    /// Whether the last record was larger than [`SCRATCH`].
    large: bool,
    /// The most bytes that a record and its last mark have.
    max: usize,
    /// Since when there has been a record that is not complete.
    partial_since: Option<Time>,
}

impl Inbound {
    fn new(context: &NetContext, socket: OwnedReadHalf) -> Inbound {
        let max = context.core_limits.stream_io_max as usize + RECORD_OVERHEAD;
        Inbound {
            socket,
            reader: RecordReader::new(max),
            room: None,
            large: false,
            max: max + MARK,
            partial_since: None,
        }
    }

    async fn run(&mut self, connection: &TcpConnection, context: &NetContext) -> End {
        let mut admitted = Admitted { context, connection, records: Vec::new(), bytes: 0 };
        loop {
            if self.whole() > self.record_max(connection) {
                return End::BadRecord;
            }
            if let Err(end) = admitted.let_in(self.make_room(connection, context)).await {
                return end;
            }
            let received = match self.patience(connection, context) {
                None => admitted.before_waiting(self.receive(&connection.replies)).await,
                Some(left) => {
                    let pause = if self.room.is_some() { left.min(LOOK) } else { left };
                    match timeout(pause, admitted.before_waiting(self.receive(&connection.replies))).await {
                        Ok(received) => received,
                        Err(_) if pause < left => continue,
                        Err(_) if self.partial_since.is_some() => return End::Partial,
                        Err(_) if connection.is_at_rest(context) => return End::Idle,
                        Err(_) => continue,
                    }
                }
            };
            match received {
                Ok(0) => return End::Closed,
                Ok(_) => connection.heard.store(context.dispatcher.clock.now().as_nanos(), Relaxed),
                Err(_) => return End::Broken,
            }
            if let Err(end) = self.take_records(connection, context, &mut admitted).await {
                return end;
            }
        }
    }

    /// How long the next bytes may take to come.
    fn patience(&self, connection: &TcpConnection, context: &NetContext) -> Option<Duration> {
        let Some(since) = self.partial_since else { return context.limits.idle_max };
        let (held, max) = (self.reader.held(), context.limits.partial_max);
        let allowed = |base, rate| base + Duration::from_secs((held / rate) as u64);
        let mut allowed_max = allowed(max, 1024);
        if self.room.is_some() && context.admission.keeps_receivers_waiting(&connection.share) {
            allowed_max = allowed_max.min(allowed(PARTIAL_MAX_CROWDED, BYTES_PER_SECOND_CROWDED));
        }
        Some((since + allowed_max).since(context.dispatcher.clock.now()))
    }

    /// The largest record that is taken from this peer, with its mark.
    fn record_max(&self, connection: &TcpConnection) -> usize {
        match connection.programs {
            Programs::All => self.max,
            _ => SMALL_RECORD_MAX + MARK,
        }
    }

    /// Takes room for a record larger than [`SCRATCH`] when so much of it has arrived: once, so a record in fragments, whose
    /// end is not known, gets as much as any may have. The wait is not the client's fault, so
    /// it does not count against its patience.
    async fn make_room(&mut self, connection: &TcpConnection, context: &NetContext) {
        let whole = self.whole();
        if whole <= SCRATCH || self.room.is_some() || self.arrived() < SCRATCH {
            return;
        }
        let began = context.dispatcher.clock.now();
        let bytes = if self.in_fragments() { self.max } else { whole };
        self.room = Some(context.admission.receive(&connection.share, bytes).await);
        self.partial_since = self.partial_since.map(|since| since + context.dispatcher.clock.now().since(began));
    }

    /// Bytes that have arrived, those included that the socket still has.
    fn arrived(&self) -> usize {
        let held = self.reader.held();
        match held < SCRATCH {
            // If this fails the bytes count when they are here.
            true => held + ioctl_fionread(self.socket.as_ref()).unwrap_or(0) as usize,
            false => held,
        }
    }

    /// Whether the record at the front has more than one fragment.
    fn in_fragments(&mut self) -> bool {
        let held = self.reader.held();
        let input = self.reader.buffer();
        held > input.len() || input.first().is_some_and(|first| first & 0x80 == 0)
    }

    /// Bytes of the record at the front, as far as its fragments have told.
    fn whole(&mut self) -> usize {
        self.reader.held().saturating_add(missing(self.reader.buffer()))
    }

    async fn receive(&mut self, replies: &ReplyQueue) -> io::Result<usize> {
        if self.whole() <= SCRATCH {
            return self.receive_by_scratch().await;
        }
        // What there is no room for yet stays in the socket.
        let max = if self.room.is_some() { usize::MAX } else { SCRATCH.saturating_sub(self.reader.held()).max(1) };
        let buffer = self.reader.buffer();
        let missing = missing(buffer).min(max);
        if buffer.capacity() - buffer.len() < missing {
            // A page at least: small fragments must not take a system call each. And the mark
            // of the next record, which then comes to its own buffer without being copied.
            buffer.reserve((missing + MARK).max(4096));
        }
        let mut into = buffer.limit(max);
        let mut read = pin!(self.socket.read_buf(&mut into));
        poll_fn(|cx| {
            let _held = replies.hold();
            read.as_mut().poll(cx)
        })
        .await
    }

    async fn receive_by_scratch(&mut self) -> io::Result<usize> {
        poll_fn(|cx| {
            BUFFER.with_borrow_mut(|scratch| {
                // Large records come one behind the other: of the next one only the mark is taken
                // here, and the rest goes where it is to stay. With its mark it is known to be a small one.
                let most = if self.large && self.reader.held() < MARK { MARK } else { SCRATCH };
                let mut into = ReadBuf::new(scratch.get_mut(..most).unwrap_or_default());
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut into))?;
                self.reader.push(into.filled());
                Poll::Ready(Ok(into.filled().len()))
            })
        })
        .await
    }

    /// Takes whole records for the core, each when it is admitted.
    async fn take_records(
        &mut self,
        connection: &TcpConnection,
        context: &NetContext,
        admitted: &mut Admitted<'_>,
    ) -> Result<(), End> {
        let mut whole = false;
        while let Some(record) = self.reader.next_record().map_err(|_| End::BadRecord)? {
            whole = true;
            if record.len() + MARK > self.record_max(connection) {
                return Err(End::BadRecord);
            }
            self.large = record.len() > SCRATCH;
            let cost = request_size::of(&record, connection.share.is_stranger(), context.core_limits.stream_io_max);
            let permit = admitted.let_in(context.admission.admit(&connection.share, cost)).await?;
            admitted.add(AdmittedRequest { message: record, permit });
        }
        if whole {
            (self.room, self.partial_since) = (None, None);
            // What is left must not keep the buffer of a large record from being given back.
            let left = self.reader.buffer();
            *left = BytesMut::from(left.as_ref());
        }
        if self.reader.held() == 0 {
            *self.reader.buffer() = BytesMut::new();
        } else if self.partial_since.is_none() {
            self.partial_since = Some(context.dispatcher.clock.now());
        }
        Ok(())
    }
}

/// Records that have been admitted and are to be handed to the core together: threads that are
/// woken for each of them would spend more time on that than on the record. Nobody waits for
/// anything while there are some, neither for bytes nor for room, which others may be waiting for.
struct Admitted<'a> {
    context: &'a NetContext,
    connection: &'a TcpConnection,
    records: Vec<AdmittedRequest>,
    bytes: usize,
}

impl Admitted<'_> {
    fn add(&mut self, request: AdmittedRequest) {
        self.bytes += request.message.len();
        self.records.push(request);
        if self.records.len() >= TOGETHER_MAX || self.bytes >= TOGETHER_BYTES {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        self.bytes = 0;
        // An idle connection keeps no room for records.
        let records = std::mem::take(&mut self.records);
        if !records.is_empty() {
            self.context.dispatcher.records(self.connection.peer, self.connection.programs, records);
        }
    }

    /// Does `work`, which gives leave to go on. Whose connection broke while that had to wait may have asked again on
    /// another one, and got the answer there: what waited here is done no more.
    async fn let_in<F: Future>(&mut self, work: F) -> Result<F::Output, End> {
        let mut has_waited = false;
        let mut work = pin!(work);
        let noting = poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            has_waited |= polled.is_pending();
            polled
        });
        let done = self.before_waiting(noting).await;
        if has_waited && self.connection.replies.is_broken() { Err(End::Broken) } else { Ok(done) }
    }

    /// Does `work`; if that has to wait, all records are handed on first.
    async fn before_waiting<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                self.hand_on();
            }
            polled
        })
        .await
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.hand_on();
    }
}

/// Bytes that the fragment at the front of `input` still lacks, its mark included.
fn missing(input: &BytesMut) -> usize {
    let Some(mark) = input.first_chunk::<4>() else { return 4 - input.len().min(4) };
    let len = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
    (4 + len).saturating_sub(input.len())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::Clock;

    #[tokio::test]
    async fn a_small_record_behind_a_large_one_takes_two_reads() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, write) = listener.accept().await.unwrap().0.into_split();
        let replies = ReplyQueue::new(write, Clock::start());
        let (reader, max) = (RecordReader::new(1 << 20), 1 << 20);
        let mut inbound = Inbound { socket, reader, room: None, large: true, max, partial_since: None };
        client.write_all(&[&remora_wire::record::mark(1000)[..], &[0; 1000]].concat()).await.unwrap();
        let mut reads = 0;
        while inbound.reader.next_record().unwrap().is_none() {
            inbound.receive(&replies).await.unwrap();
            reads += 1;
        }
        assert_eq!(reads, 2, "its mark, and the rest");
    }
}
