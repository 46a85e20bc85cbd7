//! `remora model serve`. [`server`] routes requests, [`api`] answers them.

pub(crate) mod api;
pub(crate) mod file_edit;
pub(crate) mod origin_check;
pub(crate) mod server;
