//! `remora recv`. Requests go from [`command`] to [`request_queue`] to [`storage::store`].

pub(crate) mod background_jobs;
pub(crate) mod command;
pub(crate) mod flags;
pub(crate) mod refusal;
pub(crate) mod request_queue;
pub(crate) mod storage;
