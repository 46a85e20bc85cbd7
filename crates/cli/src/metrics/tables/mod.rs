//! The metrics of each command, from its snapshot.

pub(crate) mod forwarding;
pub(crate) mod link;
pub(crate) mod mount;
pub(crate) mod recv;
pub(crate) mod serve;

use crate::metrics::table::Family;

/// The first metric of every page.
pub(crate) fn build() -> Family {
    Family::info("build", "Version of Remora", vec![("version", env!("REMORA_VERSION").into())])
}

#[cfg(test)]
mod documents_tests;
