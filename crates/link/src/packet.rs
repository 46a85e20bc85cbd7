//! IP packets, classified by the host.

use bytes::Bytes;
use remora_wire::urgency::PROBE_DSCP;

/// An IP packet with its flow and class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The flow. Packets of one flow arrive in order and do not wait for other flows.
    pub flow: u64,
    /// The urgency class.
    pub class: Class,
    /// Whether the sender reacts to drops as congestion and repairs them soon, as TCP does. A dropped datagram costs a
    /// request-reply protocol a timeout, a dropped fragment the whole datagram, so these are dropped only at a much
    /// longer delay. They are kept in order only at acknowledgement delays of up to 100 ms.
    pub responsive: bool,
    /// The whole IP packet.
    pub bytes: Bytes,
}

/// Urgency of a packet, from its differentiated services code point (RFC 4594).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Class {
    /// Voice, control, network management: useless when late.
    Interactive,
    /// Packets without a special code point.
    #[default]
    Default,
    /// Background traffic that tolerates delay.
    Bulk,
    /// Reachability probes of an application. They are scheduled as [`Class::Default`] but expire sooner. Otherwise
    /// the probes repeated during an outage would all precede the data after it.
    Probe,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Class; 4] = [Class::Interactive, Class::Default, Class::Bulk, Class::Probe];

    /// The class of a packet with this code point (0 to 63; higher bits are ignored).
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
    fn dscp_maps_to_class_of_its_service() {
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
