//! Replies on their way out of a connection.
//!
//! Whoever has a reply writes it: the first to come writes, and what others bring meanwhile,
//! in as few system calls as it can. When the socket takes no more, the connection's task
//! waits for it and goes on. The queue is bounded by the permits that its items hold.

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
/// Bytes that are thrown away at once.
const DISCARD: usize = 16 << 10;
/// How often it is looked whether what was sent has arrived, at the end.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The way out of a connection.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    socket: OwnedWriteHalf,
    clock: Clock,
    queue: Mutex<Queue>,
    /// Told when the flow becomes [`Flow::Blocked`] or [`Flow::Closed`].
    halted: Notify,
    /// How many times replies have left the core that have not come here yet.
    expected: AtomicUsize,
}

#[derive(Debug)]
struct Queue {
    items: VecDeque<Item>,
    flow: Flow,
    /// Whether whoever reads from the socket is at it, and writes afterwards.
    held: bool,
    /// When the socket last took something, or something began to wait, or was seen to have arrived.
    progress: Time,
    /// How many bytes the other end had acknowledged when it was last looked.
    acknowledged: Option<u64>,
}

/// What a connection's output is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Nothing waits.
    Open,
    /// Some thread is writing.
    Writing,
    /// The socket takes no more for now.
    Blocked,
    /// Nothing can be sent any more.
    Closed,
}

#[derive(Debug)]
struct Item {
    mark: [u8; 4],
    payload: Bytes,
    /// Bytes of mark and payload already sent.
    sent: usize,
    _permit: Option<Permit>,
}

impl ReplyQueue {
    /// Sends on `socket`.
    pub(crate) fn new(socket: OwnedWriteHalf, clock: Clock) -> ReplyQueue {
        let queue =
            Queue { items: VecDeque::new(), flow: Flow::Open, held: false, progress: Time::ZERO, acknowledged: None };
        ReplyQueue { socket, clock, queue: Mutex::new(queue), halted: Notify::new(), expected: AtomicUsize::new(0) }
    }

    /// Sends replies, or queues them. Each one's permit is given back when the socket has all
    /// of it.
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

    /// Replies are about to come that were in the core until now, whose lock the caller has.
    pub(crate) fn expect(&self) {
        self.expected.fetch_add(1, Relaxed);
    }

    /// They are here.
    pub(crate) fn send_expected(&self, replies: Vec<Reply>) {
        self.send(replies);
        self.expected.fetch_sub(1, Release);
    }

    /// Whether all that left the core has been given to the socket, or never will be.
    pub(crate) fn is_empty(&self) -> bool {
        // In this order: what is expected no more is in the queue by now.
        self.expected.load(Acquire) == 0 && {
            let queue = self.lock();
            queue.flow == Flow::Closed || (queue.flow == Flow::Open && queue.items.is_empty())
        }
    }

