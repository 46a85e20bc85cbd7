//! The error type of experiments with real programs.

#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Error {
    what: &'static str,
    why: String,
}

/// Names what failed, for `map_err`.
pub(crate) fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |e| Error { what, why: e.to_string() }
}
