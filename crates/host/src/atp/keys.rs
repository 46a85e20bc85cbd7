//! ATP's keys on disk: one secret a file, for its owner alone, as the link's are kept.

use std::path::{Path, PathBuf};

use remora_atp::session::Identity;

use crate::link::key;

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not a key's text.
    #[error("not a key: expected 44 characters of base64")]
    Text,
    /// Nothing is in the file.
    #[error("it is empty and no key: remove it, and a new one is made (which the other ends are then to be told)")]
    Empty,
    /// Neither `XDG_CONFIG_HOME` nor `HOME` says where keys are kept.
    #[error("no place for a key: neither XDG_CONFIG_HOME nor HOME is set")]
    NoHome,
    /// The file cannot be read or made, or is open to others.
    #[error(transparent)]
    File(crate::link::KeyError),
}

impl From<crate::link::KeyError> for KeyError {
    fn from(e: crate::link::KeyError) -> KeyError {
        match e {
            crate::link::KeyError::Text => KeyError::Text,
            crate::link::KeyError::Empty => KeyError::Empty,
            other => KeyError::File(other),
        }
    }
}

/// A fresh identity, kept nowhere.
pub fn generate() -> Result<Identity, KeyError> {
    let secret = draw().ok_or(crate::link::KeyError::Random)?;
    Identity::from_secret(secret).map_err(|_| KeyError::Text)
}

/// The identity kept in the file at `path`, which its owner alone may read.
pub fn load(path: &Path) -> Result<Identity, KeyError> {
    Identity::from_secret(key::load(path)?).map_err(|_| KeyError::Text)
}

/// The identity kept at `path`; a fresh one is made and kept there (mode 0600) if there is none.
pub fn load_or_create(path: &Path) -> Result<Identity, KeyError> {
    Identity::from_secret(key::load_or_create(path, draw)?).map_err(|_| KeyError::Text)
}

/// Where a user's key is kept unless said otherwise: `remora/atp.key` in the configuration
/// directory of the XDG rules.
pub fn default_path() -> Result<PathBuf, KeyError> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    Ok(config.ok_or(KeyError::NoHome)?.join("remora/atp.key"))
}

fn draw() -> Option<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).ok()?;
    Some(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("remora/atp.key");
        let made = load_or_create(&path).unwrap();
        assert_eq!(load_or_create(&path).unwrap(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), made.secret_text());
        assert_ne!(generate().unwrap(), made);
        std::fs::write(&path, "no key").unwrap();
        assert!(matches!(load(&path), Err(KeyError::Text)));
    }
}
