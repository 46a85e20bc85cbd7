//! The exports of a server: [`exports_file`] reads, [`plan`] plans, [`open_exports`] opens, [`export_list`] prints.

pub(crate) mod export_list;
pub(crate) mod exports_file;
pub(crate) mod open_exports;
pub(crate) mod plan;
pub(crate) mod share;
