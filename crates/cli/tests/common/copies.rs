//! Interrupted copies over slow links, and their journals.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::Place;

pub(crate) const SIZE: usize = 4_000_000;
/// Some 2 s for the file: time to interrupt it.
pub(crate) const SLOW: &[&str] = &["--rate", "16Mbit", "--duplex", "full", "--queue", "1000"];
pub(crate) const FAST: &[&str] = &["--rate", "10Gbit", "--duplex", "full", "--queue", "10000", "--delay", "0"];

/// Journals of unfinished copies: of downloads beside them, of uploads in the state directory.
pub(crate) fn journals(p: &Place) -> Vec<PathBuf> {
    let dirs = [p.here(""), p.state().join("remora")];
    let entries = dirs.iter().filter_map(|d| fs::read_dir(d).ok()).flatten();
    entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "json")).collect()
}

pub(crate) fn resumed(out: &str) -> (usize, usize) {
    let report: Value = serde_json::from_str(out).unwrap();
    (report["bytes"].as_u64().unwrap() as usize, report["resumed_bytes"].as_u64().unwrap() as usize)
}
