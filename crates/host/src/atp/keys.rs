//! ATP key files: one secret each, readable by the owner only.

use std::io;
use std::path::{Path, PathBuf};

use remora_atp::session::Identity;

use crate::key_file::{self, KeyFileError};

/// Generates an identity without a file.
pub fn generate() -> Result<Identity, KeyFileError> {
    let secret = draw().ok_or(KeyFileError::Random)?;
    Identity::from_secret(secret).map_err(|_| KeyFileError::Text)
}

/// Loads the identity from `path`, which only its owner may read.
pub fn load(path: &Path) -> Result<Identity, KeyFileError> {
    Identity::from_secret(key_file::load(path)?).map_err(|_| KeyFileError::Text)
}

/// Loads the identity from `path`; creates one (mode 0600) if the file does not exist.
pub fn load_or_create(path: &Path) -> Result<Identity, KeyFileError> {
    Identity::from_secret(key_file::load_or_create(path, draw)?).map_err(|_| KeyFileError::Text)
}

/// The default key file: `atp.key` in the state directory. A file in the configuration directory, where earlier
/// versions stored it, is used if it exists.
pub fn default_path() -> Result<PathBuf, KeyFileError> {
    let is_root = rustix::process::geteuid().is_root();
    path_for(environment, is_root)
}

/// The path that earlier versions used.
pub fn earlier_path() -> Option<PathBuf> {
    earlier_path_for(environment)
}

fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute())
}

fn earlier_path_for(set: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    config.map(|dir| dir.join("remora/atp.key"))
}

/// [`default_path`] for a given environment.
fn path_for(set: impl Fn(&str) -> Option<PathBuf>, is_root: bool) -> Result<PathBuf, KeyFileError> {
    let home = |below| set("HOME").map(|home| home.join(below));
    if let Some(earlier) = earlier_path_for(&set).filter(|path| is_there(path)) {
        return Ok(earlier);
    }
    let state = match set("XDG_STATE_HOME") {
        None if is_root => Some(PathBuf::from("/var/lib")),
        None => home(".local/state"),
        set => set,
    };
    Ok(state.ok_or(KeyFileError::NoHome)?.join("remora/atp.key"))
}

/// A file that cannot be checked counts as present: another key would be another identity.
fn is_there(path: &Path) -> bool {
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    std::fs::symlink_metadata(path).map_or_else(|e| !missing.contains(&e.kind()), |_| true)
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
    fn key_is_in_the_state_directory_or_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(dir.path().join(name));
        let home = |name: &str| if name == "HOME" { at("home") } else { None };
        let xdg = |name: &str| match name {
            "XDG_STATE_HOME" => at("state"),
            "XDG_CONFIG_HOME" => at("config"),
            _ => at("home"),
        };
        let [user, set] =
            ["home/.local/state/remora/atp.key", "state/remora/atp.key"].map(|name| dir.path().join(name));
        assert_eq!(path_for(home, false).unwrap(), user);
        assert_eq!(path_for(home, true).unwrap(), Path::new("/var/lib/remora/atp.key"));
        assert_eq!([false, true].map(|is_root| path_for(xdg, is_root).unwrap()), [set.clone(), set]);
        assert!(matches!(path_for(|_| None, false), Err(KeyFileError::NoHome)));
        assert!(path_for(|_| None, true).is_ok(), "a service of the system has no home");
        // A file of an earlier version is used, because peers know its key.
        let [earlier, of_user] =
            ["config/remora/atp.key", "home/.config/remora/atp.key"].map(|name| dir.path().join(name));
        for path in [&earlier, &of_user] {
            load_or_create(path).unwrap();
        }
        assert_eq!([false, true].map(|is_root| path_for(xdg, is_root).unwrap()), [earlier.clone(), earlier]);
        assert_eq!([false, true].map(|is_root| path_for(home, is_root).unwrap()), [of_user.clone(), of_user]);
    }

    #[test]
    fn key_is_created_once_with_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("remora/atp.key");
        let made = load_or_create(&path).unwrap();
        assert_eq!(load_or_create(&path).unwrap(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), made.secret_text());
        assert_ne!(generate().unwrap(), made);
        std::fs::write(&path, "no key").unwrap();
        assert!(matches!(load(&path), Err(KeyFileError::Text)));
    }
}