    /// Leaves all writing to the caller, who does it by letting go. The system lets nobody write
    /// to a socket while somebody copies much from it, and puts who tries to sleep. Must be held
    /// for no longer than that takes.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.lock().held = true;
        Held(self)
    }

    /// Waits until the flow is blocked or closed.
    pub(crate) async fn halted(&self) {
        self.halted.notified().await;
    }

    /// Waits until the socket takes bytes again.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Goes on after the flow was blocked.
    pub(crate) fn resume(&self) -> Flow {
        let queue = self.lock();
        match queue.flow {
            Flow::Blocked => self.pump(queue),
            flow => flow,
        }
    }

    /// Looks what the other end has acknowledged; what is more than last time is progress. The system says that
    /// a socket takes bytes again when a third of its buffer is free, and a slow client takes long to read that much.
    pub(crate) fn look(&self) {
        let acknowledged = acknowledged(self.socket.as_ref());
        let mut queue = self.lock();
        if acknowledged > queue.acknowledged {
            queue.acknowledged = acknowledged;
            queue.progress = self.clock.now();
        }
    }

    /// How long nothing has moved.
    pub(crate) fn stalled_for(&self) -> Duration {
        self.clock.now().since(self.lock().progress)
    }

    /// Whether the other end has acknowledged all that the socket was given. What waits here is not
    /// meant.
    pub(crate) fn is_delivered(&self) -> bool {
        is_all_acknowledged(self.socket.as_ref())
    }

    /// Whether it has, or will have when it comes to say so, as far as anybody can tell.
    pub(crate) fn seems_delivered(&self) -> bool {
        is_none_overdue(self.socket.as_ref())
    }

    /// Whether the other end has reset the connection, or is known to be gone.
    pub(crate) fn is_broken(&self) -> bool {
        state(self.socket.as_ref()) == Some(CLOSE)
    }

    /// Waits until all that the socket was given has arrived, nothing else waiting here, and says that no more will come.
    pub(crate) async fn arrive(&self) {
        if self.is_delivered() {
            return;
        }
        // If this fails the connection is gone.
        let _ = rustix::net::shutdown(self.socket.as_ref(), rustix::net::Shutdown::Write);
        while !is_end_acknowledged(self.socket.as_ref()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Throws away what comes in, until nothing more does: of a socket that is closed with something in it, or gets more
    /// then, the system also throws away what has not gone out.
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

    /// Drops what waits and takes no more. With `reset`, what the system has not sent yet is
    /// dropped too.
    pub(crate) fn close(&self, reset: bool) {
        let mut queue = self.lock();
        queue.flow = Flow::Closed;
        let dropped = std::mem::take(&mut queue.items);
        drop(queue);
        drop(dropped);
        if reset {
            // If this fails the system holds the bytes a little longer; nothing is lost.
            let _ = rustix::net::sockopt::set_socket_linger(self.socket.as_ref(), Some(Duration::ZERO));
        }
    }

    /// Writes until all is written or the socket takes no more. The lock is not held while
    /// writing: that flow is [`Flow::Writing`] keeps others out.
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

    /// Writes from the front; whether anything moved, and what kept the rest from moving.
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

/// See [`ReplyQueue::hold`].
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

/// Takes `n` sent bytes off the front.
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
    fn whatever_sizes_go_out_the_bytes_stay_in_order() {
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

    /// An outbox, and the other end of its connection.
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
    async fn what_comes_while_somebody_holds_the_outbox_goes_out_when_they_let_go() {
        use tokio::io::AsyncReadExt;

        let (outbox, mut other) = connected().await;
        let held = outbox.hold();
        outbox.send(reply("one"));
        outbox.send(reply("two"));
        assert_eq!(outbox.lock().items.len(), 2, "nobody else writes");
        assert_eq!(other.try_read(&mut [0; 16]).map_err(|e| e.kind()), Err(io::ErrorKind::WouldBlock));
        drop(held);
        outbox.send(reply("three"));
        let mut all = [0; 23];
        tokio::time::timeout(Duration::from_secs(20), other.read_exact(&mut all)).await.unwrap().unwrap();
        assert_eq!(all, *b"\x80\0\0\x03one\x80\0\0\x03two\x80\0\0\x05three");
    }

    #[tokio::test]
    async fn it_is_empty_when_the_socket_has_all_that_left_the_core() {
        use tokio::io::AsyncReadExt;

        let (outbox, mut other) = connected().await;
        outbox.expect();
        assert!(!outbox.is_empty(), "it is on its way here");
        outbox.send_expected(reply("one"));
        assert!(outbox.is_empty());
        outbox.send(vec![Reply { payload: vec![0; 16 << 20].into(), permit: None }]);
        assert!(!outbox.is_empty(), "more than the socket takes");
        let mut all = vec![0; 7 + 4 + (16 << 20)];
        let reading = other.read_exact(&mut all);
        let writing = async {
            while outbox.resume() == Flow::Blocked {
                outbox.writable().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(writing, reading).1 })
            .await
            .unwrap()
            .unwrap();
        assert!(outbox.is_empty());
        outbox.send(vec![Reply { payload: vec![0; 16 << 20].into(), permit: None }]);
        outbox.close(false);
        assert!(outbox.is_empty(), "nothing more is given to it");
    }
}
