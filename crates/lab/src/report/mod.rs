//! What reports are made of: tables, and pages that need nothing from anywhere.

pub(crate) mod bar;
pub(crate) mod page;
pub(crate) mod table;
