//! Whole files through READ and WRITE, without the file's bytes.
//!
//! The owner takes [`Piece`]s while the client has room, makes calls of them, and returns the results in any order.

mod download;
mod piece;
mod upload;

pub use download::Download;
pub use piece::{Piece, TransferError};
pub use upload::{Upload, Written};
