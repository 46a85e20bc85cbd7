//! What the command prints, and how it ends: start with [`exit`], then [`stdio`].

pub(crate) mod background_writer;
pub(crate) mod diagnostics;
pub(crate) mod escape;
pub(crate) mod exit;
pub(crate) mod stdio;
