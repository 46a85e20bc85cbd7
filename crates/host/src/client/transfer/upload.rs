//! Uploads: WRITEs, as many at once as the window takes, and COMMITs.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_client::{Answer, Piece, TransferError, Upload, Written};
use remora_wire::nfs3::{self, Fh, Reply};
use tokio::time::{Instant, timeout_at};

use crate::client::error::ClientError;
use crate::client::rate_limit::or_open;
use crate::client::session::Session;
use crate::client::transfer::deferred_pieces::DeferredPieces;
use crate::client::transfer::download::TransferLimits;
use crate::client::transfer::in_flight::PiecesInFlight;
use crate::client::transport::connection::Connection;
use crate::client::transport::jukebox_retry::JukeboxRetry;

/// Time between COMMITs, at first and later: what an interruption may lose.
const COMMIT_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// Time between reports of data that a server made stable without a COMMIT.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// Time of the last COMMIT of a stopped upload on the disk, beside two round trips.
const STOP: Duration = Duration::from_millis(200);
/// Longest time of the last COMMIT: a user waits.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The owner of an upload.
pub trait UploadProgress {
    /// Returns all bytes of a piece.
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes>;

    /// Bytes were acknowledged.
    fn sent(&mut self, bytes: u64);

    /// These bytes are on stable storage. Not called for each WRITE.
    fn stable(&mut self, pieces: Vec<Piece>) -> std::io::Result<()>;

