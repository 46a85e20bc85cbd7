//! A file to a server: WRITEs, as many at once as the window takes, and COMMITs.

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
use crate::client::transfer::download::Limits;
use crate::client::transfer::in_flight::PiecesInFlight;
use crate::client::transport::connection::Connection;
use crate::client::transport::jukebox_retry::JukeboxRetry;

/// How long what has arrived goes uncommitted, at first and later: what ends without a word loses no more.
const COMMIT_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// How long what a server made stable without a COMMIT goes untold.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// How long the last COMMIT of a copy that is stopped may take beside two round trips, for the server's disk,
const STOP: Duration = Duration::from_millis(200);
/// and with them: somebody waits for the end.
const STOP_MAX: Duration = Duration::from_secs(1);

/// What an upload tells its owner.
pub trait Progress {
    /// The bytes of a piece, all of them.
    fn read(&mut self, piece: Piece) -> std::io::Result<Bytes>;

    /// Bytes arrived.
    fn sent(&mut self, bytes: u64);

    /// These bytes will outlive a crash of the server. Not for every WRITE.
    fn stable(&mut self, pieces: Vec<Piece>) -> std::io::Result<()>;

    /// Ready when the copy is to stop. What has arrived is committed then, if that takes no longer than two round
    /// trips, and a second at most.
    fn stopped(&self) -> impl Future<Output = ()> + Send {
        pending()
    }
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
    send(session, fh, Some(range), limits, &mut Plain { source, progress }).await.map(|_| ())
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

    fn stable(&mut self, _pieces: Vec<Piece>) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes `ranges` of a file, in order, and commits them, every few seconds what has arrived and at last all.
/// `None`: it was stopped before that.
pub async fn send(
    session: &Session,
    fh: Fh,
    ranges: impl IntoIterator<Item = Piece>,
    limits: Limits,
    progress: &mut impl Progress,
) -> Result<Option<Written>, ClientError> {
    let mut sending = Sending::new(session, fh, ranges, limits, progress);
    while !sending.file.is_done() {
        let now = Instant::now();
        let is_last = sending.ask(now)?;
        let answer = sending.refused.or_due(now, sending.flying.next(is_last));
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

/// A file on its way to a server.
struct Sending<'s, P> {
    session: &'s Session,
    limits: Limits,
    progress: &'s mut P,
    file: Upload,
    flying: PiecesInFlight<'s>,
    refused: DeferredPieces,
    /// Bytes that were not answered.
    left: u64,
    /// Until when the session's limit lets nothing more be asked for.
    closed_until: Option<Instant>,
    committed: Instant,
    commit_every: Duration,
    told_stable: Instant,
}

impl<'s, P: Progress> Sending<'s, P> {
    fn new(
        session: &'s Session,
        fh: Fh,
        ranges: impl IntoIterator<Item = Piece>,
        limits: Limits,
        progress: &'s mut P,
    ) -> Sending<'s, P> {
        let ranges: Vec<Piece> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        Sending {
            session,
            limits,
            progress,
            left: ranges.iter().map(|range| range.end - range.start).sum(),
            file: to_write(fh, ranges),
            flying: PiecesInFlight::new(session, true),
            refused: DeferredPieces::new(session.later()),
            closed_until: None,
            committed: Instant::now(),
            commit_every: COMMIT_EVERY.0,
            told_stable: Instant::now(),
        }
    }

    /// Asks for what there is room for. Says whether there is nothing more to ask for.
    fn ask(&mut self, now: Instant) -> Result<bool, ClientError> {
        let tail = self.session.shared().lock().core.sync_tail();
        let is_last = self.ask_writes(tail, now)?;
        // Not shortly before the end: the last COMMIT would have to wait for this one, and comes as soon.
        let (every, left) = (self.commit_every, self.left);
        if self.committed.elapsed() >= every && left > 3 * tail && self.flying.takes(left) > every {
            self.file.commit_soon();
        }
        self.ask_commit(now)?;
        Ok(is_last)
    }

    fn ask_writes(&mut self, tail: u64, now: Instant) -> Result<bool, ClientError> {
        self.closed_until = None;
        while let Some(connection) = self.flying.connection_with_room() {
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
            self.flying.push(piece, &connection, call)?;
        }
        Ok(false)
    }

    /// How long a WRITE over `connection` should be.
    fn block(&self, connection: &Arc<Connection>) -> u32 {
        let (fh, max) = (self.file.fh(), self.limits.write_max);
        match self.flying.is_rescue() {
            true => self.session.write_rescue(fh, max),
            false => self.flying.block(connection, self.session.write_block(connection, fh, max), self.left),
        }
    }

    /// Sends the COMMIT whose turn it is, if it is one's.
    fn ask_commit(&mut self, now: Instant) -> Result<(), ClientError> {
        if self.refused.take_due_commit(now) {
            self.flying.push(0..0, self.session.own_connection(), commit_all(&self.file))?;
        }
        if let Some(commit) = self.file.poll_commit() {
            (self.committed, self.commit_every) = (now, (self.commit_every * 2).min(COMMIT_EVERY.1));
            let connection = self.flying.commit_connection(self.left == 0);
            self.flying.push(0..0, &connection, commit)?;
        }
        Ok(())
    }

    /// Takes what a request came to, `None` if it has to be made again.
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
                // Many servers write all to the disk at once, whatever they are asked.
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
                self.flying.push(piece, self.session.own_connection(), commit_all(&self.file))?
            }
            None => self.file.put_back(piece),
        }
        Ok(())
    }

    /// Tells of what became stable since it was last told.
    fn tell_stable(&mut self) -> std::io::Result<()> {
        let pieces = self.file.take_stable();
        if pieces.is_empty() { Ok(()) } else { self.progress.stable(pieces) }
    }

    /// Asks for nothing more, and has what has arrived committed, if that does not take long: what is answered by now
    /// at once, and when that is done what was on its way.
    async fn stop(&mut self) -> Result<(), ClientError> {
        let until = Instant::now() + self.stop_max();
        loop {
            self.file.commit_soon();
            self.ask_commit(Instant::now())?;
            if !self.file.wants_commit() || self.flying.is_empty() {
                break;
            }
            let Ok(answer) = timeout_at(until, self.flying.next(false)).await else { break };
            let (piece, answer) = answer?;
            self.take(piece, answer)?;
        }
        Ok(self.tell_stable()?)
    }

    /// How long it may take to stop: no time where nothing comes of the server.
    fn stop_max(&self) -> Duration {
        let usual = self.session.pace().1.unwrap_or_default() * 2 + STOP;
        if self.session.quiet() > usual { Duration::ZERO } else { usual.min(STOP_MAX) }
    }
}

/// All of these ranges. It is begun with the last one, and what is handed back to it goes first.
fn to_write(fh: Fh, mut ranges: Vec<Piece>) -> Upload {
    let mut file = Upload::new(fh, ranges.pop().unwrap_or_default());
    ranges.into_iter().rev().for_each(|range| file.put_back(range));
    file
}

/// A COMMIT of all of the file.
fn commit_all(file: &Upload) -> nfs3::Call {
    nfs3::Call::Commit(nfs3::CommitArgs { fh: file.fh().clone(), offset: 0, count: 0 })
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
