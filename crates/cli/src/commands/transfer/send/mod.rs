//! `remora send`. [`command`] runs it, [`sources`] finds the files, [`file_transfer`] sends one.

pub(crate) mod answer_timeout;
pub(crate) mod answers;
pub(crate) mod command;
pub(crate) mod failure;
pub(crate) mod file_transfer;
pub(crate) mod flags;
pub(crate) mod sources;
