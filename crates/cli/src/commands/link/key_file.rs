//! The private key of a link's end.

use std::path::{Path, PathBuf};

use remora_host::KeyFileError;
use remora_host::link::LinkIdentity;

use crate::commands::link::flags::EndpointFlags;
use crate::config::state_dir;
use crate::output::exit::{Error, Result, io_text};

/// Path of the key: `told`, or the default.
pub(crate) fn key_path(told: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = told {
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    let dir = if root { Some(PathBuf::from("/var/lib/remora")) } else { state_dir::user_dir() };
    let dir =
        dir.ok_or_else(|| Error::Usage("no home directory for the link's key: give a file with --key FILE".into()))?;
    Ok(dir.join("link.key"))
}

pub(crate) fn load_key(ends: &EndpointFlags, in_file: Option<PathBuf>) -> Result<LinkIdentity> {
    let path = key_path(ends.key.clone().or(in_file))?;
    LinkIdentity::load(&path).map_err(|e| key_error(&path, &e))
}

pub(crate) fn key_error(path: &Path, error: &KeyFileError) -> Error {
    match error {
        KeyFileError::File(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Error::refused(path.display(), "the key does not exist: create it with remora link keys")
        }
        KeyFileError::File(e) => Error::refused(path.display(), io_text(e)),
        KeyFileError::Empty => Error::refused(
            path.display(),
            "it is empty and no key: remove it, and `remora link keys` makes a new one (which the other ends are then \
             to be told)",
        ),
        other => Error::refused(path.display(), other.to_string()),
    }
}
