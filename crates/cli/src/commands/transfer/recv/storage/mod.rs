//! Received files on disk: [`store`] writes [`partial_file`]s into a [`target_tree`], within a [`quota`].

pub(crate) mod hash_cache;
pub(crate) mod partial_file;
pub(crate) mod quota;
pub(crate) mod received_names;
pub(crate) mod store;
pub(crate) mod target_tree;
