//! The server as a client sees it: bytes in, bytes out.

mod access;
mod caching;
mod directories;
mod files;
mod hostile;
mod lost_write;
mod names;
mod world;
