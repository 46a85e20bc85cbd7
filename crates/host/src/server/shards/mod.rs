//! The server's cores: each client belongs to a shard, which has a core behind a lock.
//!
//! [`dispatcher`] gives requests and results to the cores and passes on what they return, [`shard`] is one core with its
//! connections, [`reply_path`] a connection as the cores see it, [`group_waiters`] keeps calls until the groups of their
//! users are known.

pub(super) mod dispatcher;
pub(super) mod group_waiters;
pub(super) mod reply_path;
mod shard;
