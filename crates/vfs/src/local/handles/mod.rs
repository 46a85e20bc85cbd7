//! From a file handle to an open object.
//!
//! Read [`tree`] first: the exported tree, and objects opened in it. [`file_id`] is what a handle contains;
//! [`path_cache`] holds the names under which objects were last seen. [`resolve`] opens an object by its cached path.
//! If that fails, [`search`] walks the tree, within the bounds of [`search_limit`].

pub(crate) mod file_id;
#[expect(clippy::disallowed_methods, reason = "a failed search is not repeated for a real time")]
pub(crate) mod path_cache;
#[expect(clippy::disallowed_methods, reason = "a verified directory is trusted for real time")]
pub(crate) mod resolve;
#[expect(clippy::disallowed_methods, reason = "a search takes real time")]
pub(crate) mod search;
pub(crate) mod search_limit;
pub(crate) mod tree;
