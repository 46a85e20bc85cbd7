//! The queue of a TCP connection's replies.
//!
//! The first thread that has a reply writes it, and all replies that other threads add meanwhile, in few system
//! calls. When the socket's buffer is full, the connection's task continues. The permits of the queued replies bound
//! the queue.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::record;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

use super::tcp_ack::{acknowledged, is_all_acknowledged, is_none_overdue};
use crate::Clock;
use crate::server::admission::permits::Permit;
use crate::server::shards::reply_path::Reply;
use crate::tcp::{CLOSE, is_end_acknowledged, state};

/// Most replies in a system call.
const BATCH: usize = 16;
/// Bytes discarded in one read.
const DISCARD: usize = 16 << 10;
/// Time between two checks at the end of a connection whether the client has received everything.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct ReplyQueue {
    socket: OwnedWriteHalf,
    clock: Clock,
    queue: Mutex<Queue>,
    /// Notified when the flow becomes [`Flow::Blocked`] or [`Flow::Closed`].
    halted: Notify,
    /// Announced replies that are not queued yet, by batches.
    expected: AtomicUsize,
}

#[derive(Debug)]
struct Queue {
    items: VecDeque<Item>,
    flow: Flow,
    /// Whether the reading task is at work and writes afterwards.
    held: bool,
    /// When the socket last took bytes, or the client acknowledged some, or the first reply was queued.
    progress: Time,
    /// Bytes that the client had acknowledged at the last check.
    acknowledged: Option<u64>,
}

/// The state of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The queue is empty, or the reading task holds it.
    Open,
    /// A thread writes.
    Writing,
    /// The socket's buffer is full.
    Blocked,
    /// The connection can send no more.
    Closed,
}

#[derive(Debug)]
struct Item {
    mark: [u8; 4],
    payload: Bytes,
    /// Bytes of mark and payload that are sent.
    sent: usize,
    _permit: Option<Permit>,
}

impl ReplyQueue {
    pub(crate) fn new(socket: OwnedWriteHalf, clock: Clock) -> ReplyQueue {
        let queue =
            Queue { items: VecDeque::new(), flow: Flow::Open, held: false, progress: Time::ZERO, acknowledged: None };
        ReplyQueue { socket, clock, queue: Mutex::new(queue), halted: Notify::new(), expected: AtomicUsize::new(0) }
    }

    /// Sends or queues replies. A permit is given back when the socket has taken all of its reply.
    pub(crate) fn send(&self, replies: Vec<Reply>) {
        let mut queue = self.lock();
        if queue.flow == Flow::Closed {
            return;
        }
        queue.items.extend(replies.into_iter().map(|Reply { payload, permit }| {
            let mark = record::mark(payload.len());
            Item { mark, payload, sent: 0, _permit: permit }
        }));
        if queue.flow == Flow::Open {
            queue.progress = self.clock.now();
            if !queue.held {
                self.pump(queue);
            }
        }
    }

    /// Announces replies. The caller holds the lock of their core.
    pub(crate) fn expect(&self) {
        self.expected.fetch_add(1, Relaxed);
    }

    /// Sends the replies that were announced.
    pub(crate) fn send_expected(&self, replies: Vec<Reply>) {
        self.send(replies);
        self.expected.fetch_sub(1, Release);
    }

    /// Whether the socket has taken all replies that left the core, or never will.
    pub(crate) fn is_empty(&self) -> bool {
        // In this order: replies that are no longer announced are in the queue.
        self.expected.load(Acquire) == 0 && {
            let queue = self.lock();
            queue.flow == Flow::Closed || (queue.flow == Flow::Open && queue.items.is_empty())
        }
    }

