//! TCP connections: accepts them, receives records (RFC 5531, section 11) and sends replies in any order.
//!
//! An idle connection holds no buffer. It receives into a buffer of its thread and only keeps the rest of an
//! incomplete record.

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
use remora_vfs::local::note_fd_exhaustion;
use remora_wire::record::RecordReader;
use rustix::io::ioctl_fionread;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tracing::debug;

use super::context::{ConnectionEnd, NetContext};
use super::reply_queue::{Flow, ReplyQueue};
use crate::clock::timeout;
use crate::server::admission::eviction::{Holder, Occupant};
use crate::server::admission::permits::{ConnectionShare, Receiving};
use crate::server::admission::request_size;
use crate::server::shards::dispatcher::AdmittedRequest;
use crate::server::shards::reply_path::{Reply, ReplyPath};
use crate::tcp::{KeepAlive, harden};

/// The size of a thread's receive buffer, in bytes. Requests up to this size need no reservation. Of a larger one
/// this much must have arrived before the connection reserves memory for it.
const SCRATCH: usize = 16 << 10;
/// The system's buffers for a peer that may use no export, in bytes: for its requests, and for refusals that it does
/// not read.
const STRANGER_BUFFER: usize = 16 << 10;
/// The largest record where NFS is not served: larger than any call of MOUNT or the portmapper.
const SMALL_RECORD_MAX: usize = 4 << 10;
/// How long a large request may take to arrive while others need its memory, plus 1 s for each of these units that
/// has arrived.
const PARTIAL_MAX_CROWDED: Duration = Duration::from_secs(2);
const BYTES_PER_SECOND_CROWDED: usize = 8 << 10;
/// Time between two checks whether others need the memory.
const LOOK: Duration = Duration::from_secs(1);
/// Most records, and most bytes, that go to the core together.
const TOGETHER_MAX: usize = 32;
const TOGETHER_BYTES: usize = 256 << 10;
/// Bytes of a record mark.
const MARK: usize = 4;
/// Bytes of a record in addition to the data of a WRITE: headers, credential, handle.
pub(crate) const RECORD_OVERHEAD: usize = 64 << 10;

/// Pause after a failed accept, for instance for lack of descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A peer is dead if it is silent for `idle` and then for `count` probes.
const KEEP_ALIVE: KeepAlive = KeepAlive { idle: Duration::from_secs(120), between: Duration::from_secs(30), count: 8 };

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

#[derive(Debug)]
pub(crate) struct TcpConnection {
    id: u64,
    peer: Peer,
    programs: Programs,
    share: ConnectionShare,
    replies: ReplyQueue,
    stop: Notify,
    evicted: AtomicBool,
    /// When the last bytes arrived, in nanoseconds of the context's clock.
    heard: AtomicU64,
}

impl ReplyPath for TcpConnection {
    fn id(&self) -> u64 {
        self.id
    }

    fn peer(&self) -> Peer {
        self.peer
    }

    fn share(&self) -> &ConnectionShare {
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
        // A stranger's calls are refused, so it loses nothing.
        let is_idle = is_stranger || (self.share.room.is_free() && !owed.contains(&self.peer));
        let idle = is_idle.then(|| now.since(Time::from_nanos(self.heard.load(Relaxed))));
        Some(Occupant { holder: Holder { host: host_of(self.peer.addr), is_stranger }, idle })
    }
}

