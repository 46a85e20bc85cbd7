//! Output of the commands: [`stdio`] prints, [`exit`] has errors and exit codes.

pub(crate) mod background_writer;
pub(crate) mod diagnostics;
pub(crate) mod escape;
pub(crate) mod exit;
pub(crate) mod stdio;
