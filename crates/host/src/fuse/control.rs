//! The kernel's control files of FUSE connections.

use std::fs;
use std::path::Path;

use super::error::FuseError;
use super::mount_table::fuse_mount_at;

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Ends the connection of the mount at `dir`: every outstanding and later request fails with ENOTCONN, whatever the
/// state of the process behind it. The mount stays, and should be unmounted.
pub fn abort(dir: &Path) -> Result<(), FuseError> {
    let failed = |source| FuseError::Abort { dir: dir.to_owned(), source };
    let dir = fs::canonicalize(dir).map_err(failed)?;
    let mount = fuse_mount_at(&dir).map_err(failed)?.ok_or_else(|| FuseError::NotMounted { dir: dir.clone() })?;
    fs::write(format!("{CONNECTIONS}/{}/abort", mount.connection), "1").map_err(failed)
}
