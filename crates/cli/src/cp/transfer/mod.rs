//! Copies of single files.
//!
//! [`download`] and [`upload`] copy one file each. It grows in a temporary file, [`partial_download`] here or
//! [`partial_upload`] on the server, and is renamed when it is complete. The others are parts of these.

pub(crate) mod attributes;
pub(crate) mod destination;
pub(crate) mod download;
pub(crate) mod in_order_read;
pub(crate) mod partial_download;
pub(crate) mod partial_upload;
pub(crate) mod sparse;
pub(crate) mod upload;
pub(crate) mod upload_destination;
pub(crate) mod verify;
