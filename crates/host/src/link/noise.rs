//! The Noise protocol of the link: its parameters and its key pairs (Noise Protocol Framework, revision 34).

use snow::Builder;
use snow::params::{DHChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Length of a key in bytes.
pub(super) const KEY_LEN: usize = 32;

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
