//! What `--resume` needs: the journals of unfinished copies, their temporary files, and the markers of unfinished trees.
//!
//! Read [`journal`] first. [`resume_index`] names what is kept in the state directory; [`source_state`] says whether a
//! source has changed; [`temp_file`] and [`lock_file`] keep copies apart.

pub(crate) mod byte_ranges;
pub(crate) mod journal;
pub(crate) mod lock_file;
pub(crate) mod resume_index;
pub(crate) mod source_state;
pub(crate) mod temp_file;
pub(crate) mod temp_name;
pub(crate) mod tree_marker;
