//! The keys of a link's ends: X25519, written as 44 characters of base64, as WireGuard's are.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::handshake;

/// Bytes in a key.
pub(super) const KEY_LEN: usize = 32;

/// What the others know of an end: its name, in effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub(super) [u8; KEY_LEN]);

/// An end's own key pair. Never shown.
#[derive(Clone)]
pub struct Identity {
    pub(super) secret: [u8; KEY_LEN],
    /// What the others are told.
    pub public: PublicKey,
}

/// A secret that both ends share, on top of their keys: protects the past should X25519 fall.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(pub(super) [u8; KEY_LEN]);

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not a key's text.
    #[error("not a key: expected 44 characters of base64, as `remora link keys` prints")]
    Text,
    /// The file cannot be read or made.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Others may read the file.
    #[error("others may read it (mode {mode:03o}): run chmod 600 on it")]
    Open {
        /// The file's permission bits.
        mode: u32,
    },
    /// The system gives no random numbers, or the cipher library refuses its own keys.
    #[error("no key can be made: the system gives no random numbers")]
    Random,
}

impl Identity {
    /// A fresh one.
    pub fn generate() -> Result<Identity, KeyError> {
        let (secret, public) = handshake::generate().ok_or(KeyError::Random)?;
        Ok(Identity { secret, public: PublicKey(public) })
    }

    /// The one kept in the file at `path`, which its owner alone may read.
    pub fn load(path: &Path) -> Result<Identity, KeyError> {
        let secret = load(path)?;
        let public = handshake::public_of(&secret).ok_or(KeyError::Text)?;
        Ok(Identity { secret, public: PublicKey(public) })
    }

    /// The one kept at `path`; a fresh one is made and kept there if there is none. Directories
    /// on the way are made, too, for their owner alone.
    pub fn load_or_create(path: &Path) -> Result<Identity, KeyError> {
        match Identity::load(path) {
            Err(KeyError::File(e)) if e.kind() == io::ErrorKind::NotFound => {}
            known => return known,
        }
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let fresh = Identity::generate()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", STANDARD.encode(fresh.secret))?;
        file.sync_all()?;
        Ok(fresh)
    }
}

impl SharedSecret {
    /// The one kept in the file at `path`, which its owner alone may read.
    pub fn load(path: &Path) -> Result<SharedSecret, KeyError> {
        load(path).map(SharedSecret)
    }
}

fn load(path: &Path) -> Result<[u8; KEY_LEN], KeyError> {
    let text = fs::read_to_string(path)?;
    let meta = fs::metadata(path)?;
    let mode = meta.permissions().mode() & 0o777;
    // A pipe (`--key <(pass ...)`) has no other readers.
    if meta.file_type().is_file() && meta.nlink() > 0 && mode & 0o077 != 0 {
        return Err(KeyError::Open { mode });
    }
    decode(text.trim())
}

fn decode(text: &str) -> Result<[u8; KEY_LEN], KeyError> {
    STANDARD.decode(text).ok().and_then(|k| k.try_into().ok()).ok_or(KeyError::Text)
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        decode(text).map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_made_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/link.key");
        let made = Identity::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Identity::load_or_create(&path).unwrap().public, made.public);
        assert_eq!(made.public.to_string().parse::<PublicKey>().unwrap(), made.public);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Identity::load(&path), Err(KeyError::Open { mode: 0o644 })));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let short = STANDARD.encode([1; 31]);
        for bad in ["", "key", "AAAA", &short] {
            assert!(matches!(bad.parse::<PublicKey>(), Err(KeyError::Text)), "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let identity = Identity::generate().unwrap();
        assert!(!format!("{identity:?}").contains(&STANDARD.encode(identity.secret)));
        assert!(!format!("{:?}", SharedSecret([7; 32])).contains('7'));
    }
}
