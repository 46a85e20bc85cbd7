//! Calls in flight for the blocks of a file, over the session's connection or parallel streams.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use remora_client::{Answer, CallFailure, Piece, Request};
use remora_wire::nfs3;

use crate::client::error::ClientError;
use crate::client::session::Session;
use crate::client::transport::connection::Connection;
use crate::client::transport::shared_core::Pending;

/// Time that a stream may stall at the end of a file, beside two smoothed RTTs.
const STALL: Duration = Duration::from_millis(200);
/// Time that all streams may be silent, beside the time of a reply of which nothing is received before it is complete.
const IDLE: Duration = Duration::from_millis(50);
/// The longest of those times.
const STALL_MAX: Duration = Duration::from_secs(3);
/// Bytes of which nothing may be received: a READ reply is received by segments in order, a WRITE acknowledged by
/// segments; a few may be missing.
const SEGMENTS: u64 = 4 * 1448;
/// Largest share of the remaining bytes in a block over a stream, so that all streams end together.
const TAIL_SHARE: u64 = 16;
/// Smallest block over a stream in bytes.
const TAIL_BLOCK_MIN: u32 = 4096;

/// A call in flight and its piece, which is empty for a COMMIT.
struct Call {
    piece: Piece,
    pending: Pending,
    connection: Arc<Connection>,
}

/// Calls in flight.
pub(crate) struct PiecesInFlight<'s> {
    session: &'s Session,
    calls: VecDeque<Call>,
    /// A stream stalled at the end of the file: datagrams carry the rest, for their losses are found sooner.
    uses_datagrams: bool,
    /// Replies are short: while a stream carries a request, nothing is received.
    is_upload: bool,
    /// Bytes answered since `began`.
    answered: u64,
    began: Instant,
}

