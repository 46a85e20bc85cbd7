//! The handshake: Noise IKpsk2 (Noise protocol framework, revision 34, section 7.5), implemented by `snow`.
//!
//! The mobile is the initiator; only the base can decrypt its public key. A fresh timestamp prevents replay of the
//! first message. The response is shorter than the initiation, so the base amplifies no flood. Without a preshared
//! key, zeros are used.
//!
//! Each end sends the other, encrypted, its random 64-bit epoch. A changed epoch means that the end has lost all state
//! of the other.
//!
//! A code that requires the base's public key follows the first message, like WireGuard's `mac1` (WireGuard 2017,
//! section 5.4.4). A sender that only knows the port cannot use up the base's handshake budget.

use remora_base::key_text::KEY_LEN;
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState, StatelessTransportState};

use super::key::{LinkIdentity, LinkPublicKey, SharedSecret, params};

/// The protocol version, which both ends must share. Changes: 2 epochs, 3 shorter headers, 4 header compression, 5
/// short numbers in a smaller window with more reordering and the initiation's index encrypted, 6 acknowledgements of
/// twice as many frames. The index follows it.
const PROLOGUE: &[u8] = b"remora link 6";
const PSK_PLACE: usize = 2;

const TAG: usize = 16;
/// Length of timestamp and epoch.
const QUESTION: usize = 16;
/// Length of kind, index or timestamp, and epoch.
const ANSWER: usize = 17;
/// Length of ephemeral key, static key and question.
const SEALED_LEN: usize = KEY_LEN + KEY_LEN + TAG + QUESTION + TAG;
const CODE_LEN: usize = 16;
/// Label of the code's key derivation.
const CODE_LABEL: &[u8] = b"remora link code";
/// Output length of BLAKE2s in bytes.
const HASH_LEN: usize = 32;
/// Length of the first message with its code.
pub(super) const INITIATION_LEN: usize = SEALED_LEN + CODE_LEN;
/// Length of the second message: ephemeral key and answer.
pub(super) const RESPONSE_LEN: usize = KEY_LEN + ANSWER + TAG;

const WELCOME: u8 = 0;
const STALE: u8 = 1;

/// The base's answer to a handshake with a known key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandshakeResponse {
    /// The session exists; messages to the base carry this index.
    Welcome {
        /// A session index of 24 bits.
        index: u32,
        /// The base's epoch towards this mobile.
        epoch: u64,
    },
    /// The timestamp is not newer than an earlier one: the mobile's clock went back.
    Stale {
        /// The newest timestamp received.
        newest: u64,
    },
}

/// The mobile's handshake state between initiation and response.
pub(super) struct Initiation {
    state: HandshakeState,
    pub(super) message: [u8; INITIATION_LEN],
}

/// A first message with a valid code, worth decrypting.
#[derive(Clone, Copy)]
pub(super) struct CheckedInitiation<'a>(&'a [u8; SEALED_LEN]);

/// The base's handshake state: an initiation from the holder of a key.
pub(super) struct ReceivedInitiation {
    state: HandshakeState,
    /// The authenticated public key of the mobile.
    pub(super) key: LinkPublicKey,
    pub(super) timestamp: u64,
    pub(super) epoch: u64,
}

impl Initiation {
    /// Starts a handshake. The response will carry `index`, which is sent in clear. `None` if the system provides no
    /// random numbers or the base's key is invalid.
    pub(super) fn new(
        identity: &LinkIdentity,
        base: &LinkPublicKey,
        secret: Option<&SharedSecret>,
        timestamp: u64,
        epoch: u64,
        index: u32,
    ) -> Option<Initiation> {
        let mut state = builder(identity, &prologue(index))?.remote_public_key(&base.0).ok()?.build_initiator().ok()?;
        state.set_psk(PSK_PLACE, &psk(secret)).ok()?;
        let mut message = [0; INITIATION_LEN];
        let (sealed, place) = message.split_first_chunk_mut::<SEALED_LEN>()?;
        let mut question = [0; QUESTION];
        question[..8].copy_from_slice(&timestamp.to_be_bytes());
        question[8..].copy_from_slice(&epoch.to_be_bytes());
        let n = state.write_message(&question, sealed).ok()?;
        place.copy_from_slice(&code(base, sealed)?);
        (n == SEALED_LEN).then_some(Initiation { state, message })
    }

