//! Keys of the ends of a link: X25519 pairs and preshared keys.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use remora_base::key_text::{self, KEY_LEN};
use snow::Builder;
use snow::params::{DHChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};

use crate::key_file::{self, KeyFileError};

/// The protocol of the handshake (Noise Protocol Framework, revision 34).
const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";

/// The public key of an end, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkPublicKey(pub(in crate::link) [u8; KEY_LEN]);

/// The text is not a public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a key: expected 44 characters of base64, as `remora link keys` prints")]
pub struct PublicKeyError;

/// The key pair of an end. It is never displayed.
#[derive(Clone)]
pub struct LinkIdentity {
    pub(super) secret: [u8; KEY_LEN],
    pub public: LinkPublicKey,
}

/// A preshared key in addition to the key pairs. It protects recorded traffic if X25519 is broken.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(pub(super) [u8; KEY_LEN]);

impl LinkIdentity {
    /// Generates a key pair.
    pub fn generate() -> Result<LinkIdentity, KeyFileError> {
        let (secret, public) = generate().ok_or(KeyFileError::Random)?;
        Ok(LinkIdentity { secret, public: LinkPublicKey(public) })
    }

    /// Loads the key pair from `path`, which only its owner can read.
    pub fn load(path: &Path) -> Result<LinkIdentity, KeyFileError> {
        let secret = key_file::load(path)?;
        let public = public_of(&secret).ok_or(KeyFileError::Text)?;
        Ok(LinkIdentity { secret, public: LinkPublicKey(public) })
    }

    /// Loads the key pair from `path`, or generates and stores one if there is none. Creates missing directories with
    /// access for their owner only.
    pub fn load_or_create(path: &Path) -> Result<LinkIdentity, KeyFileError> {
        let secret = key_file::load_or_create(path, || Some(generate()?.0))?;
        let public = public_of(&secret).ok_or(KeyFileError::Text)?;
        Ok(LinkIdentity { secret, public: LinkPublicKey(public) })
    }
}

impl SharedSecret {
    /// Loads the secret from `path`, which only its owner can read.
    pub fn load(path: &Path) -> Result<SharedSecret, KeyFileError> {
        key_file::load(path).map(SharedSecret)
    }
}

/// The parameters of [`PATTERN`].
pub(super) fn params() -> Option<NoiseParams> {
    PATTERN.parse().ok()
}

/// Generates a key pair, secret half first.
pub(super) fn generate() -> Option<([u8; KEY_LEN], [u8; KEY_LEN])> {
    let pair = Builder::new(params()?).generate_keypair().ok()?;
    Some((pair.private.try_into().ok()?, pair.public.try_into().ok()?))
}

/// The public half of a secret key.
pub(super) fn public_of(secret: &[u8; KEY_LEN]) -> Option<[u8; KEY_LEN]> {
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519)?;
    dh.set(secret);
    dh.pubkey().get(..KEY_LEN)?.try_into().ok()
}

impl FromStr for LinkPublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<LinkPublicKey, PublicKeyError> {
        key_text::decode(text).map(LinkPublicKey).ok_or(PublicKeyError)
    }
}

impl fmt::Display for LinkPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&key_text::encode(&self.0))
    }
}

impl fmt::Debug for LinkPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for LinkIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkIdentity({})", self.public)
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
    fn public_key_is_parsed_as_it_is_shown() {
        let public = LinkIdentity::generate().unwrap().public;
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!("AAAA".parse::<LinkPublicKey>(), Err(PublicKeyError));
    }

    #[test]
    fn secrets_are_not_shown() {
        let identity = LinkIdentity::generate().unwrap();
        assert!(!format!("{identity:?}").contains(&key_text::encode(&identity.secret)));
        assert!(!format!("{:?}", SharedSecret([7; 32])).contains('7'));
    }
}
