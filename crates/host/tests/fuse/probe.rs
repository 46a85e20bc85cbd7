//! A program that calls stat(2) on a path, catches SIGALRM, and prints what the call returned.

use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};

/// Names the path, for the process of the caller.
pub(crate) const PATH: &str = "REMORA_TEST_FUSE_PROBE";

pub(crate) fn call(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let _caught = signal(SignalKind::alarm()).unwrap();
    let result = std::fs::metadata(path).map_err(|e| e.raw_os_error().unwrap());
    println!("{}", result.map_or_else(|e| format!("{:?}", remora_wire::fuse::Errno(e)), |_| "found".into()));
}
