//! The running mounts of this user.

use std::io;
use std::path::Path;

use remora_host::mount::control_client::{self, KnownMount};
use remora_host::mount::{mount_point, runtime_dir};

use crate::output::exit::{Error, Result};

/// All of them.
pub(crate) fn all() -> Result<Vec<KnownMount>> {
    let dir = runtime_dir::path();
    control_client::mounts(&dir).map_err(Error::local(dir.display()))
}

/// The mount at `dir`, or the one that `dir` lies in.
pub(crate) fn around(dir: &Path) -> Result<KnownMount> {
    let path = mount_point::resolve(dir).map_err(Error::local(dir.display()))?;
    let holding = all()?.into_iter().filter(|mount| path.starts_with(&mount.note.dir));
    let innermost = holding.max_by_key(|mount| mount.note.dir.components().count());
    innermost.ok_or_else(|| not_mounted(dir))
}

/// Nothing of ours is mounted at `dir`.
pub(crate) fn not_mounted(dir: &Path) -> Error {
    let why = "nothing is mounted there by remora mount of this user";
    Error::refused(dir.display(), why).with_hint("remora mount --list shows the mounts")
}

/// The error of a mount that did not answer.
pub(crate) fn unanswered(mount: &KnownMount, error: io::Error) -> Error {
    let dir = mount.note.dir.display();
    if !control_client::is_silent(&error) {
        return Error::local(dir)(error);
    }
    let why = format!("the mount's process {} does not answer", mount.note.pid);
    Error::refused(dir, why).with_hint(format!(
        "it may be stopped (kill -CONT {} lets it go on); remora umount --force DIR ends it",
        mount.note.pid
    ))
}
