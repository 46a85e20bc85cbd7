//! What can keep an experiment with real programs from giving figures.

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Error {
    what: &'static str,
    why: String,
}

/// To say what failed.
pub(crate) fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |e| Error { what, why: e.to_string() }
}
