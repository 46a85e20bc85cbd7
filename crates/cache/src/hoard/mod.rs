//! Hoarding: the disk cache gets what the user wants to have while disconnected, in link time that no program uses.
//!
//! A walk goes over the profile, the highest priority first. It confirms each object's attributes and permissions, lists
//! directories, reads what the disk cache lacks, and pins each object there, so that it is evicted last.
//! Read `profile` first, then `status`, `walk_state`, `step`, `walk`, `object`, `directory` and `file_data`; `usage` and
//! `observation` count what programs open.

pub(crate) mod directory;
pub(crate) mod fetch;
pub(crate) mod file_data;
pub(crate) mod object;
pub(crate) mod observation;
pub(crate) mod profile;
pub(crate) mod status;
pub(crate) mod step;
pub(crate) mod usage;
pub(crate) mod walk;
pub(crate) mod walk_state;
