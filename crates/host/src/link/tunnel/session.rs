//! A session: keys for both directions, a counter without repetition, a replay window, and the data message.
//!
//! A data message has a header of 6 bytes, the encrypted frame and a tag of 16 bytes; at 1 Mbit/s each byte takes 8
//! us. The header needs no authentication: a wrong index selects other keys, a wrong counter another nonce, and
//! decryption fails.

use remora_base::Time;
use snow::StatelessTransportState;

use super::replay::Replay;

/// Bytes that header and tag add to a frame.
pub(in crate::link) const OVERHEAD: usize = HEADER + TAG;
/// Length of the header: kind and session index, and the lower bits of the counter, three bytes each.
pub(super) const HEADER: usize = 6;
const TAG: usize = 16;
/// Messages in one direction after which rekeying starts.
pub(super) const REKEY_AFTER: u64 = 1 << 31;
/// Most messages that one key encrypts in one direction.
const MESSAGES_MAX: u64 = REKEY_AFTER + (1 << 30);
/// Largest session index (23 bits).
pub(super) const INDEX_MAX: u32 = (1 << 23) - 1;
/// Flag in the first byte that marks a data message.
const DATA: u8 = 0x80;

/// The kind of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DatagramKind {
    /// The first message of a handshake.
    Initiation,
    /// The second message of a handshake.
    Response,
    /// An encrypted message of a session.
    Data,
}

impl DatagramKind {
    const HANDSHAKE: [(u8, DatagramKind); 2] = [(1, DatagramKind::Initiation), (2, DatagramKind::Response)];
}

/// Splits a datagram into its kind, its index and the rest.
pub(super) fn parse(datagram: &[u8]) -> Option<(DatagramKind, u32, &[u8])> {
    if let Some(([first, b, c], rest)) = datagram.split_first_chunk::<3>()
        && first & DATA != 0
    {
        return Some((DatagramKind::Data, u32::from_be_bytes([0, first & !DATA, *b, *c]), rest));
    }
    let (head, rest) = datagram.split_first_chunk::<4>()?;
    let kind = DatagramKind::HANDSHAKE.iter().find(|(code, _)| *code == head[0])?.1;
    Some((kind, u32::from_be_bytes([0, head[1], head[2], head[3]]), rest))
}

/// The first four bytes of a handshake datagram.
pub(super) fn head(kind: DatagramKind, index: u32) -> [u8; 4] {
    let code = DatagramKind::HANDSHAKE.iter().find(|(_, k)| *k == kind).map_or(0, |(code, _)| *code);
    let [_, a, b, c] = index.to_be_bytes();
    [code, a, b, c]
}

/// The header of a data message.
fn data_head(index: u32, counter: u64) -> [u8; HEADER] {
    let [_, a, b, c] = index.to_be_bytes();
    let [.., x, y, z] = counter.to_be_bytes();
    [DATA | a, b, c, x, y, z]
}

/// Keys and counters between this end and a peer.
pub(super) struct TunnelSession {
    keys: StatelessTransportState,
    /// The index carried by messages to this end.
    pub(super) ours: u32,
    /// The index carried by messages to the peer.
    pub(super) theirs: u32,
    pub(super) epoch: u64,
    /// When the keys were created.
    pub(super) born: Time,
    /// Messages encrypted so far, which is the next counter.
    sent: u64,
    replay: Replay,
}

/// A decrypted message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenedMessage {
    /// Length of the plain text in bytes.
    pub(super) len: usize,
    /// Whether it has the highest counter so far.
    pub(super) newest: bool,
}

/// Why a message was not decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OpenError {
    /// Its counter was received before, or is older than the window.
    Replayed,
    /// It is not authentic.
    Forged,
}

impl TunnelSession {
    /// A session with new keys and a peer of epoch `epoch`.
    pub(super) fn new(keys: StatelessTransportState, ours: u32, theirs: u32, epoch: u64, now: Time) -> TunnelSession {
        TunnelSession { keys, ours, theirs, epoch, born: now, sent: 0, replay: Replay::default() }
    }

    /// The datagram that carries `plain`; `None` at the limit of [`MESSAGES_MAX`].
    pub(super) fn seal(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        if self.sent >= MESSAGES_MAX {
            return None;
        }
        let counter = self.sent;
        self.sent += 1;
        let mut datagram = vec![0; plain.len() + OVERHEAD];
        let (header, body) = datagram.split_at_mut_checked(HEADER)?;
        header.copy_from_slice(&data_head(self.theirs, counter));
        self.keys.write_message(counter, plain, body).ok()?;
        Some(datagram)
    }

