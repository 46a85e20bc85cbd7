//! Part of the local disk: listing.

#[expect(clippy::disallowed_methods, reason = "how long ago a listing went on is real time")]
pub(crate) mod open_listings;
pub(crate) mod readdir;
