//! The change log: changes of names and attributes that the server does not have yet (Coda's client modification log).
//!
//! Read `record` (what the store has), `log` (what waits for what), `local` (objects that were made here), `append`
//! (effects of a record), `step` (a call that goes to the log) and `restore`.

pub(crate) mod append;
pub(crate) mod local;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod restore;
pub(crate) mod step;
