//! The copy study of Copy 89, made again: files copied between two stations by today's programs,
//! beside a load that other stations send on the same medium; real programs in network namespaces
//! on an emulated medium.
//!
//! What has been learned since 1989 about measuring: all cells have the same seeds (the same file,
//! the same packets of the load) and a random order; files are fresh and not in the cache; the clock
//! stops when the copy is on the disk, and then it is compared with the file; the load is what was
//! carried, not what was asked for; medians with bootstrap intervals, nothing discarded, and copies
//! that were cut off are counted as longer than all others.
//!
//! Beside every median stands what the [model](remora_model) and the
//! [simulator](remora_sim::network) say of the same medium, from copies of one size without load.
//!
//! The [medium](remora_channel) gives stations turns, frame by frame, or lets them collide as on an
//! Ethernet. It needs root.

mod bench;
mod judge;
mod options;
mod outcome;
mod page;
mod plan;
mod predict;
mod run;
mod study;
mod tables;

pub use judge::Verdict;
pub use options::{BYTES_MAX, JOBS_MAX, Options, PAPER_LOADS, PAPER_SIZES_MB, SEEDS_MAX};
pub use outcome::{CellOutcome, Parts, Peer, Predicted, Report};
pub use plan::{Cell, System};
pub use predict::Fitted;
pub use run::{Run, Wire};
pub use study::run;
