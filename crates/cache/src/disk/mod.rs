//! The disk cache: what can be fetched again survives its eviction from memory and the end of the process.
//!
//! A record on disk has the attributes to which its names and data belong. It is used after the server has shown the same
//! attributes. No operation waits for a save, and a load or read that takes long is given up: then the server is asked.
//! Read `job` first, then `object`, `queue`, `fetch`, `save` and `completion`.

pub(crate) mod completion;
pub(crate) mod fetch;
pub(crate) mod job;
pub(crate) mod object;
pub(crate) mod queue;
pub(crate) mod save;
