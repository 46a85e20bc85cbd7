//! `remora recv`. Requests go from [`command`] to [`request_queue`] to [`store`], which fills each [`partial_file`].

pub(crate) mod background_jobs;
pub(crate) mod command;
pub(crate) mod flags;
pub(crate) mod hash_cache;
pub(crate) mod partial_file;
pub(crate) mod quota;
pub(crate) mod received_names;
pub(crate) mod refusal;
pub(crate) mod request_queue;
pub(crate) mod store;
pub(crate) mod target_tree;