impl TcpConnection {
    /// Continues to write whenever the socket becomes writable. Ends when it does not for too long.
    async fn write_on(&self, context: &NetContext) -> ConnectionEnd {
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
                    Ok(Err(_)) => return ConnectionEnd::Broken,
                    Err(_) if self.replies.stalled_for() >= max => return ConnectionEnd::Stalled,
                    Err(_) => Flow::Blocked,
                };
                match flow {
                    Flow::Blocked => {}
                    Flow::Closed => return ConnectionEnd::Broken,
                    Flow::Open | Flow::Writing => break,
                }
            }
        }
    }

    /// Reads until the input ends, then waits until all calls are answered.
    async fn read_on(&self, context: &NetContext, socket: OwnedReadHalf) -> ConnectionEnd {
        let mut inbound = Inbound::new(context, socket);
        let end = tokio::select! {
            end = inbound.run(self, context) => end,
            () = self.stop.notified() => if self.evicted.load(Relaxed) { ConnectionEnd::Idle } else { ConnectionEnd::Stopped },
        };
        match end {
            ConnectionEnd::Closed | ConnectionEnd::Idle => self.all_answered(context).await,
            // A client that is cut off sends its calls again, as after a restart.
            ConnectionEnd::Stopped => _ = timeout(context.limits.shutdown_max, self.take_leave(context)).await,
            ConnectionEnd::Broken | ConnectionEnd::BadRecord | ConnectionEnd::Partial | ConnectionEnd::Stalled => {}
        }
        end
    }

    /// Waits until all calls are answered and the socket has the replies.
    async fn all_answered(&self, context: &NetContext) {
        context.all_answered(self.peer, &self.share, || self.replies.is_empty()).await;
    }

    /// Whether no call is in progress, and no reply to a call from another connection is due here.
    fn is_at_rest(&self, context: &NetContext) -> bool {
        self.share.room.is_free() && !context.dispatcher.owes(self.peer)
    }

    /// Waits until all calls are answered and the replies delivered. Discards requests that arrive meanwhile: the
    /// system would drop unsent replies with unread input, and the client would send those calls again to be executed
    /// a second time.
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

