//! Whole files through READ and WRITE, apart from where the bytes come from or go to.
//!
//! The owner asks for [`Piece`]s while the client has room, makes calls of them, and hands
//! the results back. Pieces may be answered in any order.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use remora_wire::nfs3::{Call, CommitArgs, CommitOk, Fh, ReadArgs, ReadOk, Stable, WriteArgs, WriteOk};

/// A piece of a file.
pub type Piece = Range<u64>;

/// What a server said that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// READ returned no bytes before the end of the file.
    #[error("the server returned no data before the end of the file")]
    NoProgress,
    /// WRITE took more bytes than it was given, or none.
    #[error("the server says it wrote {claimed} of {given} bytes")]
    BadCount {
        /// Bytes the server claims.
        claimed: u32,
        /// Bytes it was given.
        given: u64,
    },
    /// The server lost uncommitted data again and again.
    #[error("the server keeps restarting and losing what was written")]
    Restarting,
}

/// A file, or the rest of one, to be read.
#[derive(Clone, Debug)]
pub struct Download {
    fh: Fh,
    todo: VecDeque<Piece>,
    flying: usize,
    end: u64,
    received: u64,
}

impl Download {
    /// Reads `range` of the file.
    pub fn new(fh: Fh, range: Piece) -> Download {
        let end = range.end;
        let todo = if range.is_empty() { VecDeque::new() } else { VecDeque::from([range]) };
        Download { fh, todo, flying: 0, end, received: 0 }
    }

    /// The next piece of at most `block` bytes, and the call for it.
    pub fn poll(&mut self, block: u32) -> Option<(Piece, Call)> {
        let piece = take_front(&mut self.todo, block)?;
        self.flying += 1;
        let count = (piece.end - piece.start) as u32;
        let call = Call::Read(ReadArgs { fh: self.fh.clone(), offset: piece.start, count });
        Some((piece, call))
    }

    /// Takes what READ returned for `piece`; gives back the bytes to put at `piece.start`.
    /// What is missing is asked for again; a file that became shorter ends there.
    pub fn on_read(&mut self, piece: Piece, ok: ReadOk) -> Result<Bytes, TransferError> {
        self.flying = self.flying.saturating_sub(1);
        let mut data = ok.data;
        data.truncate((piece.end - piece.start) as usize);
        let got = piece.start + data.len() as u64;
        self.received += data.len() as u64;
        if ok.eof {
            self.end = self.end.min(got);
            self.todo.retain(|p| p.start < got);
        } else if data.is_empty() {
            return Err(TransferError::NoProgress);
        } else if got < piece.end {
            self.todo.push_front(got..piece.end);
        }
        Ok(data)
    }

    /// Whether every piece is here.
    pub fn is_done(&self) -> bool {
        self.todo.is_empty() && self.flying == 0
    }

    /// Where the file ends, as far as known.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received
    }
}

/// How often lost data is written again before giving up.
const RESTARTS_MAX: u32 = 100;

/// A file, or the rest of one, to be written: UNSTABLE writes and a COMMIT, all again if the
/// server lost some of them between (RFC 1813, section 4.8).
#[derive(Clone, Debug)]
pub struct Upload {
    fh: Fh,
    todo: VecDeque<Piece>,
    flying: usize,
    /// Written with this verifier but not committed.
    verf: Option<[u8; 8]>,
    uncommitted: Vec<Piece>,
    committing: bool,
    restarts: u32,
    sent: u64,
}

impl Upload {
    /// Writes `range` of the file.
    pub fn new(fh: Fh, range: Piece) -> Upload {
        let todo = if range.is_empty() { VecDeque::new() } else { VecDeque::from([range]) };
        Upload { fh, todo, flying: 0, verf: None, uncommitted: Vec::new(), committing: false, restarts: 0, sent: 0 }
    }

    /// The file.
    pub fn fh(&self) -> &Fh {
        &self.fh
    }

    /// The next piece to write, at most `block` bytes.
    pub fn poll(&mut self, block: u32) -> Option<Piece> {
        let piece = take_front(&mut self.todo, block)?;
        self.flying += 1;
        Some(piece)
    }

    /// The call that writes `data`, the bytes of a piece that starts at `offset`.
    pub fn write(&self, offset: u64, data: Bytes) -> Call {
        let count = data.len() as u32;
        Call::Write(WriteArgs { fh: self.fh.clone(), offset, count, stable: Stable::Unstable, data })
    }

    /// Takes what WRITE returned for `piece`; gives back how many bytes were written.
    pub fn on_write(&mut self, piece: Piece, ok: &WriteOk) -> Result<u64, TransferError> {
        self.flying = self.flying.saturating_sub(1);
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
            self.note_verifier(ok.verf)?;
            self.note_uncommitted(piece.start..got);
        }
        self.sent += written;
        Ok(written)
    }

    /// The COMMIT, when it is its turn.
    pub fn poll_commit(&mut self) -> Option<Call> {
        if !self.todo.is_empty() || self.flying > 0 || self.committing || self.uncommitted.is_empty() {
            return None;
        }
        self.committing = true;
        Some(Call::Commit(CommitArgs { fh: self.fh.clone(), offset: 0, count: 0 }))
    }

    /// Takes what COMMIT returned.
    pub fn on_commit(&mut self, ok: &CommitOk) -> Result<(), TransferError> {
        self.committing = false;
        self.note_verifier(ok.verf)?;
        self.uncommitted.clear();
        Ok(())
    }

    /// Whether all is on stable storage.
    pub fn is_done(&self) -> bool {
        self.todo.is_empty() && self.flying == 0 && self.uncommitted.is_empty()
    }

    /// Bytes acknowledged so far, those written again counted again.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Another verifier than before: what was not committed may be gone.
    fn note_verifier(&mut self, verf: [u8; 8]) -> Result<(), TransferError> {
        if self.verf.is_some_and(|v| v != verf) && !self.uncommitted.is_empty() {
            self.restarts += 1;
            if self.restarts > RESTARTS_MAX {
                return Err(TransferError::Restarting);
            }
            self.todo.extend(self.uncommitted.drain(..));
        }
        self.verf = Some(verf);
        Ok(())
    }

    /// Neighbours are joined, so the list stays as short as the replies are in order.
    fn note_uncommitted(&mut self, piece: Piece) {
        match self.uncommitted.last_mut() {
            Some(last) if last.end == piece.start => last.end = piece.end,
            _ => self.uncommitted.push(piece),
        }
    }
}

/// Cuts up to `block` bytes off the first piece.
fn take_front(todo: &mut VecDeque<Piece>, block: u32) -> Option<Piece> {
    let front = todo.front_mut()?;
    let end = front.end.min(front.start + u64::from(block.max(1)));
    let piece = front.start..end;
    front.start = end;
    if front.is_empty() {
        todo.pop_front();
    }
    Some(piece)
}
