//! Directory listings.
//!
//! [`getdents`] reads the entries of an open directory. [`open_listings`] keeps a directory open between the pages of a
//! listing where cookies are not valid for another descriptor. READDIR itself is in `ops::readdir`.

pub(crate) mod case_probe;
pub(crate) mod getdents;
#[expect(clippy::disallowed_methods, reason = "a listing is idle in real time")]
pub(crate) mod open_listings;