    /// Ready when the upload is to stop. What has arrived is then committed, if that takes at most two round trips and
    /// a second.
    fn stopped(&self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// Writes `range` of a file and commits it. `source` returns the bytes of a piece, `progress` gets the number of
/// acknowledged bytes.
pub async fn upload(
    session: &Session,
    fh: Fh,
    range: Piece,
    limits: TransferLimits,
    source: impl FnMut(Piece) -> std::io::Result<Bytes>,
    progress: impl FnMut(u64),
) -> Result<(), ClientError> {
    send(session, fh, Some(range), limits, &mut Plain { source, progress }).await.map(|_| ())
}

/// An owner that ignores what is stable.
struct Plain<S, P> {
    source: S,
    progress: P,
}

impl<S: FnMut(Piece) -> std::io::Result<Bytes>, P: FnMut(u64)> UploadProgress for Plain<S, P> {
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes> {
        (self.source)(piece)
    }

    fn sent(&mut self, bytes: u64) {
        (self.progress)(bytes);
    }

    fn stable(&mut self, _pieces: Vec<Piece>) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes `ranges` of a file in order, with a COMMIT every few seconds and at the end. `None`: the upload was stopped.
pub async fn send(
    session: &Session,
    fh: Fh,
    ranges: impl IntoIterator<Item = Piece>,
    limits: TransferLimits,
    progress: &mut impl UploadProgress,
) -> Result<Option<Written>, ClientError> {
    let mut sending = Sending::new(session, fh, ranges, limits, progress);
    while !sending.file.is_done() {
        let now = Instant::now();
        let is_last = sending.ask(now)?;
        let answer = sending.refused.or_due(now, sending.in_flight.next(is_last));
        let answer = or_open(sending.closed_until, answer);
        tokio::select! {
            () = sending.progress.stopped() => {
                sending.stop().await?;
                return Ok(None);
            }
            answer = answer => if let Some((piece, answer)) = answer? {
                sending.take(piece, answer)?;
            }
        }
    }
    sending.tell_stable()?;
    Ok(Some(sending.file.written()))
}

/// An upload in progress.
struct Sending<'s, P> {
    session: &'s Session,
    limits: TransferLimits,
    progress: &'s mut P,
    file: Upload,
    in_flight: PiecesInFlight<'s>,
    refused: DeferredPieces,
    /// Bytes not acknowledged.
    left: u64,
    /// When the rate limit admits the next request.
    closed_until: Option<Instant>,
    committed: Instant,
    commit_every: Duration,
    told_stable: Instant,
}

impl<'s, P: UploadProgress> Sending<'s, P> {
    fn new(
        session: &'s Session,
        fh: Fh,
        ranges: impl IntoIterator<Item = Piece>,
        limits: TransferLimits,
        progress: &'s mut P,
    ) -> Sending<'s, P> {
        let ranges: Vec<Piece> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        Sending {
            session,
            limits,
            progress,
            left: ranges.iter().map(|range| range.end - range.start).sum(),
            file: to_write(fh, ranges),
            in_flight: PiecesInFlight::new(session, true),
            refused: DeferredPieces::new(session.later()),
            closed_until: None,
            committed: Instant::now(),
            commit_every: COMMIT_EVERY.0,
            told_stable: Instant::now(),
        }
    }

    /// Sends what there is room for. Returns whether nothing is left to send.
    fn ask(&mut self, now: Instant) -> Result<bool, ClientError> {
        let tail = self.session.shared().lock().core.sync_tail();
        let is_last = self.ask_writes(tail, now)?;
        // Not shortly before the end: the last COMMIT would have to wait for this one.
        let (every, left) = (self.commit_every, self.left);
        if self.committed.elapsed() >= every && left > 3 * tail && self.in_flight.takes(left) > every {
            self.file.commit_soon();
        }
        self.ask_commit(now)?;
        Ok(is_last)
    }

    fn ask_writes(&mut self, tail: u64, now: Instant) -> Result<bool, ClientError> {
        self.closed_until = None;
        while let Some(connection) = self.in_flight.connection_with_room() {
            self.closed_until = self.session.closed_until(now);
            if self.closed_until.is_some() {
                return Ok(false);
            }
            match self.refused.take_due(now) {
                Some(piece) => self.file.put_back(piece),
                None if self.refused.is_held() => return Ok(false),
                None => {}
            }
            self.file.sync_tail(tail);
            let block = self.block(&connection);
            let Some(piece) = self.file.poll(block) else {
                return Ok(self.refused.is_empty());
            };
            let call = write(&self.file, &piece, self.progress)?;
            self.session.take(now, piece.end - piece.start);
            self.in_flight.push(piece, &connection, call)?;
        }
        Ok(false)
    }

    /// Bytes of a WRITE over `connection`.
    fn block(&self, connection: &Arc<Connection>) -> u32 {
        let (fh, max) = (self.file.fh(), self.limits.write_max);
        match self.in_flight.uses_datagrams() {
            true => self.session.write_tail(fh, max),
            false => self.in_flight.block(connection, self.session.write_block(connection, fh, max), self.left),
        }
    }

    /// Sends a COMMIT if one is due.
    fn ask_commit(&mut self, now: Instant) -> Result<(), ClientError> {
        if self.refused.take_due_commit(now) {
            self.in_flight.push(0..0, self.session.own_connection(), commit_all(&self.file))?;
        }
        if let Some(commit) = self.file.poll_commit() {
            (self.committed, self.commit_every) = (now, (self.commit_every * 2).min(COMMIT_EVERY.1));
            let connection = self.in_flight.commit_connection(self.left == 0);
            self.in_flight.push(0..0, &connection, commit)?;
        }
        Ok(())
    }

    /// Takes the reply to a call; `None` if it has to be sent again.
    fn take(&mut self, piece: Piece, answer: Option<Answer>) -> Result<(), ClientError> {
        match answer {
            Some(Answer::Nfs(Reply::Write(Err(fail)))) if JukeboxRetry::is(fail.status) => {
                self.refused.push(piece, Instant::now())?;
            }
            Some(Answer::Nfs(Reply::Commit(Err(fail)))) if JukeboxRetry::is(fail.status) => {
                self.refused.push(piece, Instant::now())?;
            }
            Some(Answer::Nfs(Reply::Write(result))) => {
                self.refused.done(&piece);
                let written = result.map_err(|f| f.status)?;
                let bytes = self.file.on_write(piece, &written)?;
                self.left = self.left.saturating_sub(bytes);
                self.progress.sent(bytes);
                // Many servers write everything to the disk at once.
                if self.told_stable.elapsed() >= TELL_EVERY {
                    self.told_stable = Instant::now();
                    self.tell_stable()?;
                }
            }
            Some(Answer::Nfs(Reply::Commit(result))) => {
                self.refused.done(&piece);
                self.file.on_commit(&result.map_err(|f| f.status)?)?;
                self.tell_stable()?;
            }
            Some(_) => return Err(ClientError::Closed),
            None if piece.is_empty() => {
                self.in_flight.push(piece, self.session.own_connection(), commit_all(&self.file))?
            }
            None => self.file.put_back(piece),
        }
        Ok(())
    }

    /// Reports what became stable.
    fn tell_stable(&mut self) -> std::io::Result<()> {
        let pieces = self.file.take_stable();
        if pieces.is_empty() { Ok(()) } else { self.progress.stable(pieces) }
    }

    /// Stops: commits what is acknowledged at once, and what is in flight when it is, within the limit.
    async fn stop(&mut self) -> Result<(), ClientError> {
        let until = Instant::now() + self.stop_max();
        loop {
            self.file.commit_soon();
            self.ask_commit(Instant::now())?;
            if !self.file.wants_commit() || self.in_flight.is_empty() {
                break;
            }
            let Ok(answer) = timeout_at(until, self.in_flight.next(false)).await else { break };
            let (piece, answer) = answer?;
            self.take(piece, answer)?;
        }
        Ok(self.tell_stable()?)
    }

    /// Time limit of stopping; zero if the server is silent.
    fn stop_max(&self) -> Duration {
        let usual = self.session.pace().1.unwrap_or_default() * 2 + STOP;
        if self.session.quiet() > usual { Duration::ZERO } else { usual.min(STOP_MAX) }
    }
}

/// An upload of these ranges. Pieces that are put back go first, so it starts with the last range.
fn to_write(fh: Fh, mut ranges: Vec<Piece>) -> Upload {
    let mut file = Upload::new(fh, ranges.pop().unwrap_or_default());
    ranges.into_iter().rev().for_each(|range| file.put_back(range));
    file
}

/// A COMMIT of the whole file.
fn commit_all(file: &Upload) -> nfs3::Call {
    nfs3::Call::Commit(nfs3::CommitArgs { fh: file.fh().clone(), offset: 0, count: 0 })
}

fn write(file: &Upload, piece: &Piece, source: &mut impl UploadProgress) -> Result<nfs3::Call, ClientError> {
    let data = source.read(piece.clone())?;
    let given = piece.end - piece.start;
    if data.len() as u64 != given {
        return Err(TransferError::BadCount { claimed: data.len() as u32, given }.into());
    }
    Ok(file.write(piece.start, data))
}
