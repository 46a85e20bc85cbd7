//! `cp -r`: [`download_tree`] and [`upload_tree`].
//!
//! The others keep one source from replacing another that the same command has copied, where the destination takes both
//! names for one.

pub(crate) mod download_tree;
pub(crate) mod name_folding;
pub(crate) mod unique_names;
pub(crate) mod upload_tree;
