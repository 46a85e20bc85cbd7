//! Blocks of a file that are on their way, over one connection or over several streams beside it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use remora_client::{Answer, Failure, Piece, Request};
use remora_wire::nfs3;

use crate::client::error::ClientError;
use crate::client::session::Session;
use crate::client::transport::connection::Connection;
use crate::client::transport::shared_core::Pending;

/// How long a stream may stand still at the end of a file, beside two usual round trips,
const STALL: Duration = Duration::from_millis(200);
/// and how long all of them, beside the time that something takes of which nothing is heard
/// before it is through: then the link is idle.
const IDLE: Duration = Duration::from_millis(50);
/// The most of that time.
const STALL_MAX: Duration = Duration::from_secs(3);
/// Of a READ's answer each segment is heard that comes in order, and of a WRITE each that is acknowledged; a few may
/// not.
const SEGMENTS: u64 = 4 * 1448;
/// Towards the end of a file a block over a stream is no more than this share of what is left,
/// so that all streams end together,
const TAIL_SHARE: u64 = 16;
/// and no less than so many bytes.
const TAIL_BLOCK_MIN: u32 = 4096;

/// A call on its way, and the piece it is about; a COMMIT's is empty.
struct Call {
    piece: Piece,
    pending: Pending,
    connection: Arc<Connection>,
}

/// Calls that are on their way.
pub(crate) struct PiecesInFlight<'s> {
    session: &'s Session,
    calls: VecDeque<Call>,
    /// At the end of the file a stream stood still: the rest goes as datagrams, whose losses are
    /// found sooner.
    is_rescue: bool,
    /// Answers are short: while a stream carries what they are to, nothing of it is heard.
    is_upload: bool,
    /// Bytes answered, and since when.
    answered: u64,
    began: Instant,
}

impl<'s> PiecesInFlight<'s> {
    pub(crate) fn new(session: &'s Session, is_upload: bool) -> PiecesInFlight<'s> {
        PiecesInFlight {
            session,
            calls: VecDeque::new(),
            is_rescue: false,
            is_upload,
            answered: 0,
            began: Instant::now(),
        }
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether datagrams finish what streams did not.
    pub(crate) fn is_rescue(&self) -> bool {
        self.is_rescue
    }

    /// The connection for the next request, if one has room.
    pub(crate) fn connection_with_room(&self) -> Option<Arc<Connection>> {
        let first = self.calls.is_empty();
        if self.is_rescue {
            let own = self.session.own_connection();
            return (own.room() > 0 || first).then(|| own.clone());
        }
        self.session.connection_with_room(first)
    }

    /// The connection for a COMMIT. While streams fill the link a datagram waits behind them, and is
    /// probed for in vain; the last COMMIT has nothing before it.
    pub(crate) fn commit_connection(&self, is_last: bool) -> Arc<Connection> {
        let stream = if is_last { None } else { self.session.stream_connections().into_iter().next() };
        stream.unwrap_or_else(|| self.session.own_connection().clone())
    }

    /// How long a block over `connection` should be that may be of `block` bytes, with `left` bytes of
    /// the file unanswered.
    pub(crate) fn block(&self, connection: &Arc<Connection>, block: u32, left: u64) -> u32 {
        if !self.session.is_parallel_stream(connection) {
            return block;
        }
        let tail = u32::try_from(left / TAIL_SHARE).unwrap_or(u32::MAX);
        block.min(tail.max(TAIL_BLOCK_MIN))
    }

    /// How long `bytes` more are going to take, by how long what was answered took.
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

    /// The next that is answered, whichever it is; without an answer if a stream failed with it
    /// on its way, or it was too long for the path, and it has to be asked for again. Once there is nothing more to ask for
    /// (`is_last`) streams that stand still are not waited for.
    pub(crate) async fn next(&mut self, is_last: bool) -> Result<(Piece, Option<Answer>), ClientError> {
        let (i, result) = loop {
            let Some(left) = self.patience().filter(|_| is_last) else {
                break AnyOf(&mut self.calls).await;
            };
            if let Ok(answered) = tokio::time::timeout(left, AnyOf(&mut self.calls)).await {
                break answered;
            }
            if self.give_up_silent() && !self.is_rescue {
                self.is_rescue = true;
                self.session.recall();
            }
        };
        let Some(Call { piece, connection, .. }) = self.calls.remove(i) else { return Err(ClientError::Closed) };
        match result {
            Ok(answer) => {
                self.answered += piece.end.saturating_sub(piece.start);
                Ok((piece, Some(answer)))
            }
            Err(ClientError::Rpc(Failure::TimedOut) | ClientError::Closed)
                if self.session.is_parallel_stream(&connection) =>
            {
                self.session.give_up(&connection);
                Ok((piece, None))
            }
            // It is asked for again in pieces that the path carries.
            Err(ClientError::Rpc(Failure::Fragments)) if !piece.is_empty() => Ok((piece, None)),
            Err(e) => Err(silent(self.session, e)),
        }
    }

    /// How much longer nothing may be heard of all streams until the link is idle, going by how long what was
    /// answered took. Of a WRITE there is nothing to hear until all of it is there, unless the system tells what
    /// was acknowledged.
    fn idle_in(&self) -> Duration {
        let is_first =
            |i: usize, c: &Call| !self.calls.iter().take(i).any(|b| Arc::ptr_eq(&b.connection, &c.connection));
        let heads = || self.calls.iter().enumerate().filter(|(i, c)| is_first(*i, c)).map(|(_, c)| c);
        let beside = heads().filter(|c| self.session.is_parallel_stream(&c.connection));
        // Where all is there, it is the server that is waited for, or a reply.
        let acknowledged = beside.filter_map(|c| c.connection.shared.unacknowledged_for()).min();
        let quiet = self.session.quiet();
        let (quiet, unheard) = match acknowledged.filter(|_| self.is_upload) {
            Some(ago) => (quiet.min(ago), SEGMENTS),
            None if self.is_upload => (quiet, heads().map(|c| c.piece.end - c.piece.start).sum()),
            None => (quiet, SEGMENTS),
        };
        (IDLE + self.takes(unheard).min(STALL_MAX)).saturating_sub(quiet)
    }

    /// The streams that have something on their way, and how much longer each may be silent.
    fn streams(&self) -> impl Iterator<Item = (&Arc<Connection>, Duration)> {
        let idle = self.idle_in();
        let beside = self.calls.iter().map(|c| &c.connection).filter(|l| self.session.is_parallel_stream(l));
        beside.map(move |connection| {
            let core = &connection.shared.lock().core;
            let most = STALL + core.round_trip().unwrap_or(STALL) * 2;
            (connection, idle.min(most.saturating_sub(core.silence(connection.shared.now()))))
        })
    }

    /// How long to wait before streams are looked at, if there are any. During a hand-off nothing is to be heard of them.
    fn patience(&self) -> Option<Duration> {
        let least = if self.is_held() { IDLE } else { Duration::from_millis(1) };
        self.streams().map(|(_, left)| left.max(least)).min()
    }

    fn is_held(&self) -> bool {
        self.session.own_connection().shared.lock().core.is_held()
    }

    /// Whether there were any.
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

/// Ready when one of them is; a window has few, so all are asked each time.
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
        ClientError::Rpc(Failure::TimedOut) => ClientError::Silent { server: session.server().to_owned(), what: "" },
        other => other,
    }
}
