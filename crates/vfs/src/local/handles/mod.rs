//! Part of the local disk: handles.

pub(crate) mod file_id;
#[expect(clippy::disallowed_methods, reason = "when to look at the real disk again is real time")]
pub(crate) mod path_cache;
#[expect(clippy::disallowed_methods, reason = "how long ago the way to a directory was gone is real time")]
pub(crate) mod resolve;
#[expect(clippy::disallowed_methods, reason = "how long a search takes is real time")]
pub(crate) mod search;
pub(crate) mod search_limit;
pub(crate) mod walk;
