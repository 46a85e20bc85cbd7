//! Keys and TLS: raw public keys (RFC 7250) in place of certificates.

mod keys;
pub mod raw_keys;
mod tls;

pub use keys::{Identity, KEY_LEN, KeyError, PublicKey};
pub use tls::Guests;
pub(crate) use tls::{client, server, tls_name};
