//! A file system in memory, for the simulator and for tests.
//!
//! Pure and deterministic: inode numbers, cookies and verifiers follow from the seed and the calls, times from
//! [`MemFs::set_time`]. Each change is at least a nanosecond later than the one before, but for
//! [`MemFs::set_time_grain`]; reading does not change atime.
//!
//! It models a disk with a volatile cache (RFC 1813, sections 3.3.7 and 3.3.21), as harshly as the protocol allows:
//! * UNSTABLE writes are visible at once and durable after COMMIT.
//! * A DATA_SYNC or FILE_SYNC write makes its own bytes durable, and no earlier ones.
//! * After [`MemFs::defer`], and through a deferring view, such a write is volatile, too, until its flush.
//! * All other changes are durable when they return. A truncation makes the size durable, not the volatile bytes below
//!   it.
//! * [`MemFs::crash`] restores what is durable and changes the verifier. A failing flush ([`OpKind::Flush`]) does the
//!   same to its file.
//!
//! The mode bits decide permissions; root may do everything, and owners may read and write their files, as in servers.
//! The root directory belongs to root and has mode 0777.
//!
//! Read `mem_fs.rs` first, then `ops.rs`, `state.rs`, `node.rs` and `content.rs`.

mod content;
mod fault;
mod mem_fs;
mod node;
mod ops;
mod state;

pub use fault::OpKind;
pub use mem_fs::{MemFs, TreeNode};
