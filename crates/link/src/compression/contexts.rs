//! Contexts of compressed flows: those the peer knows ([`Compressor`]) and those this end knows ([`Decompressor`]).
//! The terms are those of RFC 2507; the link's acknowledgements simplify its methods.
//!
//! A packet with full headers *offers* a context until one such packet is acknowledged; then the headers are
//! compressed (*brief*). A packet that cannot be decompressed is not acknowledged. A retransmission has full headers.
//! It offers the context again if the first transmission carried a context identifier, offered or brief. So correctness
//! does not depend on the peer keeping an acknowledged context.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{CONTEXTS_MAX, Headers};

use crate::compression::headers::Context;

/// Consecutive losses of compressed packets after which the peer's context counts as lost. A loss burst is shorter.
const LOST_MAX: u32 = 8;

/// A context identifier (CID), which is reused for other contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContextId {
    number: u8,
    /// How many contexts have used the number before.
    turn: u32,
}

/// How a packet's headers are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum HeaderForm {
    #[default]
    Full,
    Offered(ContextId),
    Brief(ContextId),
}

impl HeaderForm {
    /// The form as encoded in a frame.
    pub(crate) fn headers(self) -> Headers {
        match self {
            HeaderForm::Full => Headers::Full,
            HeaderForm::Offered(id) => Headers::Offered(id.number),
            HeaderForm::Brief(id) => Headers::Brief(id.number),
        }
    }
}

/// The first chunk of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstChunk<'a> {
    pub(crate) bytes: &'a Bytes,
    /// Length of the whole packet.
    pub(crate) total: usize,
    /// Whether it is a retransmission.
    pub(crate) again: bool,
}

/// Compresses headers for the peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compressor {
    contexts: Vec<TxContext>,
    /// Index of the latest context: packets of a flow often follow one another.
    latest: usize,
}

#[derive(Clone, Debug)]
struct TxContext {
    context: Context,
    turn: u32,
    is_known: bool,
    /// Compressed packets lost since the latest that arrived.
    lost: u32,
    used: Time,
}

impl Compressor {
    /// Chooses the form of a packet and returns its first chunk in that form. An identifier unused for `quiet` may be
    /// reused: no packet with its old context is in flight.
    pub(crate) fn compress(&mut self, now: Time, first: FirstChunk<'_>, quiet: Duration) -> (HeaderForm, Bytes) {
        let FirstChunk { bytes, total, again } = first;
        let Some((context, brief)) = Context::shorten(bytes, total, total > bytes.len()) else {
            return (HeaderForm::Full, bytes.clone());
        };
        let Some(index) = self.find(now, context, quiet) else { return (HeaderForm::Full, bytes.clone()) };
        let entry = &mut self.contexts[index];
        entry.used = now;
        let id = ContextId { number: index as u8, turn: entry.turn };
        if entry.is_known && !again { (HeaderForm::Brief(id), brief) } else { (HeaderForm::Offered(id), bytes.clone()) }
    }

    /// The index of a context. A new context gets a free identifier, if there is one.
    fn find(&mut self, now: Time, context: Context, quiet: Duration) -> Option<usize> {
        let is_it = |entry: &TxContext| entry.context == context;
        if self.contexts.get(self.latest).is_some_and(is_it) {
            return Some(self.latest);
        }
        let known = self.contexts.iter().position(is_it);
        self.latest = match known {
            Some(index) => index,
            None => {
                let mut new = TxContext { context, turn: 0, is_known: false, lost: 0, used: now };
                if self.contexts.len() < usize::from(CONTEXTS_MAX) {
                    self.contexts.push(new);
                    self.contexts.len() - 1
                } else {
                    let (index, oldest) = self.contexts.iter_mut().enumerate().min_by_key(|(_, entry)| entry.used)?;
                    if now.since(oldest.used) <= quiet {
                        return None;
                    }
                    new.turn = oldest.turn.wrapping_add(1);
                    *oldest = new;
                    index
                }
            }
        };
        Some(self.latest)
    }

    /// Records that a packet sent in this form was acknowledged.
    pub(crate) fn arrived(&mut self, form: HeaderForm) {
        let (HeaderForm::Offered(id) | HeaderForm::Brief(id)) = form else { return };
        if let Some(entry) = self.by_id(id) {
            // The peer decompressed it, so it has the context.
            (entry.is_known, entry.lost) = (true, 0);
        }
    }

    /// Records that a packet sent in this form was lost or could not be decompressed.
    pub(crate) fn lost(&mut self, form: HeaderForm) {
        let HeaderForm::Brief(id) = form else { return };
        if let Some(entry) = self.by_id(id) {
            entry.lost = entry.lost.saturating_add(1);
            entry.is_known &= entry.lost < LOST_MAX;
        }
    }

    /// Handles a restart of the peer: it has no contexts.
    pub(crate) fn forgotten(&mut self) {
        self.contexts.iter_mut().for_each(|entry| entry.is_known = false);
    }

    fn by_id(&mut self, id: ContextId) -> Option<&mut TxContext> {
        self.contexts.get_mut(usize::from(id.number)).filter(|entry| entry.turn == id.turn)
    }
}

