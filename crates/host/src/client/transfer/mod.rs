//! Whole files through a session, as many blocks at once as the window takes.
//!
//! [`download`] and [`upload`] move files; [`in_flight`] has the blocks in flight, [`deferred_pieces`] those that the
//! server puts off.

pub(crate) mod deferred_pieces;
pub(crate) mod download;
pub(crate) mod in_flight;
#[cfg(test)]
mod tests;
pub(crate) mod upload;
