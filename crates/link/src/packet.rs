//! What the link carries: IP packets, already classified by the host.

use bytes::Bytes;
use remora_wire::urgency::PROBE_DSCP;

/// An IP packet and where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its flow: packets of one flow arrive in order, those of others do not wait for them.
    pub flow: u64,
    /// How urgent it is.
    pub class: Class,
    /// Whether its sender takes a drop as a sign to send less, and repairs it soon: TCP does.
    /// A datagram that is dropped costs a request and reply protocol a timeout, and a fragment
    /// costs the whole datagram, so those are dropped only when far too many wait. Order is kept
    /// among them only where that does not take long: on ways of up to 100 ms.
    pub responsive: bool,
    /// The whole packet.
    pub bytes: Bytes,
}

/// How urgent a packet is, from its differentiated services code point (RFC 4594).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Class {
    /// Voice, control, network management: worthless when late.
    Interactive,
    /// Everything that says nothing.
    #[default]
    Default,
    /// What says of itself that it can wait.
    Bulk,
    /// What asks whether the way is open: in its turn like everything that says nothing, but worth nothing once
    /// that has shown. Whoever asks again and again during an outage would find all of it before the data.
    Probe,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Class; 4] = [Class::Interactive, Class::Default, Class::Bulk, Class::Probe];

    /// The class of a packet with this code point (range: 0 to 63; the upper two bits of a
    /// larger number are not looked at).
    pub const fn from_dscp(dscp: u8) -> Class {
        match dscp & 0x3f {
            // CS4 to CS7, AF41 to AF43, VOICE-ADMIT, EF.
            32 | 34 | 36 | 38 | 40 | 44 | 46 | 48 | 56 => Class::Interactive,
            // LE (RFC 8622), CS1, AF11 to AF13.
            1 | 8 | 10 | 12 | 14 => Class::Bulk,
            PROBE_DSCP => Class::Probe,
            _ => Class::Default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_the_class_of_their_service() {
        for (dscp, class) in [
            (46, Class::Interactive),
            (34, Class::Interactive),
            (48, Class::Interactive),
            (0, Class::Default),
            (18, Class::Default), // AF21: what ssh sends; losing it late helps nobody
            (63, Class::Default),
            (3, Class::Probe),
            (8, Class::Bulk),
            (1, Class::Bulk),
            (10, Class::Bulk),
            (46 | 0xc0, Class::Interactive),
        ] {
            assert_eq!(Class::from_dscp(dscp), class, "{dscp}");
        }
    }
}