    /// Reads the response. A forged one returns `None` and changes nothing, because the authentic one may still
    /// arrive.
    pub(super) fn read(&mut self, message: &[u8]) -> Option<HandshakeResponse> {
        if message.len() != RESPONSE_LEN {
            return None;
        }
        let mut payload = [0; RESPONSE_LEN];
        let n = self.state.read_message(message, &mut payload).ok()?;
        HandshakeResponse::decode(payload.get(..n)?)
    }

    /// The session keys after [`HandshakeResponse::Welcome`].
    pub(super) fn finish(self) -> Option<StatelessTransportState> {
        self.state.into_stateless_transport_mode().ok()
    }
}

impl<'a> CheckedInitiation<'a> {
    /// `None` if the sender does not know the base's public key. Costs one hash. The code contains no secret, so the
    /// comparison need not be constant-time.
    pub(super) fn check(base: &LinkPublicKey, message: &'a [u8]) -> Option<CheckedInitiation<'a>> {
        let (sealed, theirs) = message.split_first_chunk::<SEALED_LEN>()?;
        (theirs.len() == CODE_LEN && theirs == code(base, sealed)?).then_some(CheckedInitiation(sealed))
    }
}

impl ReceivedInitiation {
    /// Decrypts a first message received with `index`; `None` if it was made for another base or index.
    pub(super) fn read(
        identity: &LinkIdentity,
        index: u32,
        question: CheckedInitiation<'_>,
    ) -> Option<ReceivedInitiation> {
        let mut state = builder(identity, &prologue(index))?.build_responder().ok()?;
        let mut payload = [0; SEALED_LEN];
        let n = state.read_message(question.0, &mut payload).ok()?;
        let (timestamp, epoch) = two_numbers(payload.get(..n)?)?;
        let key = LinkPublicKey(state.get_remote_static()?.try_into().ok()?);
        Some(ReceivedInitiation { state, key, timestamp, epoch })
    }

    /// The second message and the session keys.
    pub(super) fn answer(
        mut self,
        secret: Option<&SharedSecret>,
        answer: HandshakeResponse,
    ) -> Option<([u8; RESPONSE_LEN], StatelessTransportState)> {
        self.state.set_psk(PSK_PLACE, &psk(secret)).ok()?;
        let mut message = [0; RESPONSE_LEN];
        let n = self.state.write_message(&answer.encode(), &mut message).ok()?;
        let keys = self.state.into_stateless_transport_mode().ok()?;
        (n == RESPONSE_LEN).then_some((message, keys))
    }
}

impl HandshakeResponse {
    fn encode(self) -> [u8; ANSWER] {
        let (kind, value, epoch) = match self {
            HandshakeResponse::Welcome { index, epoch } => (WELCOME, u64::from(index), epoch),
            HandshakeResponse::Stale { newest } => (STALE, newest, 0),
        };
        let mut bytes = [kind; ANSWER];
        bytes[1..9].copy_from_slice(&value.to_be_bytes());
        bytes[9..].copy_from_slice(&epoch.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<HandshakeResponse> {
        let (kind, value) = bytes.split_first()?;
        let (value, epoch) = two_numbers(value)?;
        match *kind {
            WELCOME => Some(HandshakeResponse::Welcome { index: u32::try_from(value).ok()?, epoch }),
            STALE => Some(HandshakeResponse::Stale { newest: value }),
            _ => None,
        }
    }
}

/// Parses exactly two numbers of 64 bits.
fn two_numbers(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*first), u64::from_be_bytes(second.try_into().ok()?)))
}

/// HMAC-BLAKE2s, truncated, under a key derived from the base's public key.
fn code(base: &LinkPublicKey, sealed: &[u8; SEALED_LEN]) -> Option<[u8; CODE_LEN]> {
    let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s)?;
    let (mut key, mut code) = ([0; HASH_LEN], [0; HASH_LEN]);
    hash.input(CODE_LABEL);
    hash.input(&base.0);
    hash.result(&mut key);
    hash.hmac(&key, sealed, &mut code);
    code.first_chunk().copied()
}

