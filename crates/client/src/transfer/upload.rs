//! Uploads: the WRITEs and COMMITs of a file.

use std::collections::VecDeque;

use bytes::Bytes;
use remora_wire::nfs3::{Call, CommitArgs, CommitOk, Fh, Stable, WriteArgs, WriteOk};

use super::piece::{Piece, TransferError, take_front};

/// Restarts of the server after which the upload fails.
const RESTARTS_MAX: u32 = 100;

/// Restarts with lost data after which the rest is written FILE_SYNC, so that every reply is progress, however short
/// the server's lives are. A server with random verifiers looks the same.
const RESTARTS_TRUSTED: u32 = 8;

/// What the WRITE replies of an upload say of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The greatest size in bytes, if any reply has attributes.
    pub size: Option<u64>,
}

/// An upload of a range of a file: UNSTABLE WRITEs and COMMITs, and what the server lost once more (RFC 1813, section
/// 4.8). A COMMIT makes stable what was answered before it was sent, if its verifier is that of the WRITEs.
///
/// A single WRITE is FILE_SYNC and needs no COMMIT. So is the end of a file set by [`sync_tail`](Upload::sync_tail):
/// the COMMIT for the rest is sent beside it, which saves a round trip. So is the rest after many restarts.
#[derive(Clone, Debug)]
pub struct Upload {
    fh: Fh,
    todo: VecDeque<Piece>,
    in_flight: usize,
    unstable_in_flight: usize,
    /// Start of the FILE_SYNC part. It never moves below what was given out as UNSTABLE, and no more once a piece was
    /// given out as FILE_SYNC.
    tail: u64,
    end: u64,
    /// End of what was given out.
    given: u64,
    /// Answered and not committed, with the verifier.
    uncommitted: Vec<Piece>,
    verf: [u8; 8],
    /// Pieces of the COMMIT in flight, and the verifier that it must bring.
    committing: Option<(Vec<Piece>, [u8; 8])>,
    /// A COMMIT is to be sent before the end.
    commit_soon: bool,
    /// Pieces that became stable since the last [`take_stable`](Upload::take_stable).
    stable: Vec<Piece>,
    restarts: u32,
    sent: u64,
    written: Written,
}

impl Upload {
    /// Uploads `range` of the file.
    pub fn new(fh: Fh, range: Piece) -> Upload {
        let (start, end) = (range.start, range.end);
        let todo = if range.is_empty() { VecDeque::new() } else { VecDeque::from([range]) };
        Upload {
            fh,
            todo,
            in_flight: 0,
            unstable_in_flight: 0,
            tail: end,
            end,
            given: start,
            uncommitted: Vec::new(),
            verf: [0; 8],
            committing: None,
            commit_soon: false,
            stable: Vec::new(),
            restarts: 0,
            sent: 0,
            written: Written::default(),
        }
    }

    /// The file handle.
    pub fn fh(&self) -> &Fh {
        &self.fh
    }

    /// Writes the last `bytes` bytes FILE_SYNC; see [`Client::sync_tail`](crate::Client::sync_tail). May change before
    /// each piece.
    pub fn sync_tail(&mut self, bytes: u64) {
        if self.given <= self.tail {
            self.tail = self.end.saturating_sub(bytes).max(self.given);
        }
    }

    /// The next piece of at most `block` bytes.
    pub fn poll(&mut self, block: u32) -> Option<Piece> {
        if self.restarts >= RESTARTS_TRUSTED {
            if self.unstable_in_flight > 0 {
                return None;
            }
            self.tail = 0;
        }
        let piece = take_front(&mut self.todo, block)?;
        if self.todo.is_empty() && self.in_flight == 0 && self.is_all_committed() {
            // It is the only piece.
            self.tail = self.tail.min(piece.start);
        }
        self.in_flight += 1;
        self.unstable_in_flight += usize::from(piece.start < self.tail);
        self.given = self.given.max(piece.end);
        Some(piece)
    }

    /// The WRITE of `data`, the bytes of a piece that starts at `offset`.
    pub fn write(&self, offset: u64, data: Bytes) -> Call {
        let count = data.len() as u32;
        let stable = if offset < self.tail { Stable::Unstable } else { Stable::FileSync };
        Call::Write(WriteArgs { fh: self.fh.clone(), offset, count, stable, data })
    }

