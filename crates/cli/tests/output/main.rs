//! What commands print, and how they end: errors, terminals, absent readers, stopped processes.

#[path = "../common/mod.rs"]
mod common;
mod errors;
mod pages;
mod stopped;
mod terminal;
mod unread;
