//! The private key of a link's end.

use std::path::{Path, PathBuf};

use remora_host::link::{Identity, KeyError};

use crate::commands::link::flags::EndpointFlags;
use crate::config::state_dir;
use crate::output::exit::{Error, Result, io_text};

/// Path of the key: `told`, or the default.
pub(crate) fn key_path(told: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = told {
        state_dir::check_named(&path)?;
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    let dir = if root { Some(PathBuf::from("/var/lib/remora")) } else { state_dir::user_dir() };
    let dir = dir.ok_or_else(|| {
        Error::Usage("there is no home directory to keep the link's key in: name a file with --key FILE".into())
    })?;
    Ok(dir.join("link.key"))
}

pub(crate) fn load_key(ends: &EndpointFlags, in_file: Option<PathBuf>) -> Result<Identity> {
    let path = key_path(ends.key.clone().or(in_file))?;
    Identity::load(&path).map_err(|e| key_error(&path, &e))
}

pub(crate) fn key_error(path: &Path, error: &KeyError) -> Error {
    match error {
        KeyError::File(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Error::refused(path.display(), "there is no key: remora link keys makes one")
        }
        KeyError::File(e) => Error::refused(path.display(), io_text(e)),
        other => Error::refused(path.display(), other.to_string()),
    }
}
