//! Pieces of a file, and errors of transfers.

use std::collections::VecDeque;
use std::ops::Range;

/// A range of a file in bytes.
pub type Piece = Range<u64>;

/// An impossible reply of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// READ returned no bytes before the end of the file.
    #[error("the server returned no data before the end of the file")]
    NoProgress,
    /// WRITE took more bytes than it was given, or none.
    #[error("the server says it wrote {claimed} of {given} bytes")]
    BadCount {
        /// Bytes the server claims to have written.
        claimed: u32,
        /// Bytes it was given.
        given: u64,
    },
    /// The server lost uncommitted data too often.
    #[error("the server keeps restarting and losing what was written")]
    Restarting,
}

/// Removes up to `block` bytes from the first piece.
pub(super) fn take_front(todo: &mut VecDeque<Piece>, block: u32) -> Option<Piece> {
    let front = todo.front_mut()?;
    let end = front.end.min(front.start + u64::from(block.max(1)));
    let piece = front.start..end;
    front.start = end;
    if front.is_empty() {
        todo.pop_front();
    }
    Some(piece)
}