/// Decompresses headers from the peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decompressor {
    /// Contexts by identifier.
    known: Vec<Option<Context>>,
}

impl Decompressor {
    /// Decompresses the first chunk of a packet. `rest` means that more chunks follow. `None` if the context is
    /// unknown or does not match.
    pub(crate) fn read(&mut self, headers: Headers, bytes: Bytes, rest: bool) -> Option<Bytes> {
        match headers {
            Headers::Full => Some(bytes),
            Headers::Offered(id) => {
                let index = usize::from(id.min(CONTEXTS_MAX - 1));
                if self.known.len() <= index {
                    self.known.resize(index + 1, None);
                }
                self.known[index] = Some(Context::of(&bytes)?);
                Some(bytes)
            }
            Headers::Brief(id) => self.known.get(usize::from(id))?.as_ref()?.restore(&bytes, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    const QUIET: Duration = Duration::from_secs(40);

    fn packet(port: u16) -> Bytes {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(port, 2049).write(&mut packet, b"call").unwrap();
        packet.into()
    }

    fn compress(compressor: &mut Compressor, at: u64, packet: &Bytes, again: bool) -> (HeaderForm, Bytes) {
        let first = FirstChunk { bytes: packet, total: packet.len(), again };
        compressor.compress(Time::from_millis(at), first, QUIET)
    }

    #[test]
    fn headers_are_compressed_after_context_is_acknowledged() {
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        let packet = packet(700);
        let (offered, full) = compress(&mut compressor, 0, &packet, false);
        assert!(matches!(offered, HeaderForm::Offered(_)));
        assert_eq!(compress(&mut compressor, 1, &packet, false).0, offered, "not acknowledged yet");
        assert_eq!(decompressor.read(offered.headers(), full, false).unwrap(), packet);
        compressor.arrived(offered);
        let (form, brief) = compress(&mut compressor, 2, &packet, false);
        assert!(matches!(form, HeaderForm::Brief(_)));
        assert_eq!(brief.len(), 2 + 2 + 4);
        assert_eq!(decompressor.read(form.headers(), brief.clone(), false).unwrap(), packet);
        assert_eq!(compress(&mut compressor, 3, &packet, true), (offered, packet), "a retransmission has full headers");
        assert_eq!(Decompressor::default().read(form.headers(), brief, false), None, "unknown context");
    }

    #[test]
    fn context_lost_by_peer_is_offered_again() {
        let mut compressor = Compressor::default();
        let packet = packet(700);
        let (offered, _) = compress(&mut compressor, 0, &packet, false);
        compressor.arrived(offered);
        let (brief, _) = compress(&mut compressor, 0, &packet, false);
        for _ in 1..LOST_MAX {
            compressor.lost(brief);
        }
        assert_eq!(compress(&mut compressor, 0, &packet, false).0, brief);
        compressor.arrived(brief);
        compressor.lost(brief);
        assert_eq!(compress(&mut compressor, 0, &packet, false).0, brief);
        (0..LOST_MAX).for_each(|_| compressor.lost(brief));
        assert_eq!(compress(&mut compressor, 0, &packet, false).0, offered);
        compressor.arrived(offered);
        assert_eq!(compress(&mut compressor, 0, &packet, false).0, brief);
        compressor.forgotten();
        assert_eq!(compress(&mut compressor, 0, &packet, false).0, offered);
    }

    #[test]
    fn context_id_is_reused_after_quiet_time() {
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        let ids = u16::from(CONTEXTS_MAX);
        let forms: Vec<HeaderForm> =
            (0..ids).map(|port| compress(&mut compressor, port.into(), &packet(port), false).0).collect();
        for (port, form) in (0..).zip(&forms) {
            decompressor.read(form.headers(), packet(port), false).unwrap();
            compressor.arrived(*form);
        }
        let (new, quiet) = (packet(9999), QUIET.as_millis() as u64);
        assert_eq!(compress(&mut compressor, quiet, &new, false).0, HeaderForm::Full, "all ids are in use");
        compress(&mut compressor, quiet, &packet(0), false);
        let (offered, full) = compress(&mut compressor, quiet + 2, &new, false);
        assert_eq!(offered.headers(), Headers::Offered(1), "the least recently used one");
        compressor.arrived(forms[1]);
        assert_eq!(compress(&mut compressor, quiet + 2, &new, false).0, offered, "acknowledgement of the old context");
        compressor.arrived(offered);
        decompressor.read(offered.headers(), full, false).unwrap();
        let (brief, bytes) = compress(&mut compressor, quiet + 2, &new, false);
        assert_eq!(decompressor.read(brief.headers(), bytes, false).unwrap(), new);
        let (form, bytes) = compress(&mut compressor, quiet + 2, &packet(2), false);
        assert_eq!(decompressor.read(form.headers(), bytes, false).unwrap(), packet(2));
    }

    #[test]
    fn non_ip_packet_is_sent_unchanged() {
        let noise = Bytes::from_static(&[9; 50]);
        assert_eq!(compress(&mut Compressor::default(), 0, &noise, false), (HeaderForm::Full, noise.clone()));
        assert_eq!(Decompressor::default().read(Headers::Offered(3), noise, false), None);
    }
}
