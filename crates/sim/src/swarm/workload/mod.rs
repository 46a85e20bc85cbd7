//! The users of the clients: actors with their own directories, whose files the oracle knows
//! exactly, and sharers that compete in a common one.
//!
//! Read `actor`, then `random_ops`, the source of its operations, then `sharer` and `users`.

mod actor;
mod random_ops;
mod sharer;
mod users;

pub use actor::{Actor, ActorConfig};
pub use random_ops::Mix;
pub use sharer::{SHARED, Sharer, Tally};
pub use users::{Users, Worker};
