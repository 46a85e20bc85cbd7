//! A path in a mount: which mount, and where in it.

use std::path::{Component, Path};

use remora_host::client::Target;
use remora_host::mount::control_client::KnownMount;
use remora_host::mount::mount_point;
use remora_host::mount::store::StoreKey;

use crate::commands::mount::known_mounts;
use crate::output::exit::{Error, Result};

/// A path in a mount.
pub(super) struct MountedPath {
    pub(super) mount: KnownMount,
    /// From the mounted directory, as the profile has it.
    pub(super) path: String,
}

/// Finds the mount of `path`. What the path names need not exist.
pub(super) fn find(path: &Path) -> Result<MountedPath> {
    let mount = known_mounts::around(path)?;
    let whole = mount_point::resolve(path).map_err(Error::local(path.display()))?;
    let below = whole.strip_prefix(&mount.note.dir).unwrap_or(Path::new(""));
    let path = in_profile(below).ok_or_else(|| {
        let why = "its name is not UTF-8 text, which the profile is";
        Error::refused(path.display(), why).with_hint("add the directory above it")
    })?;
    Ok(MountedPath { mount, path })
}

/// A path from the mounted directory, with a slash in front.
fn in_profile(below: &Path) -> Option<String> {
    let mut text = String::new();
    for component in below.components() {
        if let Component::Normal(name) = component {
            text.push('/');
            text.push_str(name.to_str()?);
        }
    }
    Some(if text.is_empty() { "/".to_owned() } else { text })
}

/// What identifies the export at `url`.
pub(super) fn export(url: &str) -> Result<StoreKey> {
    Ok(StoreKey::of(&Target::parse(url)?))
}

/// The path of the profile in the mount, for people.
pub(super) fn shown(mount: &KnownMount, path: &str) -> String {
    let whole = mount.note.dir.join(path.trim_start_matches('/'));
    whole.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn path_in_a_mount_starts_at_its_directory() {
        for (below, path) in [("", "/"), ("a", "/a"), ("a/b c", "/a/b c")] {
            assert_eq!(in_profile(Path::new(below)).as_deref(), Some(path));
        }
        assert_eq!(in_profile(Path::new(OsStr::from_bytes(b"a/\xff"))), None);
    }
}
