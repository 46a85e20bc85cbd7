//! The contexts of the flows on a link: which the other end knows ([`Compressor`]), and which this
//! end was told ([`Decompressor`]). RFC 2507's words, with its methods made simple by the link's
//! acknowledgements.
//!
//! A context is *offered* with a packet whose headers are in full, until one that offered it is
//! acknowledged; then packets are brief. What cannot be read is not acknowledged, and whatever is
//! sent again has its headers in full and offers them, if it had a name at first: so nothing
//! depends on the other end remembering what it said it knows.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{CONTEXTS_MAX, Headers};

use crate::compression::headers::Context;

/// So many brief ones must be lost in a row before the other end is believed to have forgotten
/// their context: a burst of losses takes some.
const LOST_MAX: u32 = 8;

/// A context under its name, which may get another context later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    number: u8,
    /// How many contexts have had the number.
    turn: u32,
}

/// How a packet's headers went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Form {
    #[default]
    Full,
    Offered(Name),
    Brief(Name),
}

impl Form {
    /// As it stands in a frame.
    pub(crate) fn headers(self) -> Headers {
        match self {
            Form::Full => Headers::Full,
            Form::Offered(name) => Headers::Offered(name.number),
            Form::Brief(name) => Headers::Brief(name.number),
        }
    }
}

/// What is sent: the first chunk of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    /// It.
    pub(crate) bytes: &'a Bytes,
    /// The packet's length.
    pub(crate) total: usize,
    /// Whether it was sent before.
    pub(crate) again: bool,
}

/// The sending half.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compressor {
    told: Vec<Told>,
    /// Where the latest was found: most come in rows.
    latest: usize,
}

#[derive(Clone, Debug)]
struct Told {
    context: Context,
    turn: u32,
    is_known: bool,
    /// Brief ones lost since one arrived.
    lost: u32,
    used: Time,
}

impl Compressor {
    /// How a packet goes now, and its first chunk in that form. A name that was not used for as long as
    /// `quiet` may get another context: no packet with the old one is on its way any more.
    pub(crate) fn shape(&mut self, now: Time, start: Start<'_>, quiet: Duration) -> (Form, Bytes) {
        let Start { bytes, total, again } = start;
        let Some((context, brief)) = Context::shorten(bytes, total, total > bytes.len()) else {
            return (Form::Full, bytes.clone());
        };
        let Some(index) = self.find(now, context, quiet) else { return (Form::Full, bytes.clone()) };
        let told = &mut self.told[index];
        told.used = now;
        let name = Name { number: index as u8, turn: told.turn };
        if told.is_known && !again { (Form::Brief(name), brief) } else { (Form::Offered(name), bytes.clone()) }
    }

