//! Whole files through a session, as many blocks at once as the window takes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use remora_client::{Answer, Download, Failure, Piece, Request, TransferError, Upload};
use remora_wire::nfs3::{self, Fh, Reply};

use super::ClientError;
use super::session::{Pending, Session};

/// The largest blocks the server takes, from FSINFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest READ in bytes.
    pub read_max: u32,
    /// Largest WRITE in bytes.
    pub write_max: u32,
}

/// Calls for pieces that are on their way.
struct Flying(VecDeque<(Piece, Pending)>);

impl Flying {
    /// The next piece that is answered, whichever it is.
    async fn next(&mut self) -> Option<(Piece, Result<Answer, ClientError>)> {
        if self.0.is_empty() {
            return None;
        }
        let (i, result) = AnyOf(&mut self.0).await;
        let (piece, _) = self.0.remove(i)?;
        Some((piece, result))
    }
}

/// Ready when one of them is; a window has few, so all are asked each time.
struct AnyOf<'a>(&'a mut VecDeque<(Piece, Pending)>);

impl Future for AnyOf<'_> {
    type Output = (usize, Result<Answer, ClientError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        for (i, (_, pending)) in self.0.iter_mut().enumerate() {
            if let Poll::Ready(result) = Pin::new(pending).poll(cx) {
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

/// Reads `range` of a file; `sink` gets each piece with its offset, in any order. Returns
/// where the file ended. Dropping the future stops it.
pub async fn download(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    mut sink: impl FnMut(u64, Bytes) -> std::io::Result<()>,
) -> Result<u64, ClientError> {
    let mut file = Download::new(fh, range);
    let mut flying = Flying(VecDeque::new());
    while !file.is_done() {
        while let Some((piece, pending)) = next_read(session, &mut file, limits, flying.0.is_empty())? {
            flying.0.push_back((piece, pending));
        }
        let Some((piece, answer)) = flying.next().await else { continue };
        let Answer::Nfs(Reply::Read(result)) = answer.map_err(|e| silent(session, e))? else {
            return Err(ClientError::Closed);
        };
        let at = piece.start;
        let data = file.on_read(piece, result.map_err(|f| f.status)?)?;
        sink(at, data)?;
    }
    Ok(file.end())
}

/// The next READ, if there is room for it. Other transfers may fill the window: one that has
/// nothing on its way (`first`) queues one request behind theirs, so that each gets its turn.
fn next_read(
    session: &Session,
    file: &mut Download,
    limits: Limits,
    first: bool,
) -> Result<Option<(Piece, Pending)>, ClientError> {
    let block = {
        let state = session.shared().lock();
        if state.core.room() == 0 && !first {
            return Ok(None);
        }
        state.core.read_block(limits.read_max)
    };
    let Some((piece, call)) = file.poll(block) else { return Ok(None) };
    Ok(Some((piece, session.shared().submit(Request::Nfs(call))?)))
}

/// Writes `range` of a file and commits it; `source` gives the bytes of a piece (all of
/// them), `progress` hears of bytes that arrived.
pub async fn upload(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: Limits,
    mut source: impl FnMut(Piece) -> std::io::Result<Bytes>,
    mut progress: impl FnMut(u64),
) -> Result<(), ClientError> {
    let mut file = Upload::new(fh, range);
    let mut flying = Flying(VecDeque::new());
    while !file.is_done() {
        while let Some((piece, pending)) = next_write(session, &mut file, limits, flying.0.is_empty(), &mut source)? {
            flying.0.push_back((piece, pending));
        }
        if let Some(commit) = file.poll_commit() {
            match session.ok(commit).await? {
                Reply::Commit(Ok(ok)) => file.on_commit(&ok)?,
                _ => return Err(ClientError::Closed),
            }
            continue;
        }
        let Some((piece, answer)) = flying.next().await else { continue };
        let Answer::Nfs(Reply::Write(result)) = answer.map_err(|e| silent(session, e))? else {
            return Err(ClientError::Closed);
        };
        progress(file.on_write(piece, &result.map_err(|f| f.status)?)?);
    }
    Ok(())
}

/// The next WRITE; see [`next_read`].
fn next_write(
    session: &Session,
    file: &mut Upload,
    limits: Limits,
    first: bool,
    source: &mut impl FnMut(Piece) -> std::io::Result<Bytes>,
) -> Result<Option<(Piece, Pending)>, ClientError> {
    let block = {
        let state = session.shared().lock();
        if state.core.room() == 0 && !first {
            return Ok(None);
        }
        state.core.write_block(file.fh(), limits.write_max)
    };
    let Some(piece) = file.poll(block) else { return Ok(None) };
    let data = source(piece.clone())?;
    if data.len() as u64 != piece.end - piece.start {
        let given = piece.end - piece.start;
        return Err(TransferError::BadCount { claimed: data.len() as u32, given }.into());
    }
    let call: nfs3::Call = file.write(piece.start, data);
    Ok(Some((piece, session.shared().submit(Request::Nfs(call))?)))
}
