//! Raw public keys in TLS 1.3 (RFC 7250), for both ends. A key takes the place of a certificate; its owner proves
//! possession (RFC 8446, section 4.4.3); the caller's function decides whether it is accepted.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme};

use super::keys::{Identity, PublicKey};

/// Certificate verifier for either end. The decision about a server's key gets the requested name, that about a
/// client's key none.
pub struct RawKeys<J> {
    judge: J,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<J> RawKeys<J>
where
    J: Fn(&PublicKey, Option<&ServerName<'_>>) -> Result<(), CertificateError>,
{
    /// Creates a verifier with the signature algorithms of `provider`, which decides about keys by `judge`.
    pub fn new(provider: &CryptoProvider, judge: J) -> RawKeys<J> {
        RawKeys { judge, algorithms: provider.signature_verification_algorithms }
    }

    fn check(&self, shown: &CertificateDer<'_>, name: Option<&ServerName<'_>>) -> Result<(), Error> {
        let key = PublicKey::from_spki(shown).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        (self.judge)(&key, name).map_err(Error::InvalidCertificate)
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
    }
}

/// This endpoint's key, for the TLS configuration.
pub fn shown(me: &Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let key = provider.key_provider.load_private_key(me.to_pkcs8().into())?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(me.public().to_spki().to_vec())], key)))
}

impl<J> fmt::Debug for RawKeys<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawKeys").finish_non_exhaustive()
    }
}

/// Methods of both verifiers: QUIC has no TLS 1.2, and all keys are Ed25519.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls13RequiredForQuic.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_signature(message, shown, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl<J> ServerCertVerifier for RawKeys<J>
where
    J: Fn(&PublicKey, Option<&ServerName<'_>>) -> Result<(), CertificateError> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown, Some(name)).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl<J> ClientCertVerifier for RawKeys<J>
where
    J: Fn(&PublicKey, Option<&ServerName<'_>>) -> Result<(), CertificateError> + Send + Sync,
{
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown, None).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}
