//! Reintegration: sends the change log to the server, and settles conflicts with the changes of other clients (Coda).
//!
//! A record whose predecessors are done is looked at (`send`), executed and verified (`replies`). Nothing needs help from
//! the server: an exclusive creation repeats its verifier, other changes are preceded by a look at the names that they
//! alter, so that a repetition after a crash finds its own work done. `conflict` keeps both versions where two changes
//! exclude each other.

pub(crate) mod conflict;
pub(crate) mod replies;
pub(crate) mod send;
