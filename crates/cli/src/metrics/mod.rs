//! `--metrics`: the figures of a command that runs for long, as a page for Prometheus.
//!
//! A scrape takes the command's snapshot, the same one that its other output shows. Read [`table`] (families of
//! metrics and their text), [`tables`] (one for each command), [`endpoint`] (the flag and the page).

pub(crate) mod endpoint;
pub(crate) mod table;
pub(crate) mod tables;
