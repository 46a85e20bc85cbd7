//! Keys: an endpoint's identity is an Ed25519 pair, a raw public key in TLS (RFC 7250, RFC 8410) and 44 characters
//! of base64 for people.
//!
//! There are no certificates and no names: a key is pinned or unknown.

use std::fmt;
use std::str::FromStr;

use remora_base::key_text;
pub use remora_base::key_text::KEY_LEN;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::public_key_to_spki;

/// PKCS #8 prefix of the seed (RFC 8410, section 7): version, algorithm id-Ed25519, two nested octet string tags.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// An endpoint's public key, its identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

/// An endpoint's key pair. Only [`Identity::secret_text`] reveals the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    secret: [u8; KEY_LEN],
    public: PublicKey,
}

/// The text is not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a key: expected 44 characters of base64")]
pub struct KeyError;

impl PublicKey {
    /// The key with these bytes. The handshake checks that they are a point of the curve.
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> PublicKey {
        PublicKey(bytes)
    }

    /// The key's bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Encodes the key for TLS, as SubjectPublicKeyInfo.
    pub(crate) fn to_spki(self) -> SubjectPublicKeyInfoDer<'static> {
        public_key_to_spki(&alg_id::ED25519, self.0)
    }

    /// Decodes a SubjectPublicKeyInfo; `None` if it is not exactly an Ed25519 key.
    pub(crate) fn from_spki(der: &[u8]) -> Option<PublicKey> {
        let (_, last) = der.split_at_checked(der.len().checked_sub(KEY_LEN)?)?;
        let key = PublicKey(last.try_into().ok()?);
        (key.to_spki().as_ref() == der).then_some(key)
    }
}

impl Identity {
    /// The pair of a secret of 32 random bytes, which the caller draws.
    pub fn from_secret(secret: [u8; KEY_LEN]) -> Result<Identity, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&secret).map_err(|_| KeyError)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError)?;
        Ok(Identity { secret, public: PublicKey(public) })
    }

    /// The public half.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The secret in base64, for the key file only.
    pub fn secret_text(&self) -> String {
        key_text::encode(&self.secret)
    }

    /// The secret, to derive other keys.
    pub(crate) const fn secret(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }

    /// Encodes the pair for the TLS library.
    pub(crate) fn to_pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        PrivatePkcs8KeyDer::from([&PKCS8_PREFIX[..], &self.secret[..]].concat())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&key_text::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Never prints the secret.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(s: &str) -> Result<PublicKey, KeyError> {
        decode(s).map(PublicKey)
    }
}

fn decode(text: &str) -> Result<[u8; KEY_LEN], KeyError> {
    key_text::decode(text.trim()).ok_or(KeyError)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn a_known_secret_has_its_known_public_key() {
        let secret = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49,
            0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
        ];
        let identity = Identity::from_secret(secret).unwrap();
        assert_eq!(&identity.public().as_bytes()[..4], &[0xd7, 0x5a, 0x98, 0x01]);
        assert_eq!(key_text::decode(&identity.secret_text()), Some(secret));
        assert_eq!(identity.public().to_string().parse::<PublicKey>().unwrap(), identity.public());
        assert!(!format!("{identity:?}").contains(&identity.secret_text()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for bad in ["", "AAAA", &"A".repeat(44), &"!".repeat(44)] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
        let key = PublicKey([7; KEY_LEN]);
        let spki = key.to_spki();
        assert_eq!(PublicKey::from_spki(spki.as_ref()), Some(key));
        for bad in [&spki[1..], &spki[..43], &[][..], &[7; 44][..]] {
            assert_eq!(PublicKey::from_spki(bad), None);
        }
    }
}
