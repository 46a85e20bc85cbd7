//! The users of the clients: actors with their own directories, whose files the oracle knows
//! exactly, and sharers that compete in a common one.

mod actor;
mod crew;
mod generate;
mod op;
mod sharer;

pub use actor::{Actor, ActorConfig};
pub use crew::{Crew, Worker};
pub use generate::Mix;
pub use op::{Making, Op, split};
pub use sharer::{SHARED, Sharer, Tally};