    /// The place of a context, which it is given if it has none and there is one.
    fn find(&mut self, now: Time, context: Context, quiet: Duration) -> Option<usize> {
        let is_it = |told: &Told| told.context == context;
        if self.told.get(self.latest).is_some_and(is_it) {
            return Some(self.latest);
        }
        let known = self.told.iter().position(is_it);
        self.latest = match known {
            Some(index) => index,
            None => {
                let mut new = Told { context, turn: 0, is_known: false, lost: 0, used: now };
                if self.told.len() < usize::from(CONTEXTS_MAX) {
                    self.told.push(new);
                    self.told.len() - 1
                } else {
                    let (index, oldest) = self.told.iter_mut().enumerate().min_by_key(|(_, told)| told.used)?;
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

    /// A packet that went in this form has arrived.
    pub(crate) fn arrived(&mut self, form: Form) {
        let (Form::Offered(name) | Form::Brief(name)) = form else { return };
        if let Some(told) = self.named(name) {
            // Where a brief one could be read the context is known still.
            (told.is_known, told.lost) = (true, 0);
        }
    }

    /// A packet that went in this form was lost, or could not be read.
    pub(crate) fn lost(&mut self, form: Form) {
        let Form::Brief(name) = form else { return };
        if let Some(told) = self.named(name) {
            told.lost = told.lost.saturating_add(1);
            told.is_known &= told.lost < LOST_MAX;
        }
    }

    /// The other end has begun anew, and knows none.
    pub(crate) fn forgotten(&mut self) {
        self.told.iter_mut().for_each(|told| told.is_known = false);
    }

    fn named(&mut self, name: Name) -> Option<&mut Told> {
        self.told.get_mut(usize::from(name.number)).filter(|told| told.turn == name.turn)
    }
}

/// The receiving half.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decompressor {
    /// By name.
    known: Vec<Option<Context>>,
}

impl Decompressor {
    /// The first chunk of a packet with its headers in full; `rest` if it is not the only one. `None` if it
    /// cannot be read.
    pub(crate) fn read(&mut self, headers: Headers, bytes: Bytes, rest: bool) -> Option<Bytes> {
        match headers {
            Headers::Full => Some(bytes),
            Headers::Offered(name) => {
                let index = usize::from(name.min(CONTEXTS_MAX - 1));
                if self.known.len() <= index {
                    self.known.resize(index + 1, None);
                }
                self.known[index] = Some(Context::of(&bytes)?);
                Some(bytes)
            }
            Headers::Brief(name) => self.known.get(usize::from(name))?.as_ref()?.restore(&bytes, rest),
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

    fn shape(compressor: &mut Compressor, at: u64, packet: &Bytes, again: bool) -> (Form, Bytes) {
        let start = Start { bytes: packet, total: packet.len(), again };
        compressor.shape(Time::from_millis(at), start, QUIET)
    }

    #[test]
    fn headers_are_brief_once_their_context_has_arrived() {
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        let packet = packet(700);
        let (offered, full) = shape(&mut compressor, 0, &packet, false);
        assert!(matches!(offered, Form::Offered(_)));
        assert_eq!(shape(&mut compressor, 1, &packet, false).0, offered, "nobody has said that it arrived");
        assert_eq!(decompressor.read(offered.headers(), full, false).unwrap(), packet);
        compressor.arrived(offered);
        let (form, brief) = shape(&mut compressor, 2, &packet, false);
        assert!(matches!(form, Form::Brief(_)));
        assert_eq!(brief.len(), 2 + 2 + 4);
        assert_eq!(decompressor.read(form.headers(), brief.clone(), false).unwrap(), packet);
        assert_eq!(shape(&mut compressor, 3, &packet, true), (offered, packet), "sent again it needs no context");
        assert_eq!(Decompressor::default().read(form.headers(), brief, false), None, "not told");
    }

    #[test]
    fn a_context_that_nobody_understands_is_offered_again() {
        let mut compressor = Compressor::default();
        let packet = packet(700);
        let (offered, _) = shape(&mut compressor, 0, &packet, false);
        compressor.arrived(offered);
        let (brief, _) = shape(&mut compressor, 0, &packet, false);
        for _ in 1..LOST_MAX {
            compressor.lost(brief);
        }
        assert_eq!(shape(&mut compressor, 0, &packet, false).0, brief);
        compressor.arrived(brief);
        compressor.lost(brief);
        assert_eq!(shape(&mut compressor, 0, &packet, false).0, brief);
        (0..LOST_MAX).for_each(|_| compressor.lost(brief));
        assert_eq!(shape(&mut compressor, 0, &packet, false).0, offered);
        compressor.arrived(offered);
        assert_eq!(shape(&mut compressor, 0, &packet, false).0, brief);
        compressor.forgotten();
        assert_eq!(shape(&mut compressor, 0, &packet, false).0, offered);
    }

    #[test]
    fn names_are_used_again_when_nothing_with_the_old_context_is_on_its_way() {
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        let names = u16::from(CONTEXTS_MAX);
        let forms: Vec<Form> =
            (0..names).map(|port| shape(&mut compressor, port.into(), &packet(port), false).0).collect();
        for (port, form) in (0..).zip(&forms) {
            decompressor.read(form.headers(), packet(port), false).unwrap();
            compressor.arrived(*form);
        }
        let (new, quiet) = (packet(9999), QUIET.as_millis() as u64);
        assert_eq!(shape(&mut compressor, quiet, &new, false).0, Form::Full, "all names are in use");
        shape(&mut compressor, quiet, &packet(0), false);
        let (offered, full) = shape(&mut compressor, quiet + 2, &new, false);
        assert_eq!(offered.headers(), Headers::Offered(1), "the one that was used least lately");
        compressor.arrived(forms[1]);
        assert_eq!(shape(&mut compressor, quiet + 2, &new, false).0, offered, "what arrived was another");
        compressor.arrived(offered);
        decompressor.read(offered.headers(), full, false).unwrap();
        let (brief, bytes) = shape(&mut compressor, quiet + 2, &new, false);
        assert_eq!(decompressor.read(brief.headers(), bytes, false).unwrap(), new);
        let (form, bytes) = shape(&mut compressor, quiet + 2, &packet(2), false);
        assert_eq!(decompressor.read(form.headers(), bytes, false).unwrap(), packet(2));
    }

    #[test]
    fn what_is_no_ip_packet_goes_as_it_is() {
        let noise = Bytes::from_static(&[9; 50]);
        assert_eq!(shape(&mut Compressor::default(), 0, &noise, false), (Form::Full, noise.clone()));
        assert_eq!(Decompressor::default().read(Headers::Offered(3), noise, false), None);
    }
}
