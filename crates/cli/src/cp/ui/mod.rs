//! The user's side of a copy: flags, counts and failures in [`job`], the bar in [`progress`].

pub(crate) mod job;
pub(crate) mod progress;
