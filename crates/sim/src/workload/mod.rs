//! Who uses the clients: actors with a directory of their own, whose files the oracle knows
//! exactly, and sharers that get in one another's way in a common one.

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