    /// Queues replies without writing them until the caller drops the returned guard. The caller holds it while it
    /// reads much data from the same socket, and no longer: the kernel blocks writers meanwhile.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.lock().held = true;
        Held(self)
    }

    pub(crate) async fn halted(&self) {
        self.halted.notified().await;
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Continues to write after the flow was blocked.
    pub(crate) fn resume(&self) -> Flow {
        let queue = self.lock();
        match queue.flow {
            Flow::Blocked => self.pump(queue),
            flow => flow,
        }
    }

    /// Checks what the client has acknowledged, and notes progress. The system reports a socket writable only when a
    /// third of its buffer is free, which a slow client takes long to read.
    pub(crate) fn look(&self) {
        let acknowledged = acknowledged(self.socket.as_ref());
        let mut queue = self.lock();
        if acknowledged > queue.acknowledged {
            queue.acknowledged = acknowledged;
            queue.progress = self.clock.now();
        }
    }

    /// The time since the last progress.
    pub(crate) fn stalled_for(&self) -> Duration {
        self.clock.now().since(self.lock().progress)
    }

    /// Whether the client has acknowledged all that the socket has taken.
    pub(crate) fn is_delivered(&self) -> bool {
        is_all_acknowledged(self.socket.as_ref())
    }

    /// The same, if an acknowledgement that is not overdue counts as received.
    pub(crate) fn seems_delivered(&self) -> bool {
        is_none_overdue(self.socket.as_ref())
    }

    /// Whether the client has reset the connection or is known to be gone.
    pub(crate) fn is_broken(&self) -> bool {
        state(self.socket.as_ref()) == Some(CLOSE)
    }

    /// Sends FIN and waits until the client has received everything. The queue must be empty.
    pub(crate) async fn arrive(&self) {
        if self.is_delivered() {
            return;
        }
        // Fails if the connection is gone.
        let _ = rustix::net::shutdown(self.socket.as_ref(), rustix::net::Shutdown::Write);
        while !is_end_acknowledged(self.socket.as_ref()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Discards input until there is no more. If a socket is closed with unread input, or gets some later, the system
    /// discards its unsent output.
    pub(crate) async fn discard_input(&self) {
        let socket: &TcpStream = self.socket.as_ref();
        let mut into = vec![0; DISCARD];
        while socket.readable().await.is_ok() {
            match socket.try_read(&mut into) {
                Ok(1..) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Drops the queue and takes no more replies. With `reset` the system drops its unsent output, too.
    pub(crate) fn close(&self, reset: bool) {
        let mut queue = self.lock();
        queue.flow = Flow::Closed;
        let dropped = std::mem::take(&mut queue.items);
        drop(queue);
        drop(dropped);
        if reset {
            // If this fails, the system only keeps the bytes a little longer.
            let _ = rustix::net::sockopt::set_socket_linger(self.socket.as_ref(), Some(Duration::ZERO));
        }
    }

    /// Writes until the queue is empty or the socket's buffer full. The lock is not held while writing:
    /// [`Flow::Writing`] excludes other threads.
    fn pump<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> Flow {
        loop {
            queue.flow = Flow::Writing;
            let mut mine = std::mem::take(&mut queue.items);
            drop(queue);
            let (moved, stop) = self.write(&mut mine);
            queue = self.lock();
            if moved {
                queue.progress = self.clock.now();
            }
            match stop {
                _ if queue.flow == Flow::Closed => return Flow::Closed,
                None if queue.items.is_empty() => {
                    queue.flow = Flow::Open;
                    return Flow::Open;
                }
                None => {}
                Some(io::ErrorKind::WouldBlock) => {
                    mine.append(&mut queue.items);
                    queue.items = mine;
                    queue.flow = Flow::Blocked;
                    self.halted.notify_one();
                    return Flow::Blocked;
                }
                Some(_) => {
                    queue.items.clear();
                    queue.flow = Flow::Closed;
                    self.halted.notify_one();
                    return Flow::Closed;
                }
            }
        }
    }

    /// Writes from the front. Returns whether the socket took bytes, and the error that stopped the writing.
    fn write(&self, items: &mut VecDeque<Item>) -> (bool, Option<io::ErrorKind>) {
        let mut moved = false;
        while !items.is_empty() {
            let mut slices = [IoSlice::new(&[]); 2 * BATCH];
            for (item, pair) in items.iter().zip(slices.chunks_exact_mut(2)) {
                let (mark, payload) = item.rest();
                pair.copy_from_slice(&[IoSlice::new(mark), IoSlice::new(payload)]);
            }
            let filled = 2 * items.len().min(BATCH);
            match self.socket.try_write_vectored(slices.get(..filled).unwrap_or_default()) {
                Ok(0) => return (moved, Some(io::ErrorKind::WriteZero)),
                Ok(n) => advance(items, n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return (moved, Some(e.kind())),
            }
            moved = true;
        }
        (moved, None)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard. While it exists, new replies are only queued; its drop writes them. See [`ReplyQueue::hold`].
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a ReplyQueue);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.held = false;
        if queue.flow == Flow::Open && !queue.items.is_empty() {
            self.0.pump(queue);
        }
    }
}

impl Item {
    fn rest(&self) -> (&[u8], &[u8]) {
        let mark = self.mark.get(self.sent..).unwrap_or_default();
        let payload = self.payload.get(self.sent.saturating_sub(4)..).unwrap_or_default();
        (mark, payload)
    }

    fn left(&self) -> usize {
        (self.mark.len() + self.payload.len()).saturating_sub(self.sent)
    }
}

/// Removes `n` sent bytes from the front.
fn advance(items: &mut VecDeque<Item>, mut n: usize) {
    while let Some(item) = items.front_mut() {
        if n < item.left() {
            item.sent += n;
            return;
        }
        n -= item.left();
        items.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_for_all_sizes_of_writes() {
        for step in 1..20 {
            let item = |p: &'static str| Item { mark: *b"MARK", payload: p.into(), sent: 0, _permit: None };
            let mut items = VecDeque::from([item("abc"), item(""), item("defghijk")]);
            let mut out = Vec::new();
            while !items.is_empty() {
                let flat: Vec<u8> = items.iter().flat_map(|i| [i.rest().0, i.rest().1].concat()).collect();
                let n = step.min(flat.len());
                out.extend_from_slice(&flat[..n]);
                advance(&mut items, n);
            }
            assert_eq!(out, b"MARKabcMARKMARKdefghijk");
        }
    }

    /// A queue, and the peer's end of its connection.
    async fn connected() -> (ReplyQueue, tokio::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_read, write) = listener.accept().await.unwrap().0.into_split();
        write.writable().await.unwrap();
        (ReplyQueue::new(write, Clock::start()), other)
    }

    fn reply(payload: &'static str) -> Vec<Reply> {
        vec![Reply { payload: payload.into(), permit: None }]
    }

    #[tokio::test]
    async fn replies_to_a_held_queue_leave_on_release() {
        use tokio::io::AsyncReadExt;

        let (replies, mut other) = connected().await;
        let held = replies.hold();
        replies.send(reply("one"));
        replies.send(reply("two"));
        assert_eq!(replies.lock().items.len(), 2, "nobody else writes");
        assert_eq!(other.try_read(&mut [0; 16]).map_err(|e| e.kind()), Err(io::ErrorKind::WouldBlock));
        drop(held);
        replies.send(reply("three"));
        let mut all = [0; 23];
        tokio::time::timeout(Duration::from_secs(20), other.read_exact(&mut all)).await.unwrap().unwrap();
        assert_eq!(all, *b"\x80\0\0\x03one\x80\0\0\x03two\x80\0\0\x05three");
    }

    #[tokio::test]
    async fn queue_is_empty_when_the_socket_has_all_replies() {
        use tokio::io::AsyncReadExt;

        let (replies, mut other) = connected().await;
        replies.expect();
        assert!(!replies.is_empty(), "it is on its way here");
        replies.send_expected(reply("one"));
        assert!(replies.is_empty());
        replies.send(vec![Reply { payload: vec![0; 16 << 20].into(), permit: None }]);
        assert!(!replies.is_empty(), "more than the socket takes");
        let mut all = vec![0; 7 + 4 + (16 << 20)];
        let reading = other.read_exact(&mut all);
        let writing = async {
            while replies.resume() == Flow::Blocked {
                replies.writable().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(writing, reading).1 })
            .await
            .unwrap()
            .unwrap();
        assert!(replies.is_empty());
        replies.send(vec![Reply { payload: vec![0; 16 << 20].into(), permit: None }]);
        replies.close(false);
        assert!(replies.is_empty(), "nothing more is given to it");
    }
}