/// Accepts connections on which `programs` are served, for ever.
pub(crate) async fn accept(context: Arc<NetContext>, listener: TcpListener, programs: Programs) {
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => welcome(&context, stream, addr, programs),
            Err(e) => {
                context.counters.accept_errors.count();
                note_fd_exhaustion(e.raw_os_error().unwrap_or_default());
                // A client that left the backlog is no reason for a pause.
                if e.kind() != io::ErrorKind::ConnectionAborted {
                    context.evict_idle();
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

fn welcome(context: &Arc<NetContext>, stream: TcpStream, addr: SocketAddr, programs: Programs) {
    if context.connections() >= context.connections_max() && !context.evict_for(addr) {
        context.counters.refused.count();
        debug!(client = %addr, "connection refused: no connection can be evicted");
        return;
    }
    if harden(&stream, &KEEP_ALIVE).is_ok() {
        let (connection, read) = open(context, stream, addr, programs);
        tokio::spawn(run(context.clone(), connection, read));
    }
}

/// Registers a connection that was accepted from `addr`, on which `programs` are served.
fn open(
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
        // If one fails the system buffers more.
        let _ = sockopt::set_socket_send_buffer_size(read.as_ref(), STRANGER_BUFFER);
        let _ = sockopt::set_socket_recv_buffer_size(read.as_ref(), STRANGER_BUFFER);
    }
    (connection, read)
}

/// Serves a connection until it ends.
async fn run(context: Arc<NetContext>, connection: Arc<TcpConnection>, read: OwnedReadHalf) {
    let end = tokio::select! {
        end = connection.write_on(&context) => end,
        end = connection.read_on(&context, read) => end,
    };
    // In both cases all requests are answered.
    let arrived = matches!(end, ConnectionEnd::Closed | ConnectionEnd::Idle) && connection.replies.is_delivered();
    context.disconnect(&*connection, end, arrived);
    connection.replies.close(end == ConnectionEnd::Stalled);
}

/// The input of a connection.
struct Inbound {
    socket: OwnedReadHalf,
    reader: RecordReader,
    /// The reservation for an incomplete record larger than [`SCRATCH`].
    room: Option<Receiving>,
    /// Whether the last record was larger than [`SCRATCH`].
    large: bool,
    /// Most bytes of a record and its last mark.
    max: usize,
    /// When the incomplete record began.
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

    async fn run(&mut self, connection: &TcpConnection, context: &NetContext) -> ConnectionEnd {
        let mut admitted = Admitted { context, connection, records: Vec::new(), bytes: 0 };
        loop {
            if self.whole() > self.record_max(connection) {
                return ConnectionEnd::BadRecord;
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
                        Err(_) if self.partial_since.is_some() => return ConnectionEnd::Partial,
                        Err(_) if connection.is_at_rest(context) => return ConnectionEnd::Idle,
                        Err(_) => continue,
                    }
                }
            };
            match received {
                Ok(0) => return ConnectionEnd::Closed,
                Ok(_) => connection.heard.store(context.dispatcher.clock.now().as_nanos(), Relaxed),
                Err(_) => return ConnectionEnd::Broken,
            }
            if let Err(end) = self.take_records(connection, context, &mut admitted).await {
                return end;
            }
        }
    }

    /// How long the next bytes may take to arrive.
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

    /// The largest record accepted from this peer, with its mark.
    fn record_max(&self, connection: &TcpConnection) -> usize {
        match connection.programs {
            Programs::All => self.max,
            _ => SMALL_RECORD_MAX + MARK,
        }
    }

    /// Reserves memory for a record larger than [`SCRATCH`] when that much has arrived. It does so once, so a record
    /// in several fragments, whose length is unknown, gets the maximum. The wait does not count as the client's
    /// delay.
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

    /// Bytes of the record that have arrived, including those in the socket.
    fn arrived(&self) -> usize {
        let held = self.reader.held();
        match held < SCRATCH {
            // If this fails, they count when they are read.
            true => held + ioctl_fionread(self.socket.as_ref()).unwrap_or(0) as usize,
            false => held,
        }
    }

    /// Whether the first record has more than one fragment.
    fn in_fragments(&mut self) -> bool {
        let held = self.reader.held();
        let input = self.reader.buffer();
        held > input.len() || input.first().is_some_and(|first| first & 0x80 == 0)
    }

    /// Bytes of the first record, as far as its fragments are known.
    fn whole(&mut self) -> usize {
        self.reader.held().saturating_add(missing(self.reader.buffer()))
    }

    async fn receive(&mut self, replies: &ReplyQueue) -> io::Result<usize> {
        if self.whole() <= SCRATCH {
            return self.receive_by_scratch().await;
        }
        // Without a reservation the rest stays in the socket.
        let max = if self.room.is_some() { usize::MAX } else { SCRATCH.saturating_sub(self.reader.held()).max(1) };
        let buffer = self.reader.buffer();
        let missing = missing(buffer).min(max);
        if buffer.capacity() - buffer.len() < missing {
            // A page at least, so that small fragments do not take a system call each. It includes the mark of the
            // next record, which then goes to its own buffer without a copy.
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
                // Large records come in succession: after one only the next mark is read here, so that its record
                // goes to its own buffer. The mark tells whether it is large.
                let most = if self.large && self.reader.held() < MARK { MARK } else { SCRATCH };
                let mut into = ReadBuf::new(scratch.get_mut(..most).unwrap_or_default());
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut into))?;
                self.reader.push(into.filled());
                Poll::Ready(Ok(into.filled().len()))
            })
        })
        .await
    }

    /// Admits the complete records.
    async fn take_records(
        &mut self,
        connection: &TcpConnection,
        context: &NetContext,
        admitted: &mut Admitted<'_>,
    ) -> Result<(), ConnectionEnd> {
        let mut whole = false;
        while let Some(record) = self.reader.next_record().map_err(|_| ConnectionEnd::BadRecord)? {
            whole = true;
            if record.len() + MARK > self.record_max(connection) {
                return Err(ConnectionEnd::BadRecord);
            }
            self.large = record.len() > SCRATCH;
            let cost = request_size::of(&record, connection.share.is_stranger(), context.core_limits.stream_io_max);
            let permit = admitted.let_in(context.admission.admit(&connection.share, cost)).await?;
            admitted.add(AdmittedRequest { message: record, permit });
        }
        if whole {
            (self.room, self.partial_since) = (None, None);
            // Copies the rest, so that the buffer of a large record is freed.
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

/// Admitted records that go to the core together, because waking a thread for each costs more than the record. They
/// are handed on before the connection waits for anything, bytes or permits.
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
        // An idle connection holds no capacity for records.
        let records = std::mem::take(&mut self.records);
        if !records.is_empty() {
            self.context.dispatcher.records(self.connection.peer, self.connection.programs, records);
        }
    }

    /// Awaits a permission. If it had to wait and the connection broke meanwhile, the client may have sent the
    /// request again elsewhere: the request is dropped.
    async fn let_in<F: Future>(&mut self, work: F) -> Result<F::Output, ConnectionEnd> {
        let mut has_waited = false;
        let mut work = pin!(work);
        let noting = poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            has_waited |= polled.is_pending();
            polled
        });
        let done = self.before_waiting(noting).await;
        if has_waited && self.connection.replies.is_broken() { Err(ConnectionEnd::Broken) } else { Ok(done) }
    }

    /// Awaits `work`, and hands all records on before it waits.
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

/// Bytes that the first fragment of `input` lacks, its mark included.
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
    async fn small_record_behind_large_one_takes_two_reads() {
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