    /// Decrypts the part of a data message after kind and index into `plain`.
    pub(super) fn open(&mut self, rest: &[u8], plain: &mut [u8]) -> Result<OpenedMessage, OpenError> {
        let (&[x, y, z], body) = rest.split_first_chunk::<3>().ok_or(OpenError::Forged)?;
        if body.len() < TAG || body.len() > plain.len() {
            return Err(OpenError::Forged);
        }
        let counter = self.replay.expand(u32::from_be_bytes([0, x, y, z]));
        if !self.replay.is_new(counter) {
            return Err(OpenError::Replayed);
        }
        let len = self.keys.read_message(counter, body, plain).map_err(|_| OpenError::Forged)?;
        let newest = self.replay.is_newest(counter);
        self.replay.accept(counter);
        Ok(OpenedMessage { len, newest })
    }

    /// Whether any message was decrypted.
    pub(super) fn has_heard(&self) -> bool {
        self.replay.next() > 0
    }

    /// Whether the number of messages in either direction makes rekeying due. The base cannot initiate it.
    pub(super) fn is_worn(&self) -> bool {
        self.sent.max(self.replay.next()) >= REKEY_AFTER
    }

    /// Sets the number of encrypted messages.
    #[cfg(test)]
    pub(super) fn skip(&mut self, sent: u64) {
        self.sent = sent;
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::{CheckedInitiation, HandshakeResponse, Initiation, ReceivedInitiation};
    use super::super::key::LinkIdentity;
    use super::*;

    fn pair() -> (TunnelSession, TunnelSession) {
        let (mobile, base) = (LinkIdentity::generate().unwrap(), LinkIdentity::generate().unwrap());
        let mut i = Initiation::new(&mobile, &base.public, None, 1, 1, 1).unwrap();
        let hello =
            ReceivedInitiation::read(&base, 1, CheckedInitiation::check(&base.public, &i.message).unwrap()).unwrap();
        let (message, keys) = hello.answer(None, HandshakeResponse::Welcome { index: 2, epoch: 2 }).unwrap();
        i.read(&message).unwrap();
        (TunnelSession::new(i.finish().unwrap(), 1, 2, 2, Time::ZERO), TunnelSession::new(keys, 2, 1, 1, Time::ZERO))
    }

    fn open(session: &mut TunnelSession, datagram: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (kind, index, rest) = parse(datagram).unwrap();
        assert_eq!((kind, index), (DatagramKind::Data, session.ours));
        let mut plain = [0; 2048];
        session.open(rest, &mut plain).map(|o| plain[..o.len].to_vec())
    }

    #[test]
    fn replayed_message_is_refused() {
        let (mut mobile, mut base) = pair();
        let first = mobile.seal(b"first").unwrap();
        let second = mobile.seal(b"second").unwrap();
        assert_eq!(first.len(), 5 + OVERHEAD);
        assert_eq!(open(&mut base, &second).unwrap(), b"second");
        assert_eq!(open(&mut base, &first).unwrap(), b"first", "late is not replayed");
        assert_eq!(open(&mut base, &first), Err(OpenError::Replayed));
        assert_eq!(open(&mut base, &second), Err(OpenError::Replayed));
    }

    #[test]
    fn modified_message_is_refused() {
        let (mut mobile, mut base) = pair();
        let good = mobile.seal(b"x").unwrap();
        for i in 3..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 0x10;
            assert_eq!(open(&mut base, &bad), Err(OpenError::Forged), "byte {i}");
        }
        for n in 3..good.len() {
            assert_eq!(open(&mut base, &good[..n]), Err(OpenError::Forged), "{n} bytes");
        }
        assert_eq!(open(&mut base, &good).unwrap(), b"x");
    }

    #[test]
    fn counter_exceeds_header_bits() {
        let (mut mobile, mut base) = pair();
        // Steps below half of the lower range, as for a real counter.
        for sent in (0..REKEY_AFTER - 1).step_by(8_000_000).chain([REKEY_AFTER - 1]) {
            mobile.skip(sent);
            assert!(!base.is_worn());
            let message = mobile.seal(b"").unwrap();
            assert_eq!(open(&mut base, &message), Ok(Vec::new()));
        }
        assert!(mobile.is_worn());
        assert!(base.is_worn(), "by what it received");
        mobile.skip(MESSAGES_MAX);
        assert_eq!(mobile.seal(b"no more"), None);
    }

    #[test]
    fn malformed_datagram_is_not_parsed() {
        for bad in [&[][..], &[3], &[3, 0, 0, 0], &[0x83, 0], &[0, 0, 0, 0], &[9, 1, 1, 1]] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(parse(&head(DatagramKind::Response, INDEX_MAX)), Some((DatagramKind::Response, INDEX_MAX, &[][..])));
        assert_eq!(parse(&data_head(INDEX_MAX, 7)), Some((DatagramKind::Data, INDEX_MAX, &[0, 0, 7][..])));
    }
}
