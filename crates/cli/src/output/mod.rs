//! Output of the commands: [`stdio`] prints, [`exit`] has errors and exit codes, [`keys`] the keys of views.

pub(crate) mod background_writer;
pub(crate) mod diagnostics;
pub(crate) mod escape;
pub(crate) mod exit;
pub(crate) mod keys;
pub(crate) mod stdio;