fn builder<'a>(identity: &'a LinkIdentity, prologue: &'a [u8]) -> Option<Builder<'a>> {
    Builder::new(params()?).local_private_key(&identity.secret).ok()?.prologue(prologue).ok()
}

fn prologue(index: u32) -> Vec<u8> {
    [PROLOGUE, &index.to_be_bytes()].concat()
}

fn psk(secret: Option<&SharedSecret>) -> [u8; KEY_LEN] {
    secret.map_or([0; KEY_LEN], |s| s.0)
}

#[cfg(test)]
mod tests {
    use super::super::key::{generate, public_of};
    use super::*;

    fn identity() -> LinkIdentity {
        LinkIdentity::generate().unwrap()
    }

    fn open(base: &LinkIdentity, message: &[u8]) -> Option<ReceivedInitiation> {
        ReceivedInitiation::read(base, 3, CheckedInitiation::check(&base.public, message)?)
    }

    #[test]
    fn handshake_authenticates_both_ends() {
        let (mobile, base) = (identity(), identity());
        let secret = Some(SharedSecret([9; KEY_LEN]));
        let mut i = Initiation::new(&mobile, &base.public, secret.as_ref(), 42, 1 << 63, 3).unwrap();
        let hello = open(&base, &i.message).unwrap();
        assert_eq!((hello.key, hello.timestamp, hello.epoch), (mobile.public, 42, 1 << 63));
        let welcome = HandshakeResponse::Welcome { index: 7, epoch: u64::MAX };
        let (message, theirs) = hello.answer(secret.as_ref(), welcome).unwrap();
        assert!(message.len() < i.message.len(), "the base must not amplify");
        // A forged response first: it must not prevent the authentic one.
        assert_eq!(i.read(&[1; RESPONSE_LEN]), None);
        assert_eq!(i.read(&message), Some(welcome));
        let ours = i.finish().unwrap();
        let (mut sealed, mut open) = ([0; 64], [0; 64]);
        let n = ours.write_message(5, b"hello", &mut sealed).unwrap();
        assert_eq!(theirs.read_message(5, &sealed[..n], &mut open), Ok(5));
        assert!(theirs.read_message(6, &sealed[..n], &mut open).is_err(), "the counter is part of the seal");
    }

    #[test]
    fn wrong_keys_and_secrets_are_refused() {
        let (mobile, base, other) = (identity(), identity(), identity());
        let i = Initiation::new(&mobile, &other.public, None, 1, 1, 3).unwrap();
        assert!(CheckedInitiation::check(&base.public, &i.message).is_none(), "made for another base");
        let mut i = Initiation::new(&mobile, &base.public, None, 1, 1, 3).unwrap();
        let hello = open(&base, &i.message).unwrap();
        let (message, _) =
            hello.answer(Some(&SharedSecret([1; KEY_LEN])), HandshakeResponse::Stale { newest: 3 }).unwrap();
        assert_eq!(i.read(&message), None, "another shared secret");
        for at in 0..INITIATION_LEN {
            let mut damaged = i.message;
            damaged[at] ^= 1;
            assert!(CheckedInitiation::check(&base.public, &damaged).is_none(), "{at}");
        }
        let question = CheckedInitiation::check(&base.public, &i.message).unwrap();
        assert!(ReceivedInitiation::read(&base, 4, question).is_none(), "another index was put before it on the way");
        assert!(CheckedInitiation::check(&base.public, &i.message[1..]).is_none());
        assert!(CheckedInitiation::check(&base.public, &[]).is_none() && i.read(&[]).is_none());
    }

    #[test]
    fn valid_code_without_handshake_is_refused() {
        let base = identity();
        let sealed = [7; SEALED_LEN];
        let message = [&sealed[..], &code(&base.public, &sealed).unwrap()].concat();
        let question = CheckedInitiation::check(&base.public, &message).unwrap();
        assert!(ReceivedInitiation::read(&base, 3, question).is_none());
    }

    #[test]
    fn public_key_is_derived_from_secret() {
        let (secret, public) = generate().unwrap();
        assert_eq!(public_of(&secret), Some(public));
    }
}