impl<'s> PiecesInFlight<'s> {
    pub(crate) fn new(session: &'s Session, is_upload: bool) -> PiecesInFlight<'s> {
        PiecesInFlight {
            session,
            calls: VecDeque::new(),
            uses_datagrams: false,
            is_upload,
            answered: 0,
            began: Instant::now(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether datagrams carry the rest.
    pub(crate) fn uses_datagrams(&self) -> bool {
        self.uses_datagrams
    }

    /// A connection with room for the next request.
    pub(crate) fn connection_with_room(&self) -> Option<Arc<Connection>> {
        let first = self.calls.is_empty();
        if self.uses_datagrams {
            let own = self.session.own_connection();
            return (own.room() > 0 || first).then(|| own.clone());
        }
        self.session.connection_with_room(first)
    }

    /// The connection for a COMMIT. While streams fill the link a datagram waits behind their data and causes needless
    /// probes; the last COMMIT has nothing before it.
    pub(crate) fn commit_connection(&self, is_last: bool) -> Arc<Connection> {
        let stream = if is_last { None } else { self.session.stream_connections().into_iter().next() };
        stream.unwrap_or_else(|| self.session.own_connection().clone())
    }

    /// Bytes of a block over `connection`, at most `block`, with `left` bytes of the file unanswered.
    pub(crate) fn block(&self, connection: &Arc<Connection>, block: u32, left: u64) -> u32 {
        if !self.session.is_parallel_stream(connection) {
            return block;
        }
        let tail = u32::try_from(left / TAIL_SHARE).unwrap_or(u32::MAX);
        block.min(tail.max(TAIL_BLOCK_MIN))
    }

    /// Time for `bytes` more bytes at the rate so far.
    pub(crate) fn takes(&self, bytes: u64) -> Duration {
        let each = self.began.elapsed().as_secs_f64() / self.answered.max(1) as f64;
        Duration::try_from_secs_f64(each * bytes as f64).unwrap_or(Duration::MAX)
    }

    pub(crate) fn push(
        &mut self,
        piece: Piece,
        connection: &Arc<Connection>,
        request: nfs3::Call,
    ) -> Result<(), ClientError> {
        let (connection, pending) = match connection.shared.submit(Request::Nfs(request.clone())) {
            // Another transfer has just given the stream up.
            Err(ClientError::Closed) if self.session.is_parallel_stream(connection) => {
                let own = self.session.own_connection();
                (own, own.shared.submit(Request::Nfs(request))?)
            }
            submitted => (connection, submitted?),
        };
        self.calls.push_back(Call { piece, pending, connection: connection.clone() });
        Ok(())
    }

    /// The next reply, in any order. `None` as the reply if the call has to be sent again: its stream failed, or the
    /// path drops messages of its length. With `is_last` nothing is left to send, and stalled streams are given up.
    pub(crate) async fn next(&mut self, is_last: bool) -> Result<(Piece, Option<Answer>), ClientError> {
        let (i, result) = loop {
            let Some(left) = self.patience().filter(|_| is_last) else {
                break AnyOf(&mut self.calls).await;
            };
            if let Ok(answered) = tokio::time::timeout(left, AnyOf(&mut self.calls)).await {
                break answered;
            }
            if self.give_up_silent() && !self.uses_datagrams {
                self.uses_datagrams = true;
                self.session.restore_path();
            }
        };
        let Some(Call { piece, connection, .. }) = self.calls.remove(i) else { return Err(ClientError::Closed) };
        match result {
            Ok(answer) => {
                self.answered += piece.end.saturating_sub(piece.start);
                Ok((piece, Some(answer)))
            }
            Err(ClientError::Rpc(CallFailure::TimedOut) | ClientError::Closed)
                if self.session.is_parallel_stream(&connection) =>
            {
                self.session.give_up(&connection);
                Ok((piece, None))
            }
            // It is sent again in shorter pieces.
            Err(ClientError::Rpc(CallFailure::Fragments)) if !piece.is_empty() => Ok((piece, None)),
            Err(e) => Err(silent(self.session, e)),
        }
    }

    /// Time until silence on all streams means an idle link, at the rate so far. Nothing is received of a WRITE in
    /// flight, unless the kernel tells what was acknowledged.
    fn idle_in(&self) -> Duration {
        let is_first =
            |i: usize, c: &Call| !self.calls.iter().take(i).any(|b| Arc::ptr_eq(&b.connection, &c.connection));
        let heads = || self.calls.iter().enumerate().filter(|(i, c)| is_first(*i, c)).map(|(_, c)| c);
        let beside = heads().filter(|c| self.session.is_parallel_stream(&c.connection));
        // If everything was acknowledged, the server or a reply is late.
        let acknowledged = beside.filter_map(|c| c.connection.shared.unacknowledged_for()).min();
        let quiet = self.session.quiet();
        let (quiet, unheard) = match acknowledged.filter(|_| self.is_upload) {
            Some(ago) => (quiet.min(ago), SEGMENTS),
            None if self.is_upload => (quiet, heads().map(|c| c.piece.end - c.piece.start).sum()),
            None => (quiet, SEGMENTS),
        };
        (IDLE + self.takes(unheard).min(STALL_MAX)).saturating_sub(quiet)
    }

    /// Streams with calls in flight, and how much longer each may be silent.
    fn streams(&self) -> impl Iterator<Item = (&Arc<Connection>, Duration)> {
        let idle = self.idle_in();
        let beside = self.calls.iter().map(|c| &c.connection).filter(|l| self.session.is_parallel_stream(l));
        beside.map(move |connection| {
            let core = &connection.shared.lock().core;
            let most = STALL + core.smoothed_rtt().unwrap_or(STALL) * 2;
            (connection, idle.min(most.saturating_sub(core.silence(connection.shared.now()))))
        })
    }

    /// Time until streams are checked, if there are any. During a hand-off they are silent.
    fn patience(&self) -> Option<Duration> {
        let least = if self.is_held() { IDLE } else { Duration::from_millis(1) };
        self.streams().map(|(_, left)| left.max(least)).min()
    }

    fn is_held(&self) -> bool {
        self.session.own_connection().shared.lock().core.is_held()
    }

    /// Gives silent streams up. Returns whether there were any.
    fn give_up_silent(&self) -> bool {
        if self.is_held() {
            return false;
        }
        let silent: Vec<_> =
            self.streams().filter(|(_, left)| left.is_zero()).map(|(connection, _)| connection).collect();
        silent.iter().for_each(|connection| self.session.give_up(connection));
        !silent.is_empty()
    }
}

/// Ready when any call is answered. A window has few, so all are polled.
struct AnyOf<'a>(&'a mut VecDeque<Call>);

impl Future for AnyOf<'_> {
    type Output = (usize, Result<Answer, ClientError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        for (i, call) in self.0.iter_mut().enumerate() {
            if let Poll::Ready(result) = Pin::new(&mut call.pending).poll(cx) {
                let result = match result {
                    Ok(r) => r.map_err(ClientError::Rpc),
                    Err(_) => Err(ClientError::Closed),
                };
                return Poll::Ready((i, result));
            }
        }
        Poll::Pending
    }
}

fn silent(session: &Session, e: ClientError) -> ClientError {
    match e {
        ClientError::Rpc(CallFailure::TimedOut) => {
            ClientError::Silent { server: session.server().to_owned(), what: "" }
        }
        other => other,
    }
}
