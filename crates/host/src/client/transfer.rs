//! Whole files through a session, as many blocks at once as the window takes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_client::{Answer, Download, Failure, Piece, Request, TransferError, Upload};
use remora_wire::nfs3::{self, Fh, Reply};

use super::ClientError;
use super::line::Line;
use super::session::{Pending, Session};

/// How long what has arrived goes uncommitted, at first and later: an interruption loses no more.
const COMMIT_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How long streams may stand still at the end of a file, beside a usual round trip.
const STALL: Duration = Duration::from_millis(200);

/// The largest blocks the server takes, from FSINFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest READ in bytes.
    pub read_max: u32,
    /// Largest WRITE in bytes.
    pub write_max: u32,
}

/// A call on its way, and the piece it is about; a COMMIT's is empty.
struct Call {
    piece: Piece,
    pending: Pending,
    line: Arc<Line>,
}

/// Calls that are on their way.
struct Flying<'s> {
    session: &'s Session,
    calls: VecDeque<Call>,
}

impl<'s> Flying<'s> {
    fn new(session: &'s Session) -> Flying<'s> {
        Flying { session, calls: VecDeque::new() }
    }

    fn push(&mut self, piece: Piece, line: &Arc<Line>, request: nfs3::Call) -> Result<(), ClientError> {
        let pending = line.shared.submit(Request::Nfs(request))?;
        self.calls.push_back(Call { piece, pending, line: line.clone() });
        Ok(())
    }

    /// The next that is answered, whichever it is; without an answer if a stream failed with it
    /// on its way, and it has to be asked for again. Once there is nothing more to ask for
    /// (`is_last`) streams that stand still are not waited for.
    async fn next(&mut self, is_last: bool) -> Result<(Piece, Option<Answer>), ClientError> {
        let (i, result) = loop {
            let Some(left) = self.patience().filter(|_| is_last) else {
                break AnyOf(&mut self.calls).await;
            };
            if let Ok(answered) = tokio::time::timeout(left, AnyOf(&mut self.calls)).await {
                break answered;
            }
            self.give_up_silent();
        };
        let Some(Call { piece, line, .. }) = self.calls.remove(i) else { return Err(ClientError::Closed) };
        match result {
            Ok(answer) => Ok((piece, Some(answer))),
            Err(ClientError::Rpc(Failure::TimedOut) | ClientError::Closed) if self.session.is_stream_beside(&line) => {
                self.session.give_up(&line);
                Ok((piece, None))
            }
            Err(e) => Err(silent(self.session, e)),
        }
    }

    /// The streams that have something on their way, and how much longer each may be silent.
    fn streams(&self) -> impl Iterator<Item = (&Arc<Line>, Duration)> {
        let beside = self.calls.iter().map(|c| &c.line).filter(|l| self.session.is_stream_beside(l));
        beside.map(|line| {
            let core = &line.shared.lock().core;
            let most = STALL + core.round_trip().unwrap_or(STALL) * 2;
            (line, most.saturating_sub(core.silence(line.shared.now())))
        })
    }

    fn patience(&self) -> Option<Duration> {
        self.streams().map(|(_, left)| left.max(Duration::from_millis(1))).min()
    }

    fn give_up_silent(&self) {
        for (line, _) in self.streams().filter(|(_, left)| left.is_zero()) {
            self.session.give_up(line);
        }
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

/// How a download went.
#[derive(Clone, Debug)]
pub struct Downloaded {
    /// Where the file ended.
    pub end: u64,
    /// Its attributes as the last READ found them, if the server said so.
    pub attr: Option<nfs3::Attr>,
}

/// Reads `range` of a file; `sink` gets each piece with its offset, in any order. Returns
/// where the file ended. Dropping the future stops it.
pub async fn download(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<u64, ClientError> {
    receive(session, fh, range, limits, sink).await.map(|d| d.end)
}

/// [`download`], and the file's attributes.
pub async fn receive(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    mut sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<Downloaded, ClientError> {
    let mut file = Download::new(fh, range);
    let mut flying = Flying::new(session);
    while !file.is_done() {
        let mut is_last = false;
        while let Some(line) = session.line_with_room(flying.calls.is_empty()) {
            let block = session.read_block(&line, limits.read_max);
            let Some((piece, call)) = file.poll(block) else {
                is_last = true;
                break;
            };
            flying.push(piece, &line, call)?;
        }
        match flying.next(is_last).await? {
            (piece, Some(Answer::Nfs(Reply::Read(result)))) => {
                let at = piece.start;
                let data = file.on_read(piece, result.map_err(|f| f.status)?)?;
                sink(at, data)?;
            }
            (_, Some(_)) => return Err(ClientError::Closed),
            (piece, None) => file.put_back(piece),
        }
    }
    Ok(Downloaded { end: file.end(), attr: file.attr().cloned() })
}

/// What an upload tells its owner.
pub trait Progress {
    /// The bytes of a piece, all of them.
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes>;

    /// Bytes arrived.
    fn sent(&mut self, bytes: u64);

    /// These bytes will outlive a crash of the server. Not for every WRITE.
    fn stable(&mut self, piece: Piece) -> std::io::Result<()>;
}

/// Writes `range` of a file and commits it; `source` gives the bytes of a piece (all of
/// them), `progress` hears of bytes that arrived.
pub async fn upload(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    source: impl FnMut(Piece) -> std::io::Result<Bytes>,
    progress: impl FnMut(u64),
) -> Result<(), ClientError> {
    send(session, fh, range, limits, &mut Plain { source, progress }).await.map(|_| ())
}

/// An owner that does not care what is stable until all is.
struct Plain<S, P> {
    source: S,
    progress: P,
}

impl<S: FnMut(Piece) -> std::io::Result<Bytes>, P: FnMut(u64)> Progress for Plain<S, P> {
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes> {
        (self.source)(piece)
    }

    fn sent(&mut self, bytes: u64) {
        (self.progress)(bytes);
    }

    fn stable(&mut self, _piece: Piece) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes `range` of a file and commits it, every few seconds what has arrived and at last all.
/// Returns the greatest size that the server said the file had, if it did.
pub async fn send(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    progress: &mut impl Progress,
) -> Result<Option<u64>, ClientError> {
    let mut size = None;
    let mut left = range.end.saturating_sub(range.start);
    let mut file = Upload::new(fh, range);
    let mut flying = Flying::new(session);
    let (mut committed, mut every) = (Instant::now(), COMMIT_EVERY.0);
    while !file.is_done() {
        let mut is_last = false;
        let tail = session.shared().lock().core.sync_tail();
        while let Some(line) = session.line_with_room(flying.calls.is_empty()) {
            file.sync_tail(tail);
            let block = session.write_block(&line, file.fh(), limits.write_max);
            let Some(piece) = file.poll(block) else {
                is_last = true;
                break;
            };
            let call = write(&file, &piece, progress)?;
            flying.push(piece, &line, call)?;
        }
        // Not shortly before the end: the last COMMIT would have to wait for this one.
        if committed.elapsed() >= every && left > 3 * tail {
            file.commit_soon();
        }
        if let Some(commit) = file.poll_commit() {
            (committed, every) = (Instant::now(), (every * 2).min(COMMIT_EVERY.1));
            flying.push(0..0, session.own_line(), commit)?;
        }
        match flying.next(is_last).await? {
            (piece, Some(Answer::Nfs(Reply::Write(result)))) => {
                let written = result.map_err(|f| f.status)?;
                size = size.max(written.wcc.after.as_ref().map(|a| a.size));
                let bytes = file.on_write(piece, &written)?;
                left = left.saturating_sub(bytes);
                progress.sent(bytes);
            }
            (_, Some(Answer::Nfs(Reply::Commit(result)))) => {
                file.on_commit(&result.map_err(|f| f.status)?)?;
                file.take_stable().into_iter().try_for_each(|p| progress.stable(p))?;
            }
            (_, Some(_)) => return Err(ClientError::Closed),
            (piece, None) => file.put_back(piece),
        }
    }
    file.take_stable().into_iter().try_for_each(|p| progress.stable(p))?;
    Ok(size)
}

/// The WRITE of a piece.
fn write(file: &Upload, piece: &Piece, source: &mut impl Progress) -> Result<nfs3::Call, ClientError> {
    let data = source.read(piece.clone())?;
    let given = piece.end - piece.start;
    if data.len() as u64 != given {
        return Err(TransferError::BadCount { claimed: data.len() as u32, given }.into());
    }
    Ok(file.write(piece.start, data))
}
