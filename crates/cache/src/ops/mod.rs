//! The operations of the kernel, one function each: `(state, operation) -> reply`, or what it waits for.
//!
//! Read `lookup` first, then `files` and `directories`, then `changes`.

pub(crate) mod changes;
pub(crate) mod directories;
pub(crate) mod files;
pub(crate) mod lookup;