    /// `piece` will not be answered: it is given out again.
    pub fn put_back(&mut self, piece: Piece) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if piece.start < self.tail {
            self.unstable_in_flight = self.unstable_in_flight.saturating_sub(1);
        }
        self.todo.push_front(piece);
    }

    /// Takes the reply for `piece` and returns the bytes written.
    pub fn on_write(&mut self, piece: Piece, ok: &WriteOk) -> Result<u64, TransferError> {
        self.in_flight = self.in_flight.saturating_sub(1);
        if piece.start < self.tail {
            self.unstable_in_flight = self.unstable_in_flight.saturating_sub(1);
        }
        self.written.size = self.written.size.max(ok.wcc.after.as_ref().map(|attr| attr.size));
        let given = piece.end - piece.start;
        let written = u64::from(ok.count);
        if written == 0 || written > given {
            return Err(TransferError::BadCount { claimed: ok.count, given });
        }
        let got = piece.start + written;
        if got < piece.end {
            self.todo.push_front(got..piece.end);
        }
        if ok.committed == Stable::Unstable {
            if ok.verf != self.verf && !self.uncommitted.is_empty() {
                let lost = std::mem::take(&mut self.uncommitted);
                self.write_again(lost)?;
            }
            self.verf = ok.verf;
            join(&mut self.uncommitted, piece.start..got);
        } else {
            join(&mut self.stable, piece.start..got);
        }
        self.sent += written;
        Ok(written)
    }

    /// Requests a COMMIT of what was answered so far.
    pub fn commit_soon(&mut self) {
        self.commit_soon = true;
    }

    /// The COMMIT, if it is due. There is one at a time. The last one waits for all UNSTABLE replies, for a COMMIT does
    /// not cover a WRITE that the server executes later.
    pub fn poll_commit(&mut self) -> Option<Call> {
        let wants_none = |p: &Piece| p.start >= self.tail;
        let is_last = self.unstable_in_flight == 0 && self.todo.iter().all(wants_none);
        if !(is_last || self.commit_soon) || self.committing.is_some() || self.uncommitted.is_empty() {
            return None;
        }
        self.commit_soon = false;
        self.committing = Some((std::mem::take(&mut self.uncommitted), self.verf));
        Some(Call::Commit(CommitArgs { fh: self.fh.clone(), offset: 0, count: 0 }))
    }

    /// Takes the reply to COMMIT. If the verifier has changed, its pieces are written again.
    pub fn on_commit(&mut self, ok: &CommitOk) -> Result<(), TransferError> {
        match self.committing.take() {
            Some((pieces, verf)) if verf == ok.verf => pieces.into_iter().for_each(|p| join(&mut self.stable, p)),
            Some((pieces, _)) => self.write_again(pieces)?,
            None => {}
        }
        Ok(())
    }

    /// Removes and returns the pieces that became stable.
    pub fn take_stable(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.stable)
    }

    /// Whether a COMMIT has, or will have, something to do.
    pub fn wants_commit(&self) -> bool {
        self.unstable_in_flight > 0 || !self.is_all_committed()
    }

    /// Whether everything is on stable storage.
    pub fn is_done(&self) -> bool {
        self.todo.is_empty() && self.in_flight == 0 && self.is_all_committed()
    }

    fn is_all_committed(&self) -> bool {
        self.uncommitted.is_empty() && self.committing.is_none()
    }

    /// Bytes acknowledged; those written again count again.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// What the WRITE replies have said so far.
    pub fn written(&self) -> Written {
        self.written
    }

    /// The server restarted before these were committed.
    fn write_again(&mut self, lost: Vec<Piece>) -> Result<(), TransferError> {
        // What was in flight when the limit was reached may be lost many times; that counts as one restart.
        if self.restarts < RESTARTS_TRUSTED || self.unstable_in_flight == 0 {
            self.restarts += 1;
        }
        self.todo.extend(lost);
        if self.restarts > RESTARTS_MAX { Err(TransferError::Restarting) } else { Ok(()) }
    }
}

/// Appends a piece, joined with the last one if they touch.
fn join(pieces: &mut Vec<Piece>, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.end == piece.start => last.end = piece.end,
        _ => pieces.push(piece),
    }
}
